"""Bad input: every argument of every operator, block and function of the arithmetic, given what it must not be given.

Each call must end in a `TypeError` or `ValueError` that mxsame itself raises, with the rule and "received name=value":
never in an error of MXNet, an assertion, a hang or a dead process. Each validator gets every bad value once; each
argument, found by the signature, a few values that are wrong for all. What must be accepted is at the end.
"""

import inspect
import os
import pickle
import re
import traceback
from pathlib import Path

import numpy as np
import pytest
import running
from running import Own

import mxsame
from mxsame import nn, ops, padding, plan, planner, validation
from mxsame._mxnet import mx

nd, sym = mx.nd, mx.sym
PACKAGE = os.path.dirname(mxsame.__file__) + os.sep


def refused(call, match, kinds=(TypeError, ValueError)):
    """The message with which mxsame refuses the call: one line that says the rule and what was received."""
    with pytest.raises(kinds) as caught:
        call()
        nd.waitall()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    message = str(caught.value)
    assert frame.filename.startswith(PACKAGE), f"{frame.filename}:{frame.lineno} raised: {message}"
    assert re.search(match, message), message
    assert "received" in message, message
    assert len(message) < 600, message
    assert "\n" not in message, message
    return message


def bad_calls(section):
    """(call, what the message matches) of each line of a section of bad_calls.txt."""
    text = Path(__file__).with_name("bad_calls.txt").read_text(encoding="utf-8")
    lines = text.partition(f"\n[{section}]\n")[2].partition("\n\n")[0].splitlines()
    return [line.partition(" => ")[::2] for line in lines if line[0] != "#"]


@pytest.mark.parametrize(("check", "error"), [(validation.check, ValueError), (validation.check_type, TypeError)])
def test_refusal_is_shown_as_pythons(check, error):
    """A refusal can be told from an error of Python's, is one, and has no other name in a traceback or a pickle."""
    with pytest.raises(error) as caught:
        check(False, "a rule", size=3)
    assert isinstance(caught.value, validation.RuleError)
    shown = f"{error.__name__}: a rule; received size=3\n"
    assert traceback.format_exception_only(type(caught.value), caught.value) == [shown]
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is error and again.args == caught.value.args


# ---- each validator, on every bad value ------------------------------------------------------------------------------

NO_NUMBER = [
    *("3", b"3", 3.0, float("nan"), float("inf"), 1j, True, np.bool_(True), np.float32(3), {3: 3}, {3}, object(), int),
    *(np.array(3.0), np.array(True), np.ones((2, 2), int), nd.ones((2,)), sym.var("s"), (n for n in (1, 1)), None),
]
OUT_OF_RANGE = [0, -1, np.int64(-1), -(10**30), 2**31, 2**63, 10**5000, np.int64(2**40)]
SEQUENCES = [
    *((), (1,), (1, 1, 1), np.ones(3, int), ((1, 1), (1, 1)), [[1], [1]], (1, None), [1, "1"], (1.0, 1), (1, True)),
    *((float("nan"), 1), (1, 2**31), (-1, 1), (1, 0), np.ones(2), np.array([True, True])),
]
PADS = [
    *(((1, 1, 1), 1), ((1,), 1), ((), ()), ((-1, 1), 1), ((0.5, 1), 1), ((True, 1), 1), ((None, 1), 1)),
    *(("same", "valid"), (((1, 1), 1), 1), ((2**31, 1), 1), np.ones((2, 2, 2), int), (), (1,), (1, 1, 1), -1, 2**31),
]
WORDS = ["sane", "", "causal", " same ", "1"]
VALIDATORS = {
    "integer": (lambda value: validation.integer("argument", value, 1), [*NO_NUMBER, *OUT_OF_RANGE, *SEQUENCES]),
    "per_axis": (lambda value: validation.per_axis("argument", value, 2, 1), [*NO_NUMBER, *OUT_OF_RANGE, *SEQUENCES]),
    "flag": (lambda value: validation.flag("argument", value), [0, 1, "True", np.True_, np.array(True), None, []]),
    "one of": (lambda value: validation.one_of("argument", value, ("same",)), [*NO_NUMBER, *WORDS]),
    "layout": (lambda value: validation.layout(value, 2), ["NCXY", "nchw", "NCW", "NDHWC", b"NCHW", 2, ["NCHW"]]),
    "rank_of_layout": (validation.rank_of_layout, ["NCXY", "", b"NCHW", 2, None]),
    "padding": (lambda value: validation.padding(value, 2), [*NO_NUMBER, *WORDS, *PADS]),
}


