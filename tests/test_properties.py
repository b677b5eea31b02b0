"""The whole space, drawn by hypothesis: operators, graphs and strategies against the oracle, forward and gradients;
and the oracle against TensorFlow.

60 examples a test by default; `--hypothesis-profile=ci` draws 1,000 and `deep` 50,000.
"""

from __future__ import annotations

import cases
import numpy as np
import oracle
import pytest
import strategies
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from running import POOLS, assert_equal, expected_once
from ways import WAYS, check

from mxsame import padding
from mxsame import plan as planning

WHOLE_SPACE = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], print_blob=True)


def some_size_has_an_empty_window(case):
    """With ceil_mode and explicit pads the last window of a pooling layer may have no element: a graph for every size
    must refuse it."""
    sizes = [tuple(8 * s + residue for s in case.strides) for residue in range(max(case.strides))]
    return case.ceil_mode and not all(oracle.is_legal(case, size) for size in sizes)


def may_refuse(case, way, strategy, message):
    """Whether there is a reason for the refusal."""
    dynamic = way.startswith(("symbol, dynamic", "net.hybridize"))
    if "must be one that is exact" in message:
        return strategy is not None and (dynamic or strategy not in ("pad", "concat", "dilate"))
    if "keras-mxnet cannot run every size" in message:
        return dynamic and case.padding == "keras-mxnet"
    assert "ceil_mode must leave no window without an element of the data" in message
    return dynamic and some_size_has_an_empty_window(case)


def check_drawn(case, way, dtype, last, strategy=None):
    assume(case.op != "conv_transpose" or way != "symbol, input_size")
    try:
        check(case, way, dtype, last, strategy, expected=expected_once)
    except ValueError as error:
        assert may_refuse(case, way, strategy, str(error)), error


all_cases = strategies.cases() | strategies.cases(paddings=("keras-mxnet",))
ways, types = st.sampled_from(list(WAYS)), st.sampled_from(["float32", "float64"])


@WHOLE_SPACE
@given(all_cases, ways, types, st.booleans())
def test_every_way(case, way, dtype, last):
    check_drawn(case, way, dtype, last)


@WHOLE_SPACE
@given(all_cases, ways, st.sampled_from(list(planning.STRATEGIES)))
def test_forced_strategies(case, way, strategy):
    """A strategy is exact or says that it is not; "pad" always is for a known size of anything but transposed ones."""
    check_drawn(case, way, "float32", False, strategy)


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


@pytest.fixture(scope="module")
def tensorflow():
    """Imported late: MXNet has to be first."""
    tf_oracle = pytest.importorskip("tf_oracle", reason="live TensorFlow is the extra 'oracle' (2.13.1, Python 3.11)")
    if tf_oracle.VERSION != "2.13.1":
        pytest.skip(f"the rules are those of TensorFlow 2.13.1: found {tf_oracle.VERSION}")
    return tf_oracle


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@WHOLE_SPACE
@given(case=strategies.cases())
def test_the_oracle_is_tensorflow(tensorflow, case):
    arrays, out, out_grad, gradients = expected_once(case)
    if tensorflow.known_wrong(case, "float32") is None:
        assert_equal(tensorflow.forward(case, arrays, "float32"), out)
    if tensorflow.known_wrong(case, "float32", gradients=True) is None:
        terms = out.size // out.shape[1]
        assert_equal(tensorflow.gradients(case, arrays, out_grad, "float32"), gradients, terms=terms)


@WHOLE_SPACE
@given(strategies.cases(ops=[op for op in cases.OPS if op != "max_pool"]))
def test_the_gradients_of_the_oracle_are_differences(case):
    """Those of a maximum are too, but where elements are equal."""
    arrays, _, out_grad, gradients = expected_once(case)
    for name, array in arrays.items():
        step = 1e-6 * np.random.RandomState(5).standard_normal(array.shape)
        ends = [oracle.forward(case, {**arrays, name: array + sign * step}) for sign in (1, -1)]
        slope = np.sum((ends[0] - ends[1]) * out_grad) / 2e-6
        assert slope == pytest.approx(np.sum(gradients[name] * step) / 1e-6, rel=1e-5, abs=1e-4)
