"""What a release is made of: the sdist and the wheel that the packaging session has built, in the folder $MXSAME_DIST.

`python -m nox -s packaging` builds them.
"""

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import mxsame

DIST = os.environ.get("MXSAME_DIST")
ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not DIST, reason="there is no $MXSAME_DIST: python -m nox -s packaging")
LINK = re.compile(r"\]\(([^)]*)\)")
NEVER = re.compile(r"__pycache__|\.py[co]$|\.(hypothesis|pytest_cache|ruff_cache|mypy_cache|nox)/|_build/|_generated/")


@pytest.fixture(scope="module")
def wheel():
    (path,) = Path(DIST).glob("*.whl")
    assert path.name == f"mxsame-{mxsame.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist():
    (path,) = Path(DIST).glob("*.tar.gz")
    assert path.name == f"mxsame-{mxsame.__version__}.tar.gz"
    with tarfile.open(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    return email.message_from_bytes(wheel.read(f"mxsame-{mxsame.__version__}.dist-info/METADATA"))


def test_the_metadata_says_what_it_is(metadata):
    assert (metadata["Name"], metadata["Version"]) == ("mxsame", mxsame.__version__)
    assert metadata["License-Expression"] == "Apache-2.0 AND CC0-1.0"
    assert metadata["Requires-Python"] == ">=3.8"
    assert metadata["Description-Content-Type"] == "text/markdown"
    description, readme = metadata.get_payload(), (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [target for target in LINK.findall(description) if not target.startswith(("https:", "#"))]
    assert "```python\nimport mxsame" in description
    blocks = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    assert blocks.findall(description) == blocks.findall(readme)
    assert len(description.split()) > 0.9 * len(readme.split()), "a link leaves its text"


def test_the_classifiers_exist_and_agree_with_the_rest(metadata):
    classifiers = metadata.get_all("Classifier")
    known = pytest.importorskip("trove_classifiers", reason="pip install trove-classifiers").classifiers
    assert set(classifiers) <= known
    assert len(classifiers) == len(set(classifiers))
    pythons = [name.rsplit(" ", 1)[1] for name in classifiers if re.search(r":: Python :: 3\.\d+$", name)]
    assert pythons == [f"3.{minor}" for minor in range(8, 14)]
    assert not [name for name in classifiers if name.startswith("License ::")], "the expression says it"


def test_nothing_but_what_mxnet_needs_is_needed_without_an_extra(metadata):
    needed = [entry for entry in metadata.get_all("Requires-Dist") if "extra ==" not in entry]
    assert needed == ["numpy>=1.17", "requests>=2.20", "graphviz>=0.8.1"]
    assert not [entry for entry in metadata.get_all("Requires-Dist") if "mxnet" in entry], "it asks for NumPy 1"
    extras = {*metadata.get_all("Provides-Extra")}
    assert {"cu112", "cli", "test", "oracle", "onnx", "notebooks", "docs", "dev"} <= extras


def test_the_wheel_holds_the_package_its_data_and_the_licences(wheel):
    names = set(wheel.namelist())
    info = f"mxsame-{mxsame.__version__}.dist-info"
    files = [path for path in (ROOT / "mxsame").rglob("*") if path.is_file() and not NEVER.search(str(path))]
    source = {str(path.relative_to(ROOT)) for path in files}
    assert {name for name in names if name.startswith("mxsame/")} == source
    assert {"mxsame/py.typed", "mxsame/data/photograph.png", "mxsame/data/LICENSE-photograph.txt"} <= names
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/mxsame/data/LICENSE-photograph.txt"} <= names
    assert all(name.startswith(("mxsame/", info)) for name in names), "nothing else gets installed"
    assert b"mxsame = mxsame.cli:main" in wheel.read(f"{info}/entry_points.txt")


def test_the_sdist_holds_what_is_needed_to_build_and_to_test(sdist):
    prefix = f"mxsame-{mxsame.__version__}/"
    names = {name[len(prefix) :] for name in sdist.getnames()}
    tracked = ["git", "-C", str(ROOT), "ls-files"]
    files = subprocess.run(tracked, capture_output=True, text=True, check=True).stdout.split()
    assert set(files) - {".gitignore", "MANIFEST.in"} <= names
    assert not [name for name in names if NEVER.search(name)]


def test_what_is_tested_here_is_the_wheel():
    assert Path(sys.prefix) in Path(mxsame.__file__).parents
