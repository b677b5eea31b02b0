"""The exact ways to run a convolution or pooling operator on MXNet.

Nothing here imports MXNet: code that runs a plan passes `F`, which is `mx.nd` or `mx.sym`.

`make_windows` makes a window for each axis; `STRATEGIES` is the table of ways to run windows; `exact_plans` gives the
exact ones. `mxsame.planner` chooses among them. The functions here check their arguments, and call those of the same
names in the files of this package, which do not.
"""

from __future__ import annotations

from typing import Any, ContextManager, List, Mapping, Optional, Sequence, Tuple

from mxsame import suggestions, validation
from mxsame.plan import exact, windows as geometry
from mxsame.plan.axis_plan import AxisPlan
from mxsame.plan.exact import Planned, current_strategy
from mxsame.plan.recipe import Plan
from mxsame.plan.strategies import OPERATORS, POOLS, STRATEGIES, Strategy
from mxsame.plan.windows import AnyWindow, Dims, Sizes, TransposedWindow, Window, Windows, check_static
from mxsame.types import ConvPadding

__all__ = [
    "OPERATORS",
    "POOLS",
    "STRATEGIES",
    "AxisPlan",
    "Plan",
    "Strategy",
    "TransposedWindow",
    "Window",
    "current_strategy",
    "exact_plans",
    "first_plan",
    "make_transposed_windows",
    "make_windows",
    "strategies_for",
    "use_strategy",
]
__dir__ = __all__.copy


@validation.check_arguments
def make_windows(
    size: Sizes,
    kernel_size: Dims,
    strides: Dims,
    dilation: Dims,
    padding: ConvPadding,
    *,
    pool: bool = False,
    ceil_mode: bool = False,
) -> Tuple[Window, ...]:
    """Returns a checked `Window` for each axis of a convolution or a pooling operator; `padding` is one of
    :func:`mxsame.ops.conv`, or of :func:`mxsame.ops.max_pool`.

    Raises `ValueError` if the padded input is shorter than the kernel, or if a window would read no element of data.

    >>> make_windows([7, None], (2, 3), (2, 1), (1, 1), "same")
    (Window(size=7, kernel_size=2, ...), Window(size=None, kernel_size=3, ...))
    """
    rank = _count_axes(size=size, kernel_size=kernel_size, strides=strides, dilation=dilation)
    if validation.flag("pool", pool):
        padding = validation.pooling_padding(padding, kernel_size)
    else:
        padding = validation.padding(padding, rank, causal=True)
    # Not cached: the arguments may be lists, or numbers that equal others.
    return geometry.make_windows.__wrapped__(size, kernel_size, strides, dilation, padding, pool, ceil_mode)


@validation.check_arguments
def make_transposed_windows(
    size: Sizes,
    kernel_size: Dims,
    strides: Dims,
    dilation: Dims,
    padding: ConvPadding,
    output_padding: Optional[Dims] = None,
) -> Tuple[TransposedWindow, ...]:
    """Returns a checked `TransposedWindow` for each axis; `padding` is one of :func:`mxsame.ops.conv_transpose`.

    Raises `ValueError` as `mxsame.padding.transposed_crops` does, and if nothing is left of the output.

    >>> make_transposed_windows((4,), (3,), (2,), (1,), "same", None)
    (TransposedWindow(size=4, kernel_size=3, stride=2, dilation=1, crop=(0, 1)),)
    """
    given = {"size": size, "kernel_size": kernel_size, "strides": strides, "dilation": dilation}
    rank = _count_axes(**given, **({} if output_padding is None else {"output_padding": output_padding}))
    padding = validation.padding(padding, rank)
    # Not cached, as above.
    return geometry.make_transposed_windows.__wrapped__(*given.values(), padding, output_padding)


def _count_axes(**given: Any) -> int:
    """Returns the number of axes, for each of which all arguments must have an entry."""
    fits = all(map(validation.is_sequence, given.values())) and len(set(map(len, given.values()))) == 1
    validation.check(fits, "all must have one entry per axis", **given)
    rank = len(given["size"])
    validation.check(rank in validation.LAYOUTS, "there must be 1, 2 or 3 axes", **given)
    return rank


def checked_windows(windows: Any, operator: str) -> Windows:
    """Returns windows as a tuple. Raises a `TypeError` unless they are a sequence of the operator's windows, and a
    `ValueError` unless there are 1 to 3 of them, and every output reads an element of the data."""
    kind = TransposedWindow if operator == "transposed" else Window
    fits = isinstance(windows, (list, tuple)) and windows and all(isinstance(each, kind) for each in windows)
    rule = f"windows must be a sequence of Window or TransposedWindow, of {kind.__name__} for operator={operator!r}"
    validation.check_type(fits, rule, windows=windows)
    rule = "windows must have one entry for each of 1, 2 or 3 axes"
    validation.check(len(windows) in validation.LAYOUTS, rule, windows=len(windows))
    check_static(tuple(windows), operator not in ("conv", "transposed"))
    return tuple(windows)