@pytest.mark.parametrize("name", VALIDATORS)
def test_validator(name):
    validate, values = VALIDATORS[name]
    for value in values:
        refused(lambda value=value: validate(value), "argument|layout|padding")


# ---- every argument, by its signature --------------------------------------------------------------------------------

WRONG = (-1, 1.5, object(), mx.np.array([2.5]))  # for every argument; hashing the last one raises
FROM_ONE = {"size", "input_size", "kernel_size", "pool_size", "stride", "strides", "dilation"}
FROM_ONE |= {"groups", "channels", "depth_multiplier", "p_value"}


def wrong_arguments(function, *skipped):
    """(argument, value) for all arguments of a function or class."""
    for name in inspect.signature(function).parameters:
        for value in () if name in skipped else (*WRONG, 0) if name in FROM_ONE else WRONG:
            yield name, value


DATA = {"data": (2, 4, 9, 7)}
ARRAYS = {
    "conv": {**DATA, "weight": (6, 4, 3, 2), "bias": (6,)},
    "depthwise_conv": {**DATA, "weight": (8, 1, 3, 2), "bias": (8,)},
    "separable_conv": {**DATA, "depthwise_weight": (8, 1, 3, 2), "pointwise_weight": (5, 8, 1, 1), "bias": (5,)},
    "conv_transpose": {**DATA, "weight": (4, 6, 3, 2), "bias": (6,)},
    **dict.fromkeys(("max_pool", "avg_pool", "lp_pool"), DATA),
}
SIZES = {  # what a graph of unknown shapes must be told
    "conv": {"channels": 6, "kernel_size": (3, 2)},
    "depthwise_conv": {"in_channels": 4, "depth_multiplier": 2, "kernel_size": (3, 2)},
    "separable_conv": {"in_channels": 4, "depth_multiplier": 2, "kernel_size": (3, 2), "channels": 5},
    "conv_transpose": {"channels": 6, "kernel_size": (3, 2)},
    **{name: {"pool_size": (3, 2)} for name in ("max_pool", "avg_pool", "lp_pool")},
}


def nd_arrays(operator):
    return {name: nd.ones(shape) for name, shape in ARRAYS[operator].items()}


RIGHT = {"size": 9, "kernel_size": 3, "operator": "conv", "rank": 2, "axis": 0, "length": 9, "channels": 6, "stride": 2}


def callables():
    """(function or class, arguments with which it runs) of all that takes sizes, windows or layouts."""
    for name, shapes in ARRAYS.items():
        symbols = {array: sym.var(array) for array in shapes}
        yield getattr(ops, name), {**nd_arrays(name), **SIZES[name]}
        yield getattr(ops, name), {**symbols, **SIZES[name], "layout": "NCHW"}
    others = [getattr(padding, name) for name in padding.__all__] + LAYERS + [plan.Window, plan.TransposedWindow]
    for function in [*others, planner.Workload]:
        yield function, {name: RIGHT[name] for name in inspect.signature(function).parameters if name in RIGHT}


LAYERS = [getattr(nn, kind) for kind in nn.__all__ if re.search(r"\dD", kind)]
CALLABLES = list(callables())


@pytest.mark.parametrize(("function", "right"), CALLABLES, ids=[function.__name__ for function, _ in CALLABLES])
def test_every_argument(function, right):
    for name, value in wrong_arguments(function):
        refused(lambda name=name, value=value: function(**{**right, name: value}), rf"{name}\b")


