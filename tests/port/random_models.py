"""Random Keras models: layers, shapes, data formats, branches and operators that nobody chose.

python tests/port/random_models.py FIRST LAST    # prints the seeds whose networks differ from tf.keras
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import mxsame  # noqa: E402, I001 - before TensorFlow
import numpy as np  # noqa: E402
from live_keras import arrays_of, compare, expected, gradients, inputs_of, keras, randomise  # noqa: E402
from mxnet import nd  # noqa: E402

MOST_ELEMENTS = 20_000  # of any array of a model


class Drawn:
    """A model that grows layer by layer; a layer that Keras refuses is drawn again."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.layers = keras().layers
        self.rank = self.random.choice((1, 2, 2, 2, 3))
        longest = {1: 20, 2: 11, 3: 6}[self.rank]
        channels = self.random.choice((1, 2, 3, 4, 8, 16))
        if (
            self.random.random() < 0.15
        ):  # dynamic, and so long that Keras, which cannot refuse it, is left with elements
            declared, self.sizes = [None] * self.rank, list(self.some(2 * longest, 2 * longest + 5))
        else:
            declared = [self.random.randint(1 if self.random.random() < 0.1 else 3, longest) for _ in range(self.rank)]
            self.sizes = []
        self.input = keras().Input((*declared, channels))

    def some(self, low: int, high: int):
        return tuple(self.random.randint(low, high) for _ in range(self.rank))

    def window(self) -> dict:
        word = self.random.choice(("same", "same", "valid"))
        return {"strides": self.some(1, 3) if self.random.random() < 0.6 else 1, "padding": word}

    def convolution(self):
        pick, name = self.random.random(), f"{self.rank}D"
        filters = self.random.choice((1, 2, 3, 5, 8, 16))
        more = {"use_bias": self.random.random() < 0.7, "activation": self.activation()}
        if pick < 0.5:
            window = self.window()
            if window["strides"] == 1 and self.random.random() < 0.3:
                window["dilation_rate"] = self.random.randint(2, 3)
            if self.rank == 1 and self.random.random() < 0.2:
                window["padding"] = "causal"
            return getattr(self.layers, f"Conv{name}")(filters, self.some(1, 4), **window, **more)
        if pick < 0.7:
            return getattr(self.layers, f"Conv{name}Transpose")(filters, self.some(1, 4), **self.window(), **more)
        window = {"strides": self.random.randint(1, 3), "padding": self.random.choice(("same", "valid"))}
        if self.rank < 3 and pick < 0.85:
            return getattr(self.layers, f"DepthwiseConv{name}")(
                self.some(1, 4), depth_multiplier=self.random.choice((1, 1, 2)), **window, **more
            )
        if self.rank < 3:
            return getattr(self.layers, f"SeparableConv{name}")(filters, self.some(1, 4), **window, **more)
        return self.convolution()

    def activation(self):
        return self.random.choice((None, None, "relu", "relu", "tanh", "swish", "elu", "softmax", "gelu", "relu6"))

    def pooling(self):
        kind = self.random.choice(("Max", "Average"))
        window = {"padding": self.random.choice(("same", "same", "valid"))}
        if self.random.random() < 0.7:
            window["strides"] = self.some(1, 3)
        return getattr(self.layers, f"{kind}Pooling{self.rank}D")(self.some(1, 4), **window)

    def resampling(self):
        name = self.random.choice(("UpSampling", "ZeroPadding", "Cropping"))
        return getattr(self.layers, f"{name}{self.rank}D")(
            self.random.randint(1, 2) if self.rank == 1 else self.some(1, 2)
        )

    def picture(self):
        """Layers of pictures of a static size."""
        layers, size = self.layers, self.some(2, 12)
        return self.random.choice(
            (
                lambda: layers.CenterCrop(*size),
                lambda: layers.Resizing(*size, self.random.choice(("bilinear", "nearest", "bicubic"))),
                lambda: layers.Resizing(*size, crop_to_aspect_ratio=True),
                lambda: layers.LocallyConnected2D(3, self.some(1, 3), strides=self.some(1, 2)),
                lambda: layers.BatchNormalization(axis=[1, 3]),
            )
        )()

    def elementwise(self):
        layers = self.layers
        return self.random.choice(
            (
                lambda: layers.BatchNormalization(),
                lambda: layers.LayerNormalization(),
                lambda: layers.ReLU(self.random.choice((None, 6.0)), negative_slope=self.random.choice((0.0, 0.1))),
                lambda: layers.LeakyReLU(),
                lambda: layers.Dense(self.random.choice((1, 3, 8)), activation=self.activation()),
                lambda: layers.Dropout(0.3),
                lambda: layers.Activation(self.random.choice(("sigmoid", "softplus", "hard_sigmoid", "softsign"))),
                lambda: layers.Softmax(),
                lambda: layers.Rescaling(0.5, 0.1),
            )
        )()

    def layer(self):
        if self.rank == 2 and not self.sizes and self.random.random() < 0.15:
            return self.picture()
        return self.random.choice((self.convolution,) * 4 + (self.pooling,) * 2 + (self.resampling, self.elementwise))()

    def operated(self, x):
        """The array through an operator of TensorFlow."""
        import tensorflow as tf

        axis = self.random.randint(1, len(x.shape) - 1)
        pads = [[0, 0]] * axis + [[self.random.randint(0, 2), 1]] + [[0, 0]] * (len(x.shape) - axis - 1)
        return self.random.choice(
            (
                lambda: tf.cumsum(x, axis, exclusive=self.random.random() < 0.5, reverse=self.random.random() < 0.5),
                lambda: tf.repeat(x, 2, axis=axis),
                lambda: tf.reverse(x, [axis]),
                lambda: tf.where(x > 0.1, x, self.random.choice((-0.5, tf.abs(x)))),
                lambda: tf.pad(x, pads, self.random.choice(("REFLECT", "SYMMETRIC"))),
                lambda: tf.maximum(x, np.linspace(-1, 1, x.shape[-1], dtype="float32")),
                lambda: tf.reshape(x, [tf.shape(x)[0], *x.shape[1:-2], -1, x.shape[-1]]),
            )
        )()

    def merged(self, x):
        """The array with a branch of itself."""
        branch = self.layers.Conv1D if self.rank == 1 else self.layers.Conv2D if self.rank == 2 else self.layers.Conv3D
        y = branch(x.shape[-1], self.some(1, 3), padding="same", activation=self.activation())(x)
        return self.random.choice(
            (
                lambda: self.layers.Add()([x, y]),
                lambda: self.layers.Multiply()([x, y]),
                lambda: self.layers.Maximum()([y, x]),
                lambda: self.layers.Concatenate()([x, y]),
                lambda: x * 0.5 + y,
                lambda: self.layers.Subtract()([x, y]),
            )
        )()

    def head(self, x):
        """What turns features into a vector; at times nothing."""
        kind = self.random.choice(("none", "global", "flatten", "sequence"))
        if kind == "global":
            x = getattr(self.layers, f"Global{self.random.choice(('Max', 'Average'))}Pooling{self.rank}D")()(x)
        elif kind == "flatten" and None not in x.shape[1:]:
            x = self.layers.Flatten()(x)
        elif kind == "sequence" and self.rank == 2 and None not in x.shape[1:]:
            x = self.layers.Reshape((x.shape[1] * x.shape[2], x.shape[3]))(x)
        return self.layers.Dense(3)(x) if kind != "none" else x

    def model(self):
        x = self.input
        wanted, refused = self.random.randint(2, 7), 0
        while wanted and refused < 20:
            try:
                pick = self.random.random()
                y = self.merged(x) if pick < 0.2 else self.operated(x) if pick < 0.3 else self.layer()(x)
            except (ValueError, TypeError, AttributeError):
                # a kernel longer than the data, an operator of a dynamic length, or a layer that Keras 3 does not have
                refused += 1
                continue
            if 0 in y.shape[1:] or np.prod([n or 12 for n in y.shape[1:]]) > MOST_ELEMENTS:
                refused += 1
                continue
            x, wanted = y, wanted - 1
        return randomise(keras().Model(self.input, self.head(x)), self.random.randint(0, 999))


