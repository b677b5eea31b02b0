"""The plans that were measured to be the fastest, in this process or in one that wrote a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from mxsame.plan import STRATEGIES
from mxsame.plan.windows import AnyWindow

__all__ = ["Windows", "Work", "add", "changes", "everything", "fastest", "forget", "prefer"]

Windows = Tuple[AnyWindow, ...]


@dataclass(frozen=True)
class Work:
    """What an operator has to do, apart from its windows; None means unknown.

    Parameters
    ----------
    operator : str
        One of `mxsame.plan.OPERATORS`: "conv", "transposed", "max", "avg", ..
    batch, in_channels, channels : int, optional
    groups : int
    plain : bool
        The data is an input of the graph, so it is not in oneDNN's blocks.
    purpose : "inference", "training" or "deployment"
        For deployment, whatever depends only on parameters is computed beforehand.
    device : "cpu" or "gpu"
    in_blocks : bool
        The data has one spatial axis and is in oneDNN's blocks, like a convolution's output.
    pairs, blocks : bool
        Whether a pooling operator can take its data in pairs of channels, and in oneDNN's blocks.

    Examples
    --------
    >>> Work("conv", batch=8, in_channels=3, channels=64, plain=True).groups
    1
    """

    operator: str
    batch: Optional[int] = None
    in_channels: Optional[int] = None
    channels: Optional[int] = None
    groups: int = 1
    plain: bool = False
    purpose: str = "inference"
    device: str = "cpu"
    in_blocks: bool = False
    pairs: bool = False
    blocks: bool = False


_MEASURED: dict[str, str] = {}  # the strategy by windows and work, as `_key` writes them
_changes = 0


def _key(windows: Windows, work: Work) -> str:
    return f"{windows} {work}"


def changes() -> int:
    """How often the measured plans have changed."""
    return _changes


def _changed() -> None:
    global _changes
    _changes += 1


def fastest(windows: Windows, work: Work) -> Optional[str]:
    """The strategy that was measured to be the fastest, if one was."""
    return _MEASURED.get(_key(windows, work)) if _MEASURED else None


def prefer(windows: Windows, work: Work, strategy: Optional[str]) -> None:
    """Record this strategy as the fastest, in this process; None removes the record.

    >>> from mxsame.plan import Window
    >>> windows, work = (Window(8, 3, 2),), Work("conv", 1, 64, 64)
    >>> prefer(windows, work, "concat")
    >>> fastest(windows, work)
    'concat'
    >>> prefer(windows, work, None)
    """
    if strategy is None:
        _MEASURED.pop(_key(windows, work), None)
    else:
        _MEASURED[_key(windows, work)] = strategy
    _changed()


def forget() -> None:
    """Forget what `mxsame.autotune` has measured, or has read from files.

    >>> forget()
    """
    _MEASURED.clear()
    _changed()


def everything() -> dict[str, str]:
    """All measured plans, for a file.

    >>> everything()
    {}
    """
    return dict(_MEASURED)


def add(plans: dict[str, str]) -> None:
    """Add what :func:`everything` returned in another process.

    >>> add({"windows and work": "fast"})
    Traceback (most recent call last):
    ValueError: plans must be of strategies; received ['fast']
    """
    unknown = [strategy for strategy in plans.values() if strategy not in STRATEGIES]
    if unknown:
        raise ValueError(f"plans must be of strategies; received {unknown}")
    _MEASURED.update(plans)
    _changed()
