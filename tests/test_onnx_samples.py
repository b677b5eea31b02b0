"""The data that `export_onnx` compares a file on."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

import onnx_running

import mxsame
from mxsame._mxnet import mx
from mxsame.onnx import checking
from mxsame.onnx.samples import samples
from mxsame.rewriting import Graph

SHAPE = (4, 50)
WEIGHT = np.arange(2000, dtype="float32").reshape(1000, 2)


def data_of(function, shape=SHAPE, dtype="float32"):
    """What is chosen for the first input of a function of Symbols."""
    symbol = function(mx.sym, mx.sym.var("data", dtype="float32"))
    graph = Graph.of(symbol, {"weight": WEIGHT, "mean": np.full((50,), 100, "float32")}, {"data": shape})
    return samples(graph, {"data": shape}, np.dtype(dtype))["data"]


def rows(F, x, count=1000):
    return F.Embedding(x, F.var("weight"), input_dim=count, output_dim=2)


INDEXED = {
    "Embedding": rows,
    "moved": lambda F, x: rows(F, F.transpose(F.reshape(x, shape=(0, 5, 10)), axes=(0, 2, 1))),
    "cast": lambda F, x: rows(F, F.cast(x, dtype="int32")),
    "a mask, too": lambda F, x: F.broadcast_mul(F.expand_dims(x > 0, axis=2), rows(F, x)),
    "the fewest": lambda F, x: F.Group([rows(F, x), F.one_hot(x, depth=2000)]),
    "take": lambda F, x: F.take(F.var("weight"), x),
    "pick": lambda F, x: F.pick(F.arange(4000).reshape((4, 1000)), F.slice_axis(x, axis=1, begin=0, end=1)),
    "one_hot": lambda F, x: F.one_hot(x, depth=1000),
}


@pytest.mark.parametrize("function", INDEXED.values(), ids=INDEXED)
def test_numbers_of_rows_are_from_all_of_them(function):
    found = data_of(function)
    assert np.array_equal(found, np.floor(found)) and found.min() >= 0
    assert found.max() == 999 and len(np.unique(found)) > 150


def test_numbers_of_rows_that_are_shifted_first():
    found = data_of(lambda F, x: rows(F, (x - 1) * 2))
    assert {0, 999} >= {*((found - 1) * 2).ravel()} - {*range(1000)} and found.max() == 999 / 2 + 1


SCALED = {
    "Rescaling": (lambda F, x: F.tanh(x * (1 / 255)), -255, 255),
    "with an offset": (lambda F, x: F.tanh(x / 127.5 - 1), 0, 255),
    "of parameters": (lambda F, x: F.tanh(F.broadcast_sub(x, F.var("weight").sum())), -1, 1),
    "of the mean of parameters": (lambda F, x: F.broadcast_sub(x, F.var("mean")).tanh(), 99, 101),
    "the widest": (lambda F, x: F.Group([x.tanh(), (x / 20).tanh()]), -20, 20),
    "by nothing": (lambda F, x: F.tanh(x * 0), -1, 1),
    "pixels": (lambda F, x: F.cast(x, dtype="uint8"), 0, 255),
    "integers": (lambda F, x: F.cast(F.cast(x, dtype="int32"), dtype="float32"), -100, 100),
    "nothing at all": (lambda F, x: F.ones((2,)), -1, 1),
}


@pytest.mark.parametrize(("function", "low", "high"), SCALED.values(), ids=SCALED)
def test_data_are_of_the_size_that_a_net_scales_them_from(function, low, high):
    found = data_of(function)
    assert low <= found.min() < low + (high - low) / 10 and high - (high - low) / 10 < found.max() <= high


def test_float16_is_rounded_once():
    assert data_of(rows, dtype="float16").dtype == np.float16


def test_an_embedding_of_which_a_row_is_wrong_is_refused(tmp_path, monkeypatch):
    """With numbers between -1 and 1 only the first row was compared."""
    net = mx.gluon.nn.Embedding(20, 3)
    net.initialize(mx.init.Uniform(1))
    onnx_running.exported(net, tmp_path / "net.onnx", np.arange(20, dtype="float32")[None])

    def save(model, size, file):
        (array,) = (array for array in model.graph.initializer if "weight" in array.name)
        values = onnx_running.onnx.numpy_helper.to_array(array).copy()
        values[-1] += 1
        array.CopyFrom(onnx_running.onnx.numpy_helper.from_array(values, array.name))
        saved(model, size, file)

    saved = checking.save
    monkeypatch.setattr(checking, "save", save)
    with pytest.raises(ValueError, match="ONNX Runtime finds another output"):
        mxsame.export_onnx(net, tmp_path / "net.onnx", (1, 8))
