"""Layers and containers of mxsame in place of Gluon's, for code that others wrote."""

import contextlib
import inspect

import mxsame
from mxsame._mxnet import mx


def with_arguments_of(theirs, ours):
    """The layer `ours` with the arguments of `theirs`, and what these are when they are left out."""
    signature = inspect.signature(theirs.__init__)

    def __init__(self, *args, **named):
        bound = signature.bind(self, *args, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        arguments = dict(arguments)
        ours.__init__(self, **arguments.pop("kwargs"), **arguments)

    return type(ours.__name__, (ours,), {"__init__": __init__, "__module__": __name__})


LAYERS = [name for name in mxsame.nn.__all__ if hasattr(mx.gluon.nn, name) and not name.startswith("Hybrid")]
THEIRS = {name: getattr(mx.gluon.nn, name) for name in (*LAYERS, "HybridSequential")}
OURS = {name: with_arguments_of(THEIRS[name], getattr(mxsame.nn, name)) for name in LAYERS}
globals().update(OURS)  # where pickle looks for them
OURS["HybridSequential"] = mxsame.nn.HybridSequential


@contextlib.contextmanager
def in_place():
    """Networks that are made in this context are of mxsame's layers."""
    try:
        vars(mx.gluon.nn).update(OURS)
        yield
    finally:
        vars(mx.gluon.nn).update(THEIRS)


def pytest_configure(config):
    """As a plugin of pytest (``-p in_place``): for the whole run, and networks derive from mxsame's HybridBlock."""
    vars(mx.gluon.nn).update(OURS)
    mx.gluon.HybridBlock = mxsame.nn.HybridBlock
