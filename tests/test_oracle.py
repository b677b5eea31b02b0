"""The NumPy oracle against TensorFlow (recorded and live), finite differences and numbers worked out by hand.

Tolerance: right results differ from float32 TensorFlow by about 1e-6 of their scale, results with a shifted window by
0.09 and more.  A value may be off by 1e-4 of itself plus 1e-4 of the array's root mean square (at least 1).
"""

from __future__ import annotations

import cases
import numpy as np
import oracle
import pytest
from cases import CASES, CONCRETE, IN_TENSORFLOW, Case
from golden import make

GOLDEN = make.load()


def by_name(table):
    return pytest.mark.parametrize("case", table, ids=lambda case: case.name)


def assert_close(actual, expected, tolerance=1e-4):
    actual, expected = np.asarray(actual), np.asarray(expected, dtype=np.float64)
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.sqrt(np.mean(np.square(expected)))))
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)


# ---- recorded TensorFlow ---------------------------------------------------------------------------------------------


@by_name(IN_TENSORFLOW)
def test_recorded_forward(case):
    out = oracle.forward(case, cases.arrays(case))
    assert out.shape == tuple(GOLDEN[f"{case.name}/shape"])
    assert make.checksum(case, out.shape) == GOLDEN[f"{case.name}/checksum"], "the inputs are not the recorded ones"
    assert_close(make.sample(out), GOLDEN[f"{case.name}/forward"])


@by_name([case for case in CASES if f"{case.name}/gradient/data" in GOLDEN])
def test_recorded_gradients(case):
    arrays = cases.arrays(case)
    out_grad = cases.output_gradient(case, GOLDEN[f"{case.name}/shape"])
    gradients = oracle.gradients(case, arrays, out_grad)
    assert set(gradients) == set(arrays)
    for name, gradient in gradients.items():
        assert gradient.shape == arrays[name].shape
        assert_close(make.sample(gradient), GOLDEN[f"{case.name}/gradient/{name}"])


def test_all_but_known_gradients_are_recorded():
    left_out = [case for case in IN_TENSORFLOW if f"{case.name}/gradient/data" not in GOLDEN]
    assert all(case.rank == 3 and case.padding == "same" for case in left_out)
    assert len(left_out) <= 12
    recorded = {key.split("/")[0] for key in GOLDEN if "/" in key} - {"keras"}
    assert recorded == {case.name for case in IN_TENSORFLOW}


@by_name([case for case in CONCRETE if f"keras/{case.name}/shape" in GOLDEN])
def test_recorded_keras_layers(case):
    arrays = cases.arrays(case)
    out = oracle.forward(case, arrays)
    assert out.shape == tuple(GOLDEN[f"keras/{case.name}/shape"])
    assert_close(make.sample(out), GOLDEN[f"keras/{case.name}/output"])
    parameters = sum(array.size for name, array in arrays.items() if name != "data")
    assert parameters == GOLDEN[f"keras/{case.name}/parameters"]


# ---- the mathematics -------------------------------------------------------------------------------------------------


@by_name([case for case in CASES if case.values != "ties"])
def test_gradients_are_finite_differences(case):
    arrays = cases.arrays(case)
    out_grad = cases.output_gradient(case, (case.batch, case.out_channels, *oracle.output_size(case)))
    gradients = oracle.gradients(case, arrays, out_grad)
    stream = np.random.Generator(np.random.PCG64(5))
    for name, array in arrays.items():
        step = 1e-6 * stream.standard_normal(array.shape)
        up = oracle.forward(case, {**arrays, name: array + step})
        down = oracle.forward(case, {**arrays, name: array - step})
        slope = np.sum((up - down) * out_grad) / 2e-6
        assert slope == pytest.approx(np.sum(gradients[name] * step) / 1e-6, rel=1e-6, abs=1e-5)


