"""Tests of files in other runtimes, in an environment of their own: requirements.txt.

    python -m nox -s runtimes

Without OpenVINO nothing here is collected.
"""

import sys
from importlib import util
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

if util.find_spec("openvino") is None:
    collect_ignore_glob = ["*.py"]
else:
    sys.path[:0] = [str(TESTS / "golden"), str(TESTS), str(TESTS.parent)]

    import pytest

    @pytest.fixture(scope="session")
    def recorded(tmp_path_factory):
        """As in tests/conftest.py, which pytest does not read for this folder."""
        import keras_recording

        return keras_recording.unpacked(tmp_path_factory.mktemp("recorded"))
