"""Processes whose site-packages is a folder made for a case: links to real packages, and made-up ones."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import mxsame

PACKAGE = Path(mxsame.__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
NUMPY = ("numpy", "numpy.libs")


def make(folder, *links, files=()):
    """Site-packages with mxsame and the real packages of these names; ``files`` maps paths to contents."""
    for name in ("mxsame", *links):
        source = PACKAGE if name == "mxsame" else SITE / name
        if source.exists():  # numpy.libs is not there with every NumPy
            (folder / name).symlink_to(source)
    for name, text in dict(files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def mxnet(code, wheel="mxnet", version="1.9.1"):
    """An MXNet of this code, installed by this wheel."""
    return {"mxnet/__init__.py": code, f"{wheel.replace('-', '_')}-{version}.dist-info/METADATA": ""}


def run(path, *arguments, **environment):
    """Runs Python, which sees the standard library and ``path``, one folder or several, only."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_", "MXNET_"))}
    path = [path] if isinstance(path, Path) else path
    env.update(PYTHONPATH=os.pathsep.join(map(str, path)), PYTHONDONTWRITEBYTECODE="1", **environment)
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