ODD_ARRAYS = {
    "numpy": (lambda shape: np.ones(shape, np.float32), "must be an NDArray", TypeError),
    "list": (lambda shape: [nd.ones(shape)], "must be an NDArray", TypeError),
    "mx.np": (lambda shape: nd.ones(shape).as_np_ndarray(), "same kind", TypeError),
    "symbol": (lambda shape: sym.var("x"), "same kind", TypeError),
    "np-symbol": (lambda shape: sym.var("x").as_np_ndarray(), "same kind", TypeError),
    "group": (lambda shape: sym.Group([sym.var("x"), sym.var("y")]), "one output", ValueError),
    "float64": (lambda shape: nd.ones(shape, dtype="float64"), "must have the type of", TypeError),
    "float16": (lambda shape: nd.ones(shape, dtype="float16"), "must have the type of|on the CPU", TypeError),
    "int32": (lambda shape: nd.ones(shape, dtype="int32"), "must have a float type", TypeError),
    "offset": (lambda shape: nd.ones(shape, ctx=mx.cpu(1)), "must be on the device of", ValueError),
    "sparse": (lambda shape: nd.ones(shape).tostype("row_sparse"), "dense", TypeError),
    "rank0": (lambda shape: nd.ones((1,)), "spatial axes|shape", ValueError),
    "rank+1": (lambda shape: nd.ones((*shape, 1)), "spatial axes|shape", ValueError),
    "int-variable": (lambda shape: sym.var("x", dtype="int32"), "must have a float type|same kind", TypeError),
    "sparse-variable": (lambda shape: sym.var("x", stype="csr"), "dense|same kind", TypeError),
}


@pytest.mark.parametrize("operator", ["conv", "conv_transpose", "separable_conv"])
@pytest.mark.parametrize("kind", ODD_ARRAYS)
def test_an_array_of_another_kind(operator, kind):
    make, match, error = ODD_ARRAYS[kind]
    arrays = nd_arrays(operator)
    for name, shape in ARRAYS[operator].items():
        given = {**arrays, name: make(shape), **SIZES[operator]}
        with mx.autograd.record():
            refused(lambda given=given: getattr(ops, operator)(**given), match, error)


def ones(*shape):
    return nd.ones(shape)


D, W = ones(2, 4, 9, 7), ones(6, 4, 3, 2)
D1, W1 = ones(2, 4, 9), ones(6, 4, 3)
T = ones(4, 6, 3, 3)
LAST = ones(2, 9, 7, 4)
S, V = sym.var("data"), sym.var("weight")
GRAPH, WINDOW = {"channels": 6, "kernel_size": (3, 2)}, plan.Window(8, 3, 2)
PLAN, UP, WORK = plan.first_plan([WINDOW], "conv"), plan.TransposedWindow(8, 3, 2), planner.Workload("conv")


def dense():
    return running.initialized(mx.gluon.nn.Dense(3, in_units=3))


def forced(strategy, call):
    with plan.use_strategy(strategy):
        return call()


@pytest.mark.parametrize(("call", "match"), bad_calls("mxsame"))
def test_contradiction(call, match):
    refused(eval(compile(f"lambda: {call}", "bad_calls.txt", "eval")), match)


def test_empty_arrays():
    with mx.util.np_shape(True):
        empty = mx.np.zeros((0, 4, 9, 7))
        refused(lambda: ops.conv(empty, W.as_np_ndarray()), "data must not be empty", ValueError)
        refused(lambda: ops.conv(D.as_np_ndarray(), mx.np.zeros((0, 4, 3, 2))), "weight must not be empty", ValueError)
        refused(lambda: nn.MaxPool2D()(empty), "data must not be empty", ValueError)


# ---- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", LAYERS)
def test_layer(make):
    kind, rank = make.__name__, int(re.search(r"(\d)D", make.__name__)[1])
    right = {name: RIGHT[name] for name in ("channels", "kernel_size") if name in inspect.signature(make).parameters}
    refused(lambda: make(**right, strides=(2,) * (rank + 1)), "strides must be an integer")
    refused(lambda: make(**right, padding=((1, 1),) * (rank + 1)), "one entry per spatial axis")
    refused(lambda: make(**right, layout={1: "NCHW", 2: "NCDHW", 3: "NCW"}[rank]), "layout must be")
    if rank > 1 or "Conv" not in kind or "Transpose" in kind:
        refused(lambda: make(**right, padding="causal"), "1-D convolutions only")
    layer = running.initialized(make(**right))
    refused(lambda: layer(ones(*[2] * (rank + 1))), f"data must have {rank + 2} axes")
    refused(lambda: layer([ones(*[2] * (rank + 2))]), "data must be an NDArray")
    refused(layer, "net must be called with exactly one array .*; received 0")


