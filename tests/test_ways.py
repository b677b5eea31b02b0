"""Every case of the table in every way, type and layout, forward and gradients, compared with the oracle."""

from __future__ import annotations

import pytest
from cases import CASES
from running import by_name
from ways import WAYS, check

import mxsame

FLOAT64 = [
    way for way in WAYS if not way.endswith(("static_alloc", "static", "inference", "deploy", "mxsame.hybridize"))
]
LAST = ("operator", "symbol, dynamic", "layer", "net.hybridize()")
COMBINATIONS = [
    *((way, "float32", False) for way in WAYS),
    *((way, "float64", False) for way in FLOAT64),
    *((way, "float32", True) for way in LAST),
]


@pytest.mark.parametrize(
    ("way", "dtype", "last"),
    COMBINATIONS,
    ids=[f"{way}, {dtype}{', channels_last' * last}" for way, dtype, last in COMBINATIONS],
)
@by_name(CASES)
def test_every_case(case, way, dtype, last):
    if way == "symbol, input_size" and case.op == "conv_transpose":
        pytest.skip("it needs no size")
    assert check(case, way, dtype, last)


def test_every_layer_is_run_by_the_table():
    import running

    layers = set(mxsame.nn.__all__) - {"HybridBlock", "HybridSequential"}
    assert {type(running.layer(case)).__name__ for case in CASES} == layers
