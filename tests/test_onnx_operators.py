"""Every row of the table of ONNX operators: a small block in ONNX Runtime gives what it gives in MXNet."""

from __future__ import annotations

import pytest
from running import Own, difference, outputs

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

from onnx_running import NEWEST, exported
from operator_cases import CASES, SHAPE, TABLE, block_of, inputs_of

from mxsame._mxnet import mx
from mxsame.exporting.lowering import RULES
from mxsame.onnx import emitters  # noqa: F401
from mxsame.onnx.writer import OPERATORS, writes
from mxsame.rewriting.graph import Graph

STATIC = ("shape_array",)  # their first axis is no batch


def test_every_row_has_a_case():
    notes = {"RNN with other formulas"}  # written by the importer's layers only: tests/port/test_sequences.py
    assert (OPERATORS.keys() | RULES.keys()) - notes == CASES.keys()


def test_a_kind_has_one_emitter():
    with pytest.raises(ValueError, match=r"one emitter; received 'Concat' again"):
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


REFUSED = {  # what -> shape, function, message
    "gemm2 over another axis": (
        (3, 2, 4), Own(lambda F, x, w: F.linalg.gemm2(x, w, axis=0), w=(4, 2, 5)), "axis must be -2; received axis=0",
    ),
    "take that raises": (
        SHAPE, lambda F, x: F.take(x, F.arange(3), axis=1, mode="raise"), "clip or wrap; received mode='raise'",
    ),
    "the middle element": (
        SHAPE, lambda F, x: F.contrib.BilinearResize2D(x, height=1, width=7, align_corners=False), "length of 1",
    ),
    "a projected LSTM": (
        [(5, 2, 3), (1, 2, 2), (1, 2, 4)],
        Own(lambda F, x, h, c, p: F.RNN(x, p, h, c, mode="lstm", num_layers=1, state_size=4, projection_size=2),
              p=(16 * 3 + 16 * 2 + 2 * 4 + 32,)),
        "projection_size must be None; received projection_size=2",
    ),
    "weights that are data": (
        [(5, 2, 3), (36,), (1, 2, 4)], lambda F, x, p, h: F.RNN(x, p, h, mode="rnn_tanh", num_layers=1, state_size=4),
        "must depend on parameters only",
    ),
    "an attribute that no row reads": (
        SHAPE, lambda F, x: F.norm(x, out_dtype="float64"),
        "out_dtype must be None; received out_dtype='float64'; in .* norm",
    ),
    "bounds in another order": (SHAPE, lambda F, x: F.clip(x, a_min=0, a_max=-1), "a_min must be at most a_max"),
    "pads of another convention": (
        (2, 3, 9), lambda F, x: F.Pooling(x, kernel=(3,), stride=(2,), pad=(0, 0, 0), pooling_convention="same"),
        "pooling_convention must be .*; received pooling_convention='same'",
    ),
    "broadcast to the batch": (
        (2, 4), lambda F, x: F.broadcast_like(F.sum(x, axis=0, keepdims=True), x, lhs_axes=(0,), rhs_axes=(0,)),
        "lengths that are broadcast must be static",
    ),
    "squeezed batch": ((1, 3, 1), lambda F, x: F.squeeze(x), r"shape \(3,\) for one size and \(2, 3\) for another"),
    "roots of integers": (
        SHAPE, lambda F, x: F.sqrt(F.cast(F.abs(x), dtype="int32")), "onnx's checker accepts .* the checker says",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "function", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(shape, function, message, tmp_path):
    more = {"dynamic_batch": False} if isinstance(shape, list) else {}  # axes of several inputs that are no batch
    with pytest.raises(ValueError, match=message):
        exported(block_of(function), tmp_path / "net.onnx", *inputs_of(shape), **more)
    assert not list(tmp_path.iterdir())


def test_a_scale_that_is_no_integer_serves_no_dynamic_size(tmp_path):
    def resize(F, x):
        return F.contrib.BilinearResize2D(x, scale_height=1.5, scale_width=0.6, align_corners=False)

    with pytest.raises(ValueError, match=r"unless align_corners is True: give .*; received scales=\[1.5, 0.6\]"):
        exported(block_of(resize), tmp_path / "net.onnx", *inputs_of(SHAPE), dynamic_size=True)
