"""The notebooks assert what they state, and are kept as they were run; the session `notebooks` of nox runs them."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def texts(notebook):
    """What a reader reads in the outputs."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            yield "".join(output.get("text", "")) + "".join(output.get("data", {}).get("text/plain", ""))


def test_a_run_changes_no_file_unless_it_is_asked_to(tmp_path, monkeypatch):
    pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[notebooks]'")
    import nbformat

    def executed(path):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="2\n")]
        return notebook

    path = tmp_path / "one.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1 + 1)")]), path)
    before = path.read_bytes()
    script = runpy.run_path(str(FOLDER / "run.py"))
    script["main"].__globals__.update(FOLDER=tmp_path, executed=executed)
    monkeypatch.setattr(sys, "argv", ["run.py", "one.ipynb"])
    script["main"]()
    assert path.read_bytes() == before
    sys.argv.append("--write")
    script["main"]()
    (cell,) = read(path)["cells"]
    assert cell["id"] == "cell-00" and cell["outputs"][0]["text"] == ["2\n"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs_and_says_nothing_of_a_machine(path):
    notebook = read(path)
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert all(output.get("name") != "stderr" for output in outputs)
    assert not [text for text in texts(notebook) if re.search(r"/(home|root|tmp|usr|work)/|0x[0-9a-f]{6}", text)]
    assert path.stat().st_size < 500_000
    (line,) = re.findall(r"^python -m pip .*$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"`{line}`" in "".join(notebook["cells"][0]["source"])
    sources = ["".join(cell["source"]) for cell in cells]
    assert sources[0].startswith("import mxsame") and sum(source.count("assert ") for source in sources) >= 3


def test_the_readme_lists_all():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((.*?\.ipynb)\)", readme) == [path.name for path in NOTEBOOKS]
    for path in NOTEBOOKS:
        links = re.findall(r"\]\(([^):]*\.(?:ipynb|md))\)", path.read_text(encoding="utf-8"))
        assert all((FOLDER / link).is_file() for link in links), path.name
