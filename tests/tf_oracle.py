"""TensorFlow 2.13.1 on the CPU, with the interface of `oracle.py`.

A process that uses MXNet too has to import it BEFORE this module: TensorFlow first makes the import of MXNet crash.

TensorFlow's own functions do the work wherever they accept the case.  On CPU they refuse some; then

- dilation in gradients and in 3-D goes through `tf.nn.convolution`, and where that refuses as well (together with a
  stride) through a kernel with zeros between its elements, which has the same extent and so the same padding;
- groups in gradients and in 3-D are convolved one by one;
- depthwise with unequal strides, in 3-D, or with stride and dilation, is a convolution per channel;
- explicit pads are `tf.pad` (of -inf for max pool) before VALID, causal is `tf.pad` at the start;
- an average over explicit pads is the padded average over the average of the elements that count.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # without it 3-D is wrong in more cases
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from cases import Case
from cases import arrays as arrays_of

VERSION = tf.__version__


def known_wrong(case: Case, dtype: str = "float32", gradients: bool = False, size=None) -> str | None:
    """Why TensorFlow 2.13.1 on CPU is no judge of the case, or None."""
    if not case.in_tensorflow:
        return "TensorFlow has no such padding, or no such operator"
    size = case.size if size is None else size
    smaller = any(k < s for k, s in zip(case.kernel_size, case.strides))
    extents = [(k - 1) * d + 1 for k, d in zip(case.kernel_size, case.dilation)]
    covers = any(extent >= n for extent, n in zip(extents, size))
    pool = case.op in ("max_pool", "avg_pool")
    if case.rank == 3 and pool and dtype == "float64":
        return "there is no pool3d in float64"
    if case.rank == 3 and not pool and smaller and dtype == "float64":
        return "conv3d with k < s is wrong in float64"
    if case.rank == 3 and not pool and case.padding == "same" and covers and gradients:
        return "weight gradients of SAME conv3d are wrong at times when k >= n, and can corrupt the heap"
    longer = any(k > n for k, n in zip(case.kernel_size, size))
    if case.op == "avg_pool" and gradients and dtype == "float64" and longer:
        return "the gradient of avg_pool with k > n is wrong in float64"
    if gradients and case.rank < 3 and set(extents) == {1} and smaller and not pool and dtype == "float32":
        return "weight gradients of strided 1x1 convolutions with oneDNN read elements that are not there"
    if gradients and case.rank == 3 and case.op == "max_pool" and _nearly_tied(case, size):
        return "max_pool3d gives the whole gradient to every element of a tie, and of what is nearly one"
    return None


def _nearly_tied(case: Case, size) -> bool:
    """Whether two values of the data are so close that TensorFlow may take both for the maximum of a window."""
    return bool((np.diff(np.sort(arrays_of(case, size)["data"], axis=None)) < 1e-4).any())


# ---- layouts ---------------------------------------------------------------------------------------------------------


def _to_last(data):
    return tf.transpose(data, [0, *range(2, len(data.shape)), 1])


def _to_first(data):
    rank = len(data.shape)
    return tf.transpose(data, [0, rank - 1, *range(1, rank - 1)])


def _kernel(weight):
    """MXNet's (A, B, *k) as TensorFlow's (*k, B, A)."""
    return tf.transpose(weight, [*range(2, len(weight.shape)), 1, 0])


def _with_zeros(kernel, dilation):
    """The kernel with d - 1 zeros between its elements."""
    for axis, d in enumerate(dilation):
        k = kernel.shape[axis]
        kernel = tf.expand_dims(kernel, axis + 1)
        pads = [(0, 0)] * len(kernel.shape)
        pads[axis + 1] = (0, d - 1)
        kernel = tf.pad(kernel, pads)
        shape = list(kernel.shape)
        kernel = tf.reshape(kernel, [*shape[:axis], k * d, *shape[axis + 2 :]])
        kernel = tf.gather(kernel, range((k - 1) * d + 1), axis=axis)
    return kernel


def _padded(data, case, value=0.0):
    """Channels-last data with the case's explicit pads, and the padding string that is left to TensorFlow."""
    if case.padding in ("same", "valid"):
        return data, case.padding.upper()
    pairs = case.padding
    if pairs == "causal":
        pairs = (((case.kernel_size[0] - 1) * case.dilation[0], 0),)
    return tf.pad(data, [(0, 0), *pairs, (0, 0)], constant_values=value), "VALID"


