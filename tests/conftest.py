"""What every test process does first: threads, order of imports, noise, hypothesis profiles, skips with a reason."""

import faulthandler
import gc
import importlib.util
import os
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; MXNet reads this when it is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # without it Conv3D with SAME starts late where strides > kernel

# Scripts that record, and that measure, which tests import.
sys.path.extend([str(Path(__file__).parent / "golden"), str(Path(__file__).parents[1])])

from mxsame import _mxnet  # before any test module can import TensorFlow, which is refused in the other order
from mxsame.graphs import hybridize

settings.register_profile("default", max_examples=60, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None)
settings.register_profile("deep", max_examples=50_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))  # --hypothesis-profile=... wins over it

TENSORFLOWS = [each.version for each in metadata.distributions(name="tensorflow-cpu")]  # another cannot be the oracle
TENSORFLOWS += [each.version for each in metadata.distributions(name="tensorflow")]
HAS_ORACLE = any(version.startswith("2.13.") for version in TENSORFLOWS)
NEEDED_BY_EXAMPLE = {"mxsame.onnx.export.export_onnx": ("onnx", "onnxruntime")}  # packages, by the docstring's name

STDERR = pytest.StashKey[int]()
collect_ignore = ["golden", "tf_oracle.py"]  # not tests: scripts and helpers that need TensorFlow, no doctests there


def pytest_configure(config):
    """The stderr of the process, which tests have no part in."""
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test that hangs prints the stacks of all threads and ends the process, so that a run ends, and names it."""
    is_short = item.config.option.markexpr.startswith("not (heavy") and item.path.parent.name in ("tests", "port")
    faulthandler.dump_traceback_later(300 if is_short else 3600, exit=True, file=item.config.stash[STDERR])
    result = yield
    faulthandler.cancel_dump_traceback_later()  # a worker may wait for others
    return result


def pytest_collection_modifyitems(items):
    """Skips what this machine cannot run, and says why."""
    reasons = {
        "oracle": not HAS_ORACLE and 'TensorFlow 2.13 is not installed (Python 3.11: pip install ".[oracle]")',
        "keras": not TENSORFLOWS and 'TensorFlow is not installed (Python 3.11: pip install ".[oracle]")',
        "gpu": _mxnet.mx.context.num_gpus() == 0 and "MXNet finds no NVIDIA GPU",
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
        if isinstance(item, pytest.DoctestItem):
            missing = [name for name in NEEDED_BY_EXAMPLE.get(item.name, ()) if importlib.util.find_spec(name) is None]
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{missing[0]} is not installed: pip install '.[onnx]'"))


def pytest_collection_finish():
    """What was made up to now stays to the end: no garbage collection looks at it again, which would take seconds."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _the_same_random_numbers():
    """Whatever tests ran before, and in which process."""
    _mxnet.mx.random.seed(0)
    np.random.seed(0)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Keras -> (folder of its recorded files, key -> array), of Keras 2 and 3."""
    import keras_recording

    return keras_recording.unpacked(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def a_graph_at_the_first_call(monkeypatch):
    """For tests of the graphs of signatures, which a signature otherwise gets at its eighth call."""
    monkeypatch.setattr(hybridize.GraphCache, "COMPILING_CALL", 1)
