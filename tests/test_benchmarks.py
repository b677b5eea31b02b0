"""The benchmarks measure what they say: contestants compute what is claimed of them; files, pictures and targets."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import running

from mxsame._mxnet import mx

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the folder benchmarks is not part of a source distribution", allow_module_level=True)
sys.path.append(str(ROOT))

from click.testing import CliRunner  # noqa: E402

from benchmarks import layers, memory, networks, planner, plots, results, sizes, targets  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.architectures import NETWORKS  # noqa: E402
from mxsame.planner import Costs  # noqa: E402

by_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)


def small(network, batch=2):
    return networks.case(network, batch, size=40, width=0.125)


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


# -- networks


@by_network
def test_styles_of_a_network_agree_in_values_and_symmetric_padding_only_in_shape(network):
    case = small(network)
    calls = networks.inference_calls(case, tensorflow=False)
    networks.check(calls, networks.TOLERANCE, tensorflow=False)
    want, symmetric = calls["explicit pad"](), calls["symmetric"]()
    assert symmetric.shape == want.shape
    assert networks.difference(symmetric, want) > 50 * networks.TOLERANCE


def test_a_training_step_lowers_the_same_loss_in_every_style():
    case = small(NETWORKS[-1])
    steps = networks.training_calls(case, tensorflow=False)
    networks.check(steps, networks.LOSS_TOLERANCE, tensorflow=False, calls_each=2)
    first, *_, last = [steps["mxsame"]() for _ in range(5)]
    assert last < first


@pytest.mark.oracle
@pytest.mark.parametrize("network", NETWORKS[2:], ids=lambda network: network.name)
def test_a_network_is_tensorflows(network):
    case = small(network, batch=1)
    made = networks.kits(case, ["mxsame"])["mxsame"]
    data = networks.images(case)
    want = networks._tensorflow_model(case, made)(np.moveaxis(data.asnumpy(), 1, -1)).numpy()
    want = np.moveaxis(want, -1, 1) if want.ndim > 2 else want
    assert networks.difference(made.net(data), want) < networks.TOLERANCE


def test_networks_that_differ_are_not_timed():
    calls = {"explicit pad": lambda: mx.nd.ones(3), "mxsame": lambda: mx.nd.ones(3) * 1.01}
    with pytest.raises(networks.Disagreement, match="mxsame and explicit pad differ"):
        networks.check(calls, networks.TOLERANCE, tensorflow=False)
    calls["symmetric"] = calls.pop("mxsame")
    networks.check(calls, networks.TOLERANCE, tensorflow=False)


# -- layers


ONE_OF_EACH = [
    layers.Layer("even kernel", "conv", 3, (11, 12), 4, 4, 1, batch=2),
    layers.Layer("odd kernel", "conv", 3, (11, 12), 4, (3, 1), 1, batch=2),
    layers.Layer("strides", "conv", 3, (11, 12), 4, 3, 2, batch=2),
    layers.Layer("one axis", "conv", 3, (16,), 4, 5, 3, batch=2),
    layers.Layer("three axes", "conv", 3, (4, 5, 6), 4, 3, 2, batch=2),
    layers.Layer("depthwise", "depthwise", 4, (8, 10), 4, 3, 2, batch=2),
    layers.Layer("even max pool", "max", 3, (8, 9), 3, 2, 1, batch=2),
    layers.Layer("max pool", "max", 3, (8, 9), 3, 3, 2, batch=2),
    layers.Layer("avg pool", "avg", 3, (8, 9), 3, 2, 2, batch=2),
    layers.Layer("even avg pool", "avg", 3, (8, 9), 3, 4, 1, batch=2),
    layers.Layer("transposed", "transposed", 3, (5, 6), 4, 3, 2, batch=2),
]
EXACT = ("mxsame, size known", "mxsame, size unknown", "explicit pad", "k//2 and slice")


def outputs(layer):
    """Of every contestant, for the same data and weights."""
    nets, data = layers.contestants(layer), layers.inputs(layer, train=False)
    first = nets["symmetric"].collect_params().values()
    for net in nets.values():
        for source, parameter in zip(first, net.collect_params().values()):
            parameter.set_data(source.data())
    return {name: net(data).asnumpy() for name, net in nets.items()}


@pytest.mark.parametrize("layer", ONE_OF_EACH, ids=lambda layer: layer.name)
def test_contestants_of_a_layer_are_as_exact_as_they_claim(layer):
    found = outputs(layer)
    want = found["mxsame, size known"]
    assert ("k//2 and slice" in found) == (layer.stride == 1)
    for name, got in found.items():
        if name != "symmetric":
            assert got.shape == want.shape, name
        if name in EXACT and (name, layer.kind) != ("explicit pad", "avg"):
            assert running.difference(got, want) < 1e-5, name
    if layer.odd and layer.kind != "transposed":
        assert running.difference(found["keras-mxnet (inexact)"], want) > 1e-2
        halves = found["keras-mxnet (inexact)"], found["keras-mxnet (inexact), padded"]
        if layer.kind != "avg":  # the pad operator's zeros count
            assert running.difference(*halves) < 1e-5


def test_layers_are_many_and_named_once():
    names = [layer.name for layer in layers.LAYERS]
    assert len(names) == len(set(names)) >= 24
    assert {layer.kind for layer in layers.LAYERS} == {"conv", "depthwise", "max", "avg", "transposed"}
    assert {layer.rank for layer in layers.LAYERS} == {1, 2, 3}
    assert {layer.batch for layer in layers.LAYERS} >= {1, 8}


@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_the_planner_meets_each_other_graph_once(known, train):
    layer = ONE_OF_EACH[2]
    calls, alias = planner.plans(layer, known, train, layers.inputs(layer, train))
    assert alias
    assert len(calls) > 2 and not set(alias) & set(calls)
    row = planner.measure(layer, known, train, rounds=1, seconds=0.01)
    assert set(row["figures"]) == set(calls)
    assert row["loss"] == 1.0 if row["best"] == "planner" else row["loss"] >= 1.0


def test_every_constant_of_the_estimate_is_measured(tmp_path):
    printed = run("costs", "--rounds", 1, "--out", tmp_path / "costs.json")
    rows = results.load(tmp_path / "costs.json")["rows"]
    assert {row["name"] for row in rows} == {field.name for field in dataclasses.fields(Costs)}
    assert all(row["measured"] >= 0 and row["name"] in printed for row in rows)
    assert sum(row["measured"] > 0 for row in rows) > len(rows) / 2


# -- memory and sizes


def test_memory_is_measured_in_a_process_of_its_own():
    case = small(NETWORKS[-1])
    arguments = {"network": case.network.name, "batch": case.batch, "size": case.size, "width": case.width}
    for task in ("inference", "training"):
        assert memory.measure_one("mxsame", task, **arguments) >= 0
    assert memory.alone("memory:measure_one", contestant="symmetric", task="inference", **arguments) > 1
    with pytest.raises(RuntimeError, match="nobody"):
        memory.alone("memory:measure_one", contestant="nobody", task="inference", **arguments)


def test_many_sizes_are_different_and_all_are_called():
    assert len(set(sizes.sizes("rectangles", 100))) == 100
    assert all(height == width for height, width in sizes.sizes("squares", 10))
    rows = sizes.measure_steady("autoencoder", 0.05, "rectangles", 2, rounds=1)
    assert {row["reference"] for row in rows} == {"one size at a time", "symmetric"}
    found = sizes.first_calls("autoencoder", 0.05, "mxsame", "squares", 9)
    remainders = {height % 8 for height, _ in sizes.sizes("squares", 9)}  # modulo its three strides of 2
    assert found["graphs"] == len(remainders)


# -- files, pictures and targets


def test_a_table_is_printed_written_and_drawn(tmp_path):
    file = tmp_path / "tables" / "layers.json"
    said = run("layers", "--match", "max pool 64 k2 s1", "--rounds", 1, "--out", file)
    assert "max pool 64 k2 s1" in said
    result = json.loads(file.read_text())
    (row,) = result["rows"]
    assert result["table"] == "layers"
    assert row["odd"]
    assert row["reference"] == "symmetric"
    assert set(row["figures"]) > {"symmetric", "mxsame, size known", "explicit pad"}
    assert all(figure["ratio"] > 0 for figure in row["figures"].values())
    wanted = {"date", "machine", "cpu", "cores", "python", "mxnet", "numpy", "tensorflow", "mxsame", "commit"}
    assert wanted <= set(result["provenance"])
    picture = file.with_suffix(".png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    run("plot", file)
    assert picture.is_file()


def test_networks_from_the_command_line(tmp_path):
    arguments = "--match autoencoder --size 32 --width 0.05 --batch 1 --training-batch 2 --rounds 1 --no-tensorflow"
    run("networks", *arguments.split(), "--out", tmp_path / "networks.json")
    rows = results.load(tmp_path / "networks.json")["rows"]
    assert [row["mode"] for row in rows] == ["inference", "inference, deployed", "training step"]


def row_of(name, mode, ratios, reference="symmetric", **more):
    return results.row(
        name, mode, {reference: [2.0], **{key: [2.0 * x] for key, x in ratios.items()}}, reference, **more
    )


def synthetic(folder):
    known, unknown = "mxsame, size known", "mxsame, size unknown"
    layer_rows = [
        row_of("a", "forward", {known: 1.0, unknown: 1.0, "explicit pad": 2.0}, odd=True),
        row_of("b", "forward", {known: 1.21, unknown: 4.0, "explicit pad": 1.0}, odd=False),
    ]
    results.save(folder / "1.json", "layers", "Layers", layer_rows[:1])
    results.save(folder / "2.json", "layers", "Layers", layer_rows[1:])
    deployed = row_of(
        "m", "inference, beside TensorFlow", {"mxsame, deployed": 0.4}, "TensorFlow", network="mobilenetv2", batch=1
    )
    results.save(folder / "3.json", "networks", "Networks", [deployed])
    return folder


def test_targets_are_judged_from_the_files_of_a_folder(tmp_path):
    judged = {
        target.name: (figure, verdict) for target, figure, verdict in targets.judge(targets.read(synthetic(tmp_path)))
    }
    assert judged["layers, size known: geometric mean"] == (pytest.approx(1.1), "missed")
    assert judged["layers, size known: worst"] == (pytest.approx(1.21), "must")
    assert judged["layers, size unknown: worst"] == (pytest.approx(4.0), "missed")
    assert judged["layers with odd padding: times faster than explicit pad"] == (pytest.approx(2.0), "aim")
    assert judged["MobileNetV2 deployed, batch 1: times faster than TensorFlow"] == (pytest.approx(2.5), "aim")
    assert judged["planner, size known: worst"][1] is None
    said = run("targets", "--results", tmp_path)
    assert "NOT MET" in said
    assert "not measured" in said


def test_a_file_that_is_no_result_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"table": "layers"}')
    with pytest.raises(ValueError, match="a result file must have provenance, rows"):
        targets.read(tmp_path)


def test_a_picture_of_many_rows_and_modes(tmp_path):
    rows = [
        row_of(f"row {number}", mode, {"a": 1.1 * number, "b": 0.5})
        for mode in ("one", "two")
        for number in range(1, 30)
    ]
    plots.draw(results.save(tmp_path / "x.json", "layers", "Layers", rows), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_help_names_every_command():
    said = run("--help")
    for command in ("layers", "planner", "costs", "networks", "sizes", "memory", "targets", "plot", "all"):
        assert command in said
        assert "Usage" in run(command, "--help")


def test_a_name_that_nothing_has_is_refused():
    result = CliRunner().invoke(main, ["layers", "--match", "nothing"])
    assert result.exit_code == 2
    assert "no name contains 'nothing'" in result.output
