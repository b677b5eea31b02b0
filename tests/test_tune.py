"""mxsame.autotune: what it measures, remembers and leaves as it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import running

import mxsame
from mxsame import measured, planner
from mxsame._mxnet import mx
from mxsame.graphs import tune
from mxsame.graphs.tune import FORMAT
from mxsame.plan import Window, exact_plans

nn = mx.gluon.nn
STEM = (Window(16, 3, 2), Window(16, 3, 2))
DEPTHWISE = (Window(8, 3, 2), Window(8, 3, 2))
POOL = (Window(4, 3, 2), Window(4, 3, 2))


@pytest.fixture(autouse=True)
def nothing_remembered():
    planner.forget()
    yield
    planner.forget()


def network():
    net = nn.HybridSequential()
    net.add(
        mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3),
        nn.BatchNorm(in_channels=8),
        mxsame.nn.DepthwiseConv2D(3, strides=2, in_channels=8),
        mxsame.nn.MaxPool2D(3, 2),
        mxsame.nn.Conv2D(4, 3, in_channels=8),
    )
    net.initialize(mx.init.Normal(0.5))
    return net


def stem():
    net = nn.HybridSequential()
    net.add(mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3))
    net.initialize()
    return net


def images(batch=2, size=16, kind=None):
    return (kind or mx.nd).array(np.random.RandomState(0).randn(batch, 3, size, size), dtype="float32")


def fastest(monkeypatch, *strategies):
    """From now on the first of these strategies that is measured takes half the time of all others."""

    def measure(variants, rounds, seconds):
        for call in variants.values():
            call()
        mx.nd.waitall()
        best = next(iter([name for name in strategies if name in variants]), None)
        return {name: [0.5 if name == best else 1.0] * rounds for name in variants}

    monkeypatch.setattr(tune, "measure", measure)


def operators(net, data):
    """What the net's graph for this data is made of."""
    net(data)
    (graph,) = net.forward.graphs.values()
    return running.operators(graph.symbol)


def test_every_geometry_is_measured_once_with_each_exact_plan():
    tuned_by = {tuned.windows: tuned for tuned in mxsame.autotune(network(), images(), rounds=1)}
    assert set(tuned_by) == {STEM, DEPTHWISE, POOL}  # the last convolution needs nothing
    for windows in (STEM, DEPTHWISE, POOL):
        tuned = tuned_by[windows]
        assert set(tuned.seconds) == set(planner.candidates(windows, tuned.work))
        assert all(seconds > 0 for seconds in tuned.seconds.values())
        assert tuned.chosen in tuned.seconds and measured.fastest(windows, tuned.work) == tuned.chosen
    assert tuned_by[STEM].work.plain and not tuned_by[DEPTHWISE].work.plain
    assert tuned_by[DEPTHWISE].work.groups == 8


def test_layers_of_one_geometry_are_measured_together():
    layers = [mxsame.nn.Conv2D(3, 3, strides=2, in_channels=3) for _ in range(2)]
    both = running.Own(lambda F, x, left, right: left(x) + right(x), *layers)
    both.initialize()
    assert len(mxsame.autotune(both, images(), rounds=1)) == 1


def test_what_was_the_fastest_runs_from_then_on(monkeypatch, tmp_path):
    """In graphs that are there already, and in files for one size."""
    fastest(monkeypatch, "kernel")
    net, data = mxsame.hybridize(stem()), images()
    want = net(data).asnumpy()  # builds a graph before anything is measured
    (tuned,) = mxsame.autotune(net, data, rounds=3)
    assert tuned.chosen == "kernel" and tuned.seconds["kernel"] == 0.5
    assert "transpose" in operators(net, data)
    assert running.difference(net(data).asnumpy(), want) < 1e-5
    file, _ = mxsame.export(net, str(tmp_path / "net"), data.shape)
    assert "transpose" in [node["op"] for node in json.loads(Path(file).read_text())["nodes"]]


def test_a_difference_that_may_be_noise_changes_nothing(monkeypatch):
    net = network()

    def measure(variants, rounds, seconds):
        names = list(variants)
        return {name: [1.0 if name == names[-1] else 1.01] for name in names}

    monkeypatch.setattr(tune, "measure", measure)
    for tuned in mxsame.autotune(net, images(), rounds=1):
        before = tuned.chosen
        planner.forget()
        plans = exact_plans(tuned.windows, tuned.work.operator)
        assert plans[before] == planner.choose(tuned.windows, tuned.work)


@pytest.mark.parametrize("training", [False, True])
def test_the_net_stays_as_it_was(training):
    net, data = network(), images()
    data.attach_grad()
    with mx.autograd.record():
        net(data).sum().backward()
    arrays = {
        f"{name} {kind}": array
        for name, parameter in net.collect_params().items()
        for kind, array in (
            ("value", parameter.data()),
            *([("gradient", parameter.grad())] if parameter.grad_req != "null" else []),
        )
    }
    before = {name: array.asnumpy().copy() for name, array in arrays.items()}
    gradient, want = data.grad.asnumpy().copy(), net(data).asnumpy()
    assert any(name.endswith("running_mean value") for name in before)
    plans = mxsame.autotune(net, data, training=training, rounds=1)
    assert {tuned.work.purpose for tuned in plans} == {"training" if training else "inference"}
    for name, array in arrays.items():
        assert np.array_equal(array.asnumpy(), before[name]), name
    assert np.array_equal(data.grad.asnumpy(), gradient)
    assert running.difference(net(data).asnumpy(), want) < 1e-5  # what is the fastest may round in another way


