"""The benchmarks measure what they claim: variants compute what is claimed of them, and files are whole."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import running
from click.testing import CliRunner

from mxsame._mxnet import mx

pytest.importorskip("benchmarks", reason="the folder benchmarks is not part of a source distribution")

from benchmarks import exporters, gpu, gpu_fit, layers, memory, names, networks, onnx, peers, planner, results, targets
from benchmarks.__main__ import main
from benchmarks.architectures import NETWORKS, named
from benchmarks.variants import Layer
from benchmarks.worker import Remote, closing
from mxsame.planner import GPU_COSTS, Costs


def small(network, batch=2):
    return networks.case(network, batch, size=40, width=0.125)


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


# -- networks


def test_styles_of_a_network_agree_in_values_and_symmetric_padding_only_in_shape():
    calls = networks.inference_calls(small(named("unet")), tensorflow=False)
    networks.check(calls, networks.TOLERANCE)
    want, symmetric = calls["explicit pad"](), calls["symmetric"]()
    assert symmetric.shape == want.shape
    assert networks.difference(symmetric, want) > 50 * networks.TOLERANCE


def test_another_runtime_is_timed_in_a_process_of_its_own():
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    pytest.importorskip("h5py", reason="h5py is not installed: pip install '.[keras]'")
    case = small(named("autoencoder"), batch=1)
    (row,) = peers.measure(case, {"ONNX Runtime": sys.executable}, rounds=1, turn=0.01)
    assert set(row["figures"]) == {"mxsame, deployed", "ONNX Runtime"} and results.ratio(row, "ONNX Runtime") > 0


def test_a_training_step_lowers_the_same_loss_in_every_style():
    steps = networks.training_calls(small(NETWORKS[-1]), tensorflow=False)
    networks.check(steps, networks.LOSS_TOLERANCE, calls_each=2)
    first, *_, last = [steps["mxsame"]() for _ in range(5)]
    assert last < first


@pytest.mark.oracle
def test_a_network_is_tensorflows_in_a_process_of_its_own():
    case = small(named("unet"), batch=1)
    made = networks.kits(case, ["mxsame"])["mxsame"]
    data = networks.images(case)
    with closing({"": Remote("networks:tensorflow", train=False, **case.numbers)}) as calls:
        assert networks.difference(made.net(data), calls[""]()) < networks.TOLERANCE
        assert calls[""].timed(2) > 0


def test_variants_with_different_outputs_are_not_timed():
    calls = {"explicit pad": lambda: mx.nd.ones(3), "mxsame": lambda: mx.nd.ones(3) * 1.01}
    with pytest.raises(networks.Disagreement, match="mxsame and explicit pad differ"):
        networks.check(calls, networks.TOLERANCE)
    calls["symmetric"] = calls.pop("mxsame")
    networks.check(calls, networks.TOLERANCE)
    with pytest.raises(networks.Disagreement, match="mxsame's file and TensorFlow differ by 0"):
        onnx.check({onnx.TENSORFLOW: lambda: np.ones(3), onnx.OURS: lambda: np.array([1, 1, 1.001])})


# -- layers

ONE_OF_EACH = [
    layers.Layer("even kernel", "conv", 3, (11, 12), 4, 4, 1, batch=2),
    layers.Layer("strides", "conv", 3, (11, 12), 4, 3, 2, batch=2),
    layers.Layer("each axis its own", "conv", 3, (9, 8, 7), 4, (3, 2, 1), (2, 1, 3), batch=1, dilation=(1, 2, 1)),
    layers.Layer("one axis", "conv", 3, (16,), 4, 5, 3, batch=2),
    layers.Layer("depthwise", "depthwise", 4, (8, 10), 4, 3, 2, batch=2),
    layers.Layer("max pool", "max", 3, (8, 9), 3, 3, 2, batch=2),
    layers.Layer("even avg pool", "avg", 3, (8, 9), 3, 4, 1, batch=2),
    layers.Layer("transposed", "transposed", 3, (5, 6), 4, 3, 2, batch=2),
]
EXACT = ("mxsame, static shape", "mxsame, dynamic shape", "explicit pad")


@pytest.mark.parametrize("layer", ONE_OF_EACH, ids=lambda layer: layer.name)
def test_variants_of_a_layer_are_as_exact_as_they_claim(layer):
    """With the data and the weights of one of them."""
    nets, data = layers.variants(layer), layers.inputs(layer, train=False)
    for net in nets.values():
        for source, parameter in zip(nets["symmetric"].collect_params().values(), net.collect_params().values()):
            parameter.set_data(source.data())
    outputs = {name: net(data).asnumpy() for name, net in nets.items()}
    want = outputs["mxsame, static shape"]
    for name, got in outputs.items():
        assert got.shape == want.shape or (name == "symmetric" and layer.stride == 1), name
        if name in EXACT and (name, layer.kind) != ("explicit pad", "avg"):
            assert running.difference(got, want) < 1e-5, name


@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_the_planner_is_compared_with_each_other_graph_once(static, train, monkeypatch):
    layer = ONE_OF_EACH[1]
    calls, alias = planner.plans(layer, static, train, layers.inputs(layer, train))
    assert len(calls) > 1 and alias and not set(alias) & set(calls)
    with monkeypatch.context() as patch:
        patch.setattr(mx.nd, "CachedOp", None)  # what is timed has its graph, and makes no other one
        for call in calls.values():
            call()
    row = planner.measure(layer, static, train, rounds=1, seconds=0.01)
    assert set(row["figures"]) == {*calls, "symmetric", "explicit pad"}
    assert row["loss"] == 1.0 if row["best"] == "planner" else row["loss"] >= 1.0 and row["best"] != "symmetric"


def test_every_constant_of_the_estimate_is_measured(tmp_path):
    run("costs", "--rounds", 1, "--out", tmp_path / "costs.json")
    rows = results.load(tmp_path / "costs.json")["rows"]
    assert {row["name"] for row in rows} == {field.name for field in dataclasses.fields(Costs)}
    assert any(row["measured"] > 0 for row in rows)  # on a busy machine some are lost in noise, and 0


# -- GPUs


def gpu_rows():
    return [row for path in results.FOLDER.glob("gpu-*.json") for row in results.load(path)["rows"]]


@pytest.mark.parametrize("mode", gpu.MODES, ids=lambda mode: mode.title)
def test_the_planner_chooses_what_was_the_fastest_on_a_gpu(mode):
    """By the times that were recorded: on average, and nowhere much worse."""
    losses = [gpu.loss(row) for row in gpu_rows() if row["mode"] == mode.title]
    assert len(losses) > 8 and results.geometric_mean(losses) < 1.02 and max(losses) < 1.1


def test_constants_of_a_gpu_are_fitted_to_its_times():
    """Those that its times were made with are found again, nearly."""
    points = [point for point in gpu_fit.points(gpu_rows()) if point.row["mode"] == gpu.Mode().title]
    made = dataclasses.replace(GPU_COSTS, pad=0.006, operator=4e3)
    exact = [point._replace(measured=point.measured * math.exp(point.error(made))) for point in points]
    assert gpu_fit.error(made, exact) < 1e-9 < gpu_fit.error(GPU_COSTS, exact)
    fitted = gpu_fit.fit(exact)
    assert fitted.pad == pytest.approx(0.006, rel=0.1) and fitted.operator == pytest.approx(4e3, rel=0.1)


@pytest.mark.parametrize("mode", gpu.MODES[:3:2], ids=lambda mode: mode.title)
def test_a_layer_on_a_gpu_is_timed_by_each_plan(mode, monkeypatch):
    """On the CPU instead: every plan that a choice needs is there, and a plan with other values is refused."""
    monkeypatch.setattr(mx, "gpu", mx.cpu)
    layer = Layer("conv 2-3 k3 s2, 8x8", "conv", 2, (8, 8), 3, 3, 2, batch=1)
    row = gpu.measure(mode, layer, rounds=1, turn=0)
    assert set(row["figures"]) >= {"symmetric", "explicit pad", "planner", gpu.choice(row), *row["planned"]}
    assert gpu.loss(row) >= 1 and all(math.isfinite(point.error(GPU_COSTS)) for point in gpu_fit.points([row]))
    wrong = {"planner": lambda: mx.nd.ones(2), "pad": lambda: mx.nd.array([1, 1.01])}
    with pytest.raises(RuntimeError, match="pad must give what the planner's plan gives"):
        gpu._check_values(wrong, gpu.TOLERANCE["float32"])


def test_memory_is_measured_in_a_process_of_its_own():
    arguments = {"task": "inference", "network": "autoencoder", "batch": 2, "size": 40, "width": 0.125}
    assert memory.alone("memory:measure_one", variant="symmetric", **arguments) > 1


@pytest.mark.oracle
def test_files_of_both_writers_agree_with_tensorflow_and_their_nodes_are_counted():
    pytest.importorskip("tf2onnx", reason="pip install '.[oracle,onnx,benchmarks]'")
    nodes, _, two = onnx.measure("autoencoder", batches=(1, 2), size=32, width=0.05, rounds=1, turn=1e-3)
    ours, theirs = nodes["operators"][onnx.OURS], nodes["operators"][onnx.THEIRS]
    assert nodes["figures"][onnx.OURS]["median"] == sum(ours.values()) <= sum(theirs.values())
    assert 0 < max(two["differences"].values()) < onnx.TOLERANCE


def test_an_exporter_is_right_if_its_file_is_written_runs_and_agrees():
    pytest.importorskip("onnxruntime", reason="pip install '.[onnx]'")
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    data = np.ones((1, 3), "float32")
    want = net(mx.nd.array(data)).asnumpy()
    assert exporters.is_right(exporters.exported(exporters.by_mxsame, net, data, want))
    assert not exporters.is_right(exporters.exported(exporters.by_mxsame, net, data, want + 1))
    unreadable = exporters.exported(lambda net, shape, file: Path(file).write_bytes(b""), net, data, want)
    assert not exporters.is_right(unreadable)


# -- files, pictures and targets


def test_a_table_is_printed_written_and_drawn_and_a_row_that_fails_leaves_the_others(tmp_path, monkeypatch):
    measure, file = layers.measure, tmp_path / "tables" / "layers.json"

    def fails(layer, *args, **timing):
        if layer.name == "max pool 64 k3 s2":
            raise networks.Disagreement("it differs")
        return measure(layer, *args, **timing)

    monkeypatch.setattr(layers, "measure", fails)
    result = CliRunner().invoke(main, ["layers", "--match", "max pool 64", "--rounds", "1", "--out", str(file)])
    assert result.exit_code == 1
    assert "max pool 64 k2 s1" in result.output and "k3 s2 failed: Disagreement: it differs" in result.output
    made = json.loads(file.read_text())
    assert [row["name"] for row in made["rows"]] == ["max pool 64 k2 s2", "max pool 64 k2 s1"]
    assert [each["name"] for each in made["failures"]] == ["max pool 64 k3 s2"]
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_targets_are_judged_from_all_files_of_a_folder(tmp_path):
    for name, time in (("a", 2.0), ("b", 2.46)):
        row = results.row(name, "forward", {"symmetric": [2.0], "mxsame, static shape": [time]}, "symmetric")
        results.save(tmp_path / f"{name}.json", "layers", "Layers", [row])
    judged = {target.name: figures for target, *figures in targets.judge(targets.read(tmp_path))}
    of = "layers, forward: mxsame, static shape / symmetric"
    assert judged[f"{of}, geometric mean"] == [pytest.approx(1.11, abs=0.01), "NOT MET"]
    assert judged[f"{of}, worst"] == [pytest.approx(1.23), "met"]
    assert judged["planner, static shape, forward: loss, worst"][1] == "not measured"
    (tmp_path / "other.json").write_text('{"table": "layers"}')
    with pytest.raises(ValueError, match="a result file must have provenance, rows"):
        targets.read(tmp_path)


def test_the_recorded_figures_are_in_the_words_of_the_tables_and_pictures():
    tables = targets.read(results.FOLDER)
    assert not [target for target, _, verdict in targets.judge(tables) if verdict == "not measured"]
    assert list(names.NETWORKS) == [network.name for network in NETWORKS]
    for row in tables["onnx"]:
        if row["mode"] == "nodes of the file" and row["network"] not in onnx.SMALL:  # no node that SAME caused
            ours = row["operators"][onnx.OURS]
            assert ours["Transpose"] <= 2 and not {"Pad", "Slice"} & set(ours), row["network"]