CALLS = {
    "group": (lambda: nn.Conv2D(6, 3), sym.Group([S, V]), "one output"),
    "channels": (lambda: nn.Conv2D(6, 3, in_channels=3), D, "data must have in_channels=3 channels"),
    "order": (lambda: nn.Conv2D(6, 3, in_channels=7), D, r"NCHW \(it looks .*\(0, 3, 1, 2\)\), or .*\"NHWC\"\);"),
    "channels-last": (lambda: nn.Conv2D(6, 3, in_channels=4, layout="NHWC"), D, "in_channels=4"),
    "groups": (lambda: nn.Conv2D(6, 3, groups=3), D, "data channels must be a multiple of groups"),
    "float64": (lambda: nn.Conv2D(6, 3), D.astype("float64"), "type of the parameters, float32"),
    "bool-pool": (lambda: nn.AvgPool2D(), D.astype("bool"), r'data must have a float type; use data.astype\("fl'),
    "sparse": (lambda: nn.Conv2D(6, 3), D.tostype("row_sparse"), "data must be a dense array"),
    "offset": (lambda: nn.Conv2D(6, 3), D.as_in_context(mx.cpu(1)), r"on the device of the parameters, \[cpu\(0\)\]"),
    "mx.np": (lambda: nn.Conv2D(6, 3), D.as_np_ndarray(), "same kind"),
    "valid": (lambda: nn.DepthwiseConv2D((1, 3), dilation=4, padding="valid"), D, "at least as long as the kernel"),
    "cropped": (lambda: nn.Conv2DTranspose(6, 3, padding=5), D, "must not crop the whole output"),
    "padded-plane": (lambda: nn.Conv2D(6, 3, padding=10**5), D, "fewer than"),
    "weight-elements": (lambda: nn.DepthwiseConv2D(3, depth_multiplier=2**30), D, "fewer than"),
}


@pytest.mark.parametrize("mode", running.LAYER_MODES)
@pytest.mark.parametrize("name", CALLS)
def test_call_of_a_layer(name, mode):
    make, data, match = CALLS[name]
    layer = running.initialized(make())
    running.LAYER_MODES[mode](layer)
    refused(lambda: layer(data), match)


@pytest.mark.parametrize("mode", running.LAYER_MODES)
def test_call_before_initialize(mode):
    layer = nn.Conv2D(6, 3)
    running.LAYER_MODES[mode](layer)
    with pytest.raises(RuntimeError, match=r"conv.*_weight' has not been initialized; call net.initialize\(\) first"):
        layer(D)


