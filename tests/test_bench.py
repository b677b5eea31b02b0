"""`mxsame bench`: variants compute what they claim, the planner's choice is marked, and the command prints it."""

from __future__ import annotations

import json

import pytest
import running

pytest.importorskip("click")

from click.testing import CliRunner

from mxsame import _symmetric, bench, padding, plan
from mxsame._mxnet import mx
from mxsame.bench import figures, layers
from mxsame.cli import main
from mxsame.cli.bench import KINDS

ONE_OF_EACH = [
    bench.Layer("conv", "conv", 3, (11, 12), 4, 3, 2, batch=2),
    bench.Layer("conv that needs nothing", "conv", 3, (11,), 4, 3, 2, batch=2),
    bench.Layer("each axis its own", "conv", 3, (9, 8, 7), 4, (3, 2, 1), (2, 1, 3), batch=1, dilation=(1, 2, 1)),
    bench.Layer("depthwise", "depthwise", 4, (8, 10), 4, 3, 2, batch=2),
    bench.Layer("max", "max", 3, (8, 10), 3, 3, 2, batch=2),
    bench.Layer("avg", "avg", 3, (8, 10), 3, 3, 2, batch=2),
    bench.Layer("transposed", "transposed", 3, (5, 6), 4, 3, 2, batch=2),
    bench.Layer("transposed, only bias", "transposed", 3, (5, 6), 4, 2, 3, batch=2),
]
by_layer = pytest.mark.parametrize("layer", ONE_OF_EACH, ids=lambda layer: layer.name)


def run(*arguments):
    return CliRunner().invoke(main, ["bench", *map(str, arguments)], env={"COLUMNS": "80"})


@by_layer
def test_variants_compute_what_they_claim(layer):
    """All from the weights of one of them."""
    nets = {"symmetric": layers.symmetric(layer), "static": layers.same(layer, True)}
    nets["dynamic"] = layers.same(layer, False)
    nets["explicit"] = layers.explicit(layer)
    if layer.name == "transposed, only bias":  # nothing is cropped, and symmetric padding is exact
        assert nets.pop("explicit") is None
    data = layers.inputs(layer, train=False)
    for net in nets.values():
        for source, parameter in zip(nets["symmetric"].collect_params().values(), net.collect_params().values()):
            parameter.set_data(source.data())
    out = {name: net(data).asnumpy() for name, net in nets.items()}
    for name, got in out.items():
        assert got.shape == out["static"].shape, name
        if name != "symmetric" and (name, layer.kind) != ("explicit", "avg"):
            assert running.difference(got, out["static"]) < 1e-5, name
    if layer.odd and "explicit" in nets:
        assert running.difference(out["symmetric"], out["static"]) > 1e-2


@by_layer
@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
def test_every_plan_is_measured_and_the_planners_is_marked(layer, train):
    row = bench.measure(layer, train, rounds=1, seconds=0.01)
    assert next(iter(row["figures"])) == row["reference"] == "symmetric"
    assert set(row["figures"]) - {"explicit"} == {"symmetric", "size unknown", *row["plans"].values()}
    assert row["planned"] == next(iter(row["plans"]))
    assert set(row["plans"]) <= set(plan.strategies_for(layers.KINDS[layer.kind][2]))
    if layer.name == "conv":
        assert {"slice", "concat", "kernel", "pad", "gather"} <= set(row["plans"])
    if layer.name == "conv that needs nothing":
        assert list(row["plans"]) == ["native"]
    assert all(figure["ratio"] > 0 and figure["rounds"] == 1 for figure in row["figures"].values())
    assert row["mode"] == ("forward and backward" if train else "forward")


@pytest.mark.parametrize("strategy", ["concat", "pad"])
def test_the_choice_that_is_marked_is_the_one_that_runs(strategy, monkeypatch):
    """Another strategy for the planner's graph: it is named, and has no second entry."""
    real = plan.force
    monkeypatch.setattr(layers, "force", lambda name: real(name or strategy))
    row = bench.measure(ONE_OF_EACH[0], rounds=1, seconds=0.01)
    assert row["planned"] == strategy


