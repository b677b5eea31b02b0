"""Breaks mxsame on purpose, one line at a time, and counts the tests that notice.

    python tests/mutations.py            # all, about a minute each on 2 cores
    python tests/mutations.py pads       # those whose name contains a word

Every mutation is made in a copy in a temporary folder. Exit status 1 if one of them breaks no test. Needs an
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
TESTS = [
    "tests/test_padding.py",
    "tests/test_plan.py",
    "tests/test_ops.py",
    "tests/test_concrete_cases.py",
    "tests/test_graph.py",
    "tests/test_deploy.py",
    "tests/test_rewrite.py",
    "tests/test_gpu_graphs.py",
    "tests/test_cudnn_only.py",
]
PATIENCE = 300  # seconds
SLOW = "numpy_arrays or float64 or channels_last or input_size or with_shapes or recorded or grid or would_run or known"

MUTATIONS = [  # (name, file, old text, new text)
    (
        "pads: low and high swapped",
        "mxsame/padding.py",
        "    return total // 2, total - total // 2\n",
        "    return total - total // 2, total // 2\n",
    ),
    (
        "average: padding counts in the operator",
        "mxsame/ops/pool.py",
        "        count_include_pad=count_include_pad,\n",
        "        count_include_pad=True,\n",
    ),
    (
        "average: padding counts where it was filled in",
        "mxsame/ops/pool.py",
        'if fill == "zero" and plan.fills and not count_include_pad:',
        "if False:",
    ),
    (
        "unknown size: the plan looks at multiples of the stride only",
        "mxsame/plan.py",
        "        return range(start, start + self.stride)\n",
        "        return (start,)\n",
    ),
    (
        "unknown size: the graph takes n for a multiple of the stride",
        "mxsame/ops/_run.py",
        "(_length(F, data, axis) - 1) % window.stride",
        "F.zeros_like(_length(F, data, axis)) + (window.stride - 1)",
    ),
    (
        "slice: the outputs at the end are dropped in place of the first",
        "mxsame/ops/_run.py",
        "[(step.skip, step.excess or 0) for step in plan.axes]",
        "[(0, (step.excess or 0) + step.skip) for step in plan.axes]",
    ),
    (
        "maximum: padding is zero",
        "mxsame/ops/pool.py",
        '"edge" if pool_type == "max" or pairs else "zero"',
        '"zero"',
    ),
    (
        "kernel: zero taps on the other side",
        "mxsame/ops/_run.py",
        '            weight = _joined(F, weight, axis, counts, "zero")\n',
        '            weight = _joined(F, weight, axis, counts[::-1], "zero")\n',
    ),
    (
        "shift: the tap stands one cell ahead",
        "mxsame/ops/_run.py",
        "F.one_hot(reach - _low(F, data, axis, window)",
        "F.one_hot(reach - 1 - _low(F, data, axis, window)",
    ),
    (
        "hybridize: one graph for all sizes",
        "mxsame/graph.py",
        "return structure, tuple(decision.remade(shape) for decision, shape in zip(decisions, found))",
        "return structure",
    ),
    (
        "hybridize: a layer's channels do not tell graphs apart",
        "mxsame/graph.py",
        "tuple(decision.remade(shape) for decision",
        "tuple(decision.remade(shape)[0] for decision",
    ),
    (
        "deploy: a normalisation without its eps",
        "mxsame/_rewrite/_scales.py",
        'np.sqrt(variance + node.attr("eps", 1e-3))',
        "np.sqrt(variance)",
    ),
    (
        "transposed: the odd cell is cut from the head",
        "mxsame/padding.py",
        "    head = max(total, 0) // 2\n",
        "    head = (max(total, 0) + 1) // 2\n",
    ),
    (
        "transposed: output_padding None is 0",
        "mxsame/padding.py",
        "    if output_padding is None:\n        total = effective - stride\n",
        "    if output_padding is None:\n        total = 2 * (effective // 2)\n",
    ),
    (
        "causal: half of the padding goes to the end",
        "mxsame/padding.py",
        "    return effective_kernel_size(kernel_size, dilation) - 1, 0\n",
        "    total = effective_kernel_size(kernel_size, dilation) - 1\n    return total - total // 2, total // 2\n",
    ),
    (
        "dilation is forgotten",
        "mxsame/padding.py",
        "    effective = (kernel_size - 1) * dilation + 1\n",
        "    effective = kernel_size\n",
    ),
    (
        "transposed: zero taps on the wrong side",
        "mxsame/plan.py",
        "    return TransposedAxis(pad, adj, (head - pad, tail - pad + adj), (front, back))\n",
        "    return TransposedAxis(pad, adj, (head - pad, tail - pad + adj), (back, front))\n",
    ),
    (
        "kernel: no taps behind it",
        "mxsame/plan.py",
        "    return fewest if fewest * window.dilation <= min(rest) else 0\n",
        "    return 0\n",
    ),
    (
        "channels last: the first spatial axis is that of channels first",
        "mxsame/ops/_arguments.py",
        "        return 1 if self.runs_last else _run.SPATIAL\n",
        "        return _run.SPATIAL\n",
    ),
    (
        "channels last: classes of graphs look at all strategies",
        "mxsame/ops/_arguments.py",
        "tuple(name for name in allowed if name in planning.LAST) if geometry.knows_last else tuple(allowed)",
        "tuple(allowed)",
    ),
    (
        "cuDNN alone: a convolution writes where it reads",
        "mxsame/_rewrite/_sums.py",
        "        and all(_memory(source.node) is not _memory(to.node) for source in adds.node.inputs)\n",
        "",
    ),
    (
        "cuDNN alone: a sum onto what is still needed",
        "mxsame/_rewrite/_sums.py",
        "        user.node is None or order[user.node] > order[node]\n",
        "        False\n",
    ),
]


def copy(folder: Path) -> None:
    for name in ("mxsame", "benchmarks", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def failing(folder: Path) -> tuple[set, str]:
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
        "-k",
        f"not ({SLOW})",
        *TESTS,
    ]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # a process that MXNet has ended can leave the others waiting
        return {f"no end within {PATIENCE} s"}, ""
    lines = result.stdout.strip().splitlines()
    if result.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    ids = {match.group(1) for line in lines for match in [re.match(r"(?:FAILED|ERROR) (.*?)(?: - |$)", line)] if match}
    return ids, lines[-1]


def main() -> int:
    words = sys.argv[1:]
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation[0] for word in words)]
    survived = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        before, last = failing(folder)
        print(f"unbroken: {last}", flush=True)
        for name, file, old, new in chosen:
            path = folder / file
            source = path.read_text(encoding="utf-8")
            if source.count(old) != 1:
                print(f"{name}: the text to replace stands {source.count(old)} times in {file}")
                survived.append(name)
                continue
            path.write_text(source.replace(old, new), encoding="utf-8")
            began = time.time()
            broken = failing(folder)[0] - before
            path.write_text(source, encoding="utf-8")
            files = {file.split("/")[-1]: sum(test.startswith(file) for test in broken) for file in TESTS}
            shares = ", ".join(f"{file} {count}" for file, count in files.items() if count)
            print(f"{name}: breaks {len(broken)} tests ({shares}), {time.time() - began:.0f} s", flush=True)
            if not broken:
                survived.append(name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations were noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
