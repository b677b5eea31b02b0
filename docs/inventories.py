"""Names in the documentation of Python, NumPy and MXNet that the site links to, as inventories for intersphinx.

The site is built without the network, and these projects' own inventories hold thousands of names. So the few that
are needed are listed here, with the pages on which these projects have them; `write` makes Sphinx's files of them. Add
a name here to link to it; `tests/test_documents.py` checks that Python, NumPy and MXNet 1.9.1 have it.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Dict, Tuple

GENERATED = Path(__file__).resolve().parent / "_generated"
ERRORS = ("ImportError", "OSError", "RuntimeError", "TypeError", "ValueError")
GLUON_LAYERS = [
    *("Sequential", "HybridSequential", "Dense", "BatchNorm"),
    *(f"Conv{rank}D{kind}" for kind in ("", "Transpose") for rank in (1, 2, 3)),
    *(f"{kind}Pool{rank}D" for kind in ("Max", "Avg") for rank in (1, 2, 3)),
]
PROJECTS: Dict[str, Tuple[str, Dict[str, str]]] = {  # the address, and the page and kind of each name
    "python": (
        "https://docs.python.org/3/",
        dict.fromkeys(ERRORS, "library/exceptions.html exception"),
    ),
    "numpy": (
        "https://numpy.org/doc/1.26/",
        {
            "numpy.ndarray": "reference/generated/numpy.ndarray.html class",
            "numpy.dtype": "reference/generated/numpy.dtype.html class",
        },
    ),
    "mxnet": (
        "https://mxnet.apache.org/versions/1.9.1/api/python/docs/api/",
        {
            "mxnet.ndarray.NDArray": "ndarray/ndarray.html class",
            "mxnet.symbol.Symbol": "symbol/symbol.html class",
            "mxnet.gluon.Block": "gluon/block.html class",
            "mxnet.gluon.HybridBlock": "gluon/hybrid_block.html class",
            "mxnet.gluon.HybridBlock.export": "gluon/hybrid_block.html method",
            "mxnet.gluon.SymbolBlock": "gluon/symbol_block.html class",
            **{f"mxnet.gluon.nn.{layer}": "gluon/nn/index.html class" for layer in GLUON_LAYERS},
        },
    ),
}


def write(folder: Path = GENERATED) -> Dict[str, Tuple[str, str]]:
    """A file for each project; what `intersphinx_mapping` is to be."""
    folder.mkdir(exist_ok=True)
    mapping = {}
    for project, (address, names) in PROJECTS.items():
        lines = []
        for name, location in names.items():
            page, kind = location.split()
            lines.append(f"{name} py:{kind} 1 {page}#$ -\n")
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n# Compressed with zlib:\n"
        path = folder / f"{project}.inv"
        path.write_bytes(head.encode() + zlib.compress("".join(lines).encode()))
        mapping[project] = (address, str(path))
    return mapping