# ---- operators on channels-last data ---------------------------------------------------------------------------------


def _plain_convolution(data, kernel, strides, dilation, padding, differentiable):
    """One group; `differentiable` avoids what has no gradient on CPU."""
    rank = len(strides)
    if set(dilation) != {1}:
        if set(strides) == {1} and (rank == 3 or differentiable):
            return tf.nn.convolution(data, kernel, padding=padding, dilations=dilation)
        if rank == 3 or differentiable:
            kernel, dilation = _with_zeros(kernel, dilation), (1,) * rank
    if rank == 1:
        return tf.nn.conv1d(data, kernel, strides[0], padding, dilations=dilation[0])
    if rank == 2:
        return tf.nn.conv2d(data, kernel, strides, padding, dilations=dilation)
    return tf.nn.conv3d(data, kernel, (1, *strides, 1), padding)


def _convolution(data, kernel, case, groups, differentiable):
    data, padding = _padded(data, case)
    if groups > 1 and (differentiable or case.rank == 3):
        pairs = zip(tf.split(data, groups, axis=-1), tf.split(kernel, groups, axis=-1))
        parts = [_plain_convolution(*pair, case.strides, case.dilation, padding, differentiable) for pair in pairs]
        return tf.concat(parts, axis=-1)
    return _plain_convolution(data, kernel, case.strides, case.dilation, padding, differentiable)


def _depthwise(data, weight, case, differentiable):
    """weight in MXNet's layout, (C*m, 1, *k)."""
    channels, multiplier = case.in_channels, case.depth_multiplier
    dilated, strided = set(case.dilation) != {1}, set(case.strides) != {1}
    if case.rank == 3 or len(set(case.strides)) > 1 or (dilated and strided):
        return _convolution(data, _kernel(weight), case, channels, True)
    data, padding = _padded(data, case)
    kernel = tf.reshape(weight, (channels, multiplier, *case.kernel_size))
    kernel = tf.transpose(kernel, [*range(2, 2 + case.rank), 0, 1])
    if case.rank == 2:
        return tf.nn.depthwise_conv2d(data, kernel, (1, *case.strides, 1), padding, dilations=case.dilation)
    data, kernel = tf.expand_dims(data, 1), tf.expand_dims(kernel, 0)  # as Keras's DepthwiseConv1D
    strides, dilation = case.strides * 2, (1, *case.dilation)
    return tf.squeeze(tf.nn.depthwise_conv2d(data, kernel, (1, *strides, 1), padding, dilations=dilation), 1)


