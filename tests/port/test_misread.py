"""Models whose meaning is easily misread, live against tf.keras: files of both formats are exact in every way, or are
refused by the name of a layer; which of the two is in models.txt."""

from collections import Counter

import live_keras  # before TensorFlow
import numpy as np
import pytest
import running
from expressions import MODELS, keras, model_of, outcome, saved
from live_keras import check_weights_go_back
from mxnet import gluon, nd
from random_expressions import check
from running import of_the_day

import mxsame

pytestmark = pytest.mark.oracle


def rows(outcome):
    return [pytest.param(line, outcome, id=line) for line in MODELS[outcome]]


@pytest.mark.filterwarnings("ignore:layer .* does nothing here")
@pytest.mark.parametrize(("line", "wanted"), [*rows("exact"), *rows("refused")])
def test_a_model_is_exact_or_refused(line, wanted, tmp_path):
    keras().backend.clear_session()
    model, arrays = model_of(line)
    endings = [".keras"] if "[.keras]" in line else [".h5", ".keras"]
    assert [outcome(model, arrays, path) for path in saved(model, tmp_path, endings)] == [wanted] * len(endings)
    if wanted == "exact" and "frozen(" not in line:  # whose order in such files depends on what is frozen there
        check_weights_go_back(mxsame.from_keras(model), model, tmp_path / "back.h5")


EACH = 20  # of them in a test
HEAVY = [pytest.param(first, marks=pytest.mark.heavy) for first in of_the_day(range(100, 5_100, EACH), 16)]


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("first", [*range(0, 100, EACH), *HEAVY])
def test_random_models_are_exact_or_refused(first, images):
    found = Counter(check(seed, images) for seed in range(first, first + EACH))
    assert found["exact"] > EACH // 3, found


# ---- types -----------------------------------------------------------------------------------------------------------


def outputs_of(net, given, path):
    """Imperative, deployed, from files, and hybridized, as a part of another block, too."""
    deployed, parent = mxsame.deploy(net, given.shape), gluon.nn.HybridSequential()
    parent.add(net)
    files = [running.from_files(deployed, path), *(running.from_files(net, path, size) for size in (None, given.shape))]
    yield from [run(given) for run in (net, deployed, *files)]
    for hybridize in (lambda block: block.hybridize(), mxsame.hybridize):
        for block in (parent, net):
            hybridize(block)
            yield block(given)


def check_outputs(net, given, wanted, path):
    """Of the type that MXNet has for Keras's; integers bit for bit."""
    for outputs in outputs_of(net, given, path):
        outputs = live_keras.arrays_of(outputs)
        assert len(outputs) == len(wanted)
        for out, want in zip(outputs, wanted):
            assert out.dtype == (np.float32 if want.dtype == bool or want.dtype.itemsize < 4 else want.dtype)
            if want.dtype.kind == "f":
                live_keras.compare([out], [want], 1e-6)
            else:
                np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("line", MODELS["exact types"])
def test_types_are_exact(line, tmp_path):
    model, (x,) = model_of(line)
    given = nd.array(x, dtype="float32" if x.dtype == bool else x.dtype)
    check_outputs(mxsame.from_keras(model), given, live_keras.expected(model, [x]), tmp_path)


@pytest.mark.parametrize("line", MODELS["of floats"])
def test_a_model_of_floats_takes_arrays_of_another_type(line, tmp_path):
    model, (x,) = model_of(line)
    x = np.round(abs(x) * 100) % 200
    wanted = live_keras.expected(model, [x.astype("float32")])
    for dtype in ("uint8", "int64"):
        check_outputs(mxsame.from_keras(model), nd.array(x, dtype=dtype), wanted, tmp_path)
    got = mxsame.from_keras(model)(nd.array(x, dtype="float64"))
    live_keras.compare(live_keras.arrays_of(got), wanted, 1e-6)


@pytest.mark.parametrize("line", MODELS["refused types"])
def test_types_are_refused(line):
    model, _ = model_of(line)
    with pytest.raises(ValueError, match=r"type|must be supported|floats|must be a constant"):
        mxsame.from_keras(model)
