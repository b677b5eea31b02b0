"""NumPy reference in float64: what every operator must return, by explicit lists of indices.

For each axis a list has, for every output position and every kernel element, the index of the input element that it
reads, or that it reads none. Everything else (forward, gradients, transposed convolutions) is gathering and scattering
along these lists. No code is shared with mxsame; the rules are those of TensorFlow 2.13 and Keras 2, and for the
padding "keras-mxnet" what keras-mxnet 2.2.4.3 does: both ends padded alike, outputs dropped at the end.

Arrays are channels-first, weights in MXNet's layout (see `cases.arrays`).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cases import Case

NONE = -1  # in a list of indices: padding

CONVOLUTIONS = ("conv", "depthwise_conv", "separable_conv")
POOLS = ("max_pool", "avg_pool", "lp_pool")


# ---- one axis: output size, pads and the list of indices -------------------------------------------------------------


def _window_axis(n, k, s, d, padding, full=False, drops=True):
    """(out, low, high) of a convolution or pooling along one axis; `drops` is for keras-mxnet."""
    extent = (k - 1) * d + 1
    if padding == "keras-mxnet":
        wanted = math.ceil(n / s)
        pad = math.ceil(((wanted - 1) * s + extent - n) / 2)
        if pad < 0:
            raise ValueError(f"keras-mxnet asks for a negative pad: n {n}, extent {extent}, s {s}")
        if not drops and (n + 2 * pad - extent) // s + 1 > wanted:
            raise ValueError(f"keras-mxnet keeps an output too many: n {n}, extent {extent}, s {s}")
        return wanted, pad, max((wanted - 1) * s + extent - n - pad, 0)
    if padding == "same":
        out = -(-n // s)
        total = max((out - 1) * s + extent - n, 0)
        return out, total // 2, total - total // 2
    if padding == "valid":
        low, high = 0, 0
    elif padding == "causal":
        low, high = extent - 1, 0
    else:
        low, high = padding
    if low < 0 or high < 0:
        raise ValueError(f"pads must not be negative: received padding={(low, high)}")
    room = n + low + high - extent
    if room < 0:
        raise ValueError(f"the window (extent {extent}) is larger than the padded input ({n} + {low} + {high})")
    return (-(-room // s) if full else room // s) + 1, low, high


def _transposed_axis(n, k, s, d, padding, output_padding):
    """(out, low, high): the convolution of `out` elements with these pads gives n, and its gradient is the operator."""
    extent = (k - 1) * d + 1
    if output_padding is not None and not 0 <= output_padding < s:
        raise ValueError(f"output_padding must be in [0, stride): received {output_padding} with stride {s}")
    if padding == "keras-mxnet":
        out = n * s if output_padding is None else (n - 1) * s + extent - 2 * (extent // 2) + output_padding
        crop = (n - 1) * s + extent - out
        if out < 1 or crop < 0 or (crop % 2 and s == 1):
            raise ValueError(f"keras-mxnet cannot make {out} elements of {n}: extent {extent}, s {s}")
        return out, math.ceil(crop / 2), crop // 2
    if padding in ("same", "valid"):
        if output_padding is not None:
            out = (n - 1) * s + extent - (2 * (extent // 2) if padding == "same" else 0) + output_padding
        elif padding == "same":
            out = n * s
        else:
            out = (n - 1) * s + max(extent, s)
        if out < 1 or _window_axis(out, k, s, d, padding)[0] != n:
            raise ValueError(f"a convolution of {out} elements does not give {n}: output_padding={output_padding}")
        return out, *_window_axis(out, k, s, d, padding)[1:]
    if padding == "causal":
        raise ValueError("causal padding does not exist for transposed convolutions")
    low, high = padding
    if low < 0 or high < 0:
        raise ValueError(f"pads must not be negative: received padding={(low, high)}")
    out = (n - 1) * s + extent - low - high + (output_padding or 0)
    if out < 1:
        raise ValueError(f"nothing is left after the crop: output size {out}")
    return out, low, high - (output_padding or 0)


def _indices(out, n, k, s, d, low):
    """The list of indices, (out, k): of the input element that each kernel element reads, NONE outside."""
    rows = []
    for position in range(out):
        indices = [position * s + i * d - low for i in range(k)]
        rows.append([index if 0 <= index < n else NONE for index in indices])
    return np.array(rows, dtype=np.int64).reshape(out, k)


def _axes(case: Case, size):
    """Per axis (n, k, s, d, padding, output_padding)."""
    size = tuple(case.size if size is None else size)
    rank = len(case.size)
    padding = (case.padding,) * rank if isinstance(case.padding, str) else case.padding
    output_padding = case.output_padding or (None,) * rank
    axes = (size, case.kernel_size, case.strides, case.dilation, padding, output_padding)
    if any(len(values) != rank for values in axes):
        raise ValueError(f"one entry per spatial axis needed: {case}")
    if case.padding == "causal" and (rank != 1 or case.op not in CONVOLUTIONS):
        raise ValueError(f"causal padding exists for 1-D convolutions only: {case}")
    if min(size + case.kernel_size + case.strides + case.dilation) < 1:
        raise ValueError(f"sizes, kernels, strides and dilation are 1 or more: {case}")
    if case.op in POOLS and set(case.dilation) != {1}:
        raise ValueError(f"pools have no dilation: {case}")
    if case.op != "conv_transpose" and case.output_padding is not None:
        raise ValueError(f"output_padding is for transposed convolutions: {case}")
    return list(zip(*axes))


def _geometry(case: Case, size=None):
    """Per axis (out, low, high); ValueError where the rule refuses."""
    if case.op == "avg_pool" and case.padding == "keras-mxnet" and not case.count_include_pad:
        raise ValueError(f"averages of keras-mxnet count padding: {case}")
    both = max(case.strides) > 1 and max(case.dilation) > 1
    if case.op == "conv_transpose" and case.padding == "keras-mxnet" and both:
        raise ValueError(f"strides with dilation, transposed: MXNet's own numbers are wrong: {case}")
    result = []
    for axis, (n, k, s, d, padding, output_padding) in enumerate(_axes(case, size)):
        if case.op == "conv_transpose":
            result.append(_transposed_axis(n, k, s, d, padding, output_padding))
            continue
        drops = axis == 0 and case.rank == 3 if case.op in POOLS else axis < 2
        out, low, high = _window_axis(n, k, s, d, padding, case.ceil_mode, drops)
        if case.op in POOLS and (_indices(out, n, k, s, d, low) == NONE).all(axis=1).any():
            raise ValueError(f"a pooling window of padding only: n {n}, k {k}, s {s}, pads {(low, high)}")
        result.append((out, low, high))
    return result


def output_size(case: Case, size=None) -> tuple:
    """Spatial size of the output for an input of `size` (default `case.size`)."""
    return tuple(out for out, _, _ in _geometry(case, size))


def pads(case: Case, size=None) -> tuple:
    """One (low, high) per axis.

    For transposed convolutions the crop of the full extent (n-1)s + ke; a negative `high` is zeros added at the end.
    """
    if case.op != "conv_transpose":
        return tuple((low, high) for _, low, high in _geometry(case, size))
    result = []
    for (n, k, s, d, _, _), (out, low, _) in zip(_axes(case, size), _geometry(case, size)):
        result.append((low, (n - 1) * s + (k - 1) * d + 1 - low - out))
    return tuple(result)


def is_legal(case: Case, size=None) -> bool:
    """Whether the rules accept the case (for an input of `size`)."""
    try:
        _geometry(case, size)
    except ValueError:
        return False
    return True


# ---- gather and scatter along the lists ------------------------------------------------------------------------------


def _flat_indices(lists, size):
    """The axes' lists combined: (positions, kernel elements) of flat indices in row-major order, NONE outside."""
    positions = list(itertools.product(*(range(len(rows)) for rows in lists)))
    flat = np.zeros((len(positions), 1), dtype=np.int64)
    outside = np.zeros((len(positions), 1), dtype=bool)
    for axis, (rows, n) in enumerate(zip(lists, size)):
        chosen = rows[[position[axis] for position in positions]]
        flat = (flat[:, :, None] * n + chosen[:, None, :]).reshape(len(positions), -1)
        outside = (outside[:, :, None] | (chosen == NONE)[:, None, :]).reshape(len(positions), -1)
    return np.where(outside, NONE, flat)


