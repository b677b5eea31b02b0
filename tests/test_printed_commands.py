"""The commands that messages print work one after the other, in an environment with only MXNet; and the pages of the
site, in the environment that they tell the reader to make."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_documents import KERAS_MXNET, PAGES, blocks, said

ROOT = Path(__file__).parent.parent
INSTALL = ROOT / "docs" / "install.md"
pytestmark = pytest.mark.heavy
PRINTED = re.compile(r"fix it with: (.+? -m pip install .+?)(?:, or, for .*)?$", re.MULTILINE | re.IGNORECASE)
MOST_COMMANDS = 3  # until it works


def made(folder, command):
    """The programs of a fresh virtual environment after a command in a copy of the checkout."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    source = folder / "source"  # setuptools leaves a folder in what it builds
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "__pycache__"))
    shell(folder / "venv" / "bin", command, source)
    return folder / "venv" / "bin"


def shell(programs, command, folder):
    """What a command prints, in a folder and an environment."""
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "MPLBACKEND": "Agg"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.returncode, f"{command}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The Python of an environment with mxsame and MXNet, and nothing else that an extra brings."""
    command = "python -m pip install . && python -m pip install --no-deps mxnet==1.9.1"
    return made(tmp_path_factory.mktemp("environment"), command) / "python"


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


def test_a_page_works_in_the_environment_that_it_tells_to_make(tmp_path):
    """Its Python and its `mxsame` commands, after the command of install.md with the extras that the page names."""
    install, *_ = blocks(INSTALL, "sh")
    programs = {}
    for page in PAGES:
        python = "" if page == KERAS_MXNET else "".join(blocks(page, "python"))
        commands = "".join(block for block in blocks(page, "sh") if block.startswith("mxsame "))
        if not python + commands:
            continue
        (extras,) = re.findall(r"with the extras? (.+?)\.", page.read_text(encoding="utf-8")) or ["`cli` and `keras`"]
        command = re.sub(r"\[.*?\]", f"[{','.join(re.findall(r'`(.+?)`', extras))}]", install)
        folder = tmp_path / page.stem
        folder.mkdir()
        if command not in programs:
            programs[command] = made(tmp_path / f"environment{len(programs)}", command)
        (folder / "page.py").write_text(python, encoding="utf-8")
        assert shell(programs[command], "python page.py", folder).splitlines() == said(python), page.name
        shell(programs[command], commands, folder)
