"""A network with SAME in an interchange format: MXNet's own ONNX export, run by onnxruntime (extra `onnx`)."""

from __future__ import annotations

import numpy as np
import pytest
import running

import mxsame
from mxsame._mxnet import mx

gluon = mx.gluon.nn


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's exporter and of protobuf
def test_a_network_exports_to_onnx_and_gives_the_same_there(tmp_path):
    reason = "onnxruntime is not installed: pip install '.[onnx]'"
    pytest.importorskip("onnx", reason=reason)
    runtime = pytest.importorskip("onnxruntime", reason=reason)
    net = gluon.HybridSequential()
    net.add(
        mxsame.nn.Conv2D(8, 7, strides=2),
        gluon.BatchNorm(),
        gluon.Activation("relu"),
        mxsame.nn.MaxPool2D(3, 2),
        mxsame.nn.Conv2D(8, 4),
        mxsame.nn.AvgPool2D(2),
        mxsame.nn.Conv2DTranspose(4, 3, strides=2),
    )
    net.initialize(mx.init.Normal(0.5))
    shape = (1, 3, 30, 33)
    data = np.random.RandomState(0).randn(*shape).astype("float32")
    want = net(mx.nd.array(data)).asnumpy()
    symbol = net(mx.sym.var("data", shape=shape))  # traced for this size
    parameters = {name: parameter.data() for name, parameter in net.collect_params().items()}
    path = mx.onnx.export_model(symbol, parameters, [shape], np.float32, str(tmp_path / "net.onnx"))
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it would warn of every parameter that is also an input
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"data": data})
    assert np.abs(want).max() > 0.1
    assert running.difference(got, want) < 1e-5
