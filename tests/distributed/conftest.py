"""Tests of examples/distributed, in the environment that its README makes, with pytest and pytest-xdist.

    python -m nox -s distributed
    python -m pytest tests/distributed     # where the environment is active

Without Ray nothing here is collected.
"""

import os
import sys
from importlib import util
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples" / "distributed"

if util.find_spec("ray") is None:
    collect_ignore_glob = ["*.py"]
else:
    sys.path[:0] = [str(EXAMPLES), str(HERE), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])  # of all processes that tests start
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("RAY_ADDRESS", None)


@pytest.fixture(scope="session")
def engine():
    """Ray, with CPUs for every test."""
    import cluster
    import ray

    cluster.start(cpus=6)
    yield
    ray.shutdown()
