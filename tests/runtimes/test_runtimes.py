"""The recorded networks of both Kerases as files of ONNX and of MXNet in runtimes of others: what Keras gave, or what
the table of docs/results/parity.md says of the runtime."""

import collections
import subprocess
import sys
import types
from pathlib import Path

import keras_recording
import mxsame
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
OPSET = 17  # before 14 the reference evaluator computes batch norms with the statistics of the batch


def openvino(path, arrays):
    import openvino

    core = openvino.Core()
    model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return list(model(arrays).values())


def opencv(path, arrays):
    import cv2
    import onnx

    net, graph = cv2.dnn.readNetFromONNX(path), onnx.load(path).graph
    for entry, array in zip(graph.input, arrays):
        net.setInput(array, entry.name)
    return net.forward([entry.name for entry in graph.output])


def reference(path, arrays):
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(path)
    return session.run(None, dict(zip(session.input_names, arrays)))


def onnx2torch(path, arrays):
    import torch

    sys.modules["torchvision"] = types.ModuleType("torchvision")  # which two operators need that no network has
    sys.modules["torchvision.ops"] = types.ModuleType("torchvision.ops")
    sys.modules["torchvision.ops"].roi_align = None
    import onnx2torch

    with torch.no_grad():
        out = onnx2torch.convert(path).eval()(*map(torch.from_numpy, arrays))
    return [each.numpy() for each in (out if isinstance(out, (list, tuple)) else [out])]


RUNTIMES = {
    "OpenVINO": openvino,
    "OpenCV's dnn": opencv,
    "ONNX's reference evaluator": reference,
    "onnx2torch": onnx2torch,
}
PADS = "with non symmetrical padding is not implemented"
MISSING = "Converter is not implemented"
NOT_EQUAL = {  # of a runtime, by network: what it says, or None for other values
    "OpenVINO": {"recurrent": None},  # of a recurrent layer next to a bidirectional one on the same data
    "OpenCV's dnn": {
        "video": "PoolingLayerImpl",
        "pooling_layers": None,  # the maximum and the mean over three axes
        "pooling_layers_channels_first": "PoolingLayerImpl",
        "recurrent": "parseGRU",  # which takes no GRU without initial states
    },
    "ONNX's reference evaluator": {"pooling_layers_channels_first": "cannot reshape array"},
    "onnx2torch": {
        **dict.fromkeys(("unet", "convolutions_1d", "convolutions_2d", "convolutions_3d"), f"ConvTranspose {PADS}"),
        **dict.fromkeys(("video", "pooling_layers_1d", "pooling_layers"), f"AvgPool {PADS}"),
        **dict.fromkeys(("shared_layers", "pooling_layers_channels_first", "recurrent"), MISSING),
        "more_operators": f"{MISSING}|DepthToSpace",
        "shapes": "Expected types of indices",
    },
}
EQUAL, REFUSED, OTHER = "equal", "refused", "other values"


@pytest.fixture(scope="module")
def networks(recorded):
    """(Keras and network) -> (net, inputs, outputs), all as Keras recorded them."""
    found = {}
    for keras, (folder, arrays) in recorded.items():
        floats = {key: np.ascontiguousarray(array, "float32") for key, array in arrays.items() if "put/" in key}
        for name in keras_recording.names():
            files = [folder / f"{name}{ending}" for ending in (".h5", ".keras")]
            inputs, outputs = (keras_recording.numbered(floats, f"{name}/{kind}") for kind in ("input", "output"))
            source = next((file for file in files if file.exists()), None)
            if source is not None:
                found[keras, name] = mxsame.from_keras(source), inputs, outputs
    return found


def outcome(run, outputs):
    """What a runtime does, and what it says if it refuses the file."""
    try:
        got = [np.asarray(each) for each in run()]
    except Exception as error:
        return REFUSED, str(error)
    same = all(
        ours.shape == theirs.shape and np.abs(ours - theirs).max() <= TOLERANCE * max(np.abs(theirs).max(), 1e-12)
        for ours, theirs in zip(got, outputs)
    )
    return (EQUAL if same and len(got) == len(outputs) else OTHER), ""


def check_row(runtime, counts):
    """The row of a runtime in the table."""
    row = f"| {runtime} | {counts[EQUAL]} | {counts[REFUSED]} | {counts[OTHER]} |"
    assert row in (ROOT / "docs" / "results" / "parity.md").read_text(encoding="utf-8"), row


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_files_of_onnx(networks, runtime, tmp_path):
    counts, unlike, path = collections.Counter(), [], str(tmp_path / "net.onnx")
    for (keras, name), (net, inputs, outputs) in networks.items():
        shapes = [array.shape for array in inputs]
        mxsame.export_onnx(net, path, shapes, data=inputs, dynamic_batch=False, opset=OPSET)
        kind, says = outcome(lambda inputs=inputs: RUNTIMES[runtime](path, inputs), outputs)
        counts[kind] += 1
        known = NOT_EQUAL[runtime]
        base = name if name in known else name.replace("_channels_first", "")
        wanted = EQUAL if base not in known else OTHER if known[base] is None else REFUSED
        if kind != wanted or not any(word in says for word in (known.get(base) or "").split("|")):
            unlike.append((keras, name, kind, says[:300]))
    assert unlike == []
    check_row(runtime, counts)


def test_files_of_mxnet_in_c(networks, tmp_path):
    """Of networks with one input, the first output."""
    import mxnet

    home, counts, unlike = mxnet.__path__[0], collections.Counter(), []
    options = (f"-I{home}/include", f"-L{home}", "-lmxnet", f"-Wl,-rpath,{home}")
    subprocess.run(["gcc", "-o", tmp_path / "predict", ROOT / "examples" / "c" / "predict.c", *options], check=True)
    for (keras, name), (net, inputs, outputs) in networks.items():
        if len(inputs) == 1:
            (data,), want = inputs, outputs[0]
            mxsame.export(net, str(tmp_path / "net"), data.shape)
            command = [tmp_path / "predict", tmp_path / "net", ",".join(map(str, data.shape))]
            out = subprocess.run(command, input=data.tobytes(), capture_output=True)
            kind, says = outcome(
                lambda out=out, want=want: [np.frombuffer(out.stdout, "float32").reshape(want.shape)], [want]
            )
            counts[kind] += 1
            if kind != EQUAL:
                unlike.append((keras, name, kind, says, out.stderr[-300:]))
    assert unlike == []
    check_row("MXNet's C predict API", counts)
