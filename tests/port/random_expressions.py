"""Random expressions: any layer of Keras with any arguments, those of its signature, so that a new one is drawn by
itself, on masked steps, images, integers and shared tensors, in wrappers in wrappers and in branches; `pytest -m heavy
tests/port/test_misread.py` runs thousands."""

from __future__ import annotations

import inspect
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from expressions import inputs_of, names_of, outcome, saved
from live_keras import expected, gradients, keras, randomise

IMAGES = ("11 7 3", "None None 4", "9 1 8", "8 9 2", "13 3", "None 16", "6 5 4 2", "5 4 6 3")
STEPS = ("5 words", "5 3", "5 3", "None 3", "5 4 3", "4 5 words", "4 5 2", "3 4 5 2", "6", "5 3 int32", "5 4 3 uint8")
LEFT_OUT = re.compile(
    "^(Layer|Wrapper|RNN|InputLayer|Lambda|Input|Random.*|.*Cell|.*Cells|TFSM.*|.*Lookup|Hash.*|Text.*|DenseFeatures)$"
    "|Attention|Bidirectional|TimeDistributed|Spectral|Activity|Embedding|Add$|Subtract|Multiply|Average$|Maximum|Minimum"
    "|Concatenate|Dot"
)
ELEMENTWISE = ("Add", "Multiply", "Average", "Maximum", "Subtract", "Concatenate")
MERGES = (*ELEMENTWISE, "Attention", "AdditiveAttention", "Dot")
ACTIVATIONS = (None, "relu", "tanh", "sigmoid", "softmax", "elu", "selu", "gelu", "swish", "hard_sigmoid", "softplus")
CHOICES = {  # values of arguments that do not follow from the default
    **dict.fromkeys(("kernel_size", "pool_size"), (1, 2, 3, 4, (1, 2), (3, 2), (2, 1, 1), (1, 3, 2))),
    **dict.fromkeys(("strides", "size", "dilation_rate"), (1, 2, 3, (1, 2), (3, 2), (2, 1, 1), (1, 3, 2))),
    **dict.fromkeys(("units", "filters", "height", "width", "n", "num_heads", "key_dim", "value_dim"), (1, 2, 3, 4)),
    **dict.fromkeys(("activation", "recurrent_activation"), ACTIVATIONS),
    **dict.fromkeys(("rate", "stddev", "alpha", "negative_slope", "threshold", "theta", "epsilon"), (0.1, 0.25, 0.5)),
    "padding": ("valid", "same", "causal", 1, (0, 2), ((1, 2), (0, 1))),
    "cropping": (1, (1, 0), ((1, 0), (0, 1))),
    "data_format": ("channels_last", "channels_first"),
    "interpolation": ("nearest", "bilinear", "bicubic", "area"),
    "output_padding": (None, 1),
    "groups": (1, 2, 3),
    "axis": (-1, 1, -2, 2, [1, -1], [-1, 1], [1, 2]),
    "axes": (1, 2, -1, (1, 2), (2, 1)),
    "dims": ((1, 2), (2, 1), (3, 1, 2)),
    "target_shape": ((-1,), (-1, 3), (3, -1), (5, 3), (1, -1)),
    "shared_axes": (None, [1], [2], [1, 2]),
    "max_value": (None, 0.5, 1.0),
    "scale": (True, False, 0.5, [0.5, 1.5, 2.0]),
    "offset": (0.0, 0.5, [1.0, 2.0, 3.0]),
    "mean": (None, 0.25, [0.0, 1.0, 2.0]),
    "variance": (None, 2.0, [1.0, 2.0, 0.5]),
    "noise_shape": (None, (None, 1, 3)),
    "implementation": (1, 2),
    "score_mode": ("dot", "concat"),
    "equation": ("abc,cd->abd", "abc,bd->adc", "ab,bc->ac"),
    "output_shape": (2, (None, 3), (4, None)),
    "bias_axes": (None, "d"),
    "num_tokens": (20,),
    "bin_boundaries": ([-0.5, 0.0, 0.25],),
    "output_mode": ("int", "one_hot", "multi_hot", "count"),
    "mask_value": (0.0, 0.25, 1.0),
}
IGNORED = re.compile(
    "initializer|regularizer|constraint|^(self|args|kwargs|name|seed|dtype|l1|l2|stateful|sparse|num_bins)$"
)
OPERATORS = (
    "{0} / 2", "{0} * {0}", "2 - {0}", "{0}[:, 1:]", "{0}[:, 1]", "{0}[:, None]", "{0} + 200",
    "tf.cast({0} > 0.25, 'float32')", "tf.where({0} > 0, {0}, 0.5)", "tf.reduce_mean({0}, axis={1}, keepdims={2})",
    "tf.reduce_max({0}, axis={1}, keepdims={2})", "tf.nn.l2_normalize({0}, axis={1})", "tf.nn.softmax({0}, axis={1})",
    "tf.cumsum({0}, axis={1}, exclusive={2}, reverse=True)", "tf.repeat({0}, 2, axis={1})", "tf.reverse({0}, [{1}])",
    "tf.maximum({0}, np.linspace(-1, 1, {0}.shape[-1], dtype='float32'))", "tf.argmax({0}, axis={1})",
    "tf.expand_dims({0}, {1})", "tf.concat([{0}, {0}], {1})",
)  # fmt: skip


