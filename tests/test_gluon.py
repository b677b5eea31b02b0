"""Gluon's private names: one file uses them, and MXNet still has them."""

import ast
import time
from pathlib import Path

import numpy as np
import pytest
import running

import mxsame
from mxsame import _gluon
from mxsame._mxnet import mx

PACKAGE = Path(mxsame.__file__).parent
HOME = PACKAGE / "_gluon.py"


def names_of_gluon():
    """The private names of blocks and parameters, from a block that was hybridized and called."""
    net = called()
    kinds = (mx.gluon.Block, mx.gluon.HybridBlock, mx.gluon.SymbolBlock, mx.gluon.Parameter, mx.gluon.ParameterDict)
    layers = mx.gluon.nn.BatchNorm(), mx.gluon.nn.Conv2D(1, 1), mx.gluon.nn.HybridLambda("relu")
    things = (*kinds, net, net.weight, net.params, *layers)
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


NOT_GLUONS = {"_set_attr", "_gluon", "_mxnet", "_late_grad", "_LOCK", "_register_op_hook", "_getframe"}
GLUONS = set(private_names(HOME)) - NOT_GLUONS
OTHERS = {"_build_cache", "_cached_op", "_cached_op_args", "_call_cached_op", "_get_graph", "_in_format", "_out_format"}
OURS = {"_data"}  # a class of mxsame may have this name for itself


def test_one_file_uses_private_names_of_gluon():
    files = set(PACKAGE.rglob("*.py")) - {HOME}
    assert not {path for path in files if set(private_names(path)) & (GLUONS | OTHERS) - OURS}


def test_mxnet_has_the_names():
    assert {"_children", "_active"} <= GLUONS and names_of_gluon() >= GLUONS
    assert hasattr(mx.sym.Symbol, "_set_attr") and hasattr(mx.nd.CachedOp, "_register_op_hook")


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.cast("float32"),
        lambda net: net.add(mx.gluon.nn.Dense(3)),
        lambda net: setattr(net, "other", mx.gluon.nn.Dense(3)),
        lambda net: net.hybridize(),
        _gluon.drop_graph,
    ],
    ids=["cast", "add", "attribute", "hybridize", "drop_graph"],
)
def test_a_change_drops_what_a_block_keeps_for_its_own_call(change):
    net, kept = mx.gluon.nn.HybridSequential(), object()
    assert _gluon.overridden_forward(net) is None
    net.hybridize()
    flags = _gluon.flags(net)
    _gluon.override_forward(net, lambda *args: args)
    _gluon.set_cache(net, kept)
    assert net(ARRAY) == (ARRAY,) and _gluon.cache_and_hook(net) == (kept, None)
    change(net)
    assert net(ARRAY) == (ARRAY,) and _gluon.cache_and_hook(net) == (None, None)
    assert (_gluon.flags(net) is flags) == (change.__code__.co_names != ("hybridize",))
    net.hybridize(False)
    assert _gluon.overridden_forward(net) is None


def test_all_parameters_in_gluon_s_order():
    parent = mx.gluon.nn.HybridSequential()
    shared = mx.gluon.nn.Dense(3)
    parent.add(shared, mx.gluon.nn.BatchNorm(), shared, mx.gluon.nn.Dense(3, params=shared.params))
    assert list(_gluon.parameters(parent).items()) == list(parent.collect_params().items())
    assert _gluon.children(parent) == list(parent)


# -- gradients that take no memory before they are needed


def parameter_with(array, **arguments):
    parameter = mx.gluon.Parameter("weight", shape=array.shape, **arguments)
    _gluon.initialize_with(parameter, array.copy())
    return parameter


def has_memory(parameter):
    return parameter._late_grad is not None


def backward(parameter, times=1):
    """The gradient of the sum of `times` parameter**2."""
    for _ in range(times):
        with mx.autograd.record():
            loss = (parameter.data() ** 2).sum()
        loss.backward()
    return parameter.grad().asnumpy()


ARRAY = mx.nd.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
DOUBLED = 2 * ARRAY.asnumpy()


def test_a_late_gradient_takes_memory_when_it_is_needed():
    parameter = parameter_with(ARRAY)
    np.testing.assert_array_equal((parameter.data() * 1).asnumpy(), ARRAY.asnumpy())
    assert not has_memory(parameter)
    np.testing.assert_array_equal(backward(parameter), DOUBLED)
    assert has_memory(parameter)
    assert not parameter_with(ARRAY).grad().asnumpy().any()


def test_two_threads_get_the_same_late_gradient(monkeypatch):
    parameter, original, gradients = parameter_with(ARRAY), mx.gluon.Parameter._init_grad, []

    def slow(each):
        time.sleep(0.05)
        original(each)

    monkeypatch.setattr(mx.gluon.Parameter, "_init_grad", slow)
    running.in_threads(lambda number: gradients.append(parameter.grad()), 2)
    assert gradients[0] is gradients[1]


def test_late_gradients_follow_grad_req():
    parameter = parameter_with(ARRAY)
    parameter.grad_req = "add"
    assert not has_memory(parameter)
    np.testing.assert_array_equal(backward(parameter, times=3), 3 * DOUBLED)
    parameter.grad_req = "write"
    np.testing.assert_array_equal(backward(parameter, times=3), DOUBLED)
    parameter.grad_req = "null"
    with pytest.raises(RuntimeError, match="because grad_req='null'"):
        parameter.grad()
    with mx.autograd.record():
        parameter.data()
    assert not has_memory(parameter)
    assert not has_memory(parameter_with(ARRAY, grad_req="null"))


def test_late_gradients_follow_the_type_and_the_device():
    parameter = parameter_with(ARRAY)
    parameter.cast("float64")
    assert parameter.grad().dtype == np.float64 and parameter.grad_req == "write"
    np.testing.assert_array_equal(backward(parameter), DOUBLED)
    parameter.reset_ctx([mx.cpu(0), mx.cpu(1)])
    assert not has_memory(parameter)
    with mx.autograd.record():
        losses = [(parameter.data(context) ** 2).sum() for context in (mx.cpu(0), mx.cpu(1))]
    mx.autograd.backward(losses)
    assert [gradient.context for gradient in parameter.list_grad()] == [mx.cpu(0), mx.cpu(1)]
    for gradient in parameter.list_grad():
        np.testing.assert_array_equal(gradient.asnumpy(), DOUBLED)
