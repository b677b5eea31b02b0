"""The structure of the package, read from the source: what a part may import is in one table, whose rows are in order;
files import each other in no circle."""

import ast
from pathlib import Path

import mutations

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mxsame"

# A part may import parts of the rows before its own: padding <- plan <- ops; plan <- graphs; ops, graphs <- nn <- port;
# ops <- keras; graphs, rewriting <- exporting <- onnx; keras_format <- port; types, tables, onednn_blocks, processor
# and threads are leaves; only installation imports MXNet.
PURE = {"validation", "suggestions", "types", "tables", "padding", "onednn_blocks", "processor"}
CORE = PURE | {"plan", "_mxnet", "_gluon", "scope", "tensors"}
LIBRARY = CORE | {"planner", "ops", "nn", "keras", "graphs", "exporting", "onnx", "port", "export_keras", "auditing"}
LIBRARY |= {"keras_format", "drawing", "data"}
MAY_IMPORT = {
    "data": set(),
    "threads": set(),
    "installation": {"threads"},
    "_mxnet": {"installation"},
    "types": set(),
    "tables": set(),
    "suggestions": set(),
    "validation": {"suggestions", "types"},
    "onednn_blocks": set(),
    "processor": set(),
    "progress": {"validation"},
    "padding": {"validation", "types"},
    "drawing": PURE,
    "plan": PURE,
    "planner": {"plan", "validation"},
    "_gluon": {"_mxnet"},
    "scope": {"validation", "_mxnet"},
    "tensors": {"validation", "onednn_blocks", "processor", "_mxnet", "scope"},
    "rewriting": {"_mxnet", "onednn_blocks", "processor", "padding", "plan", "scope", "tensors", "validation"},
    "ops": CORE,
    "graphs": CORE | {"rewriting", "threads"},
    "nn": CORE | {"graphs", "ops"},
    "keras": CORE | {"ops", "installation"},
    "exporting": CORE | {"graphs", "rewriting", "progress"},
    "onnx": CORE | {"graphs", "rewriting", "exporting", "installation", "progress"},
    "auditing": CORE | {"ops", "graphs", "rewriting"},
    "keras_format": {"suggestions", "validation", "padding", "installation"},
    "port": CORE | {"graphs", "ops", "nn", "keras", "keras_format", "rewriting", "progress"},
    "export_keras": CORE | {"graphs", "rewriting", "exporting", "keras_format", "port", "progress"},
    "__init__": LIBRARY | {"installation"},
    "demo": LIBRARY | {"__init__", "_gluon"},
    "doctor": LIBRARY | {"__init__", "installation", "threads"},
    "cli": LIBRARY | {"__init__", "demo", "doctor", "installation", "progress", "threads"},
    "__main__": {"cli"},
}
WITHOUT_ARRAYS = ("padding", "plan", "planner", "drawing", "suggestions", "validation")
NOT_OUTSIDE = {own: {"mxnet", "numpy"} for own in WITHOUT_ARRAYS}

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


def violations(path):
    """What is wrong with a file's imports, in words."""
    own = module_name(path)[1]
    if own not in MAY_IMPORT:
        return [f"{own} is new: give it a row in MAY_IMPORT of tests/test_imports.py"]
    wrong = []
    for name in imported(path):
        if name[0] == "mxsame" and part(name) not in MAY_IMPORT[own] | {own}:
            wrong.append(f"{own} must not import {part(name)}")
        if name[0] == "mxnet" and own not in ("installation", "_mxnet"):
            wrong.append("only installation may import mxnet; write: from mxsame._mxnet import mx")
        elif name[0] in NOT_OUTSIDE.get(own, ()):
            wrong.append(f"{own} must not import {name[0]}")
    return wrong


def test_imports_point_one_way():
    assert {path: wrong for path in FILES if (wrong := violations(path))} == {}


def test_files_of_converters_import_no_others():
    folder = ("mxsame", "port", "converters")
    files = [path for path in PACKAGE.parent.joinpath(*folder).glob("*.py") if path.stem not in ("__init__", "_shared")]
    others = {name[3] for path in files for name in imported(path) if name[:3] == folder}
    assert others == {"_shared"}


def test_the_table_points_one_way():
    rows = list(MAY_IMPORT)
    upward = {(own, other) for own in rows for other in MAY_IMPORT[own] if rows.index(other) > rows.index(own)}
    assert not upward


# -- files, and not only the parts that they belong to


def file_name(path):
    """``ops.conv`` of ``mxsame/ops/conv.py``, and ``ops`` of ``mxsame/ops/__init__.py``."""
    return ".".join(part for part in module_name(path)[1:] if part != "__init__") or "mxsame"


def imports_of_files(sources):
    """The files that each file imports, by name; `sources` maps names to (path, text). The package's own `__init__`,
    which imports a public name when it is first used, is none of them."""
    return {name: set(_files_imported(*source, sources)) - {name} for name, source in sources.items()}


def _files_imported(path, text, known):
    for name in imported(path, text):
        if name[0] == "mxsame":
            parts = [".".join(name[1:end]) for end in range(len(name), 1, -1)]
            yield from [part for part in parts if part in known][:1]


def in_circles(imports):
    """The files from which a way along imports leads back to themselves."""

    def reached(start):
        seen, left = set(), list(imports[start])
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                left += imports[name]
        return seen

    return {name for name in imports if name in reached(name)}


def test_no_circle_of_imports_between_files():
    sources = {file_name(path): (path, path.read_text(encoding="utf-8")) for path in FILES}
    circles = in_circles(imports_of_files({name: source for name, source in sources.items() if name != "mxsame"}))
    assert circles == set()


def test_what_a_mutation_replaces_is_there_once():
    """tests/mutations.txt: CI runs three of them a day, and all are looked at here."""
    replaced = [(name, ROOT / file, old) for name, file, old, _ in mutations.mutations()]
    assert [name for name, file, old in replaced if file.read_text(encoding="utf-8").count(old) != 1] == []
