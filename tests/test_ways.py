"""Every case of the table in every way, forward and gradients, compared with the oracle; of the ways in float64, and of
those with channels last, each case has one."""

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


def combinations(number):
    """(way, type, whether channels are last) for the case of this number."""
    in_float32 = WAYS.keys() - {"net.hybridize(), static_alloc"}  # "static" has it, too
    yield from ((way, "float32", False) for way in WAYS if way in in_float32)
    yield FLOAT64[number % 4], "float64", False
    yield LAST[number // 4 % 4], "float32", True


TABLE = {
    f"{case.name}-{way}, {dtype}{', channels_last' * last}": (case, way, dtype, last)
    for number, case in enumerate(CASES)
    for way, dtype, last in combinations(number)
    if (case.op, way) != ("conv_transpose", "symbol, input_size")  # its crop does not follow from the size
}


@pytest.mark.parametrize(("case", "way", "dtype", "last"), TABLE.values(), ids=TABLE)
def test_every_case(case, way, dtype, last):
    assert check(case, way, dtype, last)


@by_name(CASES[::7])
def test_the_eighth_call_of_a_size(case):
    """At which `mxsame.hybridize` gives a size a graph of its own, as users have it; the first size has one at once."""
    assert check(case, "mxsame.hybridize", calls=GraphCache.PATIENCE)


def test_every_layer_is_run_by_the_table():
    layers = set(mxsame.nn.__all__) - {"HybridBlock", "HybridSequential"}
    assert {type(running.layer(case)).__name__ for case in CASES} == layers
