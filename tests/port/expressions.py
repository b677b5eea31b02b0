"""Keras models as expressions: a line has the inputs, and the outputs as a Python expression of Keras's names.

`5 3: LSTM(4)(Masking()(x))` is a model of one input x, (5, 3). Others, y and z, follow after `&`. After the lengths,
the type of an input may be written, or `words`, which are the numbers 0 to 4, or `wild`, infinities, NaN and negative
zeros among others, or `large`, integers one of which is no float32. The names are those of `keras.layers`,
`keras`, `tf`, `np`; `embedded`, an embedding of words that masks the zeros; `own` and `function`, which make a user's
class and function.
"""

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
from live_keras import arrays_of, compare, expected, keras, randomise
from mxnet import nd

import mxsame

BATCH = 4
WILD = (np.inf, -np.inf, np.nan, -0.0, -0.0)


def own(base, name=None, registered=True, method="call", change=lambda out: 2 * out + 1):
    """A user's subclass of one of Keras's classes, which computes something else, by default under the same name;
    `registered` as `mine>name`."""
    base = getattr(keras().layers, base) if isinstance(base, str) else base

    def changed(self, *args, **kwargs):
        return change(getattr(super(kind, self), method)(*args, **kwargs))

    changed.__signature__ = inspect.signature(getattr(base, method))
    kind = type(name or base.__name__, (base,), {method: changed})
    return keras().utils.register_keras_serializable("mine")(kind) if registered else kind


def function(name):
    """A user's function by this name."""

    def tripled(x):
        return 3 * x

    tripled.__name__ = name
    return keras().utils.register_keras_serializable("mine", name)(tripled)


def nested(kind, names):
    """A model of two inputs of these names, in a list or in a dict, which it may be called with."""
    inputs = {name: keras().Input((5, 3), name=name) for name in names}
    out = keras().layers.LSTM(2)(inputs["a"]) - 2 * keras().layers.GlobalAveragePooling1D()(inputs["b"])[:, 1:]
    return keras().Model(inputs if kind is dict else list(inputs.values()), out)


def frozen(layer, x, *parts):
    """The output of a layer, of which parts are frozen: attributes of it."""
    out = layer(x, x) if "Attention" in type(layer).__name__ else layer(x)
    for part in parts:
        getattr(layer, part).trainable = False
    return out


def embedded(words, **arguments):
    return keras().layers.Embedding(5, 3, mask_zero=True, **arguments)(words)


def inputs_of(text):
    """The inputs of a line, and an array for each: with ties, negative numbers, thirds, and steps of zeros, others in
    each entry of the batch; bytes that wrap when they are added."""
    rng = np.random.default_rng(len(text))
    inputs, arrays = [], []
    for entry in text.split("&"):
        shape = tuple(None if n == "None" else int(n) for n in re.findall(r"\b(?:None|\d+)\b", entry))
        kind, *size = re.findall(r"\b[a-z]\w*", entry) or ["float32"]
        full = (BATCH, *(n or 5 for n in shape))
        array = np.round(rng.normal(size=full) * 4) / rng.choice((4, 12), full)
        if kind == "words":
            kind, array = "float32", rng.integers(0, 5, full)
        elif kind == "large":
            (kind,), array = size or ["int32"], rng.integers(-9, 10, full)
            array.flat[5] = 2**24 + 1
        elif "int" in kind or kind == "bool":
            array = rng.integers(0, 256, full) if kind[0] == "u" else rng.integers(-9, 10, full)
        elif len(full) > 2:
            kept = rng.integers(0, 2, full[:2])
            kept[0], kept[:, 2 % full[1]] = 1, 1  # a step is left: Keras divides by none otherwise
            array *= kept.reshape(*full[:2], *(1,) * (len(full) - 2))
        array = array + 0  # no negative zeros
        if kind == "wild":
            kind, array = "float32", np.where(rng.random(full) < 0.6, array, rng.choice(WILD, full))
        inputs.append(keras().Input(shape, dtype=kind))
        arrays.append(array.astype(kind))
    return inputs, arrays


def sections(path):
    """The lines of each section of a file, without comments."""
    _, *parts = re.split(r"^\[(.*)\]$", path.read_text(encoding="utf-8"), flags=re.M)
    of_parts = ([line for line in part.splitlines() if line and line[0] != "#"] for part in parts[1::2])
    return dict(zip(parts[::2], of_parts))


MODELS = sections(Path(__file__).with_name("models.txt"))


def names_of(inputs):
    """What an expression may use."""
    import tensorflow as tf

    layers = {name: value for name, value in vars(keras().layers).items() if name[0].isupper()}
    others = {"keras": keras(), "tf": tf, "np": np, "own": own, "function": function, "embedded": embedded}
    others.update(nested=nested, frozen=frozen)
    return {**layers, **others, **dict(zip("xyz", inputs))}


def model_of(line):
    """The model of a line, with random weights, and arrays for its inputs."""
    text, expression = line.split(": ", 1)
    inputs, arrays = inputs_of(text.replace("[.keras]", ""))
    return randomise(keras().Model(inputs, eval(expression, names_of(inputs)))), arrays


def saved(model, folder, endings=(".h5", ".keras")):
    """The files of a model; without one that Keras itself cannot write."""
    for ending in endings:
        path, error = folder / f"model{ending}", None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.save(path)
            except (NotImplementedError, TypeError) as failure:
                error = failure
        if error is None:
            yield path


def ways(source, given):
    """What the imported network gives, and how it was run."""
    net = mxsame.from_keras(source)
    yield "imperative", net(*given)
    net.hybridize()
    yield "hybridized", net(*given)
    yield "deployed", mxsame.deploy(mxsame.from_keras(source), [x.shape for x in given])(*given)


def outcome(model, arrays, path, tolerance=3e-5):
    """What becomes of a file: "exact" in every way, or "refused" when it is imported, by the name of a layer. Anything
    else is an AssertionError."""
    wanted, way = expected(model, arrays), None
    given = [nd.array(x, dtype="float32" if x.dtype == bool else x.dtype) for x in arrays]
    assert not any(np.isnan(array).all() for array in wanted)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "layer .* (counts masked steps in its statistics|does nothing here)")
            for way, out in ways(path, given):  # noqa: B007 - it is in the messages below
                got = [array.astype("float64") for array in arrays_of(out)]
                compare(got, [array.astype("float64") for array in wanted], tolerance)
    except AssertionError as error:
        raise AssertionError(f"{path.suffix}, {way}: {error}") from None
    except Exception as error:
        layers = [*model._flatten_layers(), *getattr(model, "operations", ())]  # of Keras 3, those between layers, too
        names = [re.escape(layer.name) for layer in layers]
        named = re.search(f"['/]({'|'.join(names)})'", str(error)) and not re.search(r"MXNetError|Value\(", str(error))
        if way is None and named and isinstance(error, (TypeError, ValueError)):
            return "refused"
        raise AssertionError(f"{path.suffix}, after {way}: {type(error).__name__}: {error}") from error
    return "exact"
