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
    """(out, low, high) of a convolution or pooling along one axis, or None if it is refused; `drops` is for
    keras-mxnet."""
    extent = (k - 1) * d + 1
    if padding == "keras-mxnet":
        wanted = math.ceil(n / s)
        pad = math.ceil(((wanted - 1) * s + extent - n) / 2)
        keeps_more = not drops and (n + 2 * pad - extent) // s + 1 > wanted
        return None if pad < 0 or keeps_more else (wanted, pad, max((wanted - 1) * s + extent - n - pad, 0))
    if padding == "same":
        out = -(-n // s)
        total = max((out - 1) * s + extent - n, 0)
        return out, total // 2, total - total // 2
    low, high = {"valid": (0, 0), "causal": (extent - 1, 0)}.get(padding, padding)
    room = n + low + high - extent
    return None if min(low, high, room) < 0 else ((-(-room // s) if full else room // s) + 1, low, high)


def _transposed_axis(n, k, s, d, padding, output_padding):
    """(out, low, high): the convolution of `out` elements with these pads gives n, and its gradient is the operator.
    None if it is refused."""
    extent, more = (k - 1) * d + 1, output_padding or 0
    if padding == "causal" or not 0 <= more < s:
        return None
    if not isinstance(padding, str):
        low, high = padding
        out = (n - 1) * s + extent - low - high + more
        return None if min(low, high) < 0 or out < 1 else (out, low, high - more)
    if output_padding is not None:
        out = (n - 1) * s + extent - (0 if padding == "valid" else 2 * (extent // 2)) + output_padding
    else:
        out = (n - 1) * s + max(extent, s) if padding == "valid" else n * s
    if padding == "keras-mxnet":
        crop = (n - 1) * s + extent - out
        is_refused = out < 1 or crop < 0 or (crop % 2 and s == 1)
        return None if is_refused else (out, math.ceil(crop / 2), crop // 2)
    forward = _window_axis(out, k, s, d, padding) if out > 0 else None
    return (out, *forward[1:]) if forward is not None and forward[0] == n else None


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
    axes = (size, case.kernel_size, case.strides, case.dilation, padding, case.output_padding or (None,) * rank)
    is_legal = {len(values) for values in axes} == {rank} and min(map(min, axes[:4])) > 0
    is_legal &= case.padding != "causal" or (rank == 1 and case.op in CONVOLUTIONS)
    is_legal &= case.op not in POOLS or set(case.dilation) == {1}
    if not is_legal or (case.output_padding is not None and case.op != "conv_transpose"):
        raise ValueError(f"no such operator: {case}")
    return list(zip(*axes))


def _geometry(case: Case, size=None):
    """Per axis (out, low, high); ValueError where the rule refuses."""
    result = []
    for axis, (n, k, s, d, padding, output_padding) in enumerate(_axes(case, size)):
        if case.op == "conv_transpose":
            result.append(_transposed_axis(n, k, s, d, padding, output_padding))
            continue
        drops = axis == 0 and case.rank == 3 if case.op in POOLS else axis < 2
        result.append(_window_axis(n, k, s, d, padding, case.ceil_mode, drops))
        if case.op in POOLS and result[-1] is not None:  # a window of padding only has no value
            out, low, _ = result[-1]
            result[-1] = None if (_indices(out, n, k, s, d, low) == NONE).all(axis=1).any() else result[-1]
    if case.padding == "keras-mxnet":  # whose averages count padding; and where MXNet's own numbers are wrong
        both = max(case.strides) > 1 and max(case.dilation) > 1
        result += [None] * (case.op == "avg_pool" and not case.count_include_pad)
        result += [None] * (case.op == "conv_transpose" and both)
    if None in result:
        raise ValueError(f"the rules refuse it: {case}, size {size}")
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


def _patches(data, indices, groups):
    """(N, C, *size) -> (N, groups, C/groups, positions, kernel elements)."""
    return _gather(data, indices, 0.0).reshape(len(data), groups, -1, *indices.shape)


def _grouped(weight, groups):
    """(O, C/groups, *k) -> (groups, O/groups, C/groups, kernel elements)."""
    return weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)


def _convolve(data, weight, indices, groups):
    """(N, C, *size), (O, C/groups, *k) -> (N, O, positions)."""
    patches = _patches(data, indices, groups)
    out = np.einsum("bgcpt,goct->bgop", patches, _grouped(weight, groups), optimize=True)
    return out.reshape(len(data), -1, len(indices))


def _convolve_data_gradient(out_grad, weight, indices, groups, size):
    """Transpose of `_convolve` in data: (N, O, positions) -> (N, C, *size)."""
    out_grad = out_grad.reshape(len(out_grad), groups, -1, len(indices))
    patches = np.einsum("bgop,goct->bgcpt", out_grad, _grouped(weight, groups), optimize=True)
    return _scatter(patches.reshape(len(out_grad), -1, *indices.shape), indices, size)


def _convolve_weight_gradient(data, out_grad, indices, groups, shape):
    """Transpose of `_convolve` in weight: (N, C, *size), (N, O, positions) -> (O, C/groups, *k)."""
    out_grad = out_grad.reshape(len(data), groups, -1, len(indices))
    return np.einsum("bgcpt,bgop->goct", _patches(data, indices, groups), out_grad, optimize=True).reshape(shape)


# ---- operators -------------------------------------------------------------------------------------------------------


def _lists(case: Case, size):
    """(indices, output size); of a transposed convolution the indices lead from the output back to the input."""
    axes, geometry, back = _axes(case, size), _geometry(case, size), case.op == "conv_transpose"
    lists = [
        _indices(n, out, k, s, d, low) if back else _indices(out, n, k, s, d, low)
        for (n, k, s, d, _, _), (out, low, _) in zip(axes, geometry)
    ]
    out = tuple(out for out, _, _ in geometry)
    return _flat_indices(lists, out if back else size), out


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
    data, groups = arrays["data"], _groups(case)
    size = data.shape[2:]
    indices, out = _lists(case, size)
    if case.op == "max_pool":
        result = _gather(data, indices, -np.inf).max(axis=3)
    elif case.op == "avg_pool":
        result = _gather(data, indices, 0.0).sum(axis=3) / _divisors(case, size, indices)
    elif case.op == "lp_pool":
        sums = (_gather(data, indices, 0.0) ** case.p_value).sum(axis=3)  # of signed values, as MXNet has it
        result = np.sign(sums) * np.abs(sums) ** (1 / case.p_value)
    elif case.op == "separable_conv":
        middle = _convolve(data, arrays["depthwise_weight"], indices, groups)
        result = np.einsum("bcp,oc->bop", middle, arrays["pointwise_weight"].reshape(-1, middle.shape[1]))
    elif case.op == "conv_transpose":
        result = _convolve_data_gradient(data, arrays["weight"], indices, groups, out)
    else:
        result = _convolve(data, arrays["weight"], indices, groups)
    return _add_bias(result.reshape(*result.shape[:2], *out), arrays)


def gradients(case: Case, arrays: dict, out_grad: np.ndarray) -> dict:
    """Gradient of sum(forward * out_grad) with respect to every array, by name."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    out_grad = np.asarray(out_grad, dtype=np.float64)
    data, weight, groups = arrays["data"], arrays.get("weight"), _groups(case)
    size = data.shape[2:]
    indices, _ = _lists(case, size)
    flat = out_grad.reshape(*out_grad.shape[:2], -1)
    result = {"bias": out_grad.sum(axis=(0, *range(2, out_grad.ndim)))} if "bias" in arrays else {}
    if case.op == "conv_transpose":
        result["data"] = _convolve(out_grad, weight, indices, groups).reshape(data.shape)
        result["weight"] = _convolve_weight_gradient(out_grad, data, indices, groups, weight.shape)
    elif case.op == "max_pool":
        patches = _gather(data, indices, -np.inf)
        first = patches.argmax(axis=3)[..., None]  # row-major order: ties go to the first element
        patches = np.zeros_like(patches)
        np.put_along_axis(patches, first, flat[..., None], axis=3)
        result["data"] = _scatter(patches, indices, size)
    elif case.op == "avg_pool":
        share = (flat / _divisors(case, size, indices))[..., None]
        result["data"] = _scatter(np.broadcast_to(share, (*share.shape[:3], indices.shape[1])), indices, size)
    elif case.op == "lp_pool":
        norms = forward(case, arrays).reshape(*flat.shape, 1)
        slopes = (_gather(data, indices, 0.0) / norms) ** (case.p_value - 1)
        result["data"] = _scatter(slopes * flat[..., None], indices, size)
    elif case.op == "separable_conv":
        weight, pointwise = arrays["depthwise_weight"], arrays["pointwise_weight"]
        middle = _convolve(data, weight, indices, groups)
        middle_grad = np.einsum("bop,oc->bcp", flat, pointwise.reshape(len(pointwise), -1))
        result["pointwise_weight"] = np.einsum("bop,bcp->oc", flat, middle).reshape(pointwise.shape)
        result["data"] = _convolve_data_gradient(middle_grad, weight, indices, groups, size)
        result["depthwise_weight"] = _convolve_weight_gradient(data, middle_grad, indices, groups, weight.shape)
    else:
        result["data"] = _convolve_data_gradient(flat, weight, indices, groups, size)
        result["weight"] = _convolve_weight_gradient(data, flat, indices, groups, weight.shape)
    return result