def test_sparse_data_in_a_hybridized_net():
    """A layer refuses it, as without a graph; another operator takes it."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(6, 3))
    mxsame.hybridize(running.initialized(net))
    refused(lambda: net(D.tostype("row_sparse")), "data must be a dense array", TypeError)
    dot = mxsame.hybridize(mx.gluon.nn.HybridLambda(lambda F, x: F.sparse.dot(x, F.ones((4, 2)))))
    assert dot(ones(3, 4).tostype("csr")).asnumpy().tolist() == [[4, 4]] * 3


@pytest.mark.parametrize("mode", running.LAYER_MODES)
def test_call_after_a_right_one(mode):
    """What the first input settled, the second must keep to; and the layer still works afterwards."""
    for layer in (nn.Conv2D(6, 3), nn.DepthwiseConv2D(3), nn.SeparableConv2D(6, 3), nn.Conv2DTranspose(6, 3)):
        running.LAYER_MODES[mode](running.initialized(layer))
        want = layer(D).asnumpy()
        refused(lambda layer=layer: layer(ones(2, 3, 9, 7)), "data must have (in_channels=)?4 channels")
        refused(lambda layer=layer: layer(D1), "data must have 4 axes")
        refused(lambda layer=layer: layer(D, D), "exactly one array .* received 2", TypeError)
        np.testing.assert_array_equal(layer(D).asnumpy(), want)


@pytest.mark.parametrize("mode", running.LAYER_MODES)
def test_float16_on_the_cpu_and_classic_arrays_in_np_mode(mode):
    layer = running.initialized(nn.Conv2D(6, 3), dtype="float16")
    running.LAYER_MODES[mode](layer)
    refused(lambda: layer(D.astype("float16")), "float32 or float64 on the CPU", TypeError)
    layer = nn.Conv2DTranspose(6, 3)
    net = running.initialized(running.sequential(layer), dtype="float16")
    net.hybridize()
    match = rf"{layer.name}_weight must be float32 or float64 on the CPU"
    refused(lambda: net(D.astype("float16")), match, TypeError)
    for own in (nn.Conv2D(6, 3), mx.gluon.nn.Dense(3)):
        net = mxsame.hybridize(running.initialized(running.sequential(own), dtype="float16"))
        refused(lambda net=net: net(D.astype("float16")), "net must be float32 or float64 on the CPU", TypeError)
    with mx.util.np_shape(True), mx.util.np_array(True):
        for layer in (nn.MaxPool2D(), nn.Conv2D(6, 3)):
            running.LAYER_MODES[mode](running.initialized(layer))
            refused(lambda layer=layer: layer(D), "data must be an mx.np.ndarray", TypeError)


def parent(*layers):
    net = running.initialized(running.sequential(*layers))
    net.hybridize()
    return net


def test_a_missing_argument_of_a_graph_names_the_layer():
    for layer in (nn.DepthwiseConv2D(3), nn.SeparableConv2D(6, 3)):
        refused(lambda layer=layer: parent(layer)(D), rf"layer {layer.name}: in_channels must be given", ValueError)
    wanted = r"layer (pool|conv)\d+: .*; received .*; use data of static shape, or mxsame\.hybridize\(net\)$"
    layers = lambda: (nn.MaxPool2D(2, 3, padding=1, ceil_mode=True), nn.Conv2D(6, 3, strides=5000))  # noqa: E731
    refused(lambda: parent(*layers())(D), wanted, ValueError)
    refused(lambda: parent(layers()[1])(D), wanted, ValueError)
    refused(lambda: mxsame.export(parent(layers()[0]), "net"), "; pass an input_shape$")
    assert mxsame.hybridize(parent(*layers()))(nd.ones((1, 4, 9, 9))).shape == (1, 6, 1, 1)


gluons = mx.gluon.nn
GLUONS = {  # layers of Gluon's for 4 channels, and what they are refused for with 5, the batch first
    "Dense": (lambda: gluons.Dense(2, in_units=4, flatten=False), r"_fwd has parameters of shape \(2, 4\)"),
    "Conv1D": (lambda: gluons.Conv1D(2, 1, in_channels=4), "_fwd has parameters of shape"),
    "Conv1DTranspose": (lambda: gluons.Conv1DTranspose(2, 1, in_channels=4), "_fwd has parameters of shape"),
    "BatchNorm": (
        lambda: gluons.BatchNorm(in_channels=4),
        r"_gamma has the shape \(4,\), but this data requires \(5,\)",
    ),
    "InstanceNorm": (
        lambda: gluons.InstanceNorm(in_channels=4),
        r"_gamma has the shape \(4,\), but this data requires \(5,\)",
    ),
    "LayerNorm": (lambda: gluons.LayerNorm(in_channels=4), "_layernorm0 has parameters of shape"),
    "PReLU": (lambda: gluons.PReLU(in_channels=4), "MXNet refuses it"),
    "reshape": (lambda: Own(lambda F, x: F.reshape(x, shape=(2, 8))), r"_reshape0 reshapes \(1, 5, 5\) to \(2, 8\)"),
}


@pytest.mark.parametrize("name", GLUONS)
def test_wrong_channels_of_a_gluon_layer_are_refused(name, tmp_path):
    """MXNet compares some of these when they run, and reads past the end of an array for others."""
    make, reason = GLUONS[name]
    right, wrong = ones(1, 4, 4), ones(1, 5, 5)
    match = rf"net must run on data of this shape; received \w+=.*5, 5.*; .*{reason}"
    for net in (make(), running.sequential(make())):
        mxsame.hybridize(running.initialized(net))(right)
        refused(lambda net=net: net(wrong), match, ValueError)
        refused(lambda net=net: mxsame.deploy(net, wrong.shape), match, ValueError)
        if name != "PReLU":
            refused(lambda net=net: mxsame.export(net, tmp_path / "net", wrong.shape), match, ValueError)


def test_an_argument_that_an_operator_does_not_take(tmp_path):
    """Set after the layer was made."""
    layer = gluons.Dense(3, in_units=4)
    layer._units = "x"
    net = running.initialized(running.sequential(layer))
    match = rf'arguments that they accept; received FullyConnected\(.*num_hidden="x"\) in layer {layer.name}$'
    refused(lambda: mxsame.hybridize(net)(D), match, ValueError)
    refused(lambda: mxsame.deploy(net, D), match, ValueError)
    refused(lambda: mxsame.export(net, tmp_path / "net"), match, ValueError)


def test_a_type_that_an_operator_refuses_when_it_runs():
    net = mxsame.hybridize(Own(lambda F, x: F.LRN(x, nsize=3)))
    refused(lambda: net(D.astype("float16")), r"dtypes that its operators support; received dtypes=\['float16'\]")


# ---- numbers that could hang or kill a process: each in one of its own, with little memory ---------------------------

DANGEROUS = [call for call, _ in bad_calls("dangerous")]

PROGRAM = """
import resource
import mxsame
from mxsame import nn, ops, padding
from mxsame._mxnet import mx
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
nd = mx.nd
D, W, T, S = nd.ones((2, 4, 9, 7)), nd.ones((6, 4, 3, 2)), nd.ones((4, 2, 3, 3)), mx.sym.var("s")
def ready(layer):
    layer.initialize()
    return layer
