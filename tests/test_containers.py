"""`mxsame.nn.HybridSequential` and `HybridBlock`: Gluon's containers, whose own `hybridize` is mxsame's."""

import copy
import functools
import gc
import json
import pickle
import random
import types

import numpy as np
import pytest
import running
from running import initialized, normal, sequential

import mxsame
from mxsame import _gluon
from mxsame._mxnet import mx
from mxsame.graphs import tracing

gluon = mx.gluon


def filled(net):
    """The same layers and prefixes in any container; a container inside it as well."""
    inner = type(net)(prefix="inner_")
    inner.add(mxsame.nn.MaxPool2D(3, 2, prefix="pool_"), gluon.nn.BatchNorm(in_channels=5, prefix="norm_"))
    net.add(mxsame.nn.Conv2D(5, 4, strides=2, in_channels=3, prefix="conv_"), inner)
    return net


def ours(**container):
    return initialized(filled(mxsame.nn.HybridSequential(prefix="net_", **container)))


class Derived(mxsame.nn.HybridBlock):
    def __init__(self):
        super().__init__(prefix="net_")
        self.body = ours()

    def hybrid_forward(self, F, x):
        return F.relu(self.body(x))


def images(*size):
    return normal(2, 3, *size)


@pytest.mark.parametrize("make", [ours, lambda: copy.deepcopy(ours()), lambda: pickle.loads(pickle.dumps(ours()))])
def test_hybridize_makes_graphs_for_shape_signatures(make, a_graph_at_the_first_call):
    net = make()
    want = {size: net(images(size, 20)).asnumpy() for size in (20, 21, 22, 24)}
    assert net.hybridize(static_alloc=True, static_shape=True) is None
    for size, out in want.items():
        running.assert_equal(net(images(size, 20)).asnumpy(), out)
    assert len(running.graphs_of(net)) == 3  # 20 and 24 share one
    assert not running.graphs_of(net[1])


