"""Every case of the table in every way, type and layout, forward and gradients, compared with the oracle."""

from __future__ import annotations

import pytest
import running
from cases import CASES
from running import by_name
from ways import WAYS, check

import mxsame
from mxsame.graphs.hybridize import GraphCache

FLOAT64 = ("operator", "symbol, with_shapes", "symbol, dynamic", "net.hybridize()")
LAST = ("operator", "symbol, dynamic", "layer", "net.hybridize()")
COMBINATIONS = [
    *((way, "float32", False) for way in WAYS if way != "net.hybridize(), static_alloc"),  # "static" has it, too
    *((way, "float64", False) for way in FLOAT64),
    *((way, "float32", True) for way in LAST),
]


TABLE = {
    f"{case.name}-{way}, {dtype}{', channels_last' * last}": (case, way, dtype, last)
    for case in CASES
    for way, dtype, last in COMBINATIONS
    if (case.op, way) != ("conv_transpose", "symbol, input_size")  # its crop does not follow from the size
}


@pytest.mark.parametrize(("case", "way", "dtype", "last"), TABLE.values(), ids=TABLE)
def test_every_case(case, way, dtype, last):
    if way == "symbol, input_size" and case.op == "conv_transpose":
        pytest.skip("a transposed convolution takes no input_size: its crop does not follow from the size")
    assert check(case, way, dtype, last)


@by_name(CASES[::7])
def test_the_eighth_call_of_a_size(case):
    """At which `mxsame.hybridize` gives a size a graph of its own, as users have it; the first size has one at once."""
    assert check(case, "mxsame.hybridize", calls=GraphCache.PATIENCE)


def test_every_layer_is_run_by_the_table():
    layers = set(mxsame.nn.__all__) - {"HybridBlock", "HybridSequential"}
    assert {type(running.layer(case)).__name__ for case in CASES} == layers