def ways(model, inputs):
    """How the imported network may run: name -> outputs, as NumPy arrays with Keras's order of axes."""
    given = [nd.array(x) for x in inputs]

    def imported():
        return mxsame.from_keras(model)

    def hybridized():
        net = imported()
        net.hybridize()
        return net(*given)

    def deployed():
        return mxsame.deploy(imported(), [x.shape for x in inputs])(*given)

    return {
        "imperative": lambda: imported()(*given),
        "net.hybridize": hybridized,
        "mxsame.hybridize": lambda: mxsame.hybridize(imported())(*given),
        "mxsame.deploy": deployed,
    }


def check(seed: int, with_gradients: bool = False) -> None:
    """Every way of the network of a seed gives what Keras gives."""
    drawn = Drawn(seed)
    model = drawn.model()
    inputs = inputs_of(model, drawn.sizes)
    try:
        wanted = expected(model, inputs)
    except Exception:  # Keras itself: a dynamic size that is too short
        return
    if not all(array.size and np.isfinite(array).all() and np.abs(array).max() < 1e4 for array in wanted):
        return
    for name, run in ways(model, inputs).items():
        try:
            compare(arrays_of(run()), wanted, 1e-4)
        except Exception as error:  # whatever it is, with the seed and the layers
            if name == "net.hybridize" and "exceeds input" in str(error):
                continue  # a limit of graphs for any size: windows of two on one element
            layers = [(layer.name, layer.get_config()) for layer in model.layers]
            raise AssertionError(f"seed {seed}, {name}: {error}\n{layers}") from error
    # TensorFlow's max_pool3d gives every element of a tie the whole gradient.
    if with_gradients and not drawn.sizes and not any("MaxPooling3D" in type(layer).__name__ for layer in model.layers):
        for ours, expectations in gradients(model, training=False):
            for name, array in ours.items():
                compare([array], [expectations[name]], 1e-3)


def main() -> int:
    failed = 0
    for seed in range(*map(int, sys.argv[1:3])):
        try:
            check(seed)
        except AssertionError as error:
            failed += 1
            print(str(error)[:1500], flush=True)
    print(f"{failed} of {sys.argv[1:3]} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
