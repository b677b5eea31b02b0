"""pytest where tests may crash or hang: what became of each, in a file that is always up to date.

    python -m benchmarks.suite FILE [ARGUMENT ...]    # the arguments are pytest's

Behind a test that kills its process, or that takes too long, another process goes on. This module is also the plugin
by which pytest tells of each test; neither conftest.py nor what `addopts` asks for has to be installed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List

LIMITS = (300.0, 120.0)  # seconds for what is before the first test, and for a test
PLAIN = ("-p", "benchmarks.suite", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts=", "-q", "--tb=line")
LOG = "BENCHMARKS_SUITE_LOG"  # where the plugin writes; without it, it does nothing


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(nodeid, "started")


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        why = str(report.longrepr).strip().splitlines() if report.failed else []
        _tell(
            report.nodeid, report.outcome, next((line for line in reversed(why) if "Error" in line), (why or [""])[-1])
        )


def _tell(*event: str) -> None:
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(json.dumps(event) + "\n")


def main(file: str, *arguments: str) -> int:
    """Runs the tests, and returns 0 if all that ran have passed and some did."""
    log = Path(f"{file}.log")
    log.write_text("", encoding="utf-8")
    became: Dict[str, List[str]] = {}  # test -> [outcome, reason]
    closing: List[str] = []

    def save() -> None:
        _read(log, became)
        Path(file).write_text(json.dumps(_found(became, closing)), encoding="utf-8")

    while True:
        before = set(became)
        command = [sys.executable, "-m", "pytest", *PLAIN, *(f"--deselect={name}" for name in became), *arguments]
        with open(f"{file}.out", "wb") as output:
            environment = {**os.environ, LOG: str(log)}
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
            ended = _watched(process, log, save)
        save()
        said = Path(f"{file}.out").read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip(" =") for line in reversed(said) if line.strip()), "")
        closing.append(f"{ended}: {last[:300]}" if ended else last)
        unfinished = [name for name, (outcome, _) in became.items() if outcome == "started"]
        for name in unfinished:
            became[name] = ["hung" if "seconds" in ended else "crashed", ended]
        save()
        if not ended or not unfinished or set(became) == before:
            outcomes = {outcome for outcome, _ in became.values()}
            return 0 if not ended and "passed" in outcomes and outcomes <= {"passed", "skipped"} else 1


def _watched(process: Any, log: Path, each: Callable[[], None]) -> str:
    """Waits for the process, and ends it where no test begins or ends for too long; why it did not end by itself."""
    size, since, limit = log.stat().st_size, time.monotonic(), LIMITS[0]
    while process.poll() is None:
        if log.stat().st_size != size:
            size, since, limit = log.stat().st_size, time.monotonic(), LIMITS[1]
            each()
        if time.monotonic() - since > limit:
            process.kill()
            process.wait()
            return f"nothing within {limit:g} seconds"
        time.sleep(0.1)
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    return "" if process.returncode in (0, 1) else f"exit code {process.returncode}"


def _read(log: Path, became: Dict[str, List[str]]) -> None:
    for line in log.read_text(encoding="utf-8").splitlines():
        name, outcome, *why = json.loads(line)
        if outcome != "started" or name not in became:
            became[name] = [outcome, *(why or [""])]


def _found(became: Dict[str, List[str]], closing: List[str]) -> Dict[str, Any]:
    """What the file says."""
    return {
        "counts": Counter(outcome for outcome, _ in became.values()),
        "closing": closing,
        "failing": {
            name: why for name, (outcome, why) in became.items() if outcome not in ("passed", "skipped", "started")
        },
        "running": [name for name, (outcome, _) in became.items() if outcome == "started"],
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
