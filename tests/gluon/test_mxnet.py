"""MXNet 1.9.1's own unit tests: what passes with Gluon's layers and containers passes with mxsame's in their place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = os.environ.get("MXNET_SOURCE")
FILES = [
    *("contrib_control_flow", "dynamic_shape", "exc_handling", "gluon", "gluon_contrib", "gluon_estimator"),
    *("gluon_event_handler", "gluon_rnn", "gluon_trainer", "numpy_gluon", "subgraph_op"),
]
LONG = "test_slice_pooling2d"  # minutes, most of them for memory
DIFFERENT = {
    # Gluon refuses an array where the first call had None; here such calls have a graph of their own
    "test_hybrid_block_none_args"
}


def passed(name, folder, *plugins):
    """The tests of a file that pass, in a folder for what they write."""
    path = Path(SOURCE, "tests", "python", "unittest", f"test_{name}.py")
    options = ["-q", "-rp", "-p", "no:cacheprovider", "-k", f"not {LONG}", "-W", "ignore"]
    for plugin in plugins:
        options += ["-p", plugin]
    out = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent.parent}", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    ).stdout
    return set(re.findall(r"^PASSED .*::(\w+)", out, re.MULTILINE))


@pytest.mark.skipif(not SOURCE, reason="MXNET_SOURCE is not set: a checkout of apache/mxnet at tag 1.9.1")
@pytest.mark.parametrize("name", FILES)
def test_what_passes_with_gluon_s_layers_passes(name, tmp_path):
    theirs, ours = (passed(name, tmp_path, "no_downloads", *more) for more in ([], ["in_place"]))
    print(f"{name}: {len(theirs)} pass with Gluon's layers, {len(ours)} with mxsame's")
    assert theirs and theirs - ours <= DIFFERENT
