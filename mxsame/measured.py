"""The plans that were measured to be the fastest, in this process and in files. They go before every estimate."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from mxsame import validation
from mxsame.plan import STRATEGIES, TransposedWindow, Window
from mxsame.plan.windows import AnyWindow

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["Work", "forget", "load", "recall", "remember", "save"]

FORMAT = "mxsame plans 2"


Windows = Tuple[AnyWindow, ...]


@dataclass(frozen=True)
class Work:
    """What an operator has to do, apart from its windows; None for what is unknown.

    Parameters
    ----------
    operator : str
        A key of `mxsame.plan.OPERATORS`: "conv", "transposed", "max", "avg", ..
    batch, in_channels, channels : int, optional
    groups : int
    plain : bool
        The data is an input of the graph, so it comes without blocks.
    purpose : "inference", "training" or "deployment"
        With the last, what depends on parameters alone is computed beforehand.
    device : "cpu" or "gpu"

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


Choices = Dict[Tuple[Windows, Work], str]  # the strategy, by windows and work

_MEASURED: Choices = {}
_changes = 0


def changes() -> int:
    """How often what is remembered has changed.

    >>> before = changes()
    >>> remember([Window(8, 3, 2)], Work("conv", 1, 64, 64), "concat")
    >>> forget()
    >>> changes() - before
    2
    """
    return _changes


def _changed() -> None:
    global _changes
    _changes += 1


def recall(windows: Sequence[AnyWindow], work: Work) -> Optional[str]:
    """The strategy that was measured to be the fastest, if one was.

    >>> recall([Window(8, 3, 2)], Work("conv", 1, 64, 64)) is None
    True
    """
    return _MEASURED.get((tuple(windows), work))


def remember(windows: Sequence[AnyWindow], work: Work, strategy: str) -> None:
    """From now on this strategy is chosen, in this process.

    >>> from mxsame.plan import AxisPlan, Plan
    >>> from mxsame.planner import choose
    >>> window, work = Window(8, 3, 2), Work("conv", 1, 64, 64)
    >>> remember([window], work, "concat")
    >>> choose([window], work) == Plan((AxisPlan(3, concat=(0, 1)),))
    True
    >>> forget()
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}; {validation.received(strategy=strategy)}")
    _MEASURED[tuple(windows), work] = strategy
    _changed()


def forget() -> None:
    """Forget all that was measured.

    >>> remember([Window(8, 3, 2)], Work("conv", 1, 64, 64), "concat")
    >>> forget()
    >>> recall([Window(8, 3, 2)], Work("conv", 1, 64, 64)) is None
    True
    """
    _MEASURED.clear()
    _changed()


def save(path: str) -> None:
    """Write what was measured, as JSON, for :func:`load`.

    A file of plans that exists keeps its other entries, and its mode: processes that save into one file at the same
    time take turns. `ValueError` for a file that is none of `save`'s.

    >>> import os, tempfile
    >>> window, work = Window(8, 3, 2), Work("conv", 1, 64, 64)
    >>> remember([window], work, "concat")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "plans.json")
    ...     save(path)
    ...     forget()
    ...     load(path)
    >>> recall([window], work)
    'concat'
    >>> forget()
    """
    path = os.path.realpath(path)
    with _locked(os.path.dirname(path)):
        exists = os.path.exists(path)
        choices = {**(_read(path) if exists else {}), **_MEASURED}
        entries = [
            {"windows": [asdict(window) for window in windows], "work": asdict(work), "strategy": strategy}
            for (windows, work), strategy in choices.items()
        ]
        part = f"{path}.{uuid.uuid4().hex}.part"
        try:
            with open(part, "x", encoding="utf-8") as file:
                json.dump({"format": FORMAT, "measured": entries}, file, indent=1)
            if exists:
                os.chmod(part, stat.S_IMODE(os.stat(path).st_mode))
            os.replace(part, path)  # never half a file
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """One process at a time saves in a folder. The folder is locked, as a file that is replaced cannot be; some file
    systems of networks refuse that, and then processes do not wait for each other."""
    descriptor = os.open(folder, os.O_RDONLY) if fcntl else None
    try:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # and with it the lock


def load(path: str) -> None:
    """Remember what another process has measured and saved; `ValueError` for a file that is none of `save`'s.

    What is remembered already stays, unless the file has another strategy for the same.

    >>> load("setup.py")
    Traceback (most recent call last):
    ValueError: path must be a file that mxsame has saved plans in (...); received path='setup.py'
    """
    _MEASURED.update(_read(path))
    _changed()


def _read(path: str) -> Choices:
    """What a file holds."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["format"] != FORMAT:
            raise ValueError(f"{content['format']!r} instead of {FORMAT!r}: delete the file and measure again")
        return dict(map(_entry, content["measured"]))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"path must be a file that mxsame has saved plans in ({error!r}); {validation.received(path=path)}"
        ) from None


def _entry(entry: Any) -> Tuple[Tuple[Windows, Work], str]:
    """What was measured, as `save` writes it; JSON has no tuples."""
    windows = tuple(map(_window, entry["windows"]))
    work, strategy = Work(**entry["work"]), entry["strategy"]
    _check_types(int, work.batch or 1, work.in_channels or 1, work.channels or 1, work.groups)
    _check_types(str, work.operator, work.purpose, work.device)
    if strategy not in STRATEGIES:
        raise ValueError(strategy)
    return (windows, work), strategy


def _window(entry: Any) -> AnyWindow:
    window: AnyWindow
    if "crop" in entry:
        window = TransposedWindow(**entry)
        window = replace(window, crop=_pair(window.crop))
    else:
        window = Window(**entry)
        _check_types(bool, window.ceil_mode)
        if not isinstance(window.padding, str):
            window = replace(window, padding=_pair(window.padding))
    _check_types(int, window.kernel_size, window.stride, window.dilation, window.size or 1)
    return window


def _pair(numbers: Any) -> Tuple[int, int]:
    first, second = numbers
    _check_types(int, first, second)
    return first, second


def _check_types(kind: type, *values: Any) -> None:
    for value in values:
        if type(value) is not kind:
            raise TypeError(value)
