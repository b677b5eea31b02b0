"""What is public is what DESIGN says, and every public docstring has an example, which the doctests run."""

import ast
import importlib
import inspect
import pkgutil

import pytest
import running
from cases import OPS

import mxsame
import mxsame.keras
from mxsame._mxnet import mx
from mxsame.keras import backend, layouts, ops

gluon = mx.gluon

ROOMS = [mxsame, mxsame.nn, mxsame.ops, mxsame.padding, mxsame.plan, mxsame.planner, mxsame.keras]
PUBLIC = [
    (f"{room.__name__}.{name}", getattr(room, name))
    for room in [*ROOMS, backend, layouts, ops]
    for name in room.__all__
    if callable(getattr(room, name))
]
RETURNED = [mxsame.Audit, mxsame.Comparison, mxsame.Network, mxsame.Written]  # which only functions make
CALLED = [(name, thing) for name, thing in PUBLIC if thing not in RETURNED]


def test_every_public_docstring_has_an_example():
    assert not [name for name, thing in PUBLIC if ">>>" not in (inspect.getdoc(thing) or "")]


def test_layers_and_operators_are_all_there():
    layers = {running.layer_name(op, rank) for op in OPS for rank in (1, 2, 3)}
    assert set(mxsame.nn.__all__) == layers | {"HybridBlock", "HybridSequential"}
    assert set(mxsame.ops.__all__) == set(OPS)


def arguments(module, name):
    return [name for name in inspect.signature(getattr(module, name).__init__).parameters if name != "kwargs"]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv{}D", "Conv{}DTranspose", "MaxPool{}D", "AvgPool{}D"])
def test_arguments_are_in_the_order_of_gluon_as_far_as_it_has_one(kind, rank):
    """So that positional code moves over unchanged. After the padding, gluon's pooling layers of different rank have
    layout and ceil_mode in different positions."""
    ours, theirs = (arguments(module, kind.format(rank)) for module in (mxsame.nn, gluon.nn))
    assert set(theirs) <= set(ours)
    same = len(theirs) if rank == 2 or "Conv" in kind else 4
    assert ours[:same] == theirs[:same]


def test_the_table_of_public_names_agrees_with_the_imports_for_type_checkers():
    conditions = [node for node in ast.parse(inspect.getsource(mxsame)).body if isinstance(node, ast.If)]
    (block,) = (node for node in conditions if getattr(node.test, "id", "") == "TYPE_CHECKING")
    public = {}
    for node in block.body:
        for alias in node.names:
            assert alias.name == alias.asname, "only so is it exported, for type checkers"
            public[alias.name] = f"{node.module}{'.' if node.module == 'mxsame' else ':'}{alias.name}"
    assert public == mxsame._PUBLIC
    assert sorted(mxsame.__all__) == sorted(["__version__", *public])


def test_no_module_of_the_package_takes_the_place_of_a_public_function():
    before = {name: getattr(mxsame, name) for name in mxsame.__all__}
    for module in pkgutil.walk_packages(mxsame.__path__, "mxsame."):
        if not module.name.endswith("__main__"):
            imported = importlib.import_module(module.name)
            assert set(getattr(imported, "__all__", ())) <= set(dir(imported)), module.name
    assert {name: getattr(mxsame, name) for name in mxsame.__all__} == before
    names = {}
    exec("from mxsame import *", names)
    assert {name: names[name] for name in mxsame.__all__} == before
    assert set(dir(mxsame)) == {*mxsame.__all__, "doctor", "onnx"}
    assert all(dir(room) == sorted(room.__all__) for room in (mxsame.nn, mxsame.padding, mxsame.plan, mxsame.keras))


@pytest.mark.parametrize(
    ("module", "name", "use"),
    [
        (mxsame.nn, "MaxPooling2D", "; use mxsame.nn.MaxPool2D"),
        (mxsame.nn, "Conv2d", "; use mxsame.nn.Conv2D"),
        (mxsame.ops, "Conv", "; use mxsame.ops.conv"),
        (mxsame.nn, "Dense", "; use mxnet.gluon.nn.Dense"),
        (mxsame.nn, "BatchNormalization", "; use mxnet.gluon.nn.BatchNorm"),
        (mxsame, "quantize", "; it has __version__, audit, compare, .*"),
        (mxsame, "to_onnx", "; use mxsame.export_onnx"),
        (mxsame, "load_model", "; use mxsame.from_keras"),
        (mxsame.nn, "SeparableConv", "; use " + " or ".join(f"mxsame.nn.SeparableConv{rank}D" for rank in (1, 2, 3))),
        (mxsame.nn, "LSTM", "; use mxnet.gluon.rnn.LSTM"),
        (mxsame.nn, "ReLU", r'; use mxnet.gluon.nn.Activation\("relu"\)'),
        (mxsame.keras.backend, "relu", "; use mxnet.nd.relu"),
        (mxsame.keras.ops, "conv2d", "; use mxsame.keras.ops.conv"),
        (mxsame.keras, "conv2d", "; use mxsame.keras.backend.conv2d"),
        (mxsame, "Conv2D", "; use mxsame.nn.Conv2D"),
    ],
)
def test_a_name_that_is_elsewhere_is_named(module, name, use):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'{use}$"):
        getattr(module, name)


@pytest.mark.parametrize(("name", "thing"), CALLED, ids=[name for name, _ in CALLED])
def test_a_misspelled_argument_is_named(name, thing):
    *_, argument = inspect.signature(thing).parameters or [""]
    if len(argument) > 4 and "Hybrid" not in name and ".plan" not in name:
        with pytest.raises(TypeError, match=f"has no argument {argument}x; use {argument}; received {argument}x=1"):
            thing(**{f"{argument}x": 1})


def test_public_arguments_have_types():
    """`tests/typed_calls.py` has calls that mypy accepts, and calls that it refuses."""
    parameters = [
        (name, parameter)
        for name, thing in CALLED
        if "Hybrid" not in name  # whose arguments are Gluon's
        for parameter in inspect.signature(thing).parameters.values()
    ]
    untyped = [f"{name}: {each}" for name, each in parameters if each.annotation in ("Any", each.empty)]
    assert len(parameters) > 400 and not untyped