@pytest.mark.parametrize("make", [ours, Derived])
def test_export_is_what_gluon_teaches(tmp_path, make):
    net = make()
    net.hybridize()
    want = net(images(20, 21)).asnumpy()
    names = net.export(str(tmp_path / "net"), epoch=3)
    assert names == (str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0003.params"))
    loaded = gluon.SymbolBlock.imports(names[0], ["data"], names[1])
    running.assert_equal(loaded(images(20, 21)).asnumpy(), want)
    running.assert_equal(loaded(images(23, 20)).asnumpy(), net(images(23, 20)).asnumpy())


def test_below_a_sequential_it_has_its_own_graphs():
    net, parent = ours(), gluon.nn.Sequential()
    forward = {"forward": lambda self, x: x * float(x.shape[0])}
    own = (type("Own", (kind,), forward)() for kind in (gluon.Block, gluon.HybridBlock))
    parent.add(net, gluon.nn.Flatten(), *own)
    want = parent(images(20, 21)).asnumpy()
    for hybridize in (parent.hybridize, functools.partial(mxsame.hybridize, parent)):
        hybridize(static_alloc=True)
        running.assert_equal(parent(images(20, 21)).asnumpy(), want)
        assert len(running.graphs_of(net)) == 1
        hybridize(False)
        assert not running.graphs_of(net)
        running.assert_equal(parent(images(20, 21)).asnumpy(), want)


def test_below_a_hybrid_block_of_gluon_it_is_a_part_of_the_parent_s_graph():
    net = ours()
    parent = sequential(net)
    want = {size: parent(images(size, 20)).asnumpy() for size in (20, 21, 22)}
    parent.hybridize()
    for size, out in want.items():
        running.assert_equal(parent(images(size, 20)).asnumpy(), out)
    assert not running.graphs_of(net)
    mxsame.hybridize(parent)
    running.assert_equal(parent(images(21, 20)).asnumpy(), want[21])
    assert len(running.graphs_of(parent)) == 1 and not running.graphs_of(net)


def init(self, scale):
    super(type(self), self).__init__()
    self.scale = scale


BODY = {"__init__": init, "hybrid_forward": lambda self, F, x, y: F.concat(x, y, dim=0) * self.scale}
BODY["__len__"] = lambda self: 0  # Gluon's is the number of children
SCALED = [type("Scaled", (base,), BODY) for base in (mxsame.nn.HybridBlock, mx.gluon.HybridBlock)]


@pytest.mark.parametrize("scaled", SCALED, ids=["ours", "gluons"])
def test_a_shallow_copy_has_graphs_of_its_own(scaled):
    net, arrays = mxsame.hybridize(scaled(2)), (normal(2, 3), normal(3, 3))
    double = net(*arrays).asnumpy()
    twin = copy.copy(net)
    twin.scale = 3
    running.assert_equal(mxsame.deploy(twin, [(2, 3), (3, 3)])(*arrays), 1.5 * double)
    running.assert_equal(twin(*arrays), 1.5 * double)
    running.assert_equal(twin.forward(*arrays), 1.5 * double)
    running.assert_equal(net(*arrays), double)
    assert running.graphs_of(net) and running.graphs_of(net) != running.graphs_of(twin)
    twin.hybridize(False)
    assert running.graphs_of(net) and not running.graphs_of(twin)
    running.assert_equal(twin(*arrays), 1.5 * double)


@pytest.mark.parametrize("scaled", SCALED, ids=["ours", "gluons"])
def test_arrays_in_memory_of_several_kinds(monkeypatch, scaled):
    """As a DataLoader with workers gives them. The device is entered once, since each time costs as much as a small
    operator."""
    net, arrays, entered = scaled(2), (normal(2, 3), normal(3, 3)), []
    shared = [array.as_in_context(mx.Context("cpu_shared", 0)) for array in arrays]
    want = net(*arrays).asnumpy()
    mxsame.hybridize(net)
    for given in (arrays, (arrays[0], shared[1]), (shared[0], arrays[1]), shared):
        running.assert_equal(net(*given), want)
    enter = mx.Context.__enter__
    monkeypatch.setattr(mx.Context, "__enter__", lambda context: entered.append(context) or enter(context))
    net(*shared)
    assert entered == [mx.cpu()]


def test_a_recurrent_layer_with_and_without_states():
    net, x = running.initialized(mx.gluon.rnn.GRU(3, input_size=4)), normal(5, 2, 4)
    calls = ((x,), (x, [normal(1, 2, 3)])) * 2
    wanted = [[each.asnumpy() for each in tracing.flatten(net(*args))] for args in calls]
    mxsame.hybridize(net)
    for args, want in zip(calls, wanted):
        got = tracing.flatten(net(*args))
        assert len(got) == len(want)
        for one, other in zip(got, want):
            running.assert_equal(one, other)


def test_what_is_true_for_gluon():
    net = ours()
    for active in ({"any": "thing"}, None):
        net.hybridize(active)
        net(images(20, 21))
        assert bool(running.graphs_of(net)) is bool(active)
    with pytest.raises(ValueError, match="max_graphs must be"):
        net.hybridize(max_graphs=0)


def test_operators_have_gluon_s_names_in_graphs():
    """By which other code finds them there, `FeatureExpander` of GluonCV say."""
    net = mxsame.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mxsame.nn.Conv2D(4, 3, strides=2, activation="relu"), mxsame.nn.MaxPool2D(3, 2))
        net.add(mxsame.nn.Conv2DTranspose(4, 3, strides=2), mxsame.nn.SeparableConv2D(4, 3, in_channels=4))
    net.initialize()
    net.hybridize()
    net(images(20, 21))
    names = net._cached_graph[1].get_internals().list_outputs()
    layers = ("conv0", "conv0_relu", "pool0", "conv1", "conv2")
    assert [name for name in names if name.endswith("_fwd_output")] == [f"net_{layer}_fwd_output" for layer in layers]


