"""The README and the pages of the site: their Python runs and prints what its comments say, their commands print what
is below them, and their tables are those of the recorded figures."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from importlib import util
from pathlib import Path

import pytest
from test_imports import imported

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
KERAS_MXNET = ROOT / "docs" / "how-to" / "keras-mxnet.md"  # tests/keras_mxnet runs it, where there is a Keras
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not {"_build", "_generated"} & set(path.parts)]
OPTIONAL = {"onnx": "onnx", "onnxruntime": "onnx"}  # packages that a block may need, and the extra that brings them


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def said(block: str) -> list[str]:
    """What a block prints, by the comment after each print."""
    comments = re.findall(r"^print\(.*\)  # (.*?)(?:: .*)?$", block, re.MULTILINE)
    assert len(comments) == block.count("print("), f"a print without a comment that says what it prints:\n{block}"
    return comments


def run(path: Path, block: str, namespace: dict) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, str(path), "exec"), namespace)
    assert printed.getvalue().splitlines() == said(block)


def test_mxsame_is_imported_first():
    """NumPy 1.24 and newer fail MXNet otherwise; TensorFlow before MXNet is a segmentation fault."""
    for text in [*blocks(README, "python"), *("\n".join(blocks(path, "python")) for path in PAGES)]:
        packages = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
        before = packages[: packages.index("mxsame")] if "mxsame" in packages else packages
        assert not {"mxnet", "tensorflow"} & set(before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", blocks(README, "python"), ids=lambda block: block.split("\n")[-2][:40])
@pytest.mark.usefixtures("folder")
def test_a_block_of_the_readme_runs_by_itself(block):
    assert "print(" in block
    run(README, block, {})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's exporter and of protobuf
@pytest.mark.parametrize("path", [page for page in PAGES if blocks(page, "python") and page != KERAS_MXNET], ids=str)
@pytest.mark.usefixtures("folder")
def test_the_blocks_of_a_page_run_one_after_the_other(path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict = {}
    for block in blocks(path, "python"):
        if all(util.find_spec(package) for package in {name for name, *_ in imported(path, block)} & set(OPTIONAL)):
            run(path, block, namespace)


COMMANDS = [(path, block) for path in [README, *PAGES] for block in blocks(path, "console")]


@pytest.mark.parametrize(("path", "block"), COMMANDS, ids=[block.split("\n")[0] for _, block in COMMANDS])
def test_a_command_prints_the_output_below_it(path, block):
    testing = pytest.importorskip("click.testing", reason="click is not installed: pip install '.[cli]'")
    from mxsame.cli import main

    command, _, wanted = block.partition("\n")
    prompt, program, *arguments = shlex.split(command)
    assert (prompt, program) == ("$", "mxsame")
    result = testing.CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert result.output.rstrip() == wanted.rstrip()


# -- tables of figures


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds to it
    import tables

    return tables


def test_the_tables_of_pages_are_those_of_the_recorded_figures(tables):
    assert not tables.stale(), "python docs/tables.py writes them anew"
    shown = "".join(page.read_text(encoding="utf-8") for page in tables.PAGES)
    assert {name for _, name, _ in tables.MARKED.findall(shown)} == {*tables.TABLES, *tables.SENTENCES}


@pytest.mark.parametrize("name", ["parity", "parity-tensorflow"])
def test_the_recorded_parity_is_of_the_cases_and_the_ways_that_there_are(tables, name):
    import cases
    import parity

    recorded = tables.recorded(name)
    again = "python tests/parity.py --record, and the same with --tensorflow"
    assert recorded["cases"] == len(cases.CASES), again
    assert {row["way"] for row in recorded["rows"]} == set(parity.WAYS), again


# -- pictures


def test_the_pictures_of_plans_show_windows_where_they_are_wanted(monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[cli]'")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import pictures

    for name, rows in pictures.PLANS.items():
        assert (pictures.IMAGES / f"plan-{name}.png").is_file()
        for each in rows:
            pictures.row(*each)  # raises what is wrong
    assert max(path.stat().st_size for path in pictures.IMAGES.glob("*.png")) <= pictures.LARGEST


def test_the_pictures_of_results_show_what_is_recorded_now():
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install '.[cli]'")
    plots = pytest.importorskip("benchmarks.plots", reason="the folder benchmarks is not part of a source distribution")
    results = ROOT / "benchmarks" / "results"
    pictures = {picture: picture.with_suffix(".json") for picture in results.glob("*.png")}
    pictures[ROOT / "docs" / "images" / "speed.png"] = results / "networks.json"
    for picture, recorded in pictures.items():
        digest = plots.digest(json.loads(recorded.read_text(encoding="utf-8")))
        drawn = image.open(picture)
        assert drawn.text.get(plots.RESULT) == digest, f"{picture.name}: python -m benchmarks draw, docs/pictures.py"
        assert drawn.width <= 720, f"{picture.name} must be legible on a phone"