def test_well_known_layers_are_of_every_kind():
    assert {layer.kind for layer in bench.LAYERS} == set(layers.KINDS) == set(KINDS)
    assert all(layer.odd for layer in bench.LAYERS)


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("kernel_size", range(1, 6))
@pytest.mark.parametrize("stride", (1, 2, 3, 4))
@pytest.mark.parametrize("dilation", (1, 2))
def test_symmetric_padding_has_the_output_size_of_same(size, kernel_size, stride, dilation):
    reach = padding.effective_kernel_size(kernel_size, dilation)
    pad, wanted = _symmetric.pad(size, kernel_size, stride, dilation), -(-size // stride)
    given = (size + 2 * pad - reach) // stride + 1
    assert given == wanted or all((size + 2 * p - reach) // stride + 1 != wanted for p in range(reach))
    assert pad == 0 or given != wanted or (size + 2 * (pad - 1) - reach) // stride + 1 != wanted, "the smallest"
    pad, adj = _symmetric.cut(kernel_size, stride, dilation)
    assert (size - 1) * stride + reach - 2 * pad + adj == size * stride
    assert pad >= 0 and 0 <= adj < max(stride, 2)


def test_ratios_are_of_medians():
    row = figures.row("x", "forward", {"a": [1.0, 3.0, 2.0], "b": [4.0, 4.0, 8.0]}, "a")
    assert figures.ratio(row, "b") == row["figures"]["b"]["ratio"] == 2.0
    assert row["figures"]["a"]["quartiles"] == [1.5, 2.5]
    assert figures.ratio(row, "nobody") != figures.ratio(row, "nobody")


# ---- the command -----------------------------------------------------------------------------------------------------


def test_one_layer_as_a_table():
    arguments = "--operator conv --size 12,10 --kernel 3 --stride 2 --in-channels 3 --channels 4 --batch 2 --rounds 1"
    result = run(*arguments.split())
    assert result.exit_code == 0, result.output
    title, *lines = result.output.splitlines()
    assert title.strip() == "conv 3-4 12x10 k3 s2, batch 2: forward, on the CPU"
    rows = [line.split("  ")[0].strip() for line in lines if re_figures(line)]
    assert rows[0] == "symmetric" and rows[-2:] == ["dynamic shape", "explicit"]
    assert sum(row.startswith("static shape, ") for row in rows) > 3
    assert [row for row in rows if row.endswith("*")] == [rows[1]]
    assert "computes something else" in " ".join(result.output.split())


def re_figures(line):
    return line.rstrip()[-4:-2].strip().rstrip(".").isdigit() and " to " in line


def test_well_known_layers_as_a_table(monkeypatch):
    monkeypatch.setattr(bench, "LAYERS", ONE_OF_EACH[:1] + ONE_OF_EACH[-3:])
    result = run("--rounds", 1, "--training")
    assert result.exit_code == 0, result.output
    assert "Layers: forward and backward, on the CPU" in result.output
    assert all(layer.name in result.output for layer in bench.LAYERS)
    assert "geometric mean" in result.output and " - " in result.output
    assert "in averages it counts" in " ".join(result.output.split())
    assert all(len(line) <= 80 for line in result.output.splitlines())


def test_json():
    arguments = "--operator depthwise --size 9 --axes 1 --kernel 4 --in-channels 3 --dilation 2 --rounds 2 --json"
    result = run(*arguments.split())
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert set(found) == {"mxsame", "device", "provenance", "rows"}
    assert found["device"] == "cpu:0"
    assert {"date", "cpu", "cores", "load", "python", "mxnet", "numpy"} <= set(found["provenance"])
    (row,) = found["rows"]
    assert set(row) == {
        *("name", "kind", "mode", "shape", "channels", "kernel_size", "stride", "dilation", "odd", "planned", "plans"),
        *("reference", "unit", "figures"),
    }
    assert (row["shape"], row["kernel_size"], row["stride"], row["dilation"]) == ([1, 3, 9], [4], [1], [2])
    assert row["name"] == "depthwise 3-3 9 k4 s1 d2"
    for figure in row["figures"].values():
        assert set(figure) == {"ratio", "median", "quartiles", "rounds"} and figure["rounds"] == 2


def test_a_gpu_that_is_not_here(monkeypatch):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 1)
    result = run("--device", "gpu:1", "--json")
    assert result.exit_code == 1
    assert result.output == "Error: MXNet finds no GPU 1 here; `mxsame doctor` shows why.\n"


def test_what_mxnet_cannot_do_is_one_error(monkeypatch):
    def fails(*args):
        raise mx.base.MXNetError("out of memory")

    monkeypatch.setattr(layers, "plans", fails)
    result = run("--operator", "max", "--size", 8, "--kernel", 3, "--json")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "max 64-64 8 k3 s1 does not run here; MXNet says: out of memory" in result.output


def test_data_of_too_many_elements_is_refused():
    result = run("--operator", "max", "--size", 60_000, "--kernel", 3, "--json")
    assert result.exit_code == 2
    assert "data must have fewer than 2147483647 elements" in result.output
