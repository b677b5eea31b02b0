"""Tests with code that others wrote for Gluon, in an environment of their own: requirements.txt.

    python -m nox -s gluon
    python -m pytest tests/gluon     # where the environment is active; MXNET_SOURCE as in noxfile.py

A run of other tests collects nothing here, even if GluonCV is installed.
"""

import os
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def is_of_this_folder(config):
    """Whether pytest was told this folder: only then does it read pytest.ini here."""
    return config.rootpath == Path(__file__).resolve().parent


def pytest_collection_modifyitems(config, items):
    """One test of eight each day, where days are counted: noxfile.py. Other runs keep their tests."""
    if "MXSAME_DAY" in os.environ and is_of_this_folder(config):
        items[:] = items[int(os.environ["MXSAME_DAY"]) % 8 :: 8]


def pytest_ignore_collect(config):
    return None if is_of_this_folder(config) else True
