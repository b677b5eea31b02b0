"""Every layer of the package in ONNX Runtime: against the NumPy oracle one by one, and in random nets against MXNet."""

import random

import cases
import pytest
from running import as_nd, by_name, difference, expected, layer, normal, of_the_day, outputs, set_parameters, trained
from test_chains import random_net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

from onnx_running import exported, operators, run

import mxsame

TOLERANCE = 1e-5  # right values differ by less, shifted ones by 0.01 and more
MOVING = {"Pad", "Slice", "Concat", "Gather", "Transpose"}  # what SAME must not need
FEW = cases.CASES[::7]
MANY = of_the_day([case for case in cases.CASES if case not in FEW], 3)


def check_layer(case, path):
    """One layer, for its own size and for a dynamic one; it is one node, except where ONNX has no operator for it."""
    arrays, want, *_ = expected(case)
    block = layer(case)
    set_parameters(block, arrays)
    (got,) = exported(block, path, arrays["data"].astype("float32"))
    assert difference(got, want) < TOLERANCE
    needs_more = case.op == "lp_pool" and case.p_value != 2
    needs_more |= case.op == "avg_pool" and case.count_include_pad and case.ceil_mode
    needs_more |= case.op == "conv_transpose" and case.rank == 3 and max(case.dilation) > 1  # MXNet has none to note
    if not needs_more:
        assert not MOVING & operators(path).keys()
        assert len(operators(path).keys() - {"Squeeze", "Unsqueeze"}) == 1  # a line is a picture of one row
    try:
        mxsame.export_onnx(block, path, arrays["data"].shape, dynamic_size=True)
    except ValueError as error:
        assert "if sizes are dynamic" in str(error) or "for every size" in str(error)
        assert case.strides != (1,) * case.rank or (case.ceil_mode and case.count_include_pad)
        return
    for size in case.sizes:
        other, want, *_ = expected(case, size)
        block = layer(case)
        set_parameters(block, arrays)
        (got,) = run(path, other["data"].astype("float32"))
        assert difference(got, block(as_nd(other)["data"]).asnumpy()) < TOLERANCE


@by_name(FEW)
def test_layer(case, tmp_path):
    check_layer(case, tmp_path / "net.onnx")


@pytest.mark.heavy
@by_name(MANY)
def test_layers(case, tmp_path):
    check_layer(case, tmp_path / "net.onnx")


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_networks(first, tmp_path):
    """Ten of them, against MXNet; some for every size, some with batch norms that are not folded."""
    path = tmp_path / "net.onnx"
    for seed in range(first, first + 10):
        stream = random.Random(seed)
        net, shape, _ = random_net(stream)
        trained(net, shape, seed=seed)
        dynamic_size, opset, fold = stream.random() < 0.5, stream.choice((13, 18)), stream.random() < 0.5
        steps = [stream.randint(0, 5) for _ in shape[2:]]
        arrays = [normal(2, 3, *map(sum, zip(shape[2:], more))).asnumpy() for more in (steps, [0] * len(steps))]
        try:
            exported(net, path, arrays[1], dynamic_size=dynamic_size, fold=fold, opset=opset)
        except ValueError as error:
            assert dynamic_size and ("dynamic" in str(error) or "for every size" in str(error)), error
            continue
        for array in arrays[not dynamic_size :]:
            assert difference(run(path, array)[0], outputs(net, array)[0]) < 10 * TOLERANCE
