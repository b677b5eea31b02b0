"""What a graph is built for: one record, which all of mxsame reads while operators become part of a graph.

An operator on arrays sees their shapes, their device and whether autograd records. An operator on Symbols sees none of
that, so code that traces a net records it here, with :func:`building`, for the time of a `with` block. Nothing else in
mxsame is a context variable.
"""

from __future__ import annotations

import contextlib
import contextvars
from dataclasses import dataclass, replace
from typing import Any, Iterator, Optional

__all__ = ["CELL", "NOTE", "NOTHING", "Building", "building", "current"]

NOTE, CELL = "__windows__", "__cell__"


@dataclass(frozen=True)
class Building:
    """What the graph under construction is built for.

    Parameters
    ----------
    purpose : "inference", "training" or "deployment", optional
        As in :class:`mxsame.planner.Work`; None if the graph may be used for anything, and is planned for inference.
    device : "cpu" or "gpu", optional
        That of MXNet's current context if None.
    gradients : bool
        Whether gradients flow although the purpose is inference (saliency maps): oneDNN's max pooling keeps nothing
        for a backward pass then.
    exported : bool
        The graph is for a file, and for inference: noise that is only there in training is left out. The operators may
        still be trained.
    windows_noted : bool
        The graph is made to be written in another format, and never run: each operator is one node. Windows that its
        own attributes do not show are in the attribute `NOTE`, which the nodes around it have as well: these only give
        data and output the right shape. Formulas of a recurrent layer that MXNet's operator does not have are in its
        attribute `CELL`.
    strategy : str, optional
        The one that :func:`mxsame.plan.force` asks for.
    decisions : list, optional
        Collects a :class:`mxsame.planner.Decision` from each operator.
    placeholders : list, optional
        Collects a :class:`mxsame.placeholders.Placeholder` from each operator, which is then lowered later.
    """

    purpose: Optional[str] = None
    device: Optional[str] = None
    gradients: bool = False
    exported: bool = False
    windows_noted: bool = False
    strategy: Optional[str] = None
    decisions: Optional[list[Any]] = None
    placeholders: Optional[list[Any]] = None


NOTHING = Building()  # operators on arrays, or on Symbols that other code traces
_CURRENT: contextvars.ContextVar[Building] = contextvars.ContextVar("mxsame_building", default=NOTHING)


def current() -> Building:
    """The current record.

    >>> current().windows_noted
    False
    """
    return _CURRENT.get()


@contextlib.contextmanager
def building(**changes: Any) -> Iterator[Building]:
    """Changes these fields of the record within the `with` block, in this thread.

    >>> with building(purpose="training") as record:
    ...     record is current(), current().purpose
    (True, 'training')
    """
    token = _CURRENT.set(replace(_CURRENT.get(), **changes))
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)
