"""The benchmarks measure what they say: contestants compute what is claimed of them; files, pictures and targets."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
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

from benchmarks import (  # noqa: E402
    gpu,
    kernels,
    layers,
    memory,
    networks,
    places,
    planner,
    plots,
    results,
    sizes,
    suite,
    targets,
)
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.architectures import NETWORKS  # noqa: E402
from mxsame import _cuda, bench  # noqa: E402
from mxsame.bench import figures  # noqa: E402
from mxsame.deploy import Deployed, Executors  # noqa: E402
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
    networks.check(calls, places.HERE.tolerance(), tensorflow=False)
    want, symmetric = calls["explicit pad"](), calls["symmetric"]()
    assert symmetric.shape == want.shape
    assert places.difference(symmetric, want) > 50 * places.HERE.tolerance()


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
    assert places.difference(made.net(data), want) < places.HERE.tolerance()


def test_networks_that_differ_are_not_timed():
    calls = {"explicit pad": lambda: mx.nd.ones(3), "mxsame": lambda: mx.nd.ones(3) * 1.01}
    with pytest.raises(places.Disagreement, match="mxsame and explicit pad differ"):
        networks.check(calls, places.HERE.tolerance(), tensorflow=False)
    calls["symmetric"] = calls.pop("mxsame")
    networks.check(calls, places.HERE.tolerance(), tensorflow=False)


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
        assert memory.measure_one("mxsame", task, **arguments) > -1  # the kernel counts pages in batches
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
    for command in ("layers", "planner", "costs", "networks", "sizes", "memory", "targets", "plot", "all", "gpu"):
        assert command in said
        assert "Usage" in run(command, "--help")


def test_a_name_that_nothing_has_is_refused():
    result = CliRunner().invoke(main, ["layers", "--match", "nothing"])
    assert result.exit_code == 2
    assert "no name contains 'nothing'" in result.output


def test_a_contestant_that_fails_leaves_the_others_and_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "by_libraries", lambda net, shape, context: net)
    monkeypatch.setattr(layers, "alone", layers.symmetric)  # whose padding is wrong, where it is odd
    monkeypatch.setattr(layers, "on_cpu", lambda layer, net, data: layers.known(layer)(data).asnumpy())
    arguments = ["layers", "--cudnn-only", "--match", "max pool", "--rounds", "1", "--out", str(tmp_path / "x.json")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "max pool 64 k3 s2 failed: Disagreement: on the device and on the CPU it differs by" in result.output
    found = results.load(tmp_path / "x.json")
    failing, measured = ({each["name"] for each in found[key]} for key in ("failures", "rows"))
    assert {layer.name for layer in layers.LAYERS if layer.kind == "max" and layer.odd} == failing
    assert {layer.name for layer in layers.LAYERS if layer.kind == "max" and not layer.odd} == measured


# -- devices


def refused(*arguments):
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.skipif(mx.context.num_gpus() > 0, reason="there is a GPU")
@pytest.mark.parametrize("table", ["layers", "planner", "networks", "sizes", "memory"])
def test_a_gpu_that_is_not_there_is_one_clear_line(table):
    code, said = refused(table, "--device", "gpu:3")
    assert code == 1
    assert said == "Error: MXNet finds no GPU 3 here; `mxsame doctor` says why."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("layers --layout NHWC", "--layout NHWC is for GPUs: on the CPU MXNet knows NCHW alone."),
        ("layers --dtype float16", "--dtype float16 is for GPUs: on the CPU MXNet knows float32 alone."),
        ("layers --cudnn-only --train", "--cudnn-only excludes --train"),
        ("networks --cudnn-only --mode training", "--cudnn-only excludes --mode training"),
        ("networks --cudnn-only --tensorflow", "--tensorflow is for the CPU, and excludes --cudnn-only."),
        ("layers --device gpu:x", "'gpu:x' must be cpu, gpu, or gpu:1 and so on"),
        ("gpu --device tpu", "'tpu' must be cpu, gpu, or gpu:1 and so on"),
    ],
)
def test_what_a_device_cannot_do_is_refused_in_words(arguments, message):
    code, said = refused(*arguments.split())
    assert code == 2
    assert message in said


@pytest.mark.parametrize("arguments", ["planner", "sizes", "memory", "layers --train", "networks --mode training"])
def test_without_machine_code_two_tables_are_left(arguments, monkeypatch):
    monkeypatch.setattr(places, "lacks_machine_code", lambda context: True)
    code, said = refused(*arguments.split())
    assert code == 1
    assert "MXNet has no machine code for this GPU" in said


def test_results_of_devices_have_files_of_their_own():
    first, second = places.Place(("gpu", 0)), places.Place(("gpu", 1), libraries_only=True)
    assert first.table("layers", "train", "NHWC") == "layers-train-nhwc-gpu"
    assert second.table("networks") == "networks-cudnn-gpu"
    assert places.HERE.table("memory") == "memory"


def test_what_is_only_rounding_depends_on_the_device(monkeypatch):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    device = places.Place(("gpu", 0))
    with_tf32 = device.tolerance()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert places.HERE.tolerance() < device.tolerance() < with_tf32


@needs_gcc
def test_provenance_says_which_gpu_and_which_libraries(tmp_path, monkeypatch):
    runtime = make(tmp_path, "libcudart.so.11.0", "int cudaRuntimeGetVersion(int *v) { *v = 11080; return 0; }")
    cudnn = make(tmp_path, "libcudnn.so.8", "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 8906; }")
    monkeypatch.setattr(_cuda, "loaded_libraries", lambda: [str(runtime), str(cudnn)])
    monkeypatch.setattr(_cuda, "devices", lambda: [_cuda.Device(1, "GPU one", (9, 0), 8 * 2**30)])
    monkeypatch.setattr(_cuda, "driver", lambda: _cuda.Driver("libcuda.so.1", (12, 2), "535.104.05"))
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
    monkeypatch.setattr(_cuda, "loaded_libraries", list)
    assert figures.gpu(0)["name"] is figures.gpu(0)["cudnn"] is None


@pytest.mark.parametrize("layer", ONE_OF_EACH, ids=lambda layer: layer.name)
def test_the_cpus_answer_is_that_of_the_layer_in_any_layout(layer):
    net, data = layers.known(layer), layers.inputs(layer, train=False)
    assert running.difference(layers.on_cpu(layer, net, data), net(data).asnumpy()) < 1e-6
    for last in layers.chosen([layer], layout="NHWC"):
        net, data = layers.unknown(last), layers.inputs(last, train=False)
        assert data.shape[-1] == layer.in_channels
        assert running.difference(layers.on_cpu(last, net, data), net(data).asnumpy()) < 1e-5


def test_layers_of_a_gpu_have_its_layout_and_type():
    chosen = layers.chosen(layers.LAYERS, "NHWC", "float16")
    assert {layer.rank for layer in chosen} == {2} and 24 < len(chosen) < len(layers.LAYERS)
    net, data = layers.symmetric(chosen[0]), layers.inputs(chosen[0], train=False)
    assert data.shape == (1, 224, 224, 3)
    assert data.dtype == net.weight.data().dtype == np.float16
    assert set(layers.contestants(chosen[0])) == {"symmetric", layers.OURS, "mxsame, size unknown"}


@pytest.fixture
def pretended(monkeypatch):
    """The CPU's second context as a GPU: where the outputs of all that is timed have been."""
    seen = set()

    def noting(timed):
        def wrapped(calls, **timing):
            for call in calls.values():
                out = call()
                found = out if isinstance(out, list) else [out]
                seen.update(array.context for array in found if isinstance(array, mx.nd.NDArray))
            return timed(calls, **timing)

        return wrapped

    monkeypatch.setattr(places.Place, "context", property(lambda place: mx.cpu(1)))
    monkeypatch.setattr(bench, "context", lambda device: mx.cpu(1))
    for module, name in ((layers, "timed"), (planner, "timed"), (networks, "measure")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    return seen


SMALL = "--match autoencoder --size 32 --width 0.05 --batch 1 --training-batch 2 --rounds 1"


@pytest.mark.parametrize("lacks", [False, True], ids=["own kernels", "libraries alone"])
@pytest.mark.parametrize(
    "arguments",
    [
        "layers --match autoencoder --rounds 1",
        "layers --match autoencoder --rounds 1 --train",
        "planner --match autoencoder --rounds 1",
        f"networks {SMALL}",
    ],
)
def test_nets_and_data_are_on_the_device(arguments, lacks, pretended, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "lacks_machine_code", lambda context: lacks)
    file = tmp_path / "x.json"
    arguments = [*arguments.split(), "--device", "gpu:1", "--no-picture", "--out", str(file)]
    if lacks and ("--train" in arguments or "planner" in arguments):
        assert refused(*arguments)[0] == 1
        return
    run(*arguments)
    assert pretended == (set() if "--train" in arguments else {mx.cpu(1)})
    found = results.load(file)
    assert found["table"].endswith("-cudnn-gpu" if lacks else "-gpu")
    assert found["settings"]["device"] == "gpu:1" and "gpu" in found["provenance"]
    assert all(("cuDNN alone" in row["mode"]) == lacks for row in found["rows"])
    assert {"TensorFlow"}.isdisjoint(name for row in found["rows"] for name in row["figures"])
    if "layers" in arguments:
        assert found["rows"][0]["difference"] < 1e-5
    assert not list(tmp_path.glob("*.png"))


def test_memory_of_a_gpu_is_what_is_taken_there(pretended, monkeypatch):
    free = iter((900, 700))
    monkeypatch.setattr(mx.context, "gpu_memory_info", lambda number: (next(free) * 2**20 - number, 1000 * 2**20))
    arguments = {"network": "autoencoder", "batch": 1, "size": 32, "width": 0.05}
    assert memory.measure_one("mxsame", "inference", **arguments, device=["gpu", 0]) == 200
    free = iter((900, 800))
    assert sizes.first_calls("autoencoder", 0.05, "mxsame", "squares", 2, device=["gpu", 0])["MiB"] == 100


# -- libraries alone, as on GPUs for which MXNet has no machine code


def test_a_layer_by_libraries_alone():
    row = layers.measure(ONE_OF_EACH[2], place=places.Place(libraries_only=True), rounds=1, seconds=0.01)
    assert row["mode"] == "forward, cuDNN alone"
    assert set(row["figures"]) == {"symmetric", layers.OURS}
    assert row["difference"] < 1e-5
    even = ONE_OF_EACH[6]
    with pytest.raises(bench.CannotRun, match="a max pooling whose padding cuDNN cannot do by itself"):
        layers.measure(even, place=places.Place(libraries_only=True))


def test_a_network_by_libraries_alone_is_compared_with_explicit_padding(tmp_path):
    made = networks.library_calls(small(NETWORKS[-1]), places.Place(libraries_only=True))
    assert list(made) == [*networks.ALONE, "explicit pad"]
    net = networks.kits(small(NETWORKS[-1]), ["mxsame"])["mxsame"].net
    assert isinstance(places.by_libraries(net, (1, 3, 40, 40), mx.cpu()), Executors)
    arguments = "--cudnn-only --size 40 --width 0.05 --batch 2 --rounds 1 --match"
    run("networks", *arguments.split(), "autoencoder", "--out", tmp_path / "networks.json")
    found = results.load(tmp_path / "networks.json")
    (row,) = found["rows"]
    assert (found["table"], row["mode"], row["reference"]) == (
        "networks-cudnn",
        "inference, cuDNN alone",
        "symmetric, cuDNN alone",
    )
    differences = row["differences"]
    assert differences["mxsame, cuDNN alone"] < places.HERE.tolerance() < differences["symmetric, cuDNN alone"]
    said = run("networks", *arguments.split(), "efficientnet", "--out", tmp_path / "networks.json")
    assert "left out: efficientnet, inference, batch 2: net must be made of what cuDNN and cuBLAS run" in said
    found = results.load(tmp_path / "networks.json")
    assert (len(found["rows"]), len(found["left_out"])) == (0, 1)


def test_nothing_but_what_cudnn_cannot_do_is_left_out(monkeypatch):
    net = layers.alone(ONE_OF_EACH[2])
    with pytest.raises(ValueError, match="ctx must be a device that there is"):
        places.by_libraries(net, (1, 3, 11, 12), mx.gpu(77))

    def fails(deployed, context):
        raise mx.base.MXNetError("cuDNN: CUDNN_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(Deployed, "try_out", fails)
    with pytest.raises(ValueError, match="MXNet says: cuDNN: CUDNN_STATUS_NOT_SUPPORTED"):
        places.by_libraries(net, (1, 3, 11, 12), mx.cpu())


# -- all of a GPU's steps


def program(name, code, limit=30.0):
    """A step that runs some Python; it finds its file in sys.argv[1]."""
    return gpu.Step(name, ("-c", code, gpu.FILE), limit, lambda found: f"found {len(found)}")


def doing(monkeypatch, first, others=()):
    machine = program("machine", 'print(\'{"provenance": {"gpu": 1}, "libraries_only": true}\')')
    monkeypatch.setattr(gpu, "first", lambda device: first or [machine])
    monkeypatch.setattr(gpu, "others", lambda device, libraries_only: others if libraries_only else ())


WRITE = "import json, os, sys, time; json.dump({'a': 1}, open(sys.argv[1], 'w')); "


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_whatever_a_step_does_the_file_is_written(tmp_path, monkeypatch):
    file, lines, files = tmp_path / "new" / "gpu.json", [], []
    child = tmp_path / "child"
    forever = f"import os, time; open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    steps = [
        program("crashes", f"{WRITE} os.kill(os.getpid(), 11)"),
        program("hangs", f"{WRITE} import subprocess; subprocess.run([sys.executable, '-c', {forever!r}])", limit=2),
        program("fails", "print('words'); raise SystemExit('the reason')"),
        program("finds nothing", "print('words')"),
        program("works", WRITE),
    ]
    doing(monkeypatch, [], steps)

    def tell(line):
        lines.append(line)
        files.append(json.loads(file.read_text()))

    began = time.monotonic()
    assert not gpu.run(("gpu", 0), False, None, file, tell)
    assert time.monotonic() - began < 20
    found = results.load(file)
    assert found["finished"] and found["provenance"]["gpu"] == 1 and found["provenance"]["date"]
    became = {step["name"]: (step["status"], step["found"]) for step in found["steps"]}
    assert became == {
        "machine": ("ok", {"provenance": {"gpu": 1}, "libraries_only": True}),
        "crashes": ("crashed", {"a": 1}),
        "hangs": ("out of time", {"a": 1}),
        "fails": ("failed", None),
        "finds nothing": ("failed", None),
        "works": ("ok", {"a": 1}),
    }
    assert [len(each["steps"]) for each in files] == [1, 2, 3, 4, 5, 6, 6]
    assert not files[0]["finished"]
    said = "\n".join(lines)
    for words in ("killed by SIGSEGV; found 1", "ended after 2 s; found 1", "exit code 1; the reason"):
        assert words in said
    assert not is_running(int(child.read_text()))
    assert "the reason" in found["steps"][3]["output"]


def test_a_step_that_is_being_done_is_in_the_file_already(tmp_path, monkeypatch):
    file = tmp_path / "gpu.json"
    look = f"import json, sys; json.dump(json.load(open({str(file)!r}))['steps'][-1], open(sys.argv[1], 'w'))"
    doing(monkeypatch, [], [program("looks", look)])
    assert gpu.run(("gpu", 0), False, None, file, print)
    assert results.load(file)["steps"][1]["found"]["status"] == "running"


def test_a_budget_goes_to_what_matters_most(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LEAST", 0.5)
    slow = [program(f"slow {number}", f"{WRITE} time.sleep(60)") for number in range(9)]
    doing(monkeypatch, [], slow)
    began = time.monotonic()
    assert not gpu.run(("gpu", 0), False, 4, tmp_path / "gpu.json", print)
    assert time.monotonic() - began < 10
    steps = results.load(tmp_path / "gpu.json")["steps"]
    assert [step["name"] for step in steps] == ["machine", *(step.name for step in slow)]
    took = [step["seconds"] for step in steps if step["status"] == "out of time"]
    assert len(took) >= 3 and took[0] <= 2
    assert steps[-1]["status"] == "left out"


@pytest.mark.skipif(mx.context.num_gpus() > 0, reason="there is a GPU")
def test_without_a_gpu_the_file_says_so(tmp_path, monkeypatch):
    machine = gpu.first(("gpu", 0))[0]
    doing(monkeypatch, [machine, program("doctor", WRITE)])
    result = CliRunner().invoke(main, ["gpu", "--out", str(tmp_path / "gpu.json")])
    assert result.exit_code == 1
    assert "machine: failed" in result.output and "MXNet finds no GPU 0 here" in result.output
    found = results.load(tmp_path / "gpu.json")
    assert [step["status"] for step in found["steps"]] == ["failed", "ok"]
    assert targets.read(tmp_path)["gpu"] == []


def test_what_a_machine_is_says_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "first", lambda device, first=gpu.first: first(device)[:1])
    monkeypatch.setattr(gpu, "others", lambda device, libraries_only: [])
    assert CliRunner().invoke(main, ["gpu", "--device", "cpu", "--out", str(tmp_path / "gpu.json")]).exit_code == 0
    found = results.load(tmp_path / "gpu.json")
    assert {"mxnet", "numpy", "cpu", "commit"} <= set(found["provenance"])


def test_steps_are_commands_that_exist_and_the_most_important_come_first():
    for libraries_only in (False, True):
        steps = [*gpu.first(("gpu", 1)), *gpu.others(("gpu", 1), libraries_only)]
        names = [step.name for step in steps]
        assert len(names) == len(set(names))
        assert names[:4] == ["machine", "doctor", "tests, TF32 off", "networks, resnet50, TF32 off"]
        for step in steps:
            if step.arguments[1] == "benchmarks":
                command = main.commands[step.arguments[2]]
                context = command.make_context(command.name, list(step.arguments[3:]))
                assert context.params["device"] == ("gpu", 1)
                assert context.params.get("cudnn_only", False) >= libraries_only
                assert str(context.params["out"]) == gpu.FILE
    assert {"--train", "float16", "NHWC"} <= {part for step in gpu.others(("gpu", 0), False) for part in step.arguments}


@pytest.mark.parametrize("said", ['{\n "a": [\n  1]}', '{"a": [1]}', '{"a": [2]}\n{"a": [1]}'])
def test_what_a_step_prints_is_found_amid_noise(tmp_path, said):
    assert gpu.read(tmp_path / "none", f"[20:01] running tests\n{said}\nterminate called") == {"a": [1]}
    assert gpu.read(tmp_path / "none", "words [1] {") is None


def test_neither_mxnet_nor_numpy_are_needed_to_write_a_file():
    code = (
        "import sys, benchmarks.__main__, benchmarks.gpu\n"
        "print({'mxnet', 'mxsame', 'numpy', 'rich', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_tables_without_rich_and_matplotlib(tmp_path, monkeypatch):
    for package in ("rich", "rich.console", "rich.table", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("benchmarks.__main__.find_spec", lambda name: None)
    said = run("layers", "--match", "max pool 64 k2 s1", "--rounds", 1, "--out", tmp_path / "layers.json")
    assert said.strip() == str(tmp_path / "layers.json")
    assert len(results.load(tmp_path / "layers.json")["rows"]) == 1


TESTS = """
import os, time, pytest
def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.mark.skip(reason="never")
def test_skipped(): pass
def test_crash(): os.kill(os.getpid(), 11)
def test_hang(): time.sleep(100)
@pytest.mark.parametrize("word", ["a b", "a"])
def test_last(word): pass
"""


def test_tests_go_on_behind_one_that_crashes_or_hangs(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text(TESTS)
    monkeypatch.setattr(suite, "LIMITS", (60.0, 3.0))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert suite.main(str(tmp_path / "found.json"), str(tmp_path / "test_some.py")) == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["counts"] == {"passed": 3, "failed": 1, "skipped": 1, "crashed": 1, "hung": 1}
    reasons = {name.split("::")[1]: why for name, why in found["failing"].items()}
    assert reasons["test_crash"] == "killed by SIGSEGV" and reasons["test_hang"] == "nothing within 3 seconds"
    assert "assert 1 == 2" in reasons["test_bad"]
    assert "2 passed" in found["closing"][-1]
    assert suite.main(str(tmp_path / "found.json"), str(tmp_path / "test_some.py"), "-k", "good or skipped") == 0
    assert suite.main(str(tmp_path / "found.json"), str(tmp_path / "nothing.py")) == 1


def test_kernels_are_tried_in_processes_that_may_fail(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(kernels, "NAMES", ("library: relu", "unknown", kernels.ZEROS, kernels.COMPILED))
    told = []
    found = kernels.tried("cpu", 0, lambda found: told.append(dict(found)))
    assert found == {
        "library: relu": {"difference": 0.0},
        "unknown": {"error": "'unknown'"},
        kernels.ZEROS: {"difference": 0.0},
    }
    assert [len(each) for each in told] == [2, 3]
    monkeypatch.setattr(kernels, "LIMIT", 0.05)
    assert kernels.tried("cpu", 0, print)["library: relu"] == {"error": "no answer within 0.05 seconds"}


@pytest.mark.parametrize("name", [*kernels.OPERATORS, kernels.ZEROS, kernels.NUMBERS])
def test_every_kernel_runs_on_the_cpu_and_a_wrong_one_shows(name, monkeypatch):
    assert kernels.difference(name, "cpu", 0) == 0
    if name in kernels.OPERATORS:
        values, wrong = kernels._values, iter((1, 1.5))
        monkeypatch.setattr(kernels, "_values", lambda *args: [next(wrong) * array for array in values(*args)[-1:]])
        assert kernels.difference(name, "cpu", 0) > 0.3
