"""The difference between an array and the expected one."""

from __future__ import annotations

import numpy as np


def difference(array: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference between two elements, divided by the largest expected element; infinity if the
    shapes differ, or if only one of two elements is NaN or infinite.

    >>> difference(np.array([4.0, np.nan, np.inf]), np.array([5.0, np.nan, np.inf]))
    0.2
    """
    if array.shape != expected.shape:
        return float("inf")
    array, expected = array.astype(np.float64), expected.astype(np.float64)
    different = ~((array == expected) | (np.isnan(array) & np.isnan(expected)))
    result = np.abs(array[different] - expected[different]).max(initial=0.0) / largest(expected)
    return float(result) if np.isfinite(result) else float("inf")


def largest(array: np.ndarray, default: float = 1.0) -> float:
    """Returns the largest absolute value of the finite elements; the default if that is 0, or if there are none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or default
