"""Runs keras-mxnet's own tests without the plugin and with it, and reports what changed.

    python tests/keras_mxnet/upstream.py CHECKOUT     # of https://github.com/awslabs/keras-apache-mxnet

Tests of convolutions and pooling run even where keras-mxnet skips them. Exits with 1 if a test that passed fails with
the plugin. The tests are copied out of the checkout, so that they import the Keras that is installed.
"""

import argparse
import collections
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
SUBJECT = {  # file -> which of its tests
    "keras/layers/convolutional_test.py": "conv",
    "keras/layers/pooling_test.py": "",
    "keras/backend/backend_test.py": "conv or pool",
}
AROUND = (
    "keras/layers/convolutional_recurrent_test.py",
    "keras/layers/wrappers_test.py",
    "keras/layers/core_test.py",
    "keras/backend/mxnet_operator_test.py",
    "keras/test_sequential_model.py",
    "test_model_saving.py",
)


def pytest_configure():
    """As a plugin of pytest: installs mxsame's."""
    if os.environ.get("UPSTREAM_PLUGIN") == "with":
        from mxsame.keras import plugin

        plugin.install()


def pytest_collection_modifyitems(items):
    """As a plugin of pytest: takes the skips away, if asked to."""
    if os.environ.get("UPSTREAM_SKIPS") == "ignored":
        for item in items:
            for node in item.listchain():
                node.own_markers = [mark for mark in node.own_markers if mark.name != "skipif"]


def outcomes(tests, files, which, plugin, skips):
    """Test -> "passed", "failed" or "skipped"."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        (Path(folder) / "empty.ini").write_text("[pytest]\n")
        environment = {
            **os.environ,
            "KERAS_BACKEND": "mxnet",
            "KERAS_HOME": folder,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent)]),
            "MXNET_SUBGRAPH_VERBOSE": "0",
            "UPSTREAM_PLUGIN": plugin,
            "UPSTREAM_SKIPS": skips,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "upstream", "-p", "no:cacheprovider", "-n", "2"]
        command += ["-c", str(Path(folder) / "empty.ini"), f"--rootdir={tests}", f"--junitxml={report}", "-W", "ignore"]
        command += [*(["-k", which] if which else []), *(str(tests / file) for file in files)]
        subprocess.run(command, env=environment, cwd=str(tests), stdout=subprocess.DEVNULL, check=False)
        found = {}
        for case in ElementTree.parse(str(report)).iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            found[f"{case.get('classname')}::{case.get('name')}"] = outcome
        return found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder) / "tests"
        shutil.copytree(str(checkout / "tests"), str(tests))
        groups = [([file], which, "ignored") for file, which in SUBJECT.items()] + [(list(AROUND), "", "kept")]
        broken = 0
        for files, which, skips in groups:
            without = outcomes(tests, files, which, "without", skips)
            with_plugin = outcomes(tests, files, which, "with", skips)
            print(f"\n{' '.join(files)} (skips {skips})")
            changes = collections.Counter(
                (without.get(test, "missing"), with_plugin.get(test, "missing"))
                for test in sorted({*without, *with_plugin})
            )
            for (before, after), count in sorted(changes.items()):
                print(f"  {before:>7} without, {after:>7} with: {count}")
            for test in sorted({*without, *with_plugin}):
                before, after = without.get(test, "missing"), with_plugin.get(test, "missing")
                broken += before == "passed" != after
                if before != after or after == "failed":
                    print(f"    {test}: {before} -> {after}")
    print(f"\n{broken} tests that passed without the plugin do not pass with it")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
