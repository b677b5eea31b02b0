"""By how much an array differs from the one that it should equal."""

from __future__ import annotations

import numpy as np


def difference(array: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest element that is expected; infinite if the shapes
    differ, or only one of the two is NaN or infinite somewhere.

    >>> difference(np.array([4.0, np.nan, np.inf]), np.array([5.0, np.nan, np.inf]))
    0.2
    """
    if array.shape != expected.shape:
        return float("inf")
    array, expected = array.astype(np.float64), expected.astype(np.float64)
    different = ~((array == expected) | (np.isnan(array) & np.isnan(expected)))
    found = np.abs(array[different] - expected[different]).max(initial=0.0) / largest(expected)
    return float(found) if np.isfinite(found) else float("inf")


def largest(array: np.ndarray, default: float = 1.0) -> float:
    """Returns the largest absolute value of the finite elements; the default if all are 0."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or default