def hybridized(layer):
    mx.gluon.HybridBlock.hybridize(layer)
    return ready(layer)
for line in LINES:
    print(line, end=" => ", flush=True)
    try:
        value = eval(line)
        nd.waitall()
        print("accepted", getattr(value, "shape", value), flush=True)
    except (TypeError, ValueError) as error:
        print("refused" if "received" in str(error) else error, flush=True)
"""


def test_dangerous_numbers():
    """They are refused; a window that holds the whole input is not."""
    pytest.importorskip("resource", reason="this system has no limits of memory")
    sizes = [(size, stride) for size in (10**4, 2**29 - 1) for stride in (1, 3)]
    whole = [f"float(abs(ops.avg_pool(D, {size}, {stride}).asnumpy() - 1).max()) < 1e-6" for size, stride in sizes]
    whole += [f"float(ops.max_pool(D, {size}, {stride}).asnumpy().max()) == 1" for size, stride in sizes]
    out = running.run_python(f"LINES = {DANGEROUS + whole}\n{PROGRAM}", timeout=120)
    answers = dict(line.split(" => ") for line in out.splitlines())
    assert answers == {**dict.fromkeys(DANGEROUS, "refused"), **dict.fromkeys(whole, "accepted True")}


# ---- what must be accepted -------------------------------------------------------------------------------------------

RANDOM = np.random.RandomState(7)
X, K = RANDOM.randn(2, 4, 9, 7).astype("float32"), RANDOM.randn(6, 4, 3, 2).astype("float32")


def conv(**given):
    return ops.conv(nd.array(X), nd.array(K), **given).asnumpy()


ACCEPTED = {
    "numpy-integers": ({"strides": np.int64(2), "dilation": np.uint8(1)}, {"strides": 2}),
    "numpy-array": ({"strides": np.array([2, 1]), "kernel_size": np.array([3, 2])}, {"strides": (2, 1)}),
    "numpy-0d": ({"strides": np.array(2)}, {"strides": 2}),
    "lists": ({"strides": [2, 1], "padding": [[1, 2], 0]}, {"strides": (2, 1), "padding": ((1, 2), (0, 0))}),
    "numpy-pads": ({"padding": (np.array([1, 2]), np.int8(0))}, {"padding": ((1, 2), 0)}),
    "mixed-case": ({"padding": "VaLiD"}, {"padding": "valid"}),
    "zero-pads": ({"padding": 0}, {"padding": "valid"}),
    "one-pad": ({"padding": 1}, {"padding": ((1, 1), (1, 1))}),
    "input_size": ({"input_size": [9, 7], "strides": 2}, {"strides": 2}),
    "everything-named": ({"channels": np.int32(6), "kernel_size": [3, 2], "groups": 1, "layout": "NCHW"}, {}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    given, plain = ACCEPTED[name]
    np.testing.assert_array_equal(conv(**given), conv(**plain))


@pytest.mark.parametrize("active", [False, True])
def test_calls_of_a_container(active):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(6, 3))
    running.initialized(net).hybridize(active)
    for args, match in (
        ((), "net must be called with exactly one array .*; received 0 for x"),
        ((D, D), "net must be called with exactly one array .*; received 2 for x"),
        ((None,), "data must be an NDArray or a Symbol; received data of type NoneType"),
        ((np.ones((2, 4, 9, 7)),), r"received data of type numpy.ndarray; nd.array\(data\) is an NDArray"),
    ):
        refused(lambda args=args: net(*args), match, TypeError)
    gluons = mxsame.hybridize(running.sequential(nn.MaxPool2D()))
    with pytest.raises(ValueError, match="must be one NDArray or one Symbol"):  # Gluon's own, for Gluon's container
        gluons(2.0)