def _gather(data, indices, fill):
    """(N, C, *size) -> (N, C, positions, kernel elements)."""
    flat = data.reshape(*data.shape[:2], -1)
    flat = np.concatenate([flat, np.full((*data.shape[:2], 1), fill)], axis=2)  # index -1 is the last one: the fill
    return flat[:, :, indices]


def _scatter(patches, indices, size):
    """Transpose of `_gather`: (N, C, positions, kernel elements) -> (N, C, *size), adding up; padding is dropped."""
    count = int(np.prod(size))
    rows = patches.reshape(-1, indices.size)
    inside = indices.ravel() != NONE
    numbers = indices.ravel()[inside]
    sums = [np.bincount(numbers, weights=row[inside], minlength=count) for row in rows]
    return np.array(sums, dtype=np.float64).reshape(*patches.shape[:2], *size)


def _convolve(data, weight, indices, groups):
    """(N, C, *size), (O, C/groups, *k) -> (N, O, positions)."""
    patches = _gather(data, indices, 0.0)
    batch, channels, positions, count = patches.shape
    patches = patches.reshape(batch, groups, channels // groups, positions, count)
    weight = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], count)
    return np.einsum("bgcpt,goct->bgop", patches, weight, optimize=True).reshape(batch, -1, positions)


def _convolve_data_gradient(out_grad, weight, indices, groups, size):
    """Transpose of `_convolve` in data: (N, O, positions) -> (N, C, *size)."""
    batch, channels, positions = out_grad.shape
    out_grad = out_grad.reshape(batch, groups, channels // groups, positions)
    weight = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], indices.shape[1])
    patches = np.einsum("bgop,goct->bgcpt", out_grad, weight, optimize=True)
    return _scatter(patches.reshape(batch, -1, positions, indices.shape[1]), indices, size)


