"""Layers and containers of mxsame in place of Gluon's, for code that others wrote: ``pytest -p in_place``, or import it first."""

import inspect

import mxsame
from mxsame._mxnet import mx


def with_defaults(ours, theirs):
    """The layer `ours` with the arguments, and what they are when left out, of `theirs`."""
    signature = inspect.signature(theirs.__init__)

    def __init__(self, *args, **named):
        bound = signature.bind(self, *args, **named)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        ours.__init__(self, **arguments.pop("kwargs"), **arguments)

    return type(ours.__name__, (ours,), {"__init__": __init__, "__module__": __name__})


for name in mxsame.nn.__all__:
    for module in (mx.gluon, mx.gluon.nn):
        if hasattr(module, name):
            ours, theirs = getattr(mxsame.nn, name), getattr(module, name)
            globals()[name] = ours if name.startswith("Hybrid") else with_defaults(ours, theirs)
            setattr(module, name, globals()[name])
