"""The whole space, drawn by hypothesis: operators, graphs and strategies against the oracle, forward and gradients.

60 examples a test by default; `--hypothesis-profile=ci` draws 2,000 and `deep` 50,000.
"""

from __future__ import annotations

import functools

import cases
import oracle
import strategies
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from running import (
    CHANNELS_LAST,
    POOLS,
    apply,
    as_nd,
    as_np,
    assert_equal,
    channels_last,
    evaluate,
    expected_once,
    fits_one_graph,
    graph_arguments,
    imperative,
    in_one_graph,
    layer,
    operate,
    set_parameters,
    variables,
)

from mxsame import padding
from mxsame import plan as planning
from mxsame._mxnet import mx

WHOLE_SPACE = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], print_blob=True)


def check(case, run, dtype="float32", size=None):
    """`run(arrays, out_grad)` gives (output, gradients)."""
    arrays, out, out_grad, gradients = expected_once(case, size)
    got, got_gradients = run(arrays, out_grad)
    assert_equal(got, out, dtype)
    assert_equal(got_gradients, gradients, dtype, terms=out.size // out.shape[1])


@WHOLE_SPACE
@given(
    strategies.cases(),
    st.sampled_from(["float32", "float32", "float64"]),
    st.sampled_from(["nd", "np", "symbol", "last"]),
)
def test_known_size(case, dtype, kind):
    """NDArrays, mx.np arrays, graphs whose arrays have shapes, and layouts with channels last."""

    def run(arrays, out_grad):
        operator = functools.partial(operate, case)
        if kind == "symbol":
            return evaluate(operator(variables(arrays, dtype)), as_nd(arrays, dtype), out_grad)
        if kind == "last":
            operator = functools.partial(operator, layout=CHANNELS_LAST[case.rank])
        return imperative(operator, (as_np if kind == "np" else as_nd)(arrays, dtype), out_grad)

    if kind != "last":
        check(case, run, dtype)
        return
    arrays, out, out_grad, gradients = expected_once(case)
    got, got_gradients = run(channels_last(arrays), channels_last(out_grad))
    assert_equal(got, channels_last(out), dtype)
    assert_equal(got_gradients, channels_last(gradients), dtype, terms=out.size // out.shape[1])


def some_size_has_an_empty_window(case):
    """With ceil_mode and explicit pads the last window of a pooling may hold no cell, which a graph for every size must
    refuse."""
    sizes = [tuple(8 * s + residue for s in case.strides) for residue in range(max(case.strides))]
    return case.ceil_mode and not all(oracle.is_legal(case, size) for size in sizes)


@WHOLE_SPACE
@given(strategies.cases(), st.lists(st.integers(-3, 9), min_size=3, max_size=3))
def test_unknown_size(case, steps):
    """One graph, at the size that was drawn and at another."""
    try:
        symbol = operate(case, unshaped(case), **graph_arguments(case))
    except ValueError as error:
        assert "ceil_mode must leave no window without an element of the data" in str(error)
        assert some_size_has_an_empty_window(case)
        return
    other = tuple(max(n + step, 1) for n, step in zip(case.size, steps))
    for size in dict.fromkeys([case.size, other]):
        if oracle.is_legal(case, size) and fits_one_graph(case, size):
            note(f"size {size}")
            check(case, lambda arrays, out_grad: evaluate(symbol, as_nd(arrays), out_grad), size=size)


def unshaped(case):
    """Only the number of channels is known."""
    arrays = variables(cases.arrays(case), shaped=False)
    arrays["data"] = mx.sym.var("data", shape=(0, case.in_channels) + (0,) * case.rank)
    return arrays


@WHOLE_SPACE
@given(strategies.cases(), st.booleans())
def test_layers(case, hybridized):
    assume(not hybridized or (fits_one_graph(case) and not some_size_has_an_empty_window(case)))
    block = layer(case)
    set_parameters(block, cases.arrays(case))
    in_one_graph(block, hybridized)
    check(case, functools.partial(apply, block))


@WHOLE_SPACE
@given(
    strategies.cases(),
    st.sampled_from(list(planning.STRATEGIES)),
    st.booleans(),
)
def test_forced_strategies(case, strategy, unknown):
    """A strategy is exact or says that it is not; "pad" always is for a known size of anything but transposed ones."""
    assume(not unknown or (fits_one_graph(case) and not some_size_has_an_empty_window(case)))
    try:
        with planning.force(strategy):
            if unknown:
                symbol = operate(case, unshaped(case), **graph_arguments(case))
                check(case, lambda arrays, out_grad: evaluate(symbol, as_nd(arrays), out_grad))
            else:
                check(
                    case, lambda arrays, out_grad: imperative(functools.partial(operate, case), as_nd(arrays), out_grad)
                )
    except ValueError as error:
        assert "is not exact" in str(error)
        assert unknown or strategy not in ("pad", "concat", "dilate")


@WHOLE_SPACE
@given(
    strategies.cases(paddings=("keras-mxnet",)),
    st.sampled_from((None, *planning.STRATEGIES)),
    st.sampled_from(["known", "unknown", "layer"]),
)
def test_padding_of_keras_mxnet(case, strategy, kind):
    """All of the above, for the padding that TensorFlow does not have."""
    runs = {
        "known": lambda arrays, out_grad: imperative(functools.partial(operate, case), as_nd(arrays), out_grad),
        "unknown": lambda arrays, out_grad: evaluate(symbol, as_nd(arrays), out_grad),
        "layer": lambda arrays, out_grad: apply(block, arrays, out_grad),
    }
    try:
        with planning.force(strategy):
            if kind == "unknown":
                symbol = operate(case, unshaped(case), **graph_arguments(case))
            elif kind == "layer":
                block = layer(case)
                set_parameters(block, cases.arrays(case))
            check(case, runs[kind])
    except ValueError as error:
        every_size = "keras-mxnet cannot run every size" in str(error) and kind == "unknown"
        assert every_size or ("is not exact" in str(error) and strategy is not None)


@WHOLE_SPACE
@given(strategies.cases())
def test_arithmetic(case):
    for axis, (n, k, s, d) in enumerate(zip(case.size, case.kernel_size, case.strides, case.dilation)):
        pads = case.padding if isinstance(case.padding, str) else case.padding[axis]
        if case.op == "conv_transpose":
            extra = None if case.output_padding is None else case.output_padding[axis]
            assert padding.transposed_cuts(k, s, d, pads, extra) == oracle.pads(case)[axis]
            assert padding.transposed_output_size(n, k, s, d, pads, extra) == oracle.output_size(case)[axis]
        elif not (case.op in POOLS and case.ceil_mode and pads != "same"):
            assert padding.resolve_pads(n, k, s, d, pads) == oracle.pads(case)[axis]
            assert padding.output_size(n, k, s, d, pads) == oracle.output_size(case)[axis]
