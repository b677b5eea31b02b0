"""The steps by which a device is tried: MXNet's own operators, every strategy of mxsame, a net. Plain Python."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from mxsame.plan import AVERAGE, CONVOLUTION, MAXIMUM, TRANSPOSED_STRATEGIES, Window, exact_plans

KERNEL_SIZE, STRIDE, SIZE = 3, 2, 8  # of the plans: padded at one end only
POOLS = {"pads_below_kernel": True, "trim": True}  # the rules of `exact_plans` for poolings
FAMILIES = {"conv": CONVOLUTION, "max": MAXIMUM, "avg": AVERAGE, "transposed": TRANSPOSED_STRATEGIES}
DEPLOYED = "a deployed net"
WORDS = {"conv": "convolution", "max": "max pooling", "avg": "average pooling", "transposed": "transposed convolution"}


class Step(NamedTuple):
    """One operator, run by one strategy; `window` is that of both axes, and its size may be unknown to the graph."""

    operator: str
    strategy: str
    window: Window
    groups: int = 1
    gradients: bool = True


def operators() -> Dict[str, Step]:
    """MXNet's own, padded alike at both ends."""
    odd = Window(SIZE - 1, KERNEL_SIZE, STRIDE)
    return {
        "convolution": Step("conv", "native", odd, gradients=False),
        "gradient of a convolution": Step("conv", "native", odd),
        "depthwise convolution": Step("conv", "native", odd, groups=8, gradients=False),
        "max pooling": Step("max", "native", odd),
        "average pooling": Step("avg", "native", odd),
        "transposed convolution": Step("transposed", "cut", Window(SIZE, KERNEL_SIZE + 1, STRIDE)),
    }


def plans() -> Dict[str, Step]:
    """Every strategy where it is exact, for a window that needs one."""
    return {
        f"{WORDS[operator]}, {strategy}": Step(operator, strategy, window)
        for operator, family in FAMILIES.items()
        for strategy in family
        for window in [_window(operator, strategy)]
        if window is not None and strategy != "native"
    }


def _window(operator: str, strategy: str) -> Optional[Window]:
    """Where the strategy is exact: at a size that is known, or else for all sizes."""
    windows: Tuple[Window, ...] = (Window(SIZE, KERNEL_SIZE, STRIDE), Window(None, KERNEL_SIZE, STRIDE))
    if operator == "transposed":
        return windows[0]
    rules = POOLS if operator in ("max", "avg") else {}
    for window in windows:
        if strategy in exact_plans((window, window), FAMILIES[operator], only=strategy, **rules):
            return window
    return None
