"""Tests of the plugin inside keras-mxnet, in an environment of their own: requirements.txt.

    python -m nox -s keras_mxnet
    python -m pytest tests/keras_mxnet     # where the environment is active

Without keras-mxnet nothing here is collected; tests/test_keras_plugin.py tests what a user gets then.
"""

import atexit
import os
import shutil
import sys
import tempfile
from importlib import util
from pathlib import Path

HERE = Path(__file__).resolve().parent

keras = util.find_spec("keras")
HAS_KERAS_MXNET = keras is not None and (Path(keras.origin).parent / "backend" / "mxnet_backend.py").is_file()

if not HAS_KERAS_MXNET:
    collect_ignore_glob = ["*.py"]
else:
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]  # the oracle; mxsame of this checkout
    os.environ["KERAS_BACKEND"] = "mxnet"
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    else:  # Keras writes its settings there; the workers inherit the folder
        os.environ["KERAS_HOME"] = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, os.environ["KERAS_HOME"], ignore_errors=True)

    import pytest

    from mxsame.keras import plugin

    @pytest.fixture(autouse=True)
    def nothing_left_behind():
        """Every test starts and ends without the plugin, in the same learning phase."""
        from keras import backend

        before = backend.learning_phase(), backend.image_data_format()
        yield
        plugin.uninstall()
        after = backend.learning_phase(), backend.image_data_format()
        backend.set_learning_phase(before[0])
        backend.set_image_data_format(before[1])
        assert after == before