def _transposed(data, kernel, case):
    """kernel (*k, O, I); TensorFlow takes the output's size, by Keras's formula."""
    extents = [(k - 1) * d + 1 for k, d in zip(case.kernel_size, case.dilation)]
    given = case.output_padding or (None,) * case.rank
    size, crop = [], []
    for axis, (n, s, extent, extra) in enumerate(zip(data.shape[1:-1], case.strides, extents, given)):
        if case.padding == "same":
            size.append(n * s if extra is None else (n - 1) * s + extent - 2 * (extent // 2) + extra)
        elif case.padding == "valid":
            size.append((n - 1) * s + (max(extent, s) if extra is None else extent + extra))
        else:
            low, high = case.padding[axis]
            size.append((n - 1) * s + extent + (extra or 0))
            crop.append(slice(low, size[-1] - high))
    shape = (data.shape[0], *size, kernel.shape[-2])
    padding = "SAME" if case.padding == "same" else "VALID"
    if case.rank == 2 and case.dilation[0] == case.dilation[1] > 1 and set(case.strides) == {1}:
        out = tf.nn.atrous_conv2d_transpose(data, kernel, shape, case.dilation[0], padding)
    else:
        function = getattr(tf.nn, f"conv{case.rank}d_transpose")
        out = function(data, _with_zeros(kernel, case.dilation), shape, case.strides, padding)
    return out[(slice(None), *crop, slice(None))] if crop else out


def _pool(data, case):
    maximum = case.op == "max_pool"
    function = getattr(tf.nn, f"{case.op}{case.rank}d")
    if case.padding == "same" and not case.count_include_pad:
        return function(data, case.kernel_size, case.strides, "SAME")
    if case.padding == "same":  # the sum over every window is a convolution with ones
        shape = data.shape
        single = tf.reshape(_to_first(data), (-1, *shape[1:-1], 1))
        ones = tf.ones((*case.kernel_size, 1, 1), data.dtype)
        sums = _plain_convolution(single, ones, case.strides, (1,) * case.rank, "SAME", True)
        sums = tf.reshape(sums, (shape[0], shape[-1], *sums.shape[1:-1]))
        return _to_last(sums) / float(np.prod(case.kernel_size))
    pairs = [(0, 0)] * case.rank if case.padding == "valid" else case.padding
    after = []
    for n, k, s, (low, high) in zip(data.shape[1:-1], case.kernel_size, case.strides, pairs):
        after.append(-(n + low + high - k) % s if case.ceil_mode else 0)
    pads = [(0, 0), *[(low, high + extra) for (low, high), extra in zip(pairs, after)], (0, 0)]
    padded = tf.pad(data, pads, constant_values=-np.inf if maximum else 0.0)
    out = function(padded, case.kernel_size, case.strides, "VALID")
    if maximum:
        return out
    if case.count_include_pad:
        counted = tf.ones([n - extra for n, extra in zip(padded.shape, (0, *after, 0))], data.dtype)
        counted = tf.pad(counted, [(0, 0), *[(0, extra) for extra in after], (0, 0)])
    else:
        counted = tf.pad(tf.ones_like(data), pads)
    return out / function(counted, case.kernel_size, case.strides, "VALID")


def _run(case, arrays, differentiable):
    data = _to_last(arrays["data"])
    if case.op in ("max_pool", "avg_pool"):
        return _to_first(_pool(data, case))
    if case.op == "conv":
        out = _convolution(data, _kernel(arrays["weight"]), case, case.groups, differentiable)
    elif case.op == "depthwise_conv":
        out = _depthwise(data, arrays["weight"], case, differentiable)
    elif case.op == "separable_conv":
        out = _depthwise(data, arrays["depthwise_weight"], case, differentiable)
        one = (1,) * case.rank
        out = _plain_convolution(out, _kernel(arrays["pointwise_weight"]), one, one, "VALID", differentiable)
    else:
        datas, weights = tf.split(data, case.groups, axis=-1), tf.split(arrays["weight"], case.groups, axis=0)
        parts = [_transposed(part, _kernel(weight), case) for part, weight in zip(datas, weights)]
        out = tf.concat(parts, axis=-1)
    if "bias" in arrays:
        out = out + arrays["bias"]
    return _to_first(out)


# ---- the interface ---------------------------------------------------------------------------------------------------


def forward(case: Case, arrays: dict, dtype: str = "float32") -> np.ndarray:
    """Output of the case on `arrays` (channels-first, weights in MXNet's layout)."""
    return _run(case, {name: tf.constant(array, dtype) for name, array in arrays.items()}, False).numpy()


def gradients(case: Case, arrays: dict, out_grad: np.ndarray, dtype: str = "float32") -> dict:
    """Gradient of sum(forward * out_grad) with respect to every array, by name."""
    tensors = {name: tf.constant(array, dtype) for name, array in arrays.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = tf.reduce_sum(_run(case, tensors, True) * tf.constant(out_grad, dtype))
    return {name: gradient.numpy() for name, gradient in tape.gradient(loss, tensors).items()}
