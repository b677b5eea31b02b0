"""What long functions report while they run: a stage by its name, and how many of its parts are done."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any, Callable, Collection, Iterator, Optional, TypeVar, cast

from mxsame import validation

Function = TypeVar("Function", bound=Callable[..., Any])
Part = TypeVar("Part")
Progress = Callable[[str, int, int], Any]

_RECEIVER: ContextVar[Optional[Progress]] = ContextVar("progress", default=None)


def reported(function: Function) -> Function:
    """Decorates a function: during a call, `report` calls the argument `progress`, or without it, the caller's."""

    @functools.wraps(function)
    def wrapper(*args: Any, progress: Optional[Progress] = None, **arguments: Any) -> Any:
        if progress is None:
            return function(*args, **arguments)
        rule = "progress must be a function of (stage, done, total), such as print"
        validation.check_type(callable(progress), rule, progress=progress)
        token = _RECEIVER.set(_print_line if progress is print else progress)
        try:
            return function(*args, **arguments)
        finally:
            _RECEIVER.reset(token)

    return cast(Function, wrapper)


def line(stage: str, done: int, total: int) -> str:
    """Returns the text that `progress=print` and `mxsame convert` show.

    >>> line("building layers", 3, 20), line("reading", 0, 1)
    ('building layers 3 of 20', 'reading ..')
    """
    return f"{stage} {done} of {total}" if total > 1 else f"{stage} .."


def _print_line(stage: str, done: int, total: int) -> None:
    if total > 1 or not done:  # a stage of one part is printed when it starts
        print(line(stage, done, total))


def report(stage: str, done: int = 0, total: int = 1) -> None:
    """Reports that a stage starts (`done` is 0), or how many of its parts are done."""
    receiver = _RECEIVER.get()
    if receiver is not None:
        receiver(stage, done, total)


def reporting(stage: str, parts: Collection[Part]) -> Iterator[Part]:
    """Yields the parts of a stage, and reports when it starts, and when each of them is done."""
    for number, part in enumerate(parts):
        report(stage, number, len(parts))
        yield part
    report(stage, len(parts), len(parts))