@pytest.mark.skipif(not mx.runtime.Features().is_enabled("MKLDNN"), reason="MXNet has no oneDNN")
@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize(
    "optimize",
    [
        lambda net, data: net.optimize_for(data, backend="MKLDNN"),
        lambda net, data: (net.hybridize(True, "MKLDNN", False), net(data)),
    ],
    ids=["optimize_for", "hybridize"],
)
def test_a_net_that_is_optimised_for_a_backend_is_exported_so(tmp_path, hybridized, optimize):
    net, data = ours(), images(20, 21)
    if hybridized:
        net.hybridize()
    want = net(data).asnumpy()
    optimize(net, data)
    net.export(str(tmp_path / "net"))
    operators = {node["op"] for node in json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]}
    assert "_sg_mkldnn_conv" in operators
    running.assert_equal(net(data), want)


# -- the day of a Gluon user


class Named(gluon.nn.HybridSequential):
    """A user's class, with names of its own."""

    specialised = graphs = "mine"

    def changed(self):
        return "mine"

    def export(self, path):
        return f"{path}, mine"

    def __getstate__(self):
        return {**vars(self), "graphs": "pickled"}


@pytest.mark.parametrize("hybridize", [mxsame.hybridize, lambda net: net.hybridize()], ids=["mxsame", "gluon"])
def test_a_hybridized_net_is_all_that_it_was(hybridize):
    net = filled(Named(prefix="net_"))
    initialized(net)
    hybridize(net)
    want = net(images(20, 21))
    assert type(net) is Named and type(net[1]) is Named and type(net[0]) is mxsame.nn.Conv2D
    assert (net.specialised, net.graphs, net.changed(), net.export("net")) == ("mine", "mine", "mine", "net, mine")
    assert type(net[:1]) is Named and net[:1][0] is net[0] and not {"changed", "export"} & vars(net).keys()
    if hybridize is mxsame.hybridize:
        twin = pickle.loads(pickle.dumps(net))
        assert twin.graphs == "pickled"
        running.assert_equal(twin(images(20, 21)), want.asnumpy())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_net_is_copied_after_a_call_of_a_part_of_it(copied):
    net = mxsame.nn.HybridSequential()
    net.add(mxsame.nn.Conv2D(8, 3), gluon.nn.BatchNorm())
    initialized(net)
    net.hybridize()
    data = images(9, 8)
    want = net[1](net[0](data)).asnumpy()
    graph, _ = _gluon.cache_and_hook(net[1])
    running.assert_equal(copied(net)(data), want)
    running.assert_equal(copied(net)[1](net[0](data)), want)
    assert graph is not None and _gluon.cache_and_hook(net[1])[0] is graph


def test_a_hybridized_net_has_a_summary_and_its_graphs(capsys):
    net = ours()
    net.hybridize()
    net(images(20, 21))
    graphs = running.graphs_of(net)
    net.summary(images(20, 21))
    assert capsys.readouterr().out.count("Conv2D-1") == 1 and graphs
    assert net(images(20, 21)) is not None and running.graphs_of(net) == graphs


@pytest.mark.parametrize(
    ("name", "instead"),
    [("fit", "a gluon.Trainer"), ("load_weights", "load_parameters"), ("eval", "net"), ("fits", None)],
)
def test_keras_s_methods_are_answered_with_gluon_s(name, instead):
    hint = f"; use {instead}" if instead else "$"
    with pytest.raises(AttributeError, match=f"^'HybridSequential' object has no attribute '{name}'{hint}"):
        getattr(ours(), name)


def test_a_wrong_type_changes_nothing():
    net = initialized(mxsame.nn.Conv2D(8, 3))
    want = net(images(9, 8)).asnumpy()
    with pytest.raises(ValueError, match="dtype must be a NumPy type, such as 'float32'; received dtype='flaot16'"):
        net.cast("flaot16")
    running.assert_equal(net(images(9, 8)), want)


