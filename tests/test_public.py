"""What is public is what DESIGN says, and every public docstring has an example, which the doctests run."""

from __future__ import annotations

import inspect
import sys

import pytest

import mxsame
import mxsame.keras
from mxsame._mxnet import mx
from mxsame.keras import backend, layouts, ops

gluon = mx.gluon

ROOMS = [
    *(mxsame, mxsame.nn, mxsame.ops, mxsame.padding, mxsame.plan, mxsame.planner, mxsame.graph),
    *(sys.modules[mxsame.autotune.__module__], mxsame.keras, backend, layouts, ops),
]
PUBLIC = [
    (f"{room.__name__}.{name}", getattr(room, name))
    for room in ROOMS
    for name in room.__all__
    if callable(getattr(room, name))
]


@pytest.mark.parametrize(("name", "thing"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_public_docstring_has_an_example(name, thing):
    assert ">>>" in (inspect.getdoc(thing) or ""), name


def test_layers_and_operators_are_all_there():
    ranks = (1, 2, 3)
    kinds = ("Conv{}D", "Conv{}DTranspose", "DepthwiseConv{}D", "SeparableConv{}D", "MaxPool{}D", "AvgPool{}D")
    assert set(mxsame.nn.__all__) == {kind.format(rank) for kind in kinds for rank in ranks}
    operators = {"conv", "depthwise_conv", "separable_conv", "conv_transpose", "max_pool", "avg_pool"}
    assert set(mxsame.ops.__all__) == operators


def arguments(module, name):
    return [name for name in inspect.signature(getattr(module, name).__init__).parameters if name != "kwargs"]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv{}D", "Conv{}DTranspose"])
def test_convolutions_take_arguments_in_the_order_of_gluon(kind, rank):
    """So that positional code moves over unchanged; ours may go on where gluon's ends."""
    theirs = arguments(gluon.nn, kind.format(rank))
    assert arguments(mxsame.nn, kind.format(rank))[: len(theirs)] == theirs


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["MaxPool{}D", "AvgPool{}D"])
def test_poolings_take_arguments_in_the_order_of_gluon_as_far_as_it_has_one(kind, rank):
    """After the padding, gluon's poolings of different rank disagree on the place of layout and ceil_mode."""
    name = kind.format(rank)
    assert (
        arguments(mxsame.nn, name)[:4] == arguments(gluon.nn, name)[:4] == ["self", "pool_size", "strides", "padding"]
    )
    assert set(arguments(gluon.nn, name)) <= set(arguments(mxsame.nn, name))
    misplaced = (True,) if kind.startswith("Max") else ("NCHW",)
    with pytest.raises(TypeError, match=r"(layout must be a string|ceil_mode must be True or False)"):
        getattr(mxsame.nn, name)(2, 2, "same", *misplaced)


def test_version_stands_in_one_place():
    from importlib.metadata import PackageNotFoundError, version

    try:
        assert version("mxsame") == mxsame.__version__
    except PackageNotFoundError:
        assert mxsame.__version__  # run from a checkout that is not installed
