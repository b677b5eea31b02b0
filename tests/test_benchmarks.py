"""The benchmarks measure what they claim: variants compute what is claimed of them; files, pictures and targets."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import running
from fake_cuda import make, needs_gcc

from mxsame._mxnet import mx

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the folder benchmarks is not part of a source distribution", allow_module_level=True)
sys.path.append(str(ROOT))

from click.testing import CliRunner  # noqa: E402

from benchmarks import gpu, layers, memory, names, networks, planner, plots, results, sampled, sizes, targets  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.architectures import NETWORKS, named  # noqa: E402
from mxsame import bench  # noqa: E402
from mxsame.bench import figures  # noqa: E402
from mxsame.installation import cuda  # noqa: E402
from mxsame.planner import Costs  # noqa: E402

CPU = mx.cpu()
by_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)


def small(network, batch=2):
    return networks.case(network, batch, size=40, width=0.125)


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


# -- networks


ALIKE = ("vgg16", "inceptionv3")  # SAME pads both ends alike, whatever the size


@by_network
def test_styles_of_a_network_agree_in_values_and_symmetric_padding_only_in_shape(network):
    case = small(network)
    calls = networks.inference_calls(case, tensorflow=False)
    networks.check(calls, networks.tolerance(CPU))
    want, symmetric = calls["explicit pad"](), calls["symmetric"]()
    assert symmetric.shape == want.shape
    wrong = networks.difference(symmetric, want)
    assert wrong < networks.tolerance(CPU) if network.name in ALIKE else wrong > 50 * networks.tolerance(CPU)


@pytest.mark.parametrize("name", ["vgg16", "inceptionv3", "unet"])
def test_a_network_takes_the_next_size_that_fits(name):
    network = named(name)
    taken = networks.case(network, 1, 31, width=0.05)
    networks.kits(taken, ["mxsame"])
    with pytest.raises(ValueError, match=r"must be at least as long as the kernel|parts must have one size"):
        networks.kits(dataclasses.replace(taken, size=taken.size - 1), ["mxsame"])
    assert networks.case(network, 1, taken.size) == networks.case(network, 1, taken.size - 1)


def test_a_training_step_lowers_the_same_loss_in_every_style():
    case = small(NETWORKS[-1])
    steps = networks.training_calls(case, tensorflow=False)
    networks.check(steps, networks.LOSS_TOLERANCE, calls_each=2)
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
    assert networks.difference(made.net(data), want) < networks.tolerance(CPU)


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "model"), [("vgg16", "VGG16"), ("inceptionv3", "InceptionV3")])
def test_a_network_has_the_layers_of_keras(name, model):
    """With their padding and the shapes of their outputs, at a size that strides do not divide."""
    network = named(name)
    case = networks.case(network, 1, network.smallest + 31)
    from benchmarks import tensorflow_kit

    kit = tensorflow_kit.TensorFlow()
    x = kit.input(networks.CHANNELS, case.shape[2:])
    ours = tensorflow_kit.tf.keras.Model(x.value, network.build(kit, x).value)
    made = getattr(tensorflow_kit.tf.keras.applications, model)
    theirs = made(weights=None, include_top=False, input_shape=(*case.shape[2:], networks.CHANNELS))
    numbers: dict = {}
    assert graph(ours, numbers) == graph(theirs, numbers)


def graph(model, numbers):
    """Convolutions, pooling layers and concatenations of a Keras model: a number for each, which stands for its
    settings, the shape of its output, and the numbers of those before it."""
    keys = ("filters", "kernel_size", "pool_size", "strides", "padding", "dilation_rate", "use_bias")
    found = {}
    for layer in model.layers:  # each is after its inputs
        inputs = layer.input if isinstance(layer.input, list) else [layer.input]
        before = [found[each.node.layer.name] for each in inputs if each.node.layer is not layer]
        if layer.__class__.__name__ in ("Conv2D", "MaxPooling2D", "AveragePooling2D", "Concatenate"):
            settings = [str(layer.get_config().get(key)) for key in keys]
            kind = (layer.__class__.__name__, *settings, layer.output_shape, *before)
            before = [numbers.setdefault(kind, len(numbers) + 1)]
        found[layer.name] = before[0] if before else 0
    return set(found.values())


def test_networks_that_differ_are_not_timed():
    calls = {"explicit pad": lambda: mx.nd.ones(3), "mxsame": lambda: mx.nd.ones(3) * 1.01}
    with pytest.raises(networks.Disagreement, match="mxsame and explicit pad differ"):
        networks.check(calls, networks.tolerance(CPU))
    calls["symmetric"] = calls.pop("mxsame")
    networks.check(calls, networks.tolerance(CPU))


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
EXACT = ("mxsame, static shape", "mxsame, dynamic shape", "explicit pad", "k//2 and slice")


def outputs(layer):
    """Of every variant, for the same data and weights."""
    nets, data = layers.variants(layer), layers.inputs(layer, train=False)
    first = nets["symmetric"].collect_params().values()
    for net in nets.values():
        for source, parameter in zip(first, net.collect_params().values()):
            parameter.set_data(source.data())
    return {name: net(data).asnumpy() for name, net in nets.items()}


@pytest.mark.parametrize("layer", ONE_OF_EACH, ids=lambda layer: layer.name)
def test_variants_of_a_layer_are_as_exact_as_they_claim(layer):
    found = outputs(layer)
    want = found["mxsame, static shape"]
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
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_the_planner_is_compared_with_each_other_graph_once(static, train):
    layer = ONE_OF_EACH[2]
    calls, alias = planner.plans(layer, static, train, layers.inputs(layer, train))
    assert alias
    assert len(calls) > 2 and not set(alias) & set(calls)
    row = planner.measure(layer, static, train, rounds=1, seconds=0.01)
    assert set(row["figures"]) == {*calls, "symmetric", "explicit pad"}
    assert row["best"] != "symmetric"
    assert row["loss"] == 1.0 if row["best"] == "planner" else row["loss"] >= 1.0


def test_layers_drawn_at_random_are_those_of_their_seed_and_of_every_kind():
    drawn = sampled.layers(sampled.HELD_OUT, 100)
    assert drawn == sampled.layers(sampled.HELD_OUT, 100)
    for seed in sampled.FITTED:
        assert not set(drawn) & set(sampled.layers(seed, 120))
    assert {(layer.kind, layer.rank) for layer in drawn} > {
        (kind, rank) for kind in ("conv", "depthwise") for rank in (1, 2, 3)
    }
    for layer in drawn:
        assert any(low != high for window in layer.windows for low, high in map(window.pads, range(20, 30)))


def test_layers_drawn_at_random_are_a_table(tmp_path):
    printed = run("sampled", "--count", 1, "--rounds", 1, "--no-picture", "--out", tmp_path / "sampled.json")
    rows = results.load(tmp_path / "sampled.json")["rows"]
    assert [row["mode"] for row in rows] == ["static shape, forward", "dynamic shape, forward"]
    assert rows[0]["name"] in printed and all({"symmetric", "explicit pad"} < set(row["figures"]) for row in rows)


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
        assert memory.measure_one("mxsame", task, **arguments) > -1  # the kernel counts pages in batches
    assert memory.alone("memory:measure_one", variant="symmetric", task="inference", **arguments) > 1
    with pytest.raises(RuntimeError, match="nobody"):
        memory.alone("memory:measure_one", variant="nobody", task="inference", **arguments)


def test_many_sizes_are_different_and_all_are_called():
    assert len(set(sizes.sizes("rectangles", 100))) == 100
    assert all(height == width for height, width in sizes.sizes("squares", 10))
    rows = sizes.measure_steady("autoencoder", 0.05, "rectangles", 2, rounds=1)
    assert {row["reference"] for row in rows} == {"one size at a time", "symmetric"}
    found = sizes.first_calls("autoencoder", 0.05, "mxsame", "squares", 9)
    remainders = {height % 8 for height, _ in sizes.sizes("squares", 9)}  # modulo its three strides of 2
    assert found["graphs"] == len(remainders)


def test_first_calls_are_repeated_in_new_processes(monkeypatch):
    """And the variants take turns."""
    seconds, asked = iter(range(1, 10)), []

    def alone(task, variant, **given):
        asked.append(variant)
        return {"seconds": next(seconds), "MiB": 3.0, "graphs": 7 if variant == "mxsame" else 1}

    monkeypatch.setattr(sizes, "alone", alone)
    time, memory = sizes.measure_first_calls("autoencoder", 0.05, "squares", 9, rounds=3)
    assert [sorted(asked[start : start + 3]) for start in (0, 3, 6)] == [sorted(sizes.VARIANTS)] * 3
    for variant in sizes.VARIANTS:
        (_, median, _) = (number for number, name in enumerate(asked, 1) if name == variant)
        assert time["figures"][variant]["median"] == median and memory["figures"][variant]["median"] == 3.0
    assert time["graphs"] == 7 and time["name"] == "9 squares"


# -- files of Keras models


@pytest.mark.oracle
def test_files_are_read_by_both_in_processes_of_their_own(tmp_path):
    run(
        "convert", "--model", "MobileNet", "--match", ".h5", "--rounds", 1, "--no-picture", "--out", tmp_path / "x.json"
    )
    time, memory = results.load(tmp_path / "x.json")["rows"]
    assert (time["mode"], time["reference"], set(time["figures"])) == ("time", "tf.keras", {"mxsame", "tf.keras"})
    figures = memory["figures"]
    assert memory["parameters"] == 4_253_864
    assert figures["weights"]["median"] == pytest.approx(4_253_864 * 4 / 2**20)
    assert 0.9 < figures["mxsame"]["ratio"] < figures["tf.keras"]["ratio"]


def test_without_tensorflow_no_file_can_be_written(monkeypatch):
    monkeypatch.setattr(networks, "HAS_TENSORFLOW", False)
    code, text = refused("convert")
    assert code == 1
    assert text == "Error: convert runs on the CPU, and TensorFlow writes its files (the extra [oracle])."


# -- ONNX


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "size"), [("autoencoder", 32), ("MobileNetV2", 96)])
def test_files_of_both_writers_agree_with_tensorflow_and_their_nodes_are_counted(name, size):
    onnx = onnx_benchmark()
    nodes, one, two = onnx.measure(name, batches=(1, 2), size=size, width=0.05, rounds=1, turn=1e-3)
    assert (nodes["mode"], one["batch"], two["batch"]) == ("nodes of the file", 1, 2)
    ours, theirs = nodes["operators"][onnx.OURS], nodes["operators"][onnx.THEIRS]
    assert nodes["figures"][onnx.OURS]["median"] == sum(ours.values()) <= sum(theirs.values())
    assert ours["Transpose"] == 1 + (name == "autoencoder") and not {"Pad", "Slice"} & set(ours)
    assert set(one["figures"]) == {onnx.DEPLOYED, onnx.OURS, onnx.THEIRS, onnx.TENSORFLOW}
    assert 0 < max(two["differences"].values()) < onnx.TOLERANCE


def onnx_benchmark():
    for package in ("tf2onnx", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[oracle,onnx,benchmarks]'")
    from benchmarks import onnx

    return onnx


def test_models_that_differ_from_tensorflow_are_not_timed():
    from benchmarks import onnx

    calls = {onnx.TENSORFLOW: lambda: np.ones(3), onnx.OURS: lambda: np.array([1, 1, 1.001])}
    with pytest.raises(networks.Disagreement, match="mxsame's file and TensorFlow differ by 0"):
        onnx.check(calls)


def test_without_its_extras_there_is_one_clear_line(monkeypatch):
    from benchmarks import onnx

    monkeypatch.setattr(onnx, "CAN_RUN", False)
    code, text = refused("onnx")
    assert code == 1
    assert text.startswith("Error: onnx runs on the CPU, with TensorFlow and tf2onnx")


def test_an_exporter_is_right_if_its_file_is_written_runs_and_agrees(monkeypatch):
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="pip install '.[onnx]'")
    from benchmarks import exporters

    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    data = np.ones((1, 3), "float32")
    want = net(mx.nd.array(data)).asnumpy()

    def fails(net, shape, file):
        raise ValueError("no")

    assert exporters.is_right(exporters.exported(exporters.by_mxsame, net, data, want))
    assert not exporters.is_right(exporters.exported(exporters.by_mxsame, net, data, want + 1))
    assert exporters.exported(fails, net, data, want) == {"error": "ValueError: no"}
    unreadable = exporters.exported(lambda net, shape, file: Path(file).write_bytes(b""), net, data, want)
    assert not exporters.is_right(unreadable)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's exporter and of protobuf
def test_both_exporters_are_given_the_same_net():
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="pip install '.[onnx]'")
    from benchmarks import exporters

    found = exporters.measure_one(exporters.ZOO, "squeezenet1.1")
    assert set(found) == {exporters.OURS, exporters.MXNETS}
    assert exporters.is_right(found[exporters.OURS])
    assert found[exporters.OURS]["operators"]["Conv"] == found[exporters.MXNETS]["operators"]["Conv"] == 26


def test_exporters_are_counted_by_where_nets_are_from():
    from benchmarks import exporters

    right, wrong, none = {"difference": 1e-7}, {"difference": 0.1}, {"error": "ValueError: no"}
    rows = [
        {"name": "a", "mode": "zoo", "exporters": {exporters.OURS: right, exporters.MXNETS: wrong}},
        {"name": "b", "mode": "zoo", "exporters": {exporters.OURS: right, exporters.MXNETS: none}},
    ]
    assert list(exporters.counts(rows)) == [("zoo", exporters.OURS, 2, 2, 2), ("zoo", exporters.MXNETS, 2, 1, 0)]


def test_the_recorded_files_have_no_node_that_same_caused():
    """`python -m benchmarks onnx` writes them anew."""
    from benchmarks import onnx

    rows = [row for row in targets.read(results.FOLDER)["onnx"] if row["mode"] == "nodes of the file"]
    assert {row["network"] for row in rows} == set(onnx.MODELS)
    for row in rows:
        ours = row["operators"][onnx.OURS]
        assert ours["Transpose"] <= 2 and not {"Pad", "Slice"} & set(ours), row["network"]


# -- files, pictures and targets


def test_a_table_is_printed_written_and_drawn(tmp_path):
    file = tmp_path / "tables" / "layers.json"
    text = run("layers", "--match", "max pool 64 k2 s1", "--rounds", 1, "--out", file)
    assert "max pool 64 k2 s1" in text
    result = json.loads(file.read_text())
    (row,) = result["rows"]
    assert result["table"] == "layers"
    assert row["odd"]
    assert row["reference"] == "symmetric"
    assert set(row["figures"]) > {"symmetric", "mxsame, static shape", "explicit pad"}
    assert all(figure["ratio"] > 0 for figure in row["figures"].values())
    wanted = {"date", "machine", "cpu", "cores", "python", "mxnet", "numpy", "tensorflow", "mxsame", "commit"}
    assert wanted <= set(result["provenance"])
    picture = file.with_suffix(".png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    run("plot", file)
    assert picture.is_file()


SMALL = "--match autoencoder --size 32 --width 0.05 --rounds 1 --no-tensorflow"


def test_networks_from_the_command_line(tmp_path):
    run("networks", *SMALL.split(), "--out", tmp_path / "networks.json")
    rows = results.load(tmp_path / "networks.json")["rows"]
    assert [(row["mode"], row["batch"]) for row in rows] == [
        *((mode, batch) for batch in (1, 8) for mode in ("inference", "inference, deployed")),
        ("training step", 8),
    ]
    assert all(row["differences"][name] < 1e-3 for row in rows for name in row["figures"] if "symmetric" not in name)


def row_of(name, mode, ratios, reference="symmetric", **more):
    return results.row(
        name, mode, {reference: [2.0], **{key: [2.0 * x] for key, x in ratios.items()}}, reference, **more
    )


def synthetic(folder):
    static, dynamic = "mxsame, static shape", "mxsame, dynamic shape"
    layer_rows = [
        row_of("a", "forward", {static: 1.0, dynamic: 1.0, "explicit pad": 2.0}, odd=True),
        row_of("b", "forward", {static: 1.21, dynamic: 4.0, "explicit pad": 1.0}, odd=False),
    ]
    results.save(folder / "1.json", "layers", "Layers", layer_rows[:1])
    results.save(folder / "2.json", "layers", "Layers", layer_rows[1:])
    deployed = row_of(
        "m",
        "inference, compared with TensorFlow",
        {"mxsame, deployed": 0.4},
        "TensorFlow",
        network="mobilenetv2",
        batch=1,
    )
    results.save(folder / "3.json", "networks", "Networks", [deployed])
    return folder


def test_targets_are_judged_from_the_files_of_a_folder(tmp_path):
    judged = {
        target.name: (figure, verdict) for target, figure, verdict in targets.judge(targets.read(synthetic(tmp_path)))
    }
    assert judged["layers, static shape: geometric mean"] == (pytest.approx(1.1), "NOT MET")
    assert judged["layers, static shape: worst"] == (pytest.approx(1.21), "met")
    assert judged["layers, dynamic shape: worst"] == (pytest.approx(4.0), "NOT MET")
    assert judged["layers with odd padding: times faster than explicit pad"] == (pytest.approx(2.0), "aim reached")
    assert judged["MobileNetV2 deployed, batch 1: times faster than TensorFlow"] == (pytest.approx(2.5), "aim reached")
    assert judged["planner, static shape: worst"][1] == "not measured"
    text = run("targets", "--results", tmp_path)
    assert "NOT MET" in text
    assert "not measured" in text


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


def test_what_was_recorded_has_a_name_and_one_look_in_every_picture():
    assert list(names.NETWORKS) == [network.name for network in NETWORKS]
    looks = {name: look for name, look in plots.LOOKS.items() if name not in ("mxsame", "sizes in turn", "tf.keras")}
    looks.pop("pad")  # MXNet's pad operator, which explicit padding calls
    assert len(set(looks.values())) == len(looks)
    for path in results.FOLDER.glob("*.json"):
        rows = [row for row in results.load(path)["rows"] if len(row.get("figures", ())) > 1]
        assert set(results.variants(rows)) <= set(plots.LOOKS), path.name


def test_help_names_every_command():
    text = run("--help")
    for command in (
        "layers",
        "planner",
        "costs",
        "networks",
        "sizes",
        "memory",
        "convert",
        "onnx",
        "exporters",
        "targets",
        "plot",
        "all",
        "gpu",
    ):
        assert command in text
        assert "Usage" in run(command, "--help")


def test_a_name_that_nothing_has_is_refused():
    result = CliRunner().invoke(main, ["layers", "--match", "nothing"])
    assert result.exit_code == 2
    assert "no name contains 'nothing'" in result.output


def test_a_row_that_fails_leaves_the_others_and_the_file(tmp_path, monkeypatch):
    measure = layers.measure

    def fails(layer, *args, **timing):
        if layer.odd:
            raise networks.Disagreement("it differs")
        return measure(layer, *args, **timing)

    monkeypatch.setattr(layers, "measure", fails)
    arguments = ["layers", "--match", "max pool", "--rounds", "1", "--out", str(tmp_path / "x.json")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "max pool 64 k3 s2 failed: Disagreement: it differs" in result.output
    found = results.load(tmp_path / "x.json")
    failing, measured = ({each["name"] for each in found[key]} for key in ("failures", "rows"))
    assert {layer.name for layer in layers.LAYERS if layer.kind == "max" and layer.odd} == failing
    assert {layer.name for layer in layers.LAYERS if layer.kind == "max" and not layer.odd} == measured


def test_what_a_file_has_rows_of_is_kept_if_only_the_missing_are_measured(tmp_path, monkeypatch):
    measured, file = [], tmp_path / "x.json"

    def measure(layer, *args, **timing):
        measured.append(layer.name)
        return row_of(layer.name, "forward", {"symmetric": 1.0})

    monkeypatch.setattr(layers, "measure", measure)
    first, second = [layer.name for layer in layers.LAYERS if layer.kind == "max"][:2]
    arguments = ["layers", "--rounds", "1", "--no-picture", "--out", str(file), "--missing"]
    run(*arguments, "--match", second)
    text = run(*arguments, "--match", "max pool")
    assert measured.count(second) == 1 and first in measured and second in text
    names = [row["name"] for row in results.load(file)["rows"]]
    assert sorted(names) == sorted(measured)
    result = CliRunner().invoke(main, [*arguments, "--match", "max pool"])
    assert result.exit_code == 1 and "nothing is missing" in result.output
    made = json.loads(file.read_text())
    made["provenance"]["mxnet"] = "1.0"
    made["rows"][0]["task"] = "something else"
    file.write_text(json.dumps(made))
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "has other ['mxnet', 'something else']" in " ".join(result.output.split())
    assert len(json.loads(file.read_text())["rows"]) == len(names)


def test_the_recorded_figures_are_in_the_words_of_the_tables():
    """Every variant and mode that a target or a table of the documentation looks up."""
    tables = targets.read(results.FOLDER)
    assert {"layers", "layers-train", "planner", "networks", "sizes", "memory", "convert", "onnx", "exporters"} <= set(
        tables
    )
    assert all(verdict != "not measured" for _, _, verdict in targets.judge(tables))


# -- devices


def refused(*arguments):
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.skipif(mx.context.num_gpus() > 0, reason="there is a GPU")
@pytest.mark.parametrize("table", ["layers", "planner", "networks", "sizes", "memory"])
def test_a_gpu_that_is_not_there_is_one_clear_line(table):
    code, text = refused(table, "--device", "gpu:3")
    assert code == 1
    assert text == "Error: MXNet finds no GPU 3 here; `mxsame doctor` shows why."


def test_a_device_that_is_none_is_refused_in_words():
    code, text = refused("layers", "--device", "gpu:x")
    assert code == 2 and "'gpu:x' must be cpu, gpu, or gpu:1 and so on" in text


def test_what_is_only_rounding_depends_on_the_device(monkeypatch):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    with_tf32 = networks.tolerance(mx.gpu())
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert networks.tolerance(CPU) < networks.tolerance(mx.gpu()) < with_tf32


@needs_gcc
def test_provenance_says_which_gpu_and_which_libraries(tmp_path, monkeypatch):
    runtime = make(tmp_path, "libcudart.so.11.0", "int cudaRuntimeGetVersion(int *v) { *v = 11080; return 0; }")
    cudnn = make(tmp_path, "libcudnn.so.8", "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 8906; }")
    monkeypatch.setattr(cuda, "loaded_libraries", lambda: [str(runtime), str(cudnn)])
    monkeypatch.setattr(cuda, "devices", lambda: [cuda.Device(1, "GPU one", (9, 0), 8 * 2**30)])
    monkeypatch.setattr(cuda, "driver", lambda: cuda.Driver("libcuda.so.1", (12, 2), "535.104.05"))
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    found = results.provenance(("gpu", 1))
    assert found.pop("gpu") == {
        "name": "GPU one",
        "capability": "9.0",
        "memory": 8 * 2**30,
        "driver": "535.104.05",
        "newest_cuda": "12.2",
        "cuda": "11.8",
        "cudnn": "8.9.6",
        "tf32": "off",
    }
    assert set(found) == set(results.provenance())
    monkeypatch.setattr(cuda, "loaded_libraries", list)
    assert figures.gpu(0)["name"] is figures.gpu(0)["cudnn"] is None


@pytest.fixture
def pretended(monkeypatch):
    """The CPU's second context as a GPU: the devices of the outputs of all that is timed."""
    seen = set()

    def noting(timed):
        def wrapped(calls, **timing):
            outputs = [call() for call in calls.values()]
            seen.update(array.context for array in outputs if isinstance(array, mx.nd.NDArray))
            return timed(calls, **timing)

        return wrapped

    monkeypatch.setattr(bench, "context", lambda device: mx.Context("cpu", device[0] == "gpu"))
    for module, name in ((layers, "timed"), (planner, "timed"), (networks, "measure")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    return seen


@pytest.mark.parametrize(
    "arguments",
    [
        "layers --match autoencoder --rounds 1",
        "layers --match autoencoder --rounds 1 --train",
        "planner --match autoencoder --rounds 1",
        f"networks {SMALL}",
    ],
)
def test_nets_and_data_are_on_the_device(arguments, pretended, tmp_path):
    file = tmp_path / "x.json"
    run(*arguments.split(), "--device", "gpu:1", "--no-picture", "--out", file)
    assert pretended == (set() if "--train" in arguments else {mx.cpu(1)})
    found = results.load(file)
    assert "-gpu" in found["table"] and found["settings"]["device"] == "gpu:1" and "gpu" in found["provenance"]
    assert {"TensorFlow"}.isdisjoint(name for row in found["rows"] for name in row["figures"])
    assert not list(tmp_path.glob("*.png"))


def test_memory_of_a_gpu_is_what_is_taken_there(monkeypatch):
    monkeypatch.setattr(mx, "Context", lambda *device: mx.cpu(1))
    free = iter((900, 700))
    monkeypatch.setattr(mx.context, "gpu_memory_info", lambda number: (next(free) * 2**20 - number, 1000 * 2**20))
    arguments = {"network": "autoencoder", "batch": 1, "size": 32, "width": 0.05}
    assert memory.measure_one("mxsame", "inference", **arguments, device=["gpu", 0]) == 200
    free = iter((900, 800))
    assert sizes.first_calls("autoencoder", 0.05, "mxsame", "squares", 2, device=["gpu", 0])["MiB"] == 100


# -- the steps of a GPU

WRITE = "import json, os, sys, time; json.dump({'a': 1}, open(sys.argv[1], 'w')); "


def test_whatever_a_step_does_the_file_is_written(tmp_path):
    file, lines, files = tmp_path / "new" / "gpu.json", [], []
    steps = [
        ("crashes", ["-c", f"{WRITE} os.kill(os.getpid(), 11)", gpu.FILE], 30.0),
        ("hangs", ["-c", f"{WRITE} time.sleep(60)", gpu.FILE], 2.0),
        ("fails", ["-c", "print('words'); raise SystemExit('the reason')"], 30.0),
        ("works", ["-c", WRITE, gpu.FILE], 30.0),
        ("looks", ["-c", f"print(open({str(file)!r}).read())"], 30.0),
    ]

    def tell(line):
        lines.append(line)
        files.append(json.loads(file.read_text()))

    assert not gpu.run(steps, file, tell)
    found = json.loads(file.read_text())["steps"]
    assert {step["name"]: (step["status"], step["result"]) for step in found} == {
        "crashes": ("exit code -11", {"a": 1}),
        "hangs": ("ended after 2 s", {"a": 1}),
        "fails": ("exit code 1", None),
        "works": ("ok", {"a": 1}),
        "looks": ("ok", None),
    }
    assert "words" in found[2]["output"] and "the reason" in found[2]["output"]
    assert json.loads(found[4]["output"])["steps"][4]["status"] == "running"
    assert [len(each["steps"]) for each in files] == [1, 2, 3, 4, 5]
    assert len(lines) == 5 and lines[3].startswith("works: ok")


def test_steps_are_commands_that_exist():
    for _, arguments, _ in gpu.steps("gpu:1"):
        if arguments[1] == "benchmarks":
            command = main.commands[arguments[2]]
            context = command.make_context(command.name, list(arguments[3:]))
            assert context.params["device"] == ("gpu", 1) and str(context.params["out"]) == gpu.FILE


def test_all_of_a_gpu_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "steps", lambda device: [(device, ["-c", ""], 30.0)])
    text = run("gpu", "--out", tmp_path / "gpu.json")
    assert text.startswith("gpu: ok")
    monkeypatch.setattr(gpu, "steps", lambda device: [("fails", ["-c", "exit(1)"], 30.0)])
    assert refused("gpu", "--out", str(tmp_path / "gpu.json"))[0] == 1
