"""Runs a case with mxsame.keras, and computes what it must return, in Keras's orders of axes. Shared by its suites."""

from __future__ import annotations

import inspect

import numpy as np
from cases import Case
from keras_cases import data_ordered, ordered, shape_ordered
from running import as_nd, as_np, assert_equal, evaluate, expected_once as expected_in_mxnet, fits_one_graph, imperative

from mxsame._mxnet import mx

KINDS = ("nd", "np", "symbol", "any size")


def signature(function) -> str:
    """Names, order and defaults of the arguments, without annotations."""
    parameters = inspect.signature(function).parameters.values()
    empty = inspect.Parameter.empty
    return ", ".join(p.name if p.default is empty else f"{p.name}={p.default!r}" for p in parameters)


def run(module, call, case: Case, data_format: str, kind: str, arrays: dict, out_grad, dtype: str = "float32"):
    """(output, gradients by name) of mxsame's function; arrays and results in Keras's order."""
    name, arguments = call(case, data_format)
    function = getattr(module, name)

    def operate(given):
        return function(*given.values(), **arguments)

    if kind in ("nd", "np"):
        return imperative(operate, (as_nd if kind == "nd" else as_np)(arrays, dtype), out_grad)
    variables = {name: mx.sym.var(name, shape=array.shape, dtype=dtype) for name, array in arrays.items()}
    if kind == "any size" and fits_one_graph(case):  # a group is known by its channels
        channels = shape_ordered((0, case.in_channels) + (0,) * case.rank, data_format)
        variables["data"] = mx.sym.var("data") if case.groups == 1 else mx.sym.var("data", shape=channels)
    return evaluate(operate(variables), as_nd(arrays, dtype), out_grad)


def expected(case: Case, data_format: str) -> tuple[dict, np.ndarray, np.ndarray, dict]:
    """(arrays, output, gradient from above, gradients) by the NumPy oracle, in Keras's order."""
    arrays, out, out_grad, gradients = expected_in_mxnet(case)
    arrays, gradients = (ordered(case, each, data_format) for each in (arrays, gradients))
    return arrays, data_ordered(out, data_format), data_ordered(out_grad, data_format), gradients


def check(module, call, case: Case, data_format: str, kind: str, dtype: str = "float32") -> None:
    """mxsame's function equals the oracle, forward and gradients."""
    arrays, out, out_grad, gradients = expected(case, data_format)
    got, got_gradients = run(module, call, case, data_format, kind, arrays, out_grad, dtype)
    what = f"{kind}, {data_format}"
    assert_equal(got, out, dtype, what)
    assert_equal(got_gradients, gradients, dtype, what, terms=out.size // case.out_channels)
