"""Runs the notebooks, or those that are named: `python notebooks/run.py 05-speed.ipynb`. No file is changed.

Their outputs must have the words, if not the numbers, of those in the files. With `--write` they are written into them;
what is written says nothing of the machine or the time. This needs the extra `notebooks`.
"""

import argparse
import re
import sys
import time
from pathlib import Path

try:
    import nbformat
    from nbclient import NotebookClient
except ImportError as error:
    sys.exit(f'notebooks/run.py needs the extra notebooks ({error}): {sys.executable} -m pip install ".[notebooks]"')

FOLDER = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
TIMEOUT = 300  # seconds, of one cell


def executed(path):
    """The notebook, run from the first cell to the last. Raises what a cell raises, and if a cell writes to stderr."""
    notebook = nbformat.read(path, as_version=4)
    quiet = ["--IPKernelApp.log_level=40"]  # it warns that local sockets are not encrypted
    options = {"timeout": TIMEOUT, "kernel_name": "python3", "record_timing": False, "extra_arguments": quiet}

    def report(cell, cell_index):
        print(f"\r{path.name}: cell {cell_index + 1} of {len(notebook.cells)} ", end="", file=sys.stderr, flush=True)

    if sys.stderr.isatty():
        options["on_cell_start"] = report
    NotebookClient(notebook, resources={"metadata": {"path": FOLDER}}, **options).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    written = [output.text for output in outputs if output.get("name") == "stderr"]
    if written:
        raise RuntimeError(f"{path.name} wrote to stderr: {written[0]}")
    return notebook


def words(notebook):
    """The words that its cells have printed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return {word for output in outputs for word in re.findall(r"[A-Za-z_]{2,}", output.get("text", ""))}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a notebook of this folder; all by default")
    parser.add_argument("--write", action="store_true", help="write the outputs into the notebooks")
    options = parser.parse_args()
    notebooks = {path.name: path for path in sorted(FOLDER.glob("*.ipynb"))}
    for name in options.names:
        if name not in notebooks:
            parser.error(f"NAME must be one of {', '.join(notebooks)}; received {name}")
    for path in [notebooks[name] for name in options.names or notebooks]:
        began = time.perf_counter()
        notebook = executed(path)
        others = words(notebook) ^ words(nbformat.read(path, as_version=4))
        if options.write:
            nbformat.write(cleaned(notebook), path)
        elif others:
            sys.exit(f"{path.name} must print the words that it holds, as --write writes them; {sorted(others)} differ")
        print(f"{path.name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
