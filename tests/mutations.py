"""Breaks mxsame on purpose, one line at a time, and looks for a test that notices.

    python tests/mutations.py                      # all, about half a minute each on 2 cores
    python tests/mutations.py pads                 # those whose name contains a word
    MXSAME_DAY=5 python tests/mutations.py         # three, others each day: what CI runs

mutations.txt has the mutations, each a title and the lines of a patch, which need not be whole lines of the file. Every
mutation is made in a copy in a temporary folder, and tests run until one fails, which then has to pass without the
mutation. Exit status 1 if none fails. Needs an environment in which `python -m pytest` works.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS_OF = {  # which tests a file is tested by, those first that are the likeliest to fail
    "mxsame/padding/": "padding ways",
    "mxsame/plan/costs.py": "planner",
    "mxsame/plan/choice.py": "planner",
    "mxsame/plan/cpu_costs.py": "planner",
    "mxsame/plan/gpu_costs.py": "planner benchmarks",
    "mxsame/plan/": "plan ops ways",
    "mxsame/ops/": "nn gpu_graphs ops ways",
    "mxsame/scope.py": "graph nn ways",
    "mxsame/graphs/": "graph deploy ways",
    "mxsame/rewriting/windows.py": "audit onnx",
    "mxsame/rewriting/": "rewrite gpu_graphs deploy",
    "mxsame/auditing.py": "audit",
    "mxsame/onnx/": "onnx_operators onnx",
    "mxsame/exporting/attributes.py": "onnx_operators",
    "mxsame/exporting/": "onnx",
    "mxsame/export_keras/": "to_keras",
    "mxsame/keras/": "keras_layouts keras_backend",
    "mxsame/port/": "port/masks port/recorded port/keras_mxnet port/misread port/sizes port/noise",
}
PATIENCE = 1200  # seconds
DAYS = 24


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
    for name in ("mxsame", "benchmarks", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def tests_of(file: str) -> list[str]:
    """The files of tests in which a mutation of this file is looked for."""
    names = next(names for start, names in TESTS_OF.items() if file.startswith(start))
    return ["tests/{}test_{}.py".format(*re.fullmatch(r"(port/)?(\w+)", name).groups("")) for name in names.split()]


def first_failure(folder: Path, tests: list[str]) -> str | None:
    """The test that fails first, None if all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-rfE", "-p", "no:cacheprovider", *tests]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # a process that MXNet has ended can leave the others waiting
        return f"no end within {PATIENCE} s"
    if result.returncode < 0:
        return f"ended by signal {-result.returncode}"
    if result.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", result.stdout, re.MULTILINE)
    return failed and failed.group(1)


def noticed(folder: Path, name: str, file: str, old: str, new: str) -> bool:
    """Whether a test fails with this mutation; prints which."""
    path, began = folder / file, time.time()
    source = path.read_text(encoding="utf-8")
    if source.count(old) != 1:
        print(f"{name}: the text to replace is {source.count(old)} times in {file}", flush=True)
        return False
    path.write_text(source.replace(old, new), encoding="utf-8")
    failed = first_failure(folder, tests_of(file))
    path.write_text(source, encoding="utf-8")
    if failed and "::" in failed and first_failure(folder, [failed]) is not None:
        raise RuntimeError(f"without a mutation all must pass: {failed}")
    print(f"{name}: {failed or 'NOTHING notices'}, {time.time() - began:.0f} s", flush=True)
    return failed is not None


def main() -> int:
    words = sys.argv[1:]
    chosen = [mutation for mutation in mutations() if all(word in mutation[0] for word in words)]
    if "MXSAME_DAY" in os.environ and not words:
        chosen = chosen[int(os.environ["MXSAME_DAY"]) % DAYS :: DAYS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        count = sum(noticed(folder, *mutation) for mutation in chosen)
    print(f"{count} of {len(chosen)} mutations were noticed")
    return 0 if count == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
