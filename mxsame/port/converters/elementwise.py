"""Converters of elementwise functions: activations, arithmetic, comparisons, conditions."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from mxsame.keras_format import dtypes
from mxsame.keras_format.description import as_list
from mxsame.port import blocks
from mxsame.port.activations import ACTIVATIONS, DEFAULTS, arguments_of
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import (
    ACTIVATION_LAYERS,
    activate,
    apply_activation,
    axes_of,
    broadcast_constant,
    elementwise,
    relu_arguments,
)
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, PASSES_MASK, layer, operator
from mxsame.port.tensors import DynamicLength, Operand, Tensor, refuse_lengths
from mxsame.validation import check

# -- activations


@layer("Activation", masks=PASSES_MASK)
def _activation(call: CallContext, x: Tensor) -> Tensor:
    return activate(call, x)


@layer("LeakyReLU", masks=PASSES_MASK, dtypes=dtypes.CAST)
@layer("ReLU", "ELU", "ThresholdedReLU", masks=PASSES_MASK)
def _activation_layer(call: CallContext, x: Tensor) -> Tensor:
    name, arguments = ACTIVATION_LAYERS[call.layer.class_name](call)
    return apply_activation(call, name, x, **arguments)


@layer("Softmax", masks=HANDLES_MASK)
def _softmax(call: CallContext, x: Tensor) -> Tensor:
    mask = x.mask
    if mask is not None:
        check(mask.shape == x.shape, f"mask must have the shape of the data, {x.shape}", shape=mask.shape)
        x = call.to_keras_order(x)
        if call.version == 2:
            x = call.apply(blocks.masked_scores, x, mask)
        else:
            is_bool = mask.dtype == "bool"
            bool_mask = mask if is_bool else call.apply(blocks.scalar, mask, operator="greater", value=0.5)
            x = call.apply(blocks.where, bool_mask, x, numbers=(None, blocks.MASKED))
    axes = as_list(call.config.get("axis", -1))
    if len(axes) == 1:
        out = apply_activation(call, "softmax", x, axis=axes[0])
    else:
        out = call.apply(blocks.softmax_over, x, axes=x.axes(axes_of(axes, x.rank)))
    if mask is not None and call.version == 3:  # masked elements become 0, even if all are masked
        out = call.apply(blocks.where, bool_mask, out, numbers=(None, 0.0))
    return out._replace(mask=mask)


@operator(*(name for name in ACTIVATIONS if name != "tanh"))
@operator("tanh", dtypes=dtypes.CAST_IN_KERAS[3])
def _activation_operator(call: CallContext, x: Tensor, **arguments: Any) -> Tensor:
    name = call.converter.name
    accepted = arguments_of(ACTIVATIONS[name])
    if arguments.get("axis", 0) is None and call.version == 2:  # TensorFlow's default: the last axis
        del arguments["axis"]
    if "alpha" in arguments and "negative_slope" in accepted:  # TensorFlow's name
        arguments["negative_slope"] = arguments.pop("alpha")
    for key, value in arguments.items():
        check(key in accepted, f"argument {key} must not be given", **{key: value})
    arguments = {**DEFAULTS[call.version].get(f"keras.ops.{name}", {}), **arguments}
    return apply_activation(call, name, x, **(relu_arguments(call, arguments) if name == "relu" else arguments))


# -- two operands

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", *blocks.COMPARISONS)


@operator(*BINARY, dtypes=dtypes.SETS_DTYPE, aliases={"x1": "x", "x2": "y"}, lengths=("x", "y"))
def _binary(call: CallContext, x: Operand, y: Operand) -> Any:
    """Applies an operator to two tensors, to a tensor and a constant, or to lengths of a shape."""
    name = call.converter.name
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        return _compute_lengths(name, x, y)
    for key, each in (("x", x), ("y", y)):
        refuse_lengths(key, each)
    operands, dtype = _cast_operands(call, name, [x, y])
    out = _apply_binary(call, name, *operands)
    if name not in blocks.COMPARISONS:
        return out._replace(dtype=dtype)
    stored = dtypes.STORED[dtype]  # MXNet's comparisons return the dtype of their operands
    return call.cast(out._replace(dtype=stored), "float32")._replace(dtype="bool")


@operator("floor_divide", lengths=("x", "y"))
def _floor_divide(call: CallContext, x: Any, y: Any) -> Any:
    """Divides static lengths of a shape."""
    return _compute_lengths("floor_divide", x, y)


def _compute_lengths(name: str, x: Any, y: Any) -> Any:
    """Applies an operator to two lengths, or to lists of lengths. Dynamic lengths can only be multiplied."""
    if isinstance(x, (list, tuple)) or isinstance(y, (list, tuple)):
        both = (each if isinstance(each, (list, tuple)) else itertools.repeat(each) for each in (x, y))
        return tuple(_compute_lengths(name, *pair) for pair in zip(*both))
    check(name != "floor_divide" or y != 0, "lengths must not be divided by 0", x=x, y=y)
    are_static, dynamic = type(x) is type(y) is int, [each for each in (x, y) if isinstance(each, DynamicLength)]
    is_supported = name == "multiply" or (are_static and name in ("add", "subtract", "floor_divide"))
    rule = "dynamic lengths can only be multiplied, and the batch not at all: declare static lengths in keras.Input"
    check(is_supported and not any(each.is_batch for each in dynamic), rule, x=x, y=y)
    return DynamicLength() if dynamic else blocks.PYTHON[name](x, y)


def _cast_operands(call: CallContext, name: str, operands: List[Any]) -> Tuple[List[Any], str]:
    """Casts tensors to the dtype in which Keras applies the operator. Returns the operands and this dtype. Integers are
    divided as floats. Keras 3 compares with float32 constants."""
    dtype = _common_dtype(call, operands)
    if name == "divide" and dtype not in dtypes.FLOATS:
        dtype = "float64" if call.version == 2 and dtype in dtypes.INTEGERS else "float32"
    allowed = dtypes.ANY_DTYPE if name in (*blocks.COMPARISONS, "maximum", "minimum") else dtypes.ARITHMETIC
    dtypes.check_dtype(dtype, dtypes.FLOAT32 if name == "power" else allowed)
    if name in blocks.COMPARISONS and call.version == 3:
        operands = [np.float32(each) if isinstance(each, float) else each for each in operands]
    return [call.cast(each, dtype) if isinstance(each, Tensor) else each for each in operands], dtype


def _common_dtype(call: CallContext, operands: Sequence[Operand]) -> str:
    """Returns the dtype to which operands are promoted. TensorFlow casts constants to the dtype of the tensors; Keras 3
    promotes constants, too."""
    tensors = [each.dtype for each in operands if isinstance(each, Tensor)]
    constants = [dtypes.dtype_of_constant(each) for each in operands if not isinstance(each, Tensor)]
    if tensors and call.version == 2:
        return dtypes.result_type(tensors, 2)
    dtype = dtypes.result_type([*tensors, *constants], 3)
    return "int32" if constants and dtype == "bool" else dtype


def _elementwise_of_same_rank(call: CallContext, name: str, x: Tensor, y: Tensor) -> Tensor:
    """Applies an elementwise function to two tensors of the same rank. Other tensors are refused: Keras's operators add
    axes before the batch."""
    check(x.rank == y.rank, "tensors must have the same number of axes", shapes=[x.shape, y.shape])
    return elementwise(call, name, [x, y])


def _apply_binary(call: CallContext, name: str, x: Operand, y: Operand) -> Tensor:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return _elementwise_of_same_rank(call, name, x, y)
    reflected = not isinstance(x, Tensor)
    data, constant = (y, x) if reflected else (x, y)
    exact = np.asarray(constant, dtype="float64")
    array = exact.astype(data.dtype).astype("float64")
    is_representable = data.dtype in dtypes.FLOATS or np.array_equal(array, exact)
    check(is_representable, "a constant must have values of the tensor's dtype", dtype=data.dtype)
    check(array.ndim <= data.rank, "a constant must have no more axes than the tensor", shape=array.shape)
    if array.size == 1:
        return call.apply(blocks.scalar, data, operator=name, value=float(array.ravel()[0]), reflected=reflected)
    stored = dtypes.STORED[data.dtype]
    check(stored in dtypes.FLOATS, "a constant array must be used with floats", dtype=data.dtype)
    data, array = broadcast_constant("array", array, data, stored)
    return call.constant(blocks.elementwise_with_constant, data, {"array": array}, operator=name, reflected=reflected)


@operator("bias_add")
def _bias_add(call: CallContext, value: Tensor, bias: Operand, data_format: Any = None) -> Tensor:
    """Adds a constant vector along the channels."""
    array = np.asarray(bias)
    check(array.ndim == 1, "bias must be a constant vector", bias=bias)
    spatial_axes = value.rank - 2 if str(data_format).startswith("NC") else 0  # the axes after the channels
    return _apply_binary(call, "add", value, array.reshape(-1, *(1,) * spatial_axes))


@operator("squared_difference")
def _squared_difference(call: CallContext, x: Operand, y: Operand) -> Tensor:
    return call.apply("square", _apply_binary(call, "subtract", x, y))


# -- one operand

# Keras's name -> a function, or the name of MXNet's operator if it differs
MXNET: Dict[str, Any] = {"absolute": "abs", "stop_gradient": "BlockGrad", "sign": blocks.sign}
TRIGONOMETRY = [f"{arc}{name}{h}" for arc in ("", "arc") for name in ("sin", "cos", "tan") for h in ("", "h")]


@operator("negative", "absolute", dtypes=dtypes.ARITHMETIC)
@operator("sqrt", "log", "exp", "log1p", "expm1", "floor", "ceil", dtypes=dtypes.CAST_IN_KERAS[3])
@operator(*(name for name in TRIGONOMETRY if name != "tanh"), dtypes=dtypes.CAST_IN_KERAS[3])
@operator("square", "rsqrt", "reciprocal", "sign", "trunc", "erf")
@operator("stop_gradient", dtypes=dtypes.ANY_DTYPE)
def _unary(call: CallContext, x: Operand) -> Any:
    """Applies a function to one tensor. `sqrt` also takes a length that was cast to float, as attention needs it."""
    name = call.converter.name
    if not isinstance(x, Tensor):
        check(name == "sqrt" and type(x) is float and x >= 0, "x must be a tensor", x=x)
        return math.sqrt(x)
    return call.apply(MXNET.get(name, name), x)


@operator("round")
def _round(call: CallContext, x: Tensor, decimals: int = 0) -> Tensor:
    check(decimals == 0, "decimals must be 0", decimals=decimals)
    return call.apply(blocks.round_half_even, x)


@operator("zeros_like", "ones_like", dtypes=dtypes.ANY_DTYPE)
def _filled(call: CallContext, x: Tensor, dtype: Any = None) -> Tensor:
    out = call.apply(call.converter.name, x)._replace(dtype=x.dtype)
    return out if dtype is None else call.cast(out, dtypes.standardize_dtype(dtype))


@operator("clip", aliases={"clip_value_min": "x_min", "clip_value_max": "x_max"})
def _clip(call: CallContext, x: Tensor, x_min: float, x_max: float) -> Tensor:
    check(x_min <= x_max, "x_min must not be above x_max", x_min=x_min, x_max=x_max)
    return call.apply("clip", x, a_min=float(x_min), a_max=float(x_max))


@operator("identity", "cast", masks=HANDLES_MASK, dtypes=dtypes.SETS_DTYPE)
def _cast(call: CallContext, x: Operand, dtype: Any = None) -> Any:
    """Casts a tensor or a static length. As in Keras, a cast to the same dtype keeps the mask, and an identity drops
    it."""
    if not isinstance(x, Tensor):
        check(type(x) is int and dtype is not None, "x must be a tensor or a length", x=x)
        return np.asarray(x).astype(dtypes.standardize_dtype(dtype)).item()
    x = x._replace(mask=None) if str(call.layer.operator).endswith("identity") else x
    if dtype is None:
        return x
    out = call.cast(x, dtypes.check_dtype(dtypes.standardize_dtype(dtype), {x.dtype, "bool", *dtypes.ARITHMETIC}))
    return out if out.dtype == x.dtype else out._replace(mask=None)


# -- conditions


LOGICAL = {"logical_or": "maximum", "logical_and": "minimum", "logical_xor": "not_equal"}  # for arrays of 0 and 1


@operator(*LOGICAL, order=KERAS_ORDER, dtypes=dtypes.SETS_DTYPE)
def _logical(call: CallContext, x: Tensor, y: Tensor) -> Tensor:
    name = LOGICAL[call.converter.name]
    return _elementwise_of_same_rank(call, name, call.cast(x, "bool"), call.cast(y, "bool"))._replace(dtype="bool")


@operator("logical_not", dtypes=dtypes.SETS_DTYPE)
def _not(call: CallContext, x: Tensor) -> Tensor:
    out = call.apply(blocks.scalar, call.cast(x, "bool"), operator="subtract", value=1.0, reflected=True)
    return out._replace(dtype="bool")


@operator("isnan", dtypes=dtypes.SETS_DTYPE)
def _is_nan(call: CallContext, x: Tensor) -> Tensor:
    dtypes.check_dtype(x.dtype, dtypes.FLOATS)
    return call.apply(blocks.ELEMENTWISE["not_equal"], x, x)._replace(dtype="bool")


@operator("where", order=KERAS_ORDER, dtypes=dtypes.SETS_DTYPE, aliases={"x1": "x", "x2": "y"})
def _where(call: CallContext, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """Selects elements from two operands, which are tensors or numbers."""
    tensors = [each for each in (x, y) if isinstance(each, Tensor)]
    are_valid = all(isinstance(each, Tensor) or np.ndim(each) == 0 for each in (x, y))
    check(are_valid, "x and y must be tensors or numbers", x=x, y=y)
    numbers = [None if isinstance(each, Tensor) else float(each) for each in (x, y)]
    shapes = [each.shape for each in (condition, *tensors)]
    check(len(set(shapes)) == 1, "tensors must have one shape", shapes=shapes)
    dtype = _common_dtype(call, [x, y])
    tensors = [call.cast(each, dtype) for each in tensors]
    out = call.apply(blocks.where, call.cast(condition, "bool"), *tensors, numbers=numbers)
    return out._replace(dtype=dtype) if tensors else call.cast(out, dtype)
