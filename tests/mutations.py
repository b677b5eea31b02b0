"""Breaks mxsame on purpose, one line at a time, and counts the tests that notice.

    python tests/mutations.py            # all, about a minute each on 2 cores
    python tests/mutations.py pads       # those whose name contains a word

mutations.txt has the mutations, each a title and the lines of a patch, which need not be whole lines of the file. Every
mutation is made in a copy in a temporary folder. Exit status 1 if one of them breaks no test. Needs an
environment in which `python -m pytest` works.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["padding", "plan", "planner", "ways", "ops", "nn", "chains", "graph", "deploy", "rewrite", "gpu_graphs"]
TESTS = [f"tests/test_{name}.py" for name in NAMES]
TESTS_OF = {  # what these files are tested by, in place of `TESTS`
    "mxsame/onnx/": ["tests/test_onnx.py", "tests/test_onnx_files.py", "tests/test_onnx_operators.py"],
    "mxsame/rewriting/windows.py": ["tests/test_onnx.py", "tests/test_onnx_files.py", "tests/test_audit.py"],
    "mxsame/auditing.py": ["tests/test_audit.py"],
    "mxsame/keras/": ["tests/test_keras_backend.py", "tests/test_keras_layouts.py"],
    "mxsame/port/": [f"tests/port/test_{name}.py" for name in ("recorded", "keras_mxnet", "sizes", "noise")],
}
PATIENCE = 300  # seconds
SLOW = "mx.np or float64 or channels_last or input_size or with_shapes or static_alloc or recorded or known"


def mutations() -> list[tuple[str, str, str, str]]:
    """(name, file, old text, new text) of each paragraph of mutations.txt."""
    entries = []
    for paragraph in (ROOT / "tests" / "mutations.txt").read_text(encoding="utf-8").rstrip().split("\n\n"):
        title, *lines = paragraph.splitlines()
        name, file = title.rsplit(" in ", 1)
        old, new = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in "-+")
        entries.append((name, file, old, new))
    return entries


def copy(folder: Path) -> None:
    for name in ("mxsame", "benchmarks", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def tests_of(file: str) -> list:
    """The tests that should fail if this file is broken."""
    return next((tests for start, tests in TESTS_OF.items() if file.startswith(start)), TESTS)


def failing(folder: Path, tests: list) -> tuple[set, str]:
    """(ids of the tests that fail, pytest's last line); warnings are no part of it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-rfE",
        "-p",
        "no:cacheprovider",
        *(() if "tests/port/test_recorded.py" in tests else ("-k", f"not ({SLOW})")),
        *tests,
    ]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # a process that MXNet has ended can leave the others waiting
        return {f"no end within {PATIENCE} s"}, ""
    if result.returncode < 0:
        return {f"ended by signal {-result.returncode}"}, ""
    lines = result.stdout.strip().splitlines()
    if result.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    ids = {match.group(1) for line in lines for match in [re.match(r"(?:FAILED|ERROR) (.*?)(?: - |$)", line)] if match}
    return ids, lines[-1]


def main() -> int:
    words = sys.argv[1:]
    chosen = [mutation for mutation in mutations() if all(word in mutation[0] for word in words)]
    survived = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        before = {}
        for name, file, old, new in chosen:
            tests = tests_of(file)
            if tuple(tests) not in before:
                before[tuple(tests)], last = failing(folder, tests)
                print(f"unbroken: {last}", flush=True)
            path = folder / file
            source = path.read_text(encoding="utf-8")
            if source.count(old) != 1:
                print(f"{name}: the text to replace is {source.count(old)} times in {file}")
                survived.append(name)
                continue
            path.write_text(source.replace(old, new), encoding="utf-8")
            began = time.time()
            broken = failing(folder, tests)[0] - before[tuple(tests)]
            path.write_text(source, encoding="utf-8")
            files = {file.split("/")[-1]: sum(test.startswith(file) for test in broken) for file in tests}
            shares = ", ".join(f"{file} {count}" for file, count in files.items() if count)
            print(f"{name}: breaks {len(broken)} tests ({shares}), {time.time() - began:.0f} s", flush=True)
            if not broken:
                survived.append(name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations were noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
