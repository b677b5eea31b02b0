"""The notebooks assert what they state, and are kept as they were run; the session `notebooks` of nox runs them."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_as_it_was_run(path):
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output.get("name") != "stderr" for output in outputs)
    for output in outputs:  # which say nothing of a machine
        text = "".join([*output.get("text", ""), *output.get("data", {}).get("text/plain", "")])
        assert not re.search(r"/(home|root|tmp|usr|work)/|0x[0-9a-f]{6}", text)
    sources = ["".join(cell["source"]) for cell in cells]
    assert sources[0].startswith("import mxsame") and sum(source.count("assert ") for source in sources) >= 3
