"""The same kit of layers in tf.keras, for networks compared with TensorFlow. Import MXNet before this module."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, List, Tuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # its default on processors with AVX512-VNNI only

import numpy as np
import tensorflow as tf

from benchmarks.kits import EPSILON, LEARNING_RATE, MOMENTUM, Kit, Tensor, Window
from mxsame import threads
from mxsame.keras import layouts

# A benchmark has imported nothing of TensorFlow yet. Where it runs already, as in tests, it keeps its threads.
with contextlib.suppress(RuntimeError):
    tf.config.threading.set_intra_op_parallelism_threads(threads.in_use())
    tf.config.threading.set_inter_op_parallelism_threads(threads.in_use())

layers = tf.keras.layers
POOLS = {"max": layers.MaxPool2D, "avg": layers.AveragePooling2D}


class TensorFlow(Kit):
    """tf.keras layers, channels last, which is what TensorFlow runs fastest on the CPU."""

    def __init__(self, width: float = 1.0):
        self.width = width
        self.weighted: List[Tuple[str, Any]] = []

    def input(self, channels: int, size: Tuple[int, ...]) -> Tensor:
        return Tensor(tf.keras.Input((*size, channels)), channels, size)

    def transposed(self, x: Tensor, channels: int, kernel_size: int, stride: int) -> Tensor:
        return self._layer("conv_transpose", layers.Conv2DTranspose(channels, kernel_size, stride, padding="same"), x)

    def norm(self, x: Tensor) -> Tensor:
        return self._layer("norm", layers.BatchNormalization(epsilon=EPSILON, momentum=0.9), x)

    def dense(self, x: Tensor, units: int) -> Tensor:
        return self._layer("dense", layers.Dense(units), Tensor(layers.Flatten()(x.value), x.channels, ()))

    def relu(self, x: Tensor) -> Tensor:
        return self._made(layers.ReLU()(x.value))

    def relu6(self, x: Tensor) -> Tensor:
        return self._made(layers.ReLU(6.0)(x.value))

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._made(layers.Activation("sigmoid")(x.value))

    def swish(self, x: Tensor) -> Tensor:
        return self._made(layers.Activation("swish")(x.value))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._made(layers.Add()([x.value, y.value]))

    def concat(self, *parts: Tensor) -> Tensor:
        return self._made(layers.Concatenate()([part.value for part in parts]))

    def scale(self, x: Tensor, by: Tensor) -> Tensor:
        return self._made(layers.Multiply()([x.value, by.value]))

    def global_pool(self, x: Tensor) -> Tensor:
        return self._made(layers.GlobalAveragePooling2D(keepdims=True)(x.value))

    def _window(self, window: Window) -> Tensor:
        given = {"strides": window.stride, "padding": window.padding}
        if window.kind in POOLS:
            return self._made(POOLS[window.kind](window.kernel_size, **given)(window.x.value))
        given["use_bias"] = window.use_bias
        if window.kind == "depthwise":
            return self._layer("depthwise", layers.DepthwiseConv2D(window.kernel_size, **given), window.x)
        return self._layer("conv", layers.Conv2D(window.channels, window.kernel_size, **given), window.x)

    def _layer(self, kind: str, layer: Any, x: Tensor) -> Tensor:
        self.weighted.append((kind, layer))
        return self._made(layer(x.value))

    def _made(self, value: Any) -> Tensor:
        return Tensor(value, value.shape[-1], tuple(value.shape[1:-1]))


def copy_weights(source: Kit, target: TensorFlow) -> None:
    """Of all layers, in order, from a network of MXNet."""
    for ours, (kind, theirs) in zip(source.weighted, target.weighted):
        arrays = [parameter.data().asnumpy() for parameter in ours.collect_params().values()]
        if kind == "dense":
            arrays[0] = arrays[0].T
        elif kind != "norm":
            arrays[0] = layouts.to_keras(arrays[0], kind, depth_multiplier=1 if kind == "depthwise" else None)
        theirs.set_weights(arrays)


def inference(model: Any, data: np.ndarray) -> Callable[[], np.ndarray]:
    """A call of the model for (N, C, H, W) data, through tf.function; the output's channels come first again."""
    run = tf.function(lambda x: model(x, training=False))
    images = tf.constant(np.moveaxis(data, 1, -1))

    def call() -> np.ndarray:
        out = run(images).numpy()
        return np.moveaxis(out, -1, 1) if out.ndim > 2 else out

    return call


def training(model: Any, data: np.ndarray, aims: np.ndarray, classifies: bool) -> Callable[[], float]:
    """A step of gradient descent with momentum, through tf.function; returns the loss."""
    images = tf.constant(np.moveaxis(data, 1, -1))
    target = tf.constant(aims if classifies else np.moveaxis(aims, 1, -1))
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)

    def loss(out: Any) -> Any:
        if classifies:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(target, tf.int32), out))
        return tf.reduce_mean((out - target) ** 2) / 2

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            value = loss(model(images, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    return lambda: float(step().numpy())
