"""Converts Keras's kernels to MXNet's weights and back, by transposing them.

Keras has one order for all data formats; MXNet's depends on the layout of the data:

================  ===================  =====================  ====================
kind              Keras                MXNet, channels first  MXNet, channels last
================  ===================  =====================  ====================
"conv"            `(*k, I/groups, O)`  `(O, I/groups, *k)`    `(O, *k, I/groups)`
"depthwise"       `(*k, C, m)`         `(C*m, 1, *k)`         `(C*m, *k, 1)`
"pointwise"       `(1, .., C*m, O)`    `(O, C*m, 1, ..)`      `(O, 1, .., C*m)`
"conv_transpose"  `(*k, O/groups, I)`  `(I, O/groups, *k)`    `(I, *k, O/groups)`
================  ===================  =====================  ====================

Nothing is flipped: both compute cross-correlations, and a transposed convolution as the gradient of one. A separable
convolution has a "depthwise" and a "pointwise" kernel. Checked against TensorFlow 2.13.1 in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, get_args

import numpy as np

from mxsame import validation
from mxsame.ops._inputs import Arrays
from mxsame.scope import ANY
from mxsame.types import KernelKind, Layout

if TYPE_CHECKING:
    from mxsame._mxnet import ArrayOrNumpy

__all__ = ["KINDS", "to_keras", "to_mxnet"]

KINDS = get_args(KernelKind)


@validation.check_arguments
def to_mxnet(kernel: ArrayOrNumpy, kind: KernelKind, layout: Optional[Layout] = None) -> ArrayOrNumpy:
    """Return a Keras kernel as the weight of MXNet's operators, of `mxsame.ops` and of the layers of `mxsame.nn`.

    Parameters
    ----------
    kernel : NDArray, Symbol, mx.np.ndarray or numpy.ndarray
        In Keras's order, see :mod:`mxsame.keras.layouts`.
    kind : "conv", "depthwise", "pointwise" or "conv_transpose"
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"
        The layout of the data; channels first by default. Required for a Symbol of unknown shape.

    Returns
    -------
    An array of the same kind as `kernel`. Gradients flow through it; `to_keras` is the inverse.

    Raises
    ------
    TypeError, ValueError
        For anything but an array, and for a kernel without the axes of its kind and layout.

    Examples
    --------
    >>> import numpy as np
    >>> from mxsame.keras import layouts
    >>> layouts.to_mxnet(np.zeros((5, 3, 16, 32)), "conv").shape
    (32, 16, 5, 3)
    >>> layouts.to_mxnet(np.zeros((5, 3, 16, 32)), "conv", "NHWC").shape
    (32, 5, 3, 16)
    >>> layouts.to_mxnet(np.zeros((5, 3, 16, 2)), "depthwise", "NCHW").shape
    (32, 1, 5, 3)
    """
    kind = validation.one_of("kind", kind, KINDS)
    inputs, rank, channels_last = _read_kernel("kernel", kernel, layout)
    F, data, (shape,), restore = inputs.F, inputs.data, inputs.shapes, inputs.restore
    if kind == "depthwise":
        split = F.transpose(data, axes=(rank, rank + 1, *range(rank)))
        merged = split.reshape(-1, *split.shape[2:]) if F is np else F.reshape(split, shape=(-3, -2))
        return restore(F.expand_dims(merged, axis=rank + 1 if channels_last else 1))
    if kind == "pointwise" and shape is not None:
        validation.check_shape("kernel", shape, (1,) * rank + (None, None), "(1, .., input channels, output channels)")
    middle = (*range(rank), rank) if channels_last else (rank, *range(rank))
    return restore(F.transpose(data, axes=(rank + 1, *middle)))


@validation.check_arguments
def to_keras(
    weight: ArrayOrNumpy, kind: KernelKind, layout: Optional[Layout] = None, *, depth_multiplier: Optional[int] = None
) -> ArrayOrNumpy:
    """Return a weight of MXNet as Keras's kernel: the inverse of :func:`to_mxnet`.

    Parameters
    ----------
    weight : NDArray, Symbol, mx.np.ndarray or numpy.ndarray
        In MXNet's order, see :mod:`mxsame.keras.layouts`.
    kind : "conv", "depthwise", "pointwise" or "conv_transpose"
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"
        The layout of the data; channels first by default. Required for a Symbol of unknown shape.
    depth_multiplier : int
        m of a "depthwise" weight, whose first axis is C*m; not for other kinds.

    Raises
    ------
    TypeError, ValueError
        For anything but an array, for a weight without the axes of its kind and layout, and for a depth multiplier that
        is missing, given for another kind, or does not divide the first axis.

    Examples
    --------
    >>> import numpy as np
    >>> from mxsame.keras import layouts
    >>> layouts.to_keras(np.zeros((32, 16, 5, 3)), "conv").shape
    (5, 3, 16, 32)
    >>> layouts.to_keras(np.zeros((32, 1, 5, 3)), "depthwise", depth_multiplier=2).shape
    (5, 3, 16, 2)
    """
    kind = validation.one_of("kind", kind, KINDS)
    inputs, rank, channels_last = _read_kernel("weight", weight, layout)
    F, data, (shape,), restore = inputs.F, inputs.data, inputs.shapes, inputs.restore
    if kind == "depthwise":
        m = validation.integer("depth_multiplier", depth_multiplier, 1)
        if shape is not None:
            any_size = (None,) * rank
            expected = (None, *any_size, 1) if channels_last else (None, 1, *any_size)
            validation.check_shape("weight", shape, expected, "(C*m, .., 1, ..)")
            if shape[0] is not None:
                validation.check_divisible("weight's first length", shape[0], "depth_multiplier", m)
        merged = F.squeeze(data, axis=rank + 1 if channels_last else 1)
        split = merged.reshape(-1, m, *merged.shape[1:]) if F is np else F.reshape(merged, shape=(-4, -1, m, -2))
        return restore(F.transpose(split, axes=(*range(2, rank + 2), 0, 1)))
    rule = 'depth_multiplier must be left out unless kind="depthwise"'
    validation.check(depth_multiplier is None, rule, depth_multiplier=depth_multiplier, kind=kind)
    if kind == "pointwise" and shape is not None:
        expected = (None, *(1,) * rank, None) if channels_last else (None, None, *(1,) * rank)
        validation.check_shape("weight", shape, expected, "(output channels, .., 1), with an axis of input channels,")
    axes = (*range(1, rank + 2), 0) if channels_last else (*range(2, rank + 2), 1, 0)
    return restore(F.transpose(data, axes=axes))


def _read_kernel(name: str, array: Any, layout: Optional[str]) -> tuple[Arrays, int, bool]:
    """Returns (the array as an operator's inputs, the number of spatial axes, whether the layout has channels last)."""
    if isinstance(array, np.ndarray):
        inputs = Arrays(np, (array,), (array.shape,), (name,), np.ascontiguousarray, ANY)
    else:
        inputs = Arrays.of(**{name: array})
    rank = inputs.rank({"len(layout) - 2": None if layout is None else validation.rank_of_layout(layout)})
    return inputs, rank, validation.has_channels_last(validation.layout(layout, rank))
