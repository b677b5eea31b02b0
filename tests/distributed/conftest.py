"""Tests of examples/distributed and of its figures, in an environment of their own: requirements.txt.

    python -m nox -s distributed
    python -m pytest tests/distributed     # where the environment is active

Without Ray nothing here is collected. Every process of a test carries an environment variable with a number of its own,
so a test finds what it has left behind.
"""

import os
import sys
from importlib import util
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples" / "distributed"

if util.find_spec("ray") is None:
    collect_ignore_glob = ["*.py"]
else:
    collect_ignore = ["failing.py", "steps.py"]  # programs that tests start
    sys.path[:0] = [str(EXAMPLES), str(HERE), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])  # of all processes that tests start
    os.environ["OMP_NUM_THREADS"] = "1"
