"""The whole space, drawn by hypothesis: operators, graphs and strategies against the oracle, forward and gradients;
and the oracle against TensorFlow.

60 examples a test by default; `--hypothesis-profile=ci` draws 500 and `deep` 50,000.
"""

import cases
import numpy as np
import oracle
import pytest
import strategies
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from running import assert_equal, expected_once
from ways import WAYS, check

WHOLE_SPACE = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], print_blob=True)


def some_size_has_an_empty_window(case):
    """With ceil_mode and explicit pads the last window of a pooling layer may have no element: a graph for every size
    must refuse it."""
    sizes = [tuple(8 * s + residue for s in case.strides) for residue in range(max(case.strides))]
    return case.ceil_mode and not all(oracle.is_legal(case, size) for size in sizes)


def may_refuse(case, way, message):
    """Whether there is a reason for the refusal."""
    dynamic = way.startswith(("symbol, dynamic", "net.hybridize"))
    if "keras-mxnet cannot run every size" in message:
        return dynamic and case.padding == "keras-mxnet"
    assert "ceil_mode must leave each window an element of the data" in message
    return dynamic and some_size_has_an_empty_window(case)


all_cases = strategies.cases() | strategies.cases(paddings=("keras-mxnet",))
ways, types = st.sampled_from(list(WAYS)), st.sampled_from(["float32", "float64"])


@WHOLE_SPACE
@given(all_cases, ways, types, st.booleans())
def test_every_way(case, way, dtype, last):
    assume(case.op != "conv_transpose" or way != "symbol, input_size")
    try:
        check(case, way, dtype, last, expected=expected_once)
    except ValueError as error:
        assert may_refuse(case, way, str(error)), error


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