def test_what_is_for_training_is_chosen_for_training_only(monkeypatch):
    fastest(monkeypatch, "flip")
    net, data = stem(), images()
    mxsame.autotune(net, data, training=True, rounds=1)
    mxsame.hybridize(net)
    assert "reverse" not in operators(net, data)
    net.forward.clear()
    with mx.autograd.record():
        assert "reverse" in operators(net, data)


def test_a_file_spares_measuring_again(tmp_path, monkeypatch):
    path, link = tmp_path / "plans.json", tmp_path / "link.json"
    link.symlink_to(path)
    fastest(monkeypatch, "kernel", "slice")
    first = mxsame.autotune(network(), images(), rounds=1, path=link)
    assert len(first) == 3 and link.is_symlink() and path.is_file()
    planner.forget()
    monkeypatch.setattr(tune, "measure", None)  # would fail
    path.chmod(0o400)  # nothing is added, so nothing is written
    before = path.stat().st_mtime_ns
    assert mxsame.autotune(network(), images(), rounds=1, path=str(path)) == []
    assert path.stat().st_mtime_ns == before
    assert {measured.fastest(tuned.windows, tuned.work) for tuned in first} == {tuned.chosen for tuned in first}
    assert mxsame.autotune(network(), images(), rounds=1) == []  # remembered, file or not


def test_several_inputs():
    layer = mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3)
    net = running.Own(lambda F, x, more, conv: (conv(x) + conv(more[0]), conv(more[1])), layer)
    net.initialize()
    (tuned,) = mxsame.autotune(net, images(), [images(), images()], rounds=1, training=True)
    assert tuned.windows == STEM


def test_a_forced_plan_does_not_keep_from_measuring(monkeypatch):
    fastest(monkeypatch, "slice")
    with mxsame.plan.force("pad"):
        plans = mxsame.autotune(network(), images(), rounds=1)
    assert all(len(tuned.seconds) > 1 for tuned in plans)


def untrained():
    net = network()
    net.collect_params().setattr("grad_req", "null")
    return net


REFUSED = [
    (lambda: (3, images()), {}, TypeError, "net must be a gluon.HybridBlock; received net of type int"),
    (lambda: (network(),), {}, TypeError, r"args must be arrays; received args of types \[\]"),
    (lambda: (network(), mx.sym.var("data")), {}, TypeError, "args must be arrays; received args of types"),
    (lambda: (network(), images()), {"training": 1}, TypeError, "training must be True or False; received training=1"),
    (lambda: (network(), images()), {"rounds": 0}, ValueError, "rounds must be an integer >= 1; received rounds=0"),
    (lambda: (network(), images()), {"path": "no/plans"}, ValueError, "path must be in a folder that exists; received"),
    (lambda: (network(), images()), {"path": "tests"}, ValueError, "path must be a file .*; received path='tests'"),
    (lambda: (untrained(), images()), {"training": True}, ValueError, "MXNet says: .*computational graph"),
]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_was_not_measured_to_the_end_is_not_remembered(monkeypatch, error, tmp_path):
    path = tmp_path / "plans.json"
    fastest(monkeypatch, "kernel")
    first, calls = tune.measure, []

    def interrupted(*args, **more):
        calls.append(None)
        if len(calls) > 1:
            raise error
        return first(*args, **more)

    monkeypatch.setattr(tune, "measure", interrupted)
    with pytest.raises(error):
        mxsame.autotune(network(), images(), rounds=1, path=path)
    assert list(measured.everything().values()) == ["kernel"]
    assert len(json.loads(path.read_text())[FORMAT]) == 1  # what was measured is not lost
    assert [file.name for file in tmp_path.iterdir()] == ["plans.json"]


@pytest.mark.parametrize(("make", "more", "error", "message"), REFUSED)
def test_refusals(make, more, error, message):
    with pytest.raises(error, match=message):
        mxsame.autotune(*make(), **more)
    assert not measured.everything()


def test_what_mxnet_refuses_is_a_value_error():
    net = nn.HybridSequential()
    net.add(mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3), nn.Dense(3, in_units=7))
    net.initialize()
    with pytest.raises(ValueError, match=r"net must run on .*; received shapes=\[\(2, 3, 16, 16\)\]; MXNet says: "):
        mxsame.autotune(net, images())


@pytest.mark.parametrize(
    "content",
    ["", "no JSON", "\x00\xff", "[]", "{}", "null", "[" * 200_000, '{"mxsame plans 3": {}}']
    + [json.dumps({FORMAT: entries}) for entries in (None, [3], {"a": "fastest"}, {"a": []})],
    ids=str.strip,
)
def test_other_files_are_refused_and_change_nothing(tmp_path, content):
    path = tmp_path / "plans.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"^path must be a file that mxsame.autotune of this version has written \("):
        mxsame.autotune(network(), images(), path=path)
    assert not measured.everything() and path.read_text(encoding="latin-1") == content