def test_a_call_before_initialize_leaves_no_trace():
    net = mxsame.nn.HybridSequential()
    net.add(mxsame.nn.Conv2D(4, 3), mxsame.nn.Conv2D(5, 3, strides=2))
    net.hybridize()
    with pytest.raises(RuntimeError, match="has not been initialized"):
        net(images(9, 8))
    net.register_child(mxsame.nn.Conv2D(6, 3), "0")
    net.initialize()
    assert net(images(9, 8)).shape == (2, 5, 5, 4)
    net.add(gluon.nn.Dense(3))
    with pytest.raises(RuntimeError, match="has not been initialized"):
        net(images(9, 8))
    net[-1].initialize()
    assert net(images(9, 8)).shape == (2, 3)


@pytest.mark.parametrize("hybridize", [mxsame.hybridize, lambda net: net.hybridize()], ids=["mxsame", "gluon"])
def test_a_forward_around_a_layer_s_own_is_called_once(hybridize):
    class Doubled(mxsame.nn.Conv2D):
        def forward(self, x):
            return 2 * super().forward(x)

    net = initialized(Doubled(4, 3, 2, in_channels=3))
    want = net(images(9, 8)).asnumpy()
    hybridize(net)
    running.assert_equal(net(images(9, 8)), want)


class Ramp(mx.init.Initializer):
    """Values that follow from the shape only."""

    def _init_weight(self, name, array):
        array[:] = mx.nd.array(np.sin(1 + np.arange(array.size)).reshape(array.shape) / 2, dtype=array.dtype)

    _init_default = _init_weight


class Day:
    """A net, and what is done to it."""

    def __init__(self, kind):
        self.kind, self.dtype, self.made = kind, "float32", 0
        self.nn = mxsame.nn if kind == "mxsame.nn" else gluon.nn
        inner = self.nn.HybridSequential(prefix="inner_")
        inner.add(self.nn.Conv2D(3, 3, padding=1, prefix="conv_"), gluon.nn.BatchNorm(prefix="norm_"))
        self.net = self.nn.HybridSequential(prefix="net_")
        self.net.add(self.nn.Conv2D(4, 3, padding=1, prefix="first_"), inner, gluon.nn.GlobalAvgPool2D(prefix="mean_"))
        self.net.add(gluon.nn.Dense(3, prefix="dense_"))

    def hybridize(self, active=True, net=None, **flags):
        net = self.net if net is None else net
        if self.kind == "mxsame.hybridize":
            mxsame.hybridize(net, active, **flags)
        else:  # with static_shape, Gluon loses gradients when parameters have new arrays
            net.hybridize(active, **(flags if self.kind == "mxsame.nn" else {}))

    def images(self, *size):
        return normal(2, 3, *size, dtype=self.dtype)

    def train(self):
        x = self.images(5, 6)
        out, parameters = running.recorded(self.net, x), self.net.collect_params().values()
        for parameter in parameters:
            if parameter.grad_req != "null":
                parameter.set_data(parameter.data() - parameter.grad() / 4)
        return [out, x.grad, *(parameter.data() for parameter in parameters)]

    def new(self, kind, *arguments):
        self.made += 1
        layer = kind(*arguments, prefix=f"new{self.made}_")
        layer.initialize(Ramp())
        layer.cast(self.dtype)
        return layer

    def cast(self, dtype):
        self.dtype = dtype
        self.net.cast(dtype)

    def copied(self, copied):
        self.net = copied(self.net)
        for parameter in self.net.collect_params().values():
            if parameter._data:
                parameter.reset_ctx(mx.cpu())  # a copied array has no gradient before

    def summary(self):
        """Gluon's own is only for a net that is not hybridized; it is hybridized after it as before."""
        with _gluon.imperative(self.net):
            self.net.summary(self.images(5, 6))

    def names(self):
        for name in ("specialised", "changed", "graphs", "cache", "net"):
            setattr(self.net, name, name)
            yield getattr(self.net, name)


