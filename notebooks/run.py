"""Runs the notebooks and writes their outputs into them: `python notebooks/run.py`, or with the names of some.

What is written says nothing of the machine or the time. Needs the extra `notebooks`.
"""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
TIMEOUT = 300  # seconds, of one cell


def executed(path):
    """The notebook, run from the first cell to the last; raises where a cell does."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", record_timing=False, resources={"metadata": {"path": FOLDER}}
    )
    return client.execute()


def cleaned(notebook):
    """With outputs, and without what depends on who ran it: versions, times, identifiers."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        cell.metadata = {}
        if cell.cell_type == "code":
            for output in cell.outputs:
                output.pop("metadata", None)
                if output.output_type in ("display_data", "execute_result"):
                    output.metadata = {}
    return notebook


def main(names):
    for path in [FOLDER / name for name in names] or sorted(FOLDER.glob("*.ipynb")):
        began = time.perf_counter()
        nbformat.write(cleaned(executed(path)), path)
        print(f"{path.name}: {time.perf_counter() - began:.0f} s, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