def _convolve_weight_gradient(data, out_grad, indices, groups, shape):
    """Transpose of `_convolve` in weight: (N, C, *size), (N, O, positions) -> (O, C/groups, *k)."""
    patches = _gather(data, indices, 0.0)
    batch, channels, positions, count = patches.shape
    patches = patches.reshape(batch, groups, channels // groups, positions, count)
    out_grad = out_grad.reshape(batch, groups, -1, positions)
    return np.einsum("bgcpt,bgop->goct", patches, out_grad, optimize=True).reshape(shape)


# ---- operators -------------------------------------------------------------------------------------------------------


def _window_indices(case: Case, size):
    """(indices, output size) of a convolution or pooling."""
    axes, geometry = _axes(case, size), _geometry(case, size)
    lists = [_indices(out, n, k, s, d, low) for (n, k, s, d, _, _), (out, low, _) in zip(axes, geometry)]
    return _flat_indices(lists, size), tuple(out for out, _, _ in geometry)


def _transposed_indices(case: Case, size):
    """(indices, output size): the lists of the convolution that leads from the output back to the input."""
    axes, geometry = _axes(case, size), _geometry(case, size)
    lists = [_indices(n, out, k, s, d, low) for (n, k, s, d, _, _), (out, low, _) in zip(axes, geometry)]
    out = tuple(out for out, _, _ in geometry)
    return _flat_indices(lists, out), out


def _divisors(case: Case, size, indices):
    """What each average is divided by: the elements of the input, or of the padded input (count_include_pad)."""
    if not case.count_include_pad:
        return (indices != NONE).sum(axis=1)
    divisors = np.ones(1)
    for (n, k, s, _, _, _), (out, low, high) in zip(_axes(case, size), _geometry(case, size)):
        inside = [sum(-low <= position * s + i - low < n + high for i in range(k)) for position in range(out)]
        divisors = (divisors[:, None] * np.array(inside)).ravel()
    return divisors


def _add_bias(out, arrays):
    return out + arrays["bias"].reshape(1, -1, *[1] * (out.ndim - 2)) if "bias" in arrays else out


def _groups(case: Case) -> int:
    return case.groups if case.op in ("conv", "conv_transpose") else case.in_channels


def forward(case: Case, arrays: dict) -> np.ndarray:
    """Output of the case on `arrays`, (N, channels, *output size)."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    data = arrays["data"]
    size = data.shape[2:]
    if case.op == "conv_transpose":
        indices, out = _transposed_indices(case, size)
        flat = data.reshape(*data.shape[:2], -1)
        return _add_bias(_convolve_data_gradient(flat, arrays["weight"], indices, _groups(case), out), arrays)
    indices, out = _window_indices(case, size)
    if case.op == "max_pool":
        return _gather(data, indices, -np.inf).max(axis=3).reshape(*data.shape[:2], *out)
    if case.op == "avg_pool":
        sums = _gather(data, indices, 0.0).sum(axis=3)
        return (sums / _divisors(case, size, indices)).reshape(*data.shape[:2], *out)
    if case.op == "lp_pool":
        sums = (_gather(data, indices, 0.0) ** case.p_value).sum(axis=3)  # of signed values, as MXNet has it
        return (np.sign(sums) * np.abs(sums) ** (1 / case.p_value)).reshape(*data.shape[:2], *out)
    if case.op == "separable_conv":
        middle = _convolve(data, arrays["depthwise_weight"], indices, _groups(case))
        pointwise = arrays["pointwise_weight"].reshape(-1, middle.shape[1])
        result = np.einsum("bcp,oc->bop", middle, pointwise)
    else:
        result = _convolve(data, arrays["weight"], indices, _groups(case))
    return _add_bias(result.reshape(*result.shape[:2], *out), arrays)


def gradients(case: Case, arrays: dict, out_grad: np.ndarray) -> dict:
    """Gradient of sum(forward * out_grad) with respect to every array, by name."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    out_grad = np.asarray(out_grad, dtype=np.float64)
    data = arrays["data"]
    size = data.shape[2:]
    result = {}
    if "bias" in arrays:
        result["bias"] = out_grad.sum(axis=(0, *range(2, out_grad.ndim)))
    if case.op == "conv_transpose":
        indices, _ = _transposed_indices(case, size)
        weight, groups = arrays["weight"], _groups(case)
        flat = data.reshape(*data.shape[:2], -1)
        result["data"] = _convolve(out_grad, weight, indices, groups).reshape(data.shape)
        result["weight"] = _convolve_weight_gradient(out_grad, flat, indices, groups, weight.shape)
        return result
    indices, _ = _window_indices(case, size)
    flat_grad = out_grad.reshape(*out_grad.shape[:2], -1)
    if case.op == "max_pool":
        patches = _gather(data, indices, -np.inf)
        first = patches.argmax(axis=3)[..., None]  # row-major order: ties go to the first element
        patches = np.zeros_like(patches)
        np.put_along_axis(patches, first, flat_grad[..., None], axis=3)
        result["data"] = _scatter(patches, indices, size)
    elif case.op == "avg_pool":
        share = (flat_grad / _divisors(case, size, indices))[..., None]
        result["data"] = _scatter(np.broadcast_to(share, (*share.shape[:3], indices.shape[1])), indices, size)
    elif case.op == "lp_pool":
        patches = _gather(data, indices, 0.0)
        norms = forward(case, arrays).reshape(*flat_grad.shape, 1)
        slopes = (patches / norms) ** (case.p_value - 1)
        result["data"] = _scatter(slopes * flat_grad[..., None], indices, size)
    elif case.op == "separable_conv":
        depthwise, pointwise = arrays["depthwise_weight"], arrays["pointwise_weight"]
        matrix = pointwise.reshape(pointwise.shape[0], -1)
        middle = _convolve(data, depthwise, indices, _groups(case))
        middle_grad = np.einsum("bop,oc->bcp", flat_grad, matrix)
        result["pointwise_weight"] = np.einsum("bop,bcp->oc", flat_grad, middle).reshape(pointwise.shape)
        result["data"] = _convolve_data_gradient(middle_grad, depthwise, indices, _groups(case), size)
        result["depthwise_weight"] = _convolve_weight_gradient(
            data, middle_grad, indices, _groups(case), depthwise.shape
        )
    else:
        weight, groups = arrays["weight"], _groups(case)
        result["data"] = _convolve_data_gradient(flat_grad, weight, indices, groups, size)
        result["weight"] = _convolve_weight_gradient(data, flat_grad, indices, groups, weight.shape)
    return result