LAST = "3"
ACTIONS = {
    "initialize": lambda day: day.net.initialize(Ramp()),
    "hybridize": lambda day: day.hybridize(),
    "call": lambda day: day.net(day.images(5, 6)),
    "train": lambda day: day.train(),
    "call with another size": lambda day: day.net(day.images(4, 7)),
    "hybridize static": lambda day: day.hybridize(static_alloc=True, static_shape=True),
    "hybridize by Gluon": lambda day: day.net.hybridize(),
    "hybridize not": lambda day: day.hybridize(False),
    "hybridize a child": lambda day: day.hybridize(net=day.net[1]),
    "hybridize a child not": lambda day: day.hybridize(False, net=day.net[1]),
    "initialize anew": lambda day: day.net.initialize(Ramp(), force_reinit=True),
    "add": lambda day: day.net.add(day.new(gluon.nn.Dense, 3)),
    "add, not initialized": lambda day: day.net.add(gluon.nn.Dense(3, prefix=f"late{len(day.net)}_")),
    "drop": lambda day: len(day.net) > 4 and setattr(day, "net", day.net[:-1]),
    "replace": lambda day: day.net.register_child(day.new(gluon.nn.Dense, 2), LAST),
    "replace the first": lambda day: day.net.register_child(day.new(day.nn.Conv2D, 4, 1), "0"),
    "replace a child": lambda day: (day.net._children.update({LAST: day.new(gluon.nn.Dense, 2)}), day.hybridize()),
    "replace below": lambda day: (day.net[1].register_child(day.new(gluon.nn.BatchNorm), "1"), day.hybridize()),
    "attribute": lambda day: setattr(day.net, "output", day.new(gluon.nn.Dense, 3)),
    "names": lambda day: list(day.names()),
    "share": lambda day: day.net.register_child(gluon.nn.Dense(day.net[-1]._units, params=day.net[-1].params), LAST),
    "slice": lambda day: day.net[:2](day.images(5, 6)),
    "keep a slice": lambda day: setattr(day, "net", day.net[:]),
    "index": lambda day: day.net[0](day.images(5, 6)),
    "freeze": lambda day: day.net[0].collect_params().setattr("grad_req", "null"),
    "float64": lambda day: day.cast("float64"),
    "float32": lambda day: day.cast("float32"),
    "copy": lambda day: day.copied(copy.deepcopy),
    "pickle": lambda day: day.copied(lambda net: pickle.loads(pickle.dumps(net))),
    "infer_shape": lambda day: day.net.infer_shape(day.images(5, 6)),
    "summary": lambda day: day.summary(),
    "names of parameters": lambda day: list(day.net.collect_params()),
}


def outcome(day, action):
    """What an action gives, in NumPy; or an error: RuntimeError if parameters are not initialized, else ValueError."""
    try:
        result = action(day)
        return [each.asnumpy() if hasattr(each, "asnumpy") else each for each in tracing.flatten(result)]
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        return RuntimeError if "has not been initialized" in str(error) else ValueError


@pytest.mark.parametrize("kind", ["mxsame.hybridize", "mxsame.nn"])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore:Parameter .* is already initialized", "ignore:Exception ignored in.*CachedOp")
def test_the_day_of_a_gluon_user(kind, seed, capfd):
    """Whatever is done in whatever order, it gives what Gluon's own `hybridize` gives: outputs, gradients, errors."""
    choose, usual = random.Random(seed), list(ACTIONS)[:4]
    plain, day, done = Day("plain"), Day(kind), []
    for _ in range(30):
        done.append(choose.choice(usual if choose.random() < 0.4 else list(ACTIONS)))
        want, got = (outcome(each, ACTIONS[done[-1]]) for each in (plain, day))
        assert type(got) is type(want), done
        for one, other in zip(got, want) if isinstance(want, list) else [(got, want)]:
            if isinstance(other, np.ndarray):
                assert one.dtype == other.dtype, done
                running.assert_equal(one, other, what=str(done))
            else:
                assert one == other, done


def test_a_call_leaves_no_frame_for_the_garbage_collector():
    """It would keep the outputs of the call, and MXNet would allocate others."""
    net, x = initialized(mxsame.nn.Conv2D(2, 3, in_channels=1)), normal(1, 1, 5, 5)
    mxsame.hybridize(net)
    net(x)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        net(x)
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, types.FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