@validation.check_arguments
def strategies_for(operator: str) -> Tuple[str, ...]:
    """Return the names of the strategies for an operator, in the order of the table.

    >>> strategies_for("max")
    ('native', 'full', 'slice', 'concat', 'pad', 'pick', 'gather')
    """
    is_known = isinstance(operator, str) and operator in OPERATORS
    validation.check(is_known, f"operator must be one of {', '.join(OPERATORS)}", operator=operator)
    return exact.strategies_for(operator)


@validation.check_arguments
def exact_plans(
    windows: Sequence[AnyWindow], operator: str, allowed: Optional[Sequence[str]] = None
) -> Mapping[str, Plan]:
    """Return all exact plans as a mapping from strategy to plan, in the order of `allowed`.

    In all of them, an axis for which "native" is exact runs natively. An axis for which the strategy is not exact runs
    by the first one that is. If all axes run natively, there is only "native". If some plans reject data that is too
    short for the windows, only those plans are returned.

    Parameters
    ----------
    windows : sequence of Window or TransposedWindow
    operator : str
        One of `OPERATORS`.
    allowed : sequence of str, optional
        Names of strategies; all that support the operator by default.

    Raises
    ------
    ValueError
        For a stride above 4096 along an axis of dynamic size.

    Examples
    --------
    >>> list(exact_plans((Window(8, 3, 2),), "conv", ("native", "slice", "concat")))
    ['slice', 'concat']
    >>> list(exact_plans((Window(7, 3, 2),), "conv"))
    ['native']
    """
    allowed = checked_allowed(allowed, operator)
    return exact.exact_plans(checked_windows(windows, operator), operator, allowed)


@validation.check_arguments
def first_plan(windows: Sequence[AnyWindow], operator: str, allowed: Optional[Sequence[str]] = None) -> Plan:
    """Return the first exact plan, or that of the strategy set by :func:`use_strategy`. Raises `ValueError` if there is
    none.

    >>> odd, even = first_plan([Window(7, 3, 2), Window(8, 3, 2)], "conv").axes
    >>> odd == AxisPlan(3, pad=1), even == AxisPlan(3, pad=2, crop=(1, 0))
    (True, True)
    >>> first_plan([Window(7, 2, 2)], "max")
    Plan(axes=(AxisPlan(kernel_size=2, ...),), convention='full', ...)
    """
    allowed = exact.narrowed(checked_allowed(allowed, operator))
    return exact.recorded(exact.first_plan(checked_windows(windows, operator), operator, allowed), operator)


def checked_allowed(allowed: Any, operator: str) -> Tuple[str, ...]:
    """Returns names of strategies as a tuple; for None, all that support the operator."""
    served = strategies_for(operator)
    if allowed is None:
        return served
    fits = isinstance(allowed, (list, tuple)) and all(isinstance(name, str) and name in STRATEGIES for name in allowed)
    validation.check(fits, f"allowed must be a sequence of names among {', '.join(STRATEGIES)}", allowed=allowed)
    return tuple(allowed)


@validation.check_arguments
def use_strategy(strategy: Optional[str]) -> ContextManager[List[Planned]]:
    """Build graphs with this strategy within the `with` block, for tests and experiments; None leaves the choice to the
    planner.

    Operators that the strategy does not support, and those that need only MXNet's own padding, are not affected:
    the `with` target is a list of the operators planned in the block and their strategies. What was built
    within an earlier block of the same strategy is not planned again.

    Raises `ValueError` for a name that is not in :data:`STRATEGIES`; in the block, building a layer for which the
    strategy is not exact does.

    >>> with use_strategy("slice") as planned:
    ...     first_plan([Window(224, 7, 2)], "conv").axes == (AxisPlan(kernel_size=7, pad=4, crop=(1, 0)),)
    ...     _ = first_plan([Window(225, 7, 2)], "conv")
    True
    >>> planned
    [Planned(operator='conv', strategy='slice'), Planned(operator='conv', strategy='native')]
    """
    if not (strategy is None or (isinstance(strategy, str) and strategy in STRATEGIES)):
        rule = f"strategy must be one of {', '.join(STRATEGIES)}{suggestions.did_you_mean(strategy, STRATEGIES)}"
        raise validation.InvalidValue(f"{rule}; {validation.received(strategy=strategy)}")
    return exact.use_strategy(strategy)


force = use_strategy  # its name before, for scripts that measure older checkouts, too
