"""The arithmetic of padding: against the oracle's lists of indices, against brute force, and what it refuses."""

import itertools

import numpy as np
import oracle
import pytest
from cases import Case

from mxsame import padding

SIZES, KERNELS, STRIDES, DILATIONS = range(1, 25), range(1, 8), range(1, 6), range(1, 4)
LARGEST, LARGEST_STEP = 2**31 - 1, 2**29 - 1  # of lengths; of kernels, strides and pads


# ---- SAME, by brute force --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", KERNELS)
@pytest.mark.parametrize("s", STRIDES)
def test_same_is_the_least_padding_that_gives_every_output(k, s):
    """The definition: ceil(n/s) windows, as few zeros as they need, the odd one at the end."""
    for n in SIZES:
        for d in DILATIONS:
            starts = range(0, n, s)  # every s-th element has a window
            needed = max(starts[-1] + (k - 1) * d + 1 - n, 0)  # how far the last one reaches beyond the data
            low, high = padding.same_pads(n, k, s, d)
            assert (low + high, high - low) == (needed, needed % 2)
            assert padding.output_size(n, k, s, d) == len(starts)
            assert padding.same_pads(n + s, k, s, d) == (low, high), "only the remainder counts"


# ---- transposed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", STRIDES)
@pytest.mark.parametrize("k", KERNELS)
def test_transposed_grid(k, s):
    """Every word and output padding against the oracle, which asks the forward convolution; refusals too."""
    agreed = refused = 0
    for n, d, word, extra in itertools.product(range(1, 7), DILATIONS, ("same", "valid"), (None, *range(s + 1))):
        given = None if extra is None else (extra,)
        case = Case("conv_transpose", (n,), (k,), (s,), word, (d,), output_padding=given, name="-")
        if oracle.is_legal(case):
            assert (padding.transposed_crops(k, s, d, word, extra),) == oracle.pads(case)
            assert (padding.transposed_output_size(n, k, s, d, word, extra),) == oracle.output_size(case)
            agreed += 1
        else:
            with pytest.raises(ValueError, match=r"^output_padding must "):
                padding.transposed_output_size(n, k, s, d, word, extra)
            refused += 1
    assert agreed >= 6 * 3 * 2 and refused >= 6 * 3 * 2


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8])
def test_numpy_integers(kind):
    pads = padding.same_pads(kind(8), kind(3), kind(2), kind(1))
    assert pads == (0, 1) and {type(pad) for pad in pads} == {int}
    out = padding.output_size(kind(8), kind(3), kind(2), kind(1), (kind(1), kind(1)))
    assert out == 4 and type(out) is int
    assert padding.output_size(8, 3, 2, 1, np.array([1, 1], dtype=kind)) == 4
    crops = padding.transposed_crops(kind(3), kind(2), kind(1), "same", kind(0))
    assert crops == (1, 1) and {type(crop) for crop in crops} == {int}


def test_large_numbers_stay_exact():
    assert padding.same_pads(LARGEST, 3, 2) == (1, 1) and padding.output_size(LARGEST - 2, 3, 2) == 2**30 - 1
    assert padding.transposed_output_size(2**29, 3, 3) == 3 * 2**29
    with pytest.raises(ValueError, match="padded input must be at most 2147483647 long; received size=2147483647"):
        padding.output_size(LARGEST, 3, 2)
    with pytest.raises(ValueError, match="a transposed convolution must be at most 2147483647 long; received size"):
        padding.transposed_output_size(2**30, 3, 2)
