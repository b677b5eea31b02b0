"""Every case of the table in the ways that differ the most, and in some of the others, forward and gradients, compared
with the oracle."""

import pytest
import running
from cases import CASES
from running import by_name
from ways import WAYS, check

import mxsame
from mxsame.graphs.hybridize import GraphCache

ALWAYS = ("operator", "symbol, dynamic", "layer", "net.hybridize()", "mxsame.hybridize", "mxsame.hybridize, at once")
ALWAYS += ("mxsame.deploy",)
IN_TURN = (  # (way, type, whether channels are last); of each row, a case has one
    [(way, "float32", False) for way in ("operator, mx.np", "symbol, with_shapes", "symbol, input_size")],
    [(way, "float32", False) for way in ("net.hybridize(), static", "net.hybridize(), inference")],
    [(way, "float64", False) for way in ("operator", "symbol, with_shapes", "symbol, dynamic", "net.hybridize()")],
    [(way, "float32", True) for way in ("operator", "symbol, dynamic", "layer", "net.hybridize()")],
)


def combinations(number):
    """(way, type, whether channels are last) for the case of this number."""
    yield from ((way, "float32", False) for way in ALWAYS)
    yield from (row[number // divisor % len(row)] for divisor, row in enumerate(IN_TURN, 1))


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
    assert check(case, "mxsame.hybridize", calls=GraphCache.COMPILING_CALL)


def test_every_layer_and_every_way_is_run_by_the_table():
    assert WAYS.keys() - {way for _, way, _, _ in TABLE.values()} == {"net.hybridize(), static_alloc"}  # "static" is so
    layers = set(mxsame.nn.__all__) - {"HybridBlock", "HybridSequential"}
    assert {type(running.layer(case)).__name__ for case in CASES} == layers
