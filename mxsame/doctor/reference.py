"""What MXNet should compute, in NumPy and float64: window by window, with pads that are given. Two spatial axes."""

from __future__ import annotations

from typing import Callable, Dict, Iterator, Sequence, Tuple

import numpy as np

Pads = Sequence[Tuple[int, int]]
Values = Tuple[np.ndarray, Callable[[np.ndarray], Dict[str, np.ndarray]]]  # outputs; gradients by what comes back


def convolution(data: np.ndarray, weight: np.ndarray, stride: int, pads: Pads) -> Values:
    """(N, C, *size), (O, C, *k) -> (N, O, *out)."""
    padded = _padded(data, pads, 0)
    out = sum(np.einsum("nchw,oc->nohw", cells, weight[tap]) for tap, cells in _cells(padded, weight.shape, stride))

    def gradients(back: np.ndarray) -> Dict[str, np.ndarray]:
        to_padded, to_weight = np.zeros_like(padded), np.zeros_like(weight)
        for tap, cells in _cells(to_padded, weight.shape, stride):
            cells += np.einsum("nohw,oc->nchw", back, weight[tap])
        for tap, cells in _cells(padded, weight.shape, stride):
            to_weight[tap] = np.einsum("nohw,nchw->oc", back, cells)
        return {"data": _inside(to_padded, pads), "weight": to_weight}

    return np.asarray(out), gradients


def transposed(data: np.ndarray, weight: np.ndarray, stride: int, cuts: Pads) -> Values:
    """(N, C, *size), (C, O, *k) -> (N, O, *out); the gradient of a convolution of which `cuts` are the pads."""
    batch, _, *size = data.shape
    shape = [(n - 1) * stride + k for n, k in zip(size, weight.shape[2:])]
    whole = np.zeros((batch, weight.shape[1], *shape))
    for tap, cells in _cells(whole, weight.shape, stride):
        cells += np.einsum("nchw,co->nohw", data, weight[tap])

    def gradients(back: np.ndarray) -> Dict[str, np.ndarray]:
        to_data, to_weight = np.zeros_like(data), np.zeros_like(weight)
        for tap, cells in _cells(_padded(back, cuts, 0), weight.shape, stride):
            to_data += np.einsum("nohw,co->nchw", cells, weight[tap])
            to_weight[tap] = np.einsum("nchw,nohw->co", data, cells)
        return {"data": to_data, "weight": to_weight}

    return _inside(whole, cuts), gradients


def pooling(data: np.ndarray, kind: str, kernel_size: int, stride: int, pads: Pads) -> Values:
    """(N, C, *size) -> (N, C, *out): "max", or "avg" over the cells that are data."""
    shape = (1, 1, kernel_size, kernel_size)
    padded = _padded(data, pads, -np.inf if kind == "max" else 0)
    stack = np.stack([cells for _, cells in _cells(padded, shape, stride)])
    counts = sum(cells for _, cells in _cells(_padded(np.ones_like(data), pads, 0), shape, stride))
    out = stack.max(axis=0) if kind == "max" else stack.sum(axis=0) / counts

    def gradients(back: np.ndarray) -> Dict[str, np.ndarray]:
        to_padded = np.zeros_like(padded)
        for (_, cells), read in zip(_cells(to_padded, shape, stride), stack):
            cells += back * (read == out) if kind == "max" else back / counts
        return {"data": _inside(to_padded, pads)}

    return out, gradients


def _cells(padded: np.ndarray, weight_shape: Sequence[int], stride: int) -> Iterator[Tuple[tuple, np.ndarray]]:
    """For each tap of a kernel its index into a weight, and a view of the cells that it meets."""
    kernel = weight_shape[2:]
    outputs = [(n - k) // stride + 1 for n, k in zip(padded.shape[2:], kernel)]
    for tap in np.ndindex(*kernel):
        places = (slice(begin, begin + (count - 1) * stride + 1, stride) for begin, count in zip(tap, outputs))
        yield (slice(None), slice(None), *tap), padded[(slice(None), slice(None), *places)]


def _padded(data: np.ndarray, pads: Pads, value: float) -> np.ndarray:
    return np.pad(data, [(0, 0), (0, 0), *pads], mode="constant", constant_values=value)


def _inside(padded: np.ndarray, pads: Pads) -> np.ndarray:
    places = (slice(low, length - high) for (low, high), length in zip(pads, padded.shape[2:]))
    return padded[(slice(None), slice(None), *places)]
