"""Keras models outside TensorFlow: MXNet's deployed net, and ONNX Runtime on the files of mxsame and of tf2onnx.

All are made from one model in memory, and nothing is timed before they agree with TensorFlow. The nodes of both files
are counted too. Needs TensorFlow, tf2onnx, onnx and onnxruntime: the extras `oracle`, `onnx` and `benchmarks`.
"""

from __future__ import annotations

import collections
import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

import mxsame
from benchmarks import architectures, keras_models, networks, results
from benchmarks.kits import Tensor
from benchmarks.timing import measure as timed
from mxsame import threads
from mxsame._mxnet import mx

APPLICATIONS = ("MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "ResNet50", "DenseNet121", "InceptionV3")
ARCHITECTURES = {
    network.name: network for network in architectures.NETWORKS if network.name in ("xception", "autoencoder")
}
SMALL = keras_models.MODELS
MODELS = (*APPLICATIONS, *ARCHITECTURES, *SMALL)
DEPLOYED, TENSORFLOW = "mxsame, deployed", "TensorFlow"
OURS, THEIRS = "ONNX Runtime, mxsame's file", "ONNX Runtime, tf2onnx's file"
TOLERANCE = 1e-4
OPSET = 13


def model_of(name: str, size: Optional[int] = None, width: float = 1.0) -> Any:
    """A Keras model with random weights; `width` is for `ARCHITECTURES` only."""
    from benchmarks import tensorflow_kit

    keras = tensorflow_kit.tf.keras
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    if name in ARCHITECTURES:
        network, kit = ARCHITECTURES[name], tensorflow_kit.TensorFlow(width)
        data: Tensor = kit.input(networks.CHANNELS, (size or network.size,) * 2)
        model = keras.Model(data.value, network.build(kit, data).value)
    elif name in SMALL:
        build, shape = SMALL[name]
        data = keras.Input(shape)
        model = keras.Model(data, build(keras.layers, data))
    else:
        shape = None if size is None else (size, size, networks.CHANNELS)
        model = getattr(keras.applications, name)(weights=None, classifier_activation=None, input_shape=shape)
    calibrate(model)
    return model


def calibrate(model: Any) -> None:
    """Give it biases, scales and offsets as after training, since converters leave out what is 0 or 1, and batch norms
    the statistics of pictures, so that deep layers still see what differs between pictures."""
    random = np.random.RandomState(1)
    for variable in model.weights:
        kind = variable.name.split("/")[-1].split(":")[0]
        if kind in ("bias", "beta"):
            variable.assign(random.normal(0, 0.1, variable.shape))
        elif kind == "gamma":
            variable.assign(random.uniform(0.5, 1.5, variable.shape))
    norms = [layer for layer in model.layers if type(layer).__name__ == "BatchNormalization"]
    for norm in norms:
        norm.momentum = 0.0
    if norms:
        model(pictures(model, 4), training=True)


def picture_shape(model: Any) -> Tuple[int, ...]:
    """Of one picture; MobileNetV3 takes any size."""
    return tuple(length or 224 for length in model.input_shape[1:])


def pictures(model: Any, batch: int) -> np.ndarray:
    """Of numbers up to 255 if the model scales them itself, and around 0 if it does not."""
    random = np.random.RandomState(2)
    shape = (batch, *picture_shape(model))
    scales = any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in model.layers)
    return (random.uniform(0, 255, shape) if scales else random.normal(0, 1, shape)).astype("float32")


# -- the files


def write(model: Any, net: Any, folder: str) -> Dict[str, str]:
    """The model's file by tf2onnx, and that of its net by mxsame, for any batch."""
    import tf2onnx

    from benchmarks.tensorflow_kit import tf

    shape = picture_shape(model)
    files = {OURS: os.path.join(folder, "mxsame.onnx"), THEIRS: os.path.join(folder, "tf2onnx.onnx")}
    mxsame.export_onnx(net, files[OURS], (1, *shape), opset=OPSET)
    signature = [tf.TensorSpec((None, *shape), tf.float32, name="data")]
    tf2onnx.convert.from_keras(model, input_signature=signature, opset=OPSET, output_path=files[THEIRS])
    return files


def nodes(file: str) -> Dict[str, int]:
    """How many nodes of each operator a file has."""
    import onnx

    return dict(collections.Counter(node.op_type for node in onnx.load(file).graph.node))


def session(file: str) -> Any:
    """ONNX Runtime on the CPU, with as many threads as MXNet, none of which waits actively after its turn."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads.in_use()
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


# -- calls


def in_session(file: str, data: np.ndarray) -> Callable[[], np.ndarray]:
    run = session(file)
    inputs = {run.get_inputs()[0].name: data}
    return lambda: run.run(None, inputs)[0]


def in_tensorflow(model: Any, data: np.ndarray) -> Callable[[], np.ndarray]:
    from benchmarks.tensorflow_kit import tf

    run, images = tf.function(lambda x: model(x, training=False)), tf.constant(data)
    return lambda: run(images).numpy()


def calls(model: Any, net: Any, files: Dict[str, str], batch: int) -> Dict[str, Callable[[], Any]]:
    """Calls by variant, each of which returns the output."""
    data = pictures(model, batch)
    return {
        DEPLOYED: networks.applied(mxsame.deploy(net, data.shape), mx.nd.array(data)),
        **{name: in_session(file, data) for name, file in files.items()},
        TENSORFLOW: in_tensorflow(model, data),
    }


def check(calls: Dict[str, Callable[[], Any]]) -> Dict[str, float]:
    """How far each variant is from TensorFlow; raises `Disagreement` if that is more than rounding."""
    want = calls[TENSORFLOW]()
    differences = {name: networks.difference(call(), want) for name, call in calls.items()}
    for name, wrong in differences.items():
        if wrong > TOLERANCE:
            raise networks.Disagreement(f"{name} and TensorFlow differ by {wrong:.2g} of the largest output")
    return differences


# -- the table


def measure(
    name: str, batches: Tuple[int, ...] = (), size: Optional[int] = None, width: float = 1.0, **timing: Any
) -> List[dict]:
    """Rows of one model: times for each batch, and the nodes of its two files."""
    batches = batches or (1, 32 if name in SMALL else 8)
    model = model_of(name, size, width)
    net = mxsame.from_keras(model)
    more = {"network": name, "size": list(picture_shape(model)[:2])}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = write(model, net, folder)
        counts = {variant: nodes(file) for variant, file in files.items()}
        totals = {variant: [float(sum(count.values()))] for variant, count in counts.items()}
        rows.append(results.row(name, "nodes of the file", totals, THEIRS, unit="nodes", **more, operators=counts))
        for batch in batches:
            variants = calls(model, net, files, batch)
            given = {**more, "batch": batch, "differences": check(variants)}
            figures = timed(variants, **timing)
            rows.append(results.row(f"{name}, batch {batch}", "inference", figures, DEPLOYED, **given))
    return rows