@by_name(CASES)
def test_sizes(case):
    assert len(set(case.sizes)) == len(case.sizes) >= 6 and case.sizes[0] == case.size
    for size in case.sizes:
        arrays = cases.arrays(case, size)
        out = oracle.forward(case, arrays)
        assert out.shape == (case.batch, case.out_channels, *oracle.output_size(case, size))
        assert np.isfinite(out).all()
        for name, array in cases.arrays(case).items():
            assert name == "data" or np.array_equal(array, arrays[name])


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("s", range(1, 6))
def test_same_pads_by_remainder(k, s):
    """P = max(ke - s, 0) if s divides n, else max(ke - n mod s, 0): the second form of the rule."""
    for n in range(1, 41):
        for d in (1, 2, 3):
            extent = (k - 1) * d + 1
            total = max(extent - (n % s or s), 0)
            case = Case("conv", (n,), (k,), (s,), dilation=(d,))
            assert oracle.pads(case) == ((total // 2, total - total // 2),)
            assert oracle.output_size(case) == (-(-n // s),)


def test_max_pool_gradient_of_a_tie_goes_to_the_first_cell():
    case = Case("max_pool", (2, 3), (2, 2), batch=1, in_channels=1)
    gradient = oracle.gradients(case, {"data": np.zeros((1, 1, 2, 3))}, np.array([[[[1.0, 2, 4], [8, 16, 32]]]]))
    assert gradient["data"].tolist() == [[[[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]]]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("conv", (4,), (5,), padding="valid"), "larger than the padded input"),
        (Case("conv", (4,), (3,), padding=((0, 0),), dilation=(2,)), "larger than the padded input"),
        (Case("conv", (4,), (3,), padding=((-1, 2),)), "must not be negative"),
        (Case("conv", (4, 5), (3, 3), padding="causal"), "1-D convolutions only"),
        (Case("max_pool", (4,), (3,), padding="causal"), "1-D convolutions only"),
        (Case("conv_transpose", (4,), (3,), padding="causal"), "1-D convolutions only"),
        (Case("max_pool", (4,), (2,), padding=((2, 0),)), "without any cell"),
        (Case("avg_pool", (9,), (2,), (3,), padding="valid", ceil_mode=True), "without any cell"),
        (Case("conv_transpose", (4,), (3,), (2,), output_padding=(2,)), "output_padding must be in"),
        (Case("conv_transpose", (4,), (4,), (2,), output_padding=(0,)), "does not give 4"),
        (Case("conv_transpose", (4,), (3,), (1,), output_padding=(1,)), "output_padding must be in"),
        (Case("conv_transpose", (1,), (3,), padding=((2, 1),)), "nothing is left"),
        (Case("conv", (4,), (3,), (2,), output_padding=(1,)), "for transposed convolutions"),
        (Case("conv", (6,), (1,), (3,), padding="keras-mxnet"), "negative pad"),
        (Case("avg_pool", (6,), (2,), padding="keras-mxnet"), "count padding"),
        (Case("conv_transpose", (4,), (2,), (3,), padding="keras-mxnet"), "cannot make 12"),
        (Case("conv_transpose", (4,), (4,), (1,), padding="keras-mxnet"), "cannot make 4"),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_refusals(case, message):
    with pytest.raises(ValueError, match=message):
        oracle.output_size(case)
    assert not oracle.is_legal(case)


# ---- live TensorFlow -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tf_oracle():
    """Imported late: every test module that needs MXNet has imported it by now, and MXNet has to be first."""
    tf_oracle = pytest.importorskip("tf_oracle", reason="live TensorFlow is the extra 'oracle' (2.13.1, Python 3.11)")
    if tf_oracle.VERSION != "2.13.1":
        pytest.skip(f"the rules are those of TensorFlow 2.13.1: found {tf_oracle.VERSION}")
    return tf_oracle


def compare_live(tf_oracle, case, dtype, size=None):
    """Number of comparisons that TensorFlow could judge."""
    tolerance = 1e-4 if dtype == "float32" else 1e-9
    arrays = cases.arrays(case, size)
    judged = 0
    if tf_oracle.known_wrong(case, dtype, size=size) is None:
        assert_close(tf_oracle.forward(case, arrays, dtype), oracle.forward(case, arrays), tolerance)
        judged += 1
    if tf_oracle.known_wrong(case, dtype, gradients=True, size=size) is None:
        out_grad = cases.output_gradient(case, (case.batch, case.out_channels, *oracle.output_size(case, size)))
        expected = oracle.gradients(case, arrays, out_grad)
        actual = tf_oracle.gradients(case, arrays, out_grad, dtype)
        for name, gradient in expected.items():
            assert_close(actual[name], gradient, tolerance)
        judged += 1
    return judged


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@by_name(IN_TENSORFLOW)
def test_live(tf_oracle, case, dtype):
    if not compare_live(tf_oracle, case, dtype):
        pytest.skip(tf_oracle.known_wrong(case, dtype))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@by_name(IN_TENSORFLOW)
def test_live_other_sizes(tf_oracle, case):
    judged = sum(compare_live(tf_oracle, case, "float32", size) for size in case.sizes[1:])
    assert judged, "no size that TensorFlow can judge"


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_live_whole_space(tf_oracle):
    hypothesis = pytest.importorskip("hypothesis")
    import strategies

    @hypothesis.given(strategies.cases())
    def compare(case):
        compare_live(tf_oracle, case, "float32")

    compare()
