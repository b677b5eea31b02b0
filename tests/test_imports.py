"""The direction of imports inside the package, read from the source: what a part may import is in one table."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mxsame"

# padding <- plan <- planner <- ops <- nn <- port; rewriting, timing <- graphs <-> cudnn_only, a plug-in; graphs <- nn;
# graphs, rewriting <- onnx; ops <- keras; validation is a leaf; installation is a leaf, and it alone imports MXNet.
PURE = {"validation", "padding"}
CORE = PURE | {"building", "measured", "plan", "planner", "_mxnet", "_gluon", "tensors"}
LIBRARY = CORE | {"ops", "nn", "keras", "graphs", "onnx", "port", "drawing"}
MAY_IMPORT = {
    "installation": set(),
    "_mxnet": {"installation"},
    "validation": set(),
    "padding": {"validation"},
    "drawing": PURE,
    "building": set(),
    "plan": PURE | {"building"},
    "measured": {"plan", "validation"},
    "planner": {"building", "measured", "plan"},
    "_gluon": {"_mxnet"},
    "tensors": {"building", "planner", "validation", "_mxnet"},
    "ops": CORE,
    "nn": CORE | {"graphs", "ops"},
    "keras": CORE | {"ops", "installation"},
    "rewriting": {"_mxnet", "building", "tensors"},
    "_timing": {"_mxnet"},
    "graphs": CORE | {"rewriting", "_timing", "cudnn_only"},
    "cudnn_only": {"_mxnet", "graphs", "installation", "rewriting"},
    "onnx": CORE | {"graphs", "rewriting"},
    "port": CORE | {"ops", "nn", "keras", "rewriting"},
    "__init__": LIBRARY | {"installation"},
    "_symmetric": PURE,
    "demo": LIBRARY | {"__init__", "_gluon", "_symmetric"},
    "bench": LIBRARY | {"__init__", "_gluon", "_symmetric", "_timing", "installation"},
    "doctor": LIBRARY | {"__init__", "installation"},
    "cli": LIBRARY | {"__init__", "demo", "bench", "doctor"},
    "__main__": {"cli"},
}
NOT_OUTSIDE = {
    "padding": {"mxnet", "numpy"},
    "plan": {"mxnet", "numpy"},
    "measured": {"mxnet", "numpy"},
    "planner": {"mxnet", "numpy"},
    "drawing": {"mxnet", "numpy"},
    "validation": {"mxnet", "numpy"},
}

FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path):
    """``('mxsame', 'ops', 'conv')`` of ``mxsame/ops/conv.py``; a package's ``__init__`` keeps that last part."""
    return ("mxsame", *path.relative_to(PACKAGE).with_suffix("").parts)


def imported(path, source=None):
    """The dotted names, as tuples, of all that a file imports: anywhere in it, relative imports resolved."""
    for node in ast.walk(ast.parse(source or path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module_name(path)[: -node.level] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            yield from (
                tuple(argument.value.split(".")) for argument in node.args if isinstance(argument, ast.Constant)
            )


def part(name):
    """The part of the package that a dotted name inside it belongs to; a public name such as mxsame.x: __init__."""
    is_part = len(name) > 1 and ((PACKAGE / name[1]).is_dir() or (PACKAGE / f"{name[1]}.py").is_file())
    return name[1] if is_part else "__init__"


def violations(path, source=None):
    """What is wrong with a file's imports, in words."""
    own = module_name(path)[1]
    if own not in MAY_IMPORT:
        return [f"{own} is new: give it a row in MAY_IMPORT of tests/test_imports.py"]
    wrong = []
    for name in imported(path, source):
        if name[0] == "mxsame" and part(name) not in MAY_IMPORT[own] | {own}:
            wrong.append(f"{own} must not import {part(name)}")
        if name[0] == "mxnet" and own != "installation":
            wrong.append(
                f"only installation may import mxnet; write: from mxsame._mxnet import mx (received {'.'.join(name)})"
            )
        elif name[0] in NOT_OUTSIDE.get(own, ()):
            wrong.append(f"{own} must not import {name[0]}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: ".".join(module_name(path)))
def test_imports_point_one_way(path):
    assert violations(path) == []


def test_all_files_are_seen():
    parts = {module_name(path)[1] for path in FILES}
    assert parts >= {"_mxnet", "installation", "padding", "plan", "validation", "ops", "nn", "__init__"}


@pytest.mark.parametrize(
    ("file", "source", "rule"),
    [
        ("padding.py", "import numpy as np", "padding must not import numpy"),
        ("padding.py", "from mxsame import plan", "padding must not import plan"),
        ("plan.py", "from .ops.conv import conv", "plan must not import ops"),
        ("validation.py", "import mxsame.plan", "validation must not import plan"),
        ("ops/conv.py", "def f():\n    from .. import nn", "ops must not import nn"),
        ("ops/conv.py", "from mxsame import Conv2D", "ops must not import __init__"),
        ("nn/conv.py", "from mxnet.gluon import nn", "only installation may import mxnet"),
        ("nn/conv.py", "import importlib\nimportlib.import_module('mxnet')", "only installation may import mxnet"),
        ("nn/conv.py", "from mxsame.cli import main", "nn must not import cli"),
        ("keras/backend.py", "from ..nn import Conv2D", "keras must not import nn"),
        ("novelty.py", "import os", "novelty is new"),
    ],
)
def test_a_wrong_import_is_seen(file, source, rule):
    assert any(rule in wrong for wrong in violations(PACKAGE / file, source))
