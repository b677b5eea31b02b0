"""Tests with code that others wrote for Gluon, in an environment of their own: requirements.txt.

    python -m nox -s gluon
    python -m pytest tests/gluon     # where the environment is active; MXNET_SOURCE as in noxfile.py

Without GluonCV nothing here is collected.
"""

import os
import sys
from importlib import util
from pathlib import Path

HERE = Path(__file__).resolve().parent

if util.find_spec("gluoncv") is None:
    collect_ignore_glob = ["*.py"]
else:
    sys.path[:0] = [str(HERE), str(HERE.parent.parent)]  # mxsame of this checkout
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