MOST_ELEMENTS = 20_000  # of any array of a model
NOT_COMPARED = re.compile(  # what has no gradient, or of ties another, or weights that Keras names after layers within
    "arg|reduce_max|[mM]aximum|Max.*3D|GlobalMax|> |Discretiz|Encoding|Attention|GRU|LSTM|RNN"
)


class Drawn:
    """An expression that grows step by step, `[a := .., b := .., b][-1]`; a step that Keras refuses is drawn again. Of
    `images`, most steps are layers with windows, or branches."""

    def __init__(self, seed: int, images: bool):
        self.random, self.images = random.Random(seed), images
        self.layers = [
            name
            for name, kind in sorted(vars(keras().layers).items())
            if inspect.isclass(kind) and issubclass(kind, keras().layers.Layer) and not LEFT_OUT.search(name)
        ]
        self.text = self.random.choice(IMAGES if images else STEPS)
        self.inputs, self.arrays = inputs_of(self.text)
        self.names, self.steps, self.tensors = names_of(self.inputs), [], ["x"]

    def of(self, name: str) -> str:
        """A layer with less than half of the arguments of its signature, at other values than the defaults."""
        given = []
        for argument, parameter in inspect.signature(self.names[name]).parameters.items():
            required = parameter.default is parameter.empty
            if self.images and argument == "data_format":  # TensorFlow runs only one of them on the CPU
                continue
            if not IGNORED.search(argument) and (required or self.random.random() < 0.4):
                none = not required and self.random.random() < 0.1
                given.append(f"{argument}={None if none else self.value(argument, parameter.default)!r}")
        return f"{name}({', '.join(given)})"

    def value(self, argument: str, default: Any) -> Any:
        """One of the choices for the argument, or another one than the default, by its type."""
        if argument in CHOICES:
            return self.random.choice(CHOICES[argument])
        if isinstance(default, bool):
            return not default
        return default + self.random.choice((1, 2)) if isinstance(default, (int, float)) else None

    def layer(self, rank: int) -> str:
        """A layer for arrays of this rank, at times in wrappers or a user's."""
        pick, windowed = self.random.random(), [each for each in self.layers if f"{rank - 2}D" in each]
        if self.images and pick < 0.7 and windowed:
            return self.of(self.random.choice(windowed))
        if pick < (0.12 if rank == 3 else 0.5 if rank > 3 else 0):
            return f"TimeDistributed({self.layer(rank - 1)})"
        if rank == 3 and pick < 0.45:
            text = self.of(self.random.choice(("LSTM", "GRU", "SimpleRNN")))
            merged = self.random.choice(("concat", "sum", None))
            return f"Bidirectional({text}, merge_mode={merged!r})" if pick < 0.22 else text
        name = self.random.choice([*windowed, *(each for each in self.layers if not each.endswith("D"))])
        return self.of(name).replace(f"{name}(", f"own({name!r})(", 1) if pick > 0.97 else self.of(name)

    def step(self) -> str:
        """An expression of the tensors so far."""
        x, other = self.tensors[-1] if self.random.random() < 0.8 else "x", self.random.choice(self.tensors)
        pick, rank = self.random.random(), len(self.names[x].shape)
        if self.text.endswith("words") and x == "x":
            return "embedded(x)"
        if self.images and rank > 2 and pick < 0.15:
            branch = f"Conv{rank - 2}D({self.names[x].shape[-1]}, {self.random.randint(1, 3)}, padding='same')({x})"
            return f"{self.of(self.random.choice(ELEMENTWISE))}([{x}, {branch}])"
        if not self.images and not self.steps and rank > 2 and pick < 0.6:
            return f"{self.of('Masking')}({x})"
        if pick < 0.15:
            axis = self.random.choice((None, 1, -1, 2, [1, 2]))
            return self.random.choice(OPERATORS).format(x, axis, self.random.random() < 0.5)
        if pick < 0.3:
            return f"{self.of(self.random.choice(MERGES if rank < 4 else ELEMENTWISE))}([{x}, {other}])"
        if pick < 0.35 and rank < 4:
            return f"{self.of('MultiHeadAttention')}({x}, {other})"
        layer = self.layer(rank)
        return f"(lambda layer: [layer({other}), layer({x})][-1])({layer})" if pick > 0.93 else f"{layer}({x})"

    def model(self) -> tuple:
        """A model of one to five steps, and its line."""
        wanted = self.random.randint(1, 5)
        for _ in range(40):
            text = self.step()
            try:
                out = eval(text, dict(self.names))
            except Exception:  # whatever Keras or TensorFlow says of arguments that do not fit
                continue
            out, text = (out[0], f"{text}[0]") if isinstance(out, (list, tuple)) else (out, text)
            fits = len(out.shape) > 1 and 0 < np.prod([5 if n is None else n for n in out.shape[1:]]) < MOST_ELEMENTS
            if fits and keras().backend.is_keras_tensor(out):
                name = "abcde"[len(self.steps)]
                self.names[name] = out
                self.steps.append(f"{name} := {text}")
                self.tensors.append(name)
            if len(self.steps) == wanted:
                break
        model = keras().Model(self.inputs, self.names[self.tensors[-1]])
        return randomise(model), f"{self.text}: [{', '.join(self.steps)}][-1]"


