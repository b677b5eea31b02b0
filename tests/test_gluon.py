"""Gluon's private names: one file uses them, and MXNet still has them."""

import ast
from pathlib import Path

import pytest

import mxsame
from mxsame import _gluon
from mxsame._mxnet import mx

PACKAGE = Path(mxsame.__file__).parent
HOME = PACKAGE / "_gluon.py"


def names_of_gluon():
    """The private names of blocks and parameters, from a block that was hybridized and called."""
    net = called()
    kinds = (mx.gluon.Block, mx.gluon.HybridBlock, mx.gluon.SymbolBlock, mx.gluon.Parameter, mx.gluon.ParameterDict)
    things = (*kinds, net, net.weight, net.params)
    return {name for thing in things for name in dir(thing) if name.startswith("_") and not name.startswith("__")}


def called():
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 3)))
    return net


def private_names(path):
    """The private attributes that a file takes from something other than `self`, `cls` and modules of mxsame."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield node.attr


GLUONS = set(private_names(HOME)) - {"_set_attr", "_gluon", "_mxnet"}
OTHERS = {"_build_cache", "_cached_op", "_cached_op_args", "_call_cached_op", "_get_graph", "_in_format", "_out_format"}
OURS = {"_data"}  # a class of mxsame may have this name for itself


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_one_file_uses_private_names_of_gluon(path):
    if path != HOME:
        assert not set(private_names(path)) & (GLUONS | OTHERS) - OURS


def test_mxnet_has_the_names():
    assert {"_children", "_active"} <= GLUONS and names_of_gluon() >= GLUONS
    assert hasattr(mx.sym.Symbol, "_set_attr")


def test_they_mean_what_they_meant():
    net = called()
    assert _gluon.is_hybridized(net) and _gluon.graph(net).list_arguments() == ["data", net.weight.name, net.bias.name]
    assert _gluon.own_parameters(net) == {"weight": net.weight, "bias": net.bias}
    assert _gluon.is_initialised(net.weight) and not _gluon.is_deferred(net.weight)
    _gluon.clear_graph(net)
    with pytest.raises(RuntimeError, match=r"Please first call block\.hybridize"):
        net.export("net")

    heard = []
    _gluon.on_change(net, lambda: heard.append("changed"))
    net.cast("float32")
    _gluon.changed(net)
    _gluon.off_change(net)
    net.cast("float32")
    assert heard == ["changed", "changed"]


def test_all_parameters_in_gluon_s_order():
    parent = mx.gluon.nn.HybridSequential()
    shared = mx.gluon.nn.Dense(3)
    parent.add(shared, mx.gluon.nn.BatchNorm(), shared, mx.gluon.nn.Dense(3, params=shared.params))
    assert list(_gluon.parameters(parent).items()) == list(parent.collect_params().items())
    assert _gluon.children(parent) == list(parent)


def test_deferred_parameters():
    layer = mx.gluon.nn.Dense(2)
    assert not _gluon.is_deferred(layer.weight)
    layer.initialize()
    assert _gluon.is_deferred(layer.weight) and not _gluon.is_initialised(layer.weight)
    _gluon.initialise_deferred(layer.weight, (2, 5))
    assert layer.weight.data().shape == (2, 5) and not _gluon.is_deferred(layer.weight)
