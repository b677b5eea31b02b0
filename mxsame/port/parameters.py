"""Keras's weights in the parameters of blocks, and back."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from mxsame import _gluon
from mxsame._mxnet import mx
from mxsame.keras import layouts
from mxsame.keras_format.description import Layer, WeightSpec, why_extra_weights
from mxsame.types import KernelKind
from mxsame.validation import InvalidValue, check, received

LARGEST_PART = 2**22  # bytes copied at a time from an array whose axes are not in its parameter's order


class Conversion(NamedTuple):
    """Functions of arrays that convert a weight from Keras's shape to that of its parameter, and back."""

    to_mxnet: Callable
    to_keras: Callable

    @classmethod
    def of(cls, stored: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> Conversion:
        """Returns the conversion of a weight that has the shape `stored` in Keras: `axes` is the order of its axes in
        the parameter, `shape` the parameter's shape."""
        moved, back = [stored[axis] for axis in axes], sorted(range(len(axes)), key=axes.__getitem__)
        return cls(partial(reshaped, shape=shape, axes=axes), partial(_restored, shape=moved, axes=back))


UNCHANGED = Conversion(np.asarray, np.asarray)
TRANSPOSED = Conversion(np.transpose, np.transpose)
SCALAR = Conversion(np.ravel, np.squeeze)


def reshaped(array: Any, shape: Sequence[int], axes: Any = None) -> Any:
    """Returns an array with its axes in the order `axes`, as `np.transpose`, if given, and then reshaped."""
    return (array if axes is None else array.transpose(axes)).reshape(shape)


def _restored(array: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    return array.reshape(shape).transpose(axes)


def kernel(kind: KernelKind, depth_multiplier: Optional[int] = None) -> Conversion:
    """Returns the conversion of a kernel to channels first, by `mxsame.keras.layouts`."""
    to_keras = partial(layouts.to_keras, kind=kind, depth_multiplier=depth_multiplier)
    return Conversion(partial(layouts.to_mxnet, kind=kind), to_keras)


class LoadedWeight(NamedTuple):
    """A weight that has been put into a parameter."""

    shape: Tuple[int, ...]  # Keras's
    parameter: Any = None  # None if the user's block has it
    to_keras: Callable = np.asarray  # converts the parameter's array to Keras's


def loaded_weights(layer: Layer) -> List[Tuple[WeightSpec, LoadedWeight]]:
    """Returns the weights of a layer that are in parameters."""
    pairs = zip(layer.weight_specs or (), layer.weights)
    return [pair for pair in pairs if isinstance(pair[1], LoadedWeight) and pair[1].parameter is not None]


def arrays_of(layer: Layer) -> Dict[str, np.ndarray]:
    """Returns the weights of a layer as Keras's arrays, by name."""
    return dict(zip([spec.name for spec in layer.weight_specs or []], map(_array, layer.weights)))


def _array(stored: Any) -> np.ndarray:
    """Returns a weight as Keras's array."""
    if not isinstance(stored, LoadedWeight):
        return np.asarray(stored)
    value = stored.parameter.data(stored.parameter.list_ctx()[0]).asnumpy()
    return np.ascontiguousarray(stored.to_keras(value)).reshape(stored.shape)  # a scalar is (1,) in MXNet


def fill(block: Any, layer: Layer, conversions: Union[Conversion, Mapping[str, Conversion]]) -> Dict[str, Any]:
    """Puts a layer's weights into the parameters of its block, by one conversion for all or one for each name. Returns
    a `LoadedWeight` for each name, and the array of a weight that no parameter has.

    Since a network may be as large as the memory, one array after the other is read.
    """
    weight_specs, count = layer.weight_specs or [], len(layer.weights)
    names = ", ".join(spec.name for spec in weight_specs) or "none"
    shared = "" if count else " (a file stores a layer that is in several models once)"
    rule = f"weights must be {names}; received {count} arrays{shared}{why_extra_weights(layer)}"
    check(len(weight_specs) == count, rule)
    weights: Dict[str, Any] = {}
    for spec, array in zip(weight_specs, layer.weights):
        parameter = attrgetter(spec.parameter)(block) if spec.parameter else None
        if parameter is None:
            weights[spec.name] = np.asarray(array)
            continue
        conversion = conversions if isinstance(conversions, Conversion) else conversions.get(spec.name, UNCHANGED)
        set_parameter(parameter, conversion, array, spec.name)
        weights[spec.name] = LoadedWeight(tuple(array.shape), parameter, conversion.to_keras)
        if not spec.trainable:
            parameter.grad_req = "null"
    for parameter in block.collect_params().values():
        if not _gluon.is_initialized(parameter):
            parameter.initialize(ctx=mx.cpu())
        if not layer.trainable:
            parameter.grad_req = "null"
    return weights


def set_parameter(parameter: Any, conversion: Conversion, array: Any, role: str) -> None:
    """Sets a parameter to a weight.

    Raises `ValueError` for an array that is not of numbers, or whose shape does not fit.
    """
    array = np.asarray(array)
    check(array.dtype.kind in "fiub", f"{role} must be an array of numbers", dtype=array.dtype)
    stored = array.shape
    try:
        array = conversion.to_mxnet(array)
    except ValueError:
        raise InvalidValue(f"{role} must have the axes of its layer; {received(shape=stored)}") from None
    expected = tuple(parameter.shape)
    fits = len(expected) == array.ndim and all(want in (have, 0, -1) for want, have in zip(expected, array.shape))
    rule = f"{role} must have the shape {expected} in MXNet's axis order, which follows from the configuration"
    check(fits, rule, shape=stored)
    data = mx.nd.empty(array.shape, ctx=mx.cpu(), dtype=parameter.dtype)
    rows = max(LARGEST_PART // max(array[:1].nbytes, 1), 1)
    for start in range(0, len(array), rows):
        data[start : start + rows] = np.ascontiguousarray(array[start : start + rows], dtype=parameter.dtype)
    _gluon.initialize_with(parameter, data)
