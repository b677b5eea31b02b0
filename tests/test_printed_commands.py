"""The commands that messages print work one after the other, in an environment with only MXNet."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.heavy
PRINTED = re.compile(r"fix it with: (.+? -m pip install .+?)(?:, or, for .*)?$", re.MULTILINE | re.IGNORECASE)
MOST_COMMANDS = 3  # until it works


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A fresh virtual environment with mxsame and MXNet, and nothing else that an extra brings."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    source = folder / "source"  # setuptools leaves a folder in what it builds
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "__pycache__"))
    python = folder / "venv" / "bin" / "python"
    for what in ([str(source)], ["--no-deps", "mxnet==1.9.1"]):
        subprocess.run([python, "-m", "pip", "install", "-q", *what], check=True)
    return python


CONVERT = "convert sample:digits -o digits"


@pytest.mark.parametrize("command", [CONVERT, f"{CONVERT}.onnx --shape conv2d_input=1,8,8,1", "demo"])
def test_what_a_message_prints_works(environment, tmp_path, command):
    wanted = [environment, "-m", "mxsame", *shlex.split(command)]
    for _ in range(MOST_COMMANDS + 1):
        done = subprocess.run(wanted, cwd=tmp_path, capture_output=True, text=True)
        if not done.returncode:
            break
        (printed,) = PRINTED.findall(done.stderr + done.stdout) or [None]
        assert printed, f"no command in: {done.stderr[-2000:]}"
        subprocess.run(shlex.split(printed), check=True, cwd=tmp_path)
    assert not done.returncode, done.stderr[-2000:]
    checked = subprocess.run([environment, "-m", "pip", "check"], capture_output=True, text=True).stdout
    assert not re.sub(r"^mxnet 1\.9\.1 has requirement (numpy|graphviz)<.*\n|^No broken .*\n", "", checked, flags=re.M)
