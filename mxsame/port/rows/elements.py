"""Rows of functions of each element: activations, arithmetic, comparisons."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from mxsame.port import blocks, types
from mxsame.port.activations import ACTIVATIONS, DEFAULTS, arguments_of
from mxsame.port.description import listed
from mxsame.port.rows._shared import OF_LAYERS, activated, applied, axes_of, broadcasting, merged, relu_arguments
from mxsame.port.table import KERAS, PASSES, TAKES, Operand, Site, Value, layer, operator
from mxsame.port.values import Lengths, OpenLength, Sized, refuse_lengths
from mxsame.validation import check

# -- activations


@layer("Activation", masks=PASSES)
def _activation(site: Site, x: Value) -> Value:
    return activated(site, x)


@layer("LeakyReLU", masks=PASSES, types=types.CAST)
@layer("ReLU", "ELU", "ThresholdedReLU", masks=PASSES)
def _activation_layer(site: Site, x: Value) -> Value:
    name, arguments = OF_LAYERS[site.layer.class_name](site)
    return applied(site, name, x, **arguments)


@layer("Softmax", masks=TAKES)
def _softmax(site: Site, x: Value) -> Value:
    mask = x.mask
    if mask is not None:
        check(mask.shape == x.shape, f"mask must have the shape of the data, {x.shape}", shape=mask.shape)
        x = site.keras(x)
        if site.version == 2:
            x = site.function(blocks.masked_scores, x, mask)
        else:
            is_bool = mask.dtype == "bool"
            kept = mask if is_bool else site.function(blocks.scalar, mask, operator="greater", value=0.5)
            x = site.function(blocks.choose, kept, x, numbers=(None, blocks.MASKED))
    axes = listed(site.config.get("axis", -1))
    if len(axes) == 1:
        out = applied(site, "softmax", x, axis=axes[0])
    else:
        out = site.function(blocks.softmax_over, x, axes=x.axes(axes_of(axes, x.rank)))
    if mask is not None and site.version == 3:  # zeros even if all is masked
        out = site.function(blocks.choose, kept, out, numbers=(None, 0.0))
    return out._replace(mask=mask)


@operator(*(name for name in ACTIVATIONS if name != "tanh"))
@operator("tanh", types=types.CAST_IN_KERAS[3])
def _activation_operator(site: Site, x: Value, **given: Any) -> Value:
    name = site.row.name
    names = arguments_of(ACTIVATIONS[name])
    if given.get("axis", 0) is None and site.version == 2:  # TensorFlow's default, which is the last
        del given["axis"]
    if "alpha" in given and "negative_slope" in names:  # TensorFlow's name
        given["negative_slope"] = given.pop("alpha")
    for key in given:
        check(key in names, f"argument {key} must not be given", **{key: given[key]})
    given = {**DEFAULTS[site.version].get(f"keras.ops.{name}", {}), **given}
    return applied(site, name, x, **(relu_arguments(site, given) if name == "relu" else given))


# -- two operands

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", *blocks.COMPARISONS)


@operator(*BINARY, types=types.OWN, names={"x1": "x", "x2": "y"})
def _binary(site: Site, x: Sized, y: Sized) -> Any:
    """Compute with two tensors, or with one and a number or an array; a comparison gives ones and zeros."""
    name = site.row.name
    if not isinstance(x, Value) and not isinstance(y, Value):
        return _of_lengths(name, x, y)
    for key, each in (("x", x), ("y", y)):
        refuse_lengths(key, each)
    operands, dtype = _typed(site, name, [x, y])
    out = _computed(site, name, *operands)
    if name not in blocks.COMPARISONS:
        return out._replace(dtype=dtype)
    stored = types.STORED[dtype]  # MXNet's comparisons have the type of what they compare
    return site.cast(out._replace(dtype=stored), "float32")._replace(dtype="bool")


@operator("floor_divide")
def _floor_divide(site: Site, x: Lengths, y: Lengths) -> Any:
    """Divide static lengths of a shape."""
    return _of_lengths("floor_divide", x, y)


def _of_lengths(name: str, x: Any, y: Any) -> Any:
    """Compute with lengths of a shape, one or several; a product may be of dynamic ones."""
    several = [each for each in (x, y) if isinstance(each, (list, tuple))]
    if several:
        pairs = (
            each if isinstance(each, (list, tuple)) else itertools.repeat(each, len(several[0])) for each in (x, y)
        )
        return tuple(_of_lengths(name, *pair) for pair in zip(*pairs))
    check(name != "floor_divide" or y != 0, "lengths must not be divided by 0", x=x, y=y)
    static, open_lengths = type(x) is type(y) is int, [each for each in (x, y) if isinstance(each, OpenLength)]
    fits = name == "multiply" or (static and name in ("add", "subtract", "floor_divide"))
    rule = "dynamic lengths must be multiplied only, and that of the batch not: declare static ones in keras.Input"
    check(fits and not any(each.is_batch for each in open_lengths), rule, x=x, y=y)
    return OpenLength() if open_lengths else blocks.PYTHON[name](x, y)


def _typed(site: Site, name: str, operands: List[Any]) -> Tuple[List[Any], str]:
    """Returns the tensors among two operands in the type in which they are computed, and that type. Integers are
    divided as floats; Keras 3 compares with numbers of float32."""
    dtype = _common(site, operands)
    if name == "divide" and dtype not in types.FLOATS:
        dtype = "float64" if site.version == 2 and dtype in types.INTEGERS else "float32"
    allowed = types.KEPT if name in (*blocks.COMPARISONS, "maximum", "minimum") else types.ARITHMETIC
    types.check(dtype, types.FLOAT32 if name == "power" else allowed)
    if name in blocks.COMPARISONS and site.version == 3:
        operands = [np.float32(each) if isinstance(each, float) else each for each in operands]
    return [site.cast(each, dtype) if isinstance(each, Value) else each for each in operands], dtype


def _common(site: Site, operands: Sequence[Operand]) -> str:
    """Returns the type that two operands have together: TensorFlow's constants have that of the tensor, and Keras 3
    promotes."""
    tensors = [each.dtype for each in operands if isinstance(each, Value)]
    constants = [types.of_constant(each) for each in operands if not isinstance(each, Value)]
    if tensors and site.version == 2:
        return types.common(tensors, 2)
    dtype = types.common([*tensors, *constants], 3)
    return "int32" if constants and dtype == "bool" else dtype


def _of_two(site: Site, name: str, x: Value, y: Value) -> Value:
    """Operators give a shorter shape axes before its batch, which layers do not."""
    check(x.rank == y.rank, "tensors must have the same number of axes", shapes=[x.shape, y.shape])
    return merged(site, name, [x, y])


def _computed(site: Site, name: str, x: Operand, y: Operand) -> Value:
    if isinstance(x, Value) and isinstance(y, Value):
        return _of_two(site, name, x, y)
    reflected = not isinstance(x, Value)
    data, constant = (y, x) if reflected else (x, y)
    given = np.asarray(constant, dtype="float64")
    array = given.astype(data.dtype).astype("float64")
    fits = data.dtype in types.FLOATS or np.array_equal(array, given)
    check(fits, "a constant must have values of the tensor's type", dtype=data.dtype)
    check(array.ndim <= data.rank, "a constant must have no more axes than the tensor", shape=array.shape)
    if array.size == 1:
        return site.function(blocks.scalar, data, operator=name, value=float(array.ravel()[0]), reflected=reflected)
    stored = types.STORED[data.dtype]
    check(stored in types.FLOATS, "a constant array must be used with floats", dtype=data.dtype)
    data, array = broadcasting("array", array, data, stored)
    return site.constant(blocks.with_array, data, {"array": array}, operator=name, reflected=reflected)


@operator("bias_add")
def _bias_add(site: Site, value: Value, bias: Operand, data_format: Any = None) -> Value:
    """Add a vector of a number for each channel."""
    array = np.asarray(bias)
    check(array.ndim == 1, "bias must be a constant vector", bias=bias)
    ones = value.rank - 2 if str(data_format).startswith("NC") else 0
    return _computed(site, "add", value, array.reshape(-1, *(1,) * ones))


@operator("squared_difference")
def _squared_difference(site: Site, x: Operand, y: Operand) -> Value:
    return site.function("square", _computed(site, "subtract", x, y))


# -- one operand

# MXNet's names, or functions, where they are others
MXNET: Dict[str, Any] = {"absolute": "abs", "stop_gradient": "BlockGrad", "sign": blocks.sign}
TRIGONOMETRY = [f"{arc}{name}{h}" for arc in ("", "arc") for name in ("sin", "cos", "tan") for h in ("", "h")]


@operator("negative", "absolute", types=types.ARITHMETIC)
@operator("sqrt", "log", "exp", "log1p", "expm1", "floor", "ceil", types=types.CAST_IN_KERAS[3])
@operator(*(name for name in TRIGONOMETRY if name != "tanh"), types=types.CAST_IN_KERAS[3])
@operator("square", "rsqrt", "reciprocal", "sign", "trunc", "erf")
@operator("stop_gradient", types=types.KEPT)
def _unary(site: Site, x: Sized) -> Any:
    """Compute with each element; a square root may be of a length that was cast, as attention divides by it."""
    name = site.row.name
    if not isinstance(x, Value):
        check(name == "sqrt" and type(x) is float and x >= 0, "x must be a tensor", x=x)
        return math.sqrt(x)
    return site.function(MXNET.get(name, name), x)


@operator("round")
def _round(site: Site, x: Value, decimals: int = 0) -> Value:
    check(decimals == 0, "decimals must be 0", decimals=decimals)
    return site.function(blocks.rounded, x)


@operator("zeros_like", "ones_like", types=types.KEPT)
def _filled(site: Site, x: Value, dtype: Any = None) -> Value:
    out = site.function(site.row.name, x)._replace(dtype=x.dtype)
    return out if dtype is None else site.cast(out, types.known(dtype))


@operator("clip", names={"clip_value_min": "x_min", "clip_value_max": "x_max"})
def _clip(site: Site, x: Value, x_min: float, x_max: float) -> Value:
    check(x_min <= x_max, "x_min must not be above x_max", x_min=x_min, x_max=x_max)
    return site.function("clip", x, a_min=float(x_min), a_max=float(x_max))


@operator("identity", "cast", masks=TAKES, types=types.OWN)
def _cast(site: Site, x: Sized, dtype: Any = None) -> Any:
    """Cast to a type. What has it already is the same array in Keras, with its mask; an identity is another one. A
    static length becomes a number."""
    if not isinstance(x, Value):
        refuse_lengths("x", x)
        check(type(x) is int and dtype is not None, "x must be a tensor or a length", x=x)
        return np.asarray(x).astype(types.known(dtype)).item()
    x = x._replace(mask=None) if str(site.layer.operator).endswith("identity") else x
    if dtype is None:
        return x
    out = site.cast(x, types.check(types.known(dtype), {x.dtype, "bool", *types.ARITHMETIC}))
    return out if out.dtype == x.dtype else out._replace(mask=None)


# -- conditions


LOGICAL = {"logical_or": "maximum", "logical_and": "minimum", "logical_xor": "not_equal"}  # of ones and zeros


@operator(*LOGICAL, order=KERAS, types=types.OWN)
def _logical(site: Site, x: Value, y: Value) -> Value:
    out = _of_two(site, LOGICAL[site.row.name], site.cast(x, "bool"), site.cast(y, "bool"))
    return out._replace(dtype="bool")


@operator("logical_not", types=types.OWN)
def _not(site: Site, x: Value) -> Value:
    out = site.function(blocks.scalar, site.cast(x, "bool"), operator="subtract", value=1.0, reflected=True)
    return out._replace(dtype="bool")


@operator("isnan", types=types.OWN)
def _is_nan(site: Site, x: Value) -> Value:
    types.check(x.dtype, types.FLOATS)
    return site.function(blocks.ELEMENTWISE["not_equal"], x, x)._replace(dtype="bool")


@operator("where", order=KERAS, types=types.OWN, names={"x1": "x", "x2": "y"})
def _where(site: Site, condition: Value, x: Operand, y: Operand) -> Value:
    """Choose between operands: either may be a tensor or a number."""
    tensors = [each for each in (x, y) if isinstance(each, Value)]
    fits = all(isinstance(each, Value) or np.ndim(each) == 0 for each in (x, y))
    check(fits, "x and y must be tensors or numbers", x=x, y=y)
    numbers = [None if isinstance(each, Value) else float(each) for each in (x, y)]
    shapes = [each.shape for each in (condition, *tensors)]
    check(len(set(shapes)) == 1, "tensors must have one shape", shapes=shapes)
    dtype = _common(site, [x, y])
    tensors = [site.cast(each, dtype) for each in tensors]
    out = site.function(blocks.choose, site.cast(condition, "bool"), *tensors, numbers=numbers)
    return out._replace(dtype=dtype) if tensors else site.cast(out, dtype)
