"""Every row of the table of ONNX operators: a small block in ONNX Runtime gives what it gives in MXNet."""

import pytest
from running import Own, difference, outputs

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

from onnx_running import NEWEST, exported
from operator_cases import CASES, SHAPE, TABLE, block_of, inputs_of

from mxsame._mxnet import mx
from mxsame.exporting.lowering import RULES
from mxsame.onnx import emitters  # noqa: F401
from mxsame.onnx.writer import EMITTERS, writes
from mxsame.rewriting.graph import RNN_WITH_FORMULAS, Graph

STATIC = ("shape_array",)  # their first axis is no batch


def test_every_row_has_a_case():
    notes = {RNN_WITH_FORMULAS}  # written by the importer's layers only: tests/port/test_sequences.py
    assert (EMITTERS.keys() | RULES.keys()) - notes == CASES.keys()


def test_a_kind_has_one_emitter():
    with pytest.raises(ValueError, match=r"'Concat' already has an emitter"):
        writes("Concat")(lambda w, node, x: x)


@pytest.mark.parametrize(("kind", "shape", "function"), TABLE)
@pytest.mark.parametrize("opset", [13, NEWEST])
def test_operator(kind, shape, function, opset, tmp_path):
    block, arrays = block_of(function), inputs_of(shape)
    symbol = block(*(mx.sym.var(f"data{number}") for number in range(len(arrays))))
    symbol = mx.sym.Group(symbol) if isinstance(symbol, list) else symbol
    used = {node.kind for node in Graph.of(symbol, {}, {}).nodes()}
    assert kind in used or kind == "identity"
    got = exported(block, tmp_path / "net.onnx", *arrays, opset=opset, dynamic_batch=kind not in STATIC, fold=False)
    want = outputs(block, *arrays)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert one.dtype == other.dtype and difference(one, other) < 1e-5


def projected(F, x, h, c, p):
    return F.RNN(x, p, h, c, mode="lstm", num_layers=1, state_size=4, projection_size=2)


PROJECTED = Own(projected, p=(16 * 3 + 16 * 2 + 2 * 4 + 32,))


def of_data(F, x, p, h):
    return F.RNN(x, p, h, mode="rnn_tanh", num_layers=1, state_size=4)


def resized(F, x):
    return F.contrib.BilinearResize2D(x, height=1, width=7, align_corners=False)


def pooled(F, x):
    return F.Pooling(x, kernel=(3,), stride=(2,), pad=(0, 0, 0), pooling_convention="same")


def like(F, x):
    return F.broadcast_like(F.sum(x, axis=0, keepdims=True), x, lhs_axes=(0,), rhs_axes=(0,))


REFUSED = [  # shape, function, message
    ((3, 2, 4), Own(lambda F, x, w: F.linalg.gemm2(x, w, axis=0), w=(4, 2, 5)), "axis must be -2; received axis=0"),
    (SHAPE, lambda F, x: F.take(x, F.arange(3), axis=1, mode="raise"), "clip or wrap; received mode='raise'"),
    (SHAPE, resized, "length of 1"),
    ([(5, 2, 3), (1, 2, 2), (1, 2, 4)], PROJECTED, "projection_size must be None; received projection_size=2"),
    ([(5, 2, 3), (36,), (1, 2, 4)], of_data, "must depend on parameters only"),
    (SHAPE, lambda F, x: F.norm(x, out_dtype="float64"), "must be None; received out_dtype='float64'; in .* norm"),
    (SHAPE, lambda F, x: F.clip(x, a_min=0, a_max=-1), "a_min must be at most a_max"),
    ((2, 3, 9), pooled, "pooling_convention must be .*; received pooling_convention='same'"),
    ((2, 4), like, "lengths that are broadcast must be static"),
    ((1, 3, 1), lambda F, x: F.squeeze(x), r"shape \(3,\) for one size and \(2, 3\) for another"),
    (SHAPE, lambda F, x: F.sqrt(F.cast(F.abs(x), dtype="int32")), "onnx's checker accepts .* the checker says"),
]


@pytest.mark.parametrize(("shape", "function", "message"), REFUSED, ids=[each[-1] for each in REFUSED])
def test_refused(shape, function, message, tmp_path):
    more = {"dynamic_batch": False} if isinstance(shape, list) else {}  # axes of several inputs that are no batch
    with pytest.raises(ValueError, match=message):
        exported(block_of(function), tmp_path / "net.onnx", *inputs_of(shape), **more)
    assert not list(tmp_path.iterdir())


def test_a_scale_that_is_no_integer_serves_no_dynamic_size(tmp_path):
    def resize(F, x):
        return F.contrib.BilinearResize2D(x, scale_height=1.5, scale_width=0.6, align_corners=False)

    with pytest.raises(ValueError, match=r"unless align_corners is True: use .*; received scales=\[1.5, 0.6\]"):
        exported(block_of(resize), tmp_path / "net.onnx", *inputs_of(SHAPE), dynamic_size=True)