def check(seed: int, images: bool) -> str:
    """`outcome` of the model of a seed; "left out" if Keras cannot run or save it, or its values say nothing. Of some
    images, the gradients of the data and of all weights, too."""
    keras().backend.clear_session()
    drawn = Drawn(seed, images)
    try:
        model, line = drawn.model()
        wanted = expected(model, drawn.arrays)
    except Exception:  # Keras itself: weights or arrays without a length
        return "left out"
    if not all(array.size and np.isfinite(array).all() and np.abs(array).max() < 1e4 for array in wanted):
        return "left out"
    with tempfile.TemporaryDirectory() as folder:
        for path in saved(model, Path(folder), [(".h5", ".keras")[seed % 2]]):
            try:
                found = outcome(model, drawn.arrays, path, 1e-4)
                if found == "exact" and images and not NOT_COMPARED.search(line) and None not in model.input_shape[1:]:
                    for ours, theirs in gradients(model, training=False):
                        for name, want in theirs.items():
                            size = max(np.abs(want).max(), 0.1)  # a norm of one element has a gradient of 0
                            np.testing.assert_allclose(ours[name] / size, want / size, rtol=0, atol=1e-3, err_msg=name)
                return found
            except AssertionError as error:
                if re.search("exceeds input|as long as the kernel", str(error)):  # for any size; a length that is drawn
                    return "left out"
                raise AssertionError(f"seed {seed}: {line}\n{error}") from None
    return "left out"
