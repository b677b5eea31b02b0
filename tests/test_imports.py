"""The direction of imports inside the package, read from the source: what a part may import is in one table."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mxsame"

# padding <- plan <- planner <- ops <- nn <- (graph, port); graph, _rewrite <- deploy; graph, _timing <- tune;
# ops <- keras; validation is a leaf; _mxnet alone imports MXNet; _cuda is a leaf.
PURE = {"validation", "padding"}
CORE = PURE | {"plan", "planner", "_mxnet"}
LIBRARY = CORE | {"ops", "nn", "keras", "graph", "deploy", "tune", "port", "drawing"}
MAY_IMPORT = {
    "_cuda": set(),
    "_mxnet": {"_cuda"},
    "validation": set(),
    "padding": {"validation"},
    "drawing": PURE,
    "plan": PURE,
    "planner": PURE | {"plan"},
    "ops": CORE,
    "nn": CORE | {"ops"},
    "keras": CORE | {"ops"},
    "graph": CORE | {"ops", "nn"},
    "_rewrite": {"_mxnet", "validation"},
    "deploy": CORE | {"ops", "nn", "graph", "_rewrite", "_cuda"},
    "_timing": {"_mxnet"},
    "tune": CORE | {"ops", "nn", "graph", "_timing"},
    "port": CORE | {"ops", "nn"},
    "__init__": LIBRARY,
    "_symmetric": PURE,
    "demo": LIBRARY | {"__init__", "_symmetric"},
    "bench": LIBRARY | {"__init__", "_symmetric", "_timing", "_cuda"},
    "doctor": LIBRARY | {"__init__", "_cuda"},
    "cli": LIBRARY | {"__init__", "demo", "bench", "doctor"},
    "__main__": {"cli"},
}
NOT_OUTSIDE = {
    "_cuda": {"mxnet", "numpy"},
    "padding": {"mxnet", "numpy"},
    "plan": {"mxnet", "numpy"},
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
        if name[0] == "mxnet" and own != "_mxnet":
            wrong.append(
                f"only _mxnet may import mxnet; write: from mxsame._mxnet import mx (received {'.'.join(name)})"
            )
        elif name[0] in NOT_OUTSIDE.get(own, ()):
            wrong.append(f"{own} must not import {name[0]}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: ".".join(module_name(path)))
def test_imports_point_one_way(path):
    assert violations(path) == []


def test_all_files_are_seen():
    parts = {module_name(path)[1] for path in FILES}
    assert parts >= {"_mxnet", "padding", "plan", "validation", "ops", "nn", "__init__"}


@pytest.mark.parametrize(
    ("file", "source", "rule"),
    [
        ("padding.py", "import numpy as np", "padding must not import numpy"),
        ("padding.py", "from mxsame import plan", "padding must not import plan"),
        ("plan.py", "from .ops.conv import conv", "plan must not import ops"),
        ("validation.py", "import mxsame.plan", "validation must not import plan"),
        ("ops/conv.py", "def f():\n    from .. import nn", "ops must not import nn"),
        ("ops/conv.py", "from mxsame import Conv2D", "ops must not import __init__"),
        ("nn/conv.py", "from mxnet.gluon import nn", "only _mxnet may import mxnet"),
        ("nn/conv.py", "import importlib\nimportlib.import_module('mxnet')", "only _mxnet may import mxnet"),
        ("nn/conv.py", "from mxsame.cli import main", "nn must not import cli"),
        ("keras/backend.py", "from ..nn import Conv2D", "keras must not import nn"),
        ("novelty.py", "import os", "novelty is new"),
    ],
)
def test_a_wrong_import_is_seen(file, source, rule):
    assert any(rule in wrong for wrong in violations(PACKAGE / file, source))
