"""All that there is to know of a GPU, in one result file: the steps of `python -m benchmarks gpu`.

The file is written before and after every step, by a process that imports neither MXNet nor NumPy. What a step has
found when its time is up, or when it crashes, stays.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from benchmarks.architectures import NETWORKS

ROOT = Path(__file__).resolve().parent.parent
LEAST = 60.0  # seconds that a step of a budget may take, though it be more than a third of what is left
WRONG = 5e-3  # of the largest value: TF32 rounds less
WITHOUT_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}
ASKED = "name,compute_cap,driver_version,memory.total,clocks.max.sm,power.limit"
FILE = "{file}"  # in a command: where the step writes what it finds
Summary = Callable[[Any], str]


@dataclass(frozen=True)
class Step:
    """A Python program, its limit in seconds, and how to say in a few words what it has found."""

    name: str
    arguments: Tuple[str, ...]
    limit: float
    summary: Summary
    environment: Dict[str, str] = field(default_factory=dict)


# -- what there is to do


def first(device: Tuple[str, int]) -> List[Step]:
    """What the machine is, and what the doctor says of it."""
    machine = ("-m", "benchmarks.worker", "places:found", json.dumps({"device": device}))
    return [
        Step("machine", machine, 180, of_machine),
        Step("doctor", ("-m", "mxsame", "doctor", "--json"), 900, of_doctor),
    ]


def others(device: Tuple[str, int], libraries_only: bool) -> Iterator[Step]:
    """The rest, what matters most first; where only libraries run, what they can run."""
    yield tests(device)
    yield from networks(device, "TF32 off", WITHOUT_TF32, libraries_only)
    yield Step("kernels", ("-m", "benchmarks.kernels", device[0], str(device[1]), FILE), 600, of_kernels)
    only = ("--cudnn-only",) if libraries_only else ()
    yield layers(device, "TF32 off", WITHOUT_TF32, *only)
    if not libraries_only:
        yield layers(device, "TF32 off, forward and backward", WITHOUT_TF32, "--train")
        yield from networks(device, "TF32 off, cuDNN alone", WITHOUT_TF32, True)
    if device[0] == "gpu":
        yield from networks(device, "TF32 on", {}, libraries_only)
        yield layers(device, "TF32 on", {}, *only)
        yield layers(device, "float16", {}, "--dtype", "float16", *only)
        yield layers(device, "NHWC", {}, "--layout", "NHWC", *only)
        yield layers(device, "float16, NHWC", {}, "--dtype", "float16", "--layout", "NHWC", *only)
    if not libraries_only:
        if device[0] == "gpu":
            training = ("--dtype", "float16", "--layout", "NHWC", "--train")
            yield layers(device, "float16, NHWC, forward and backward", {}, *training)
        for name, options in (("planner", ()), ("planner", ("--train",)), ("memory", ()), ("sizes", ())):
            yield table(f"{name}{' '.join(('', *options))}", device, {}, 2400, name, *options)


def tests(device: Tuple[str, int]) -> Step:
    """Those of tests/test_gpu.py; on a CPU as many as it can run."""
    command = ("-m", "benchmarks.suite", FILE, os.path.join("tests", "test_gpu.py"))
    if device[0] == "cpu":
        return Step("tests", command, 1800, of_tests, {"MXSAME_TEST_DEVICE": "cpu"})
    return Step("tests, TF32 off", (*command, "-m", "gpu"), 1800, of_tests, WITHOUT_TF32)


def networks(device: Tuple[str, int], words: str, environment: Dict[str, str], cudnn_only: bool) -> Iterator[Step]:
    """Each in a process of its own."""
    for network in NETWORKS:
        options = ("--match", network.name, *(["--cudnn-only"] if cudnn_only else ["--no-tensorflow"]))
        yield table(f"networks, {network.name}, {words}", device, environment, 900, "networks", *options)


def layers(device: Tuple[str, int], words: str, environment: Dict[str, str], *options: str) -> Step:
    return table(f"layers, {words}", device, environment, 1200, "layers", *options)


def table(name: str, device: Tuple[str, int], environment: Dict[str, str], limit: float, *arguments: str) -> Step:
    """A table of `python -m benchmarks`."""
    where = ("--device", "{}:{}".format(*device) if device[0] == "gpu" else "cpu")
    command = ("-m", "benchmarks", *arguments, *where, "--no-picture", "--out", FILE)
    return Step(name, command, limit, of_table, environment)


# -- what was found, in a few words


def of_machine(found: Any) -> str:
    gpu = found["provenance"].get("gpu")
    if not gpu:
        return str(found["provenance"]["cpu"])
    text = f"{gpu['name']}, compute capability {gpu['capability']}, driver {gpu['driver']}, cuDNN {gpu['cudnn']}"
    return text + ("; MXNet has no machine code for it" if found["libraries_only"] else "")


def of_doctor(found: Any) -> str:
    problems = [f"{check['group']}: {check['name']}" for check in found["checks"] if check["status"] == "problem"]
    return f"problems with {', '.join(problems)}" if problems else "all is well"


def of_tests(found: Any) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in found["counts"].items())
    return "; ".join(found["closing"]) or f"{counts or 'none ran'}, not ended"


def of_kernels(found: Any) -> str:
    failing = [name for name, each in found.items() if "error" in each]
    wrong = [name for name, each in found.items() if each.get("difference", 0) > WRONG]
    words = [f"{len(found) - len(failing)} of {len(found)} start"]
    words += [f"{word} {', '.join(names)}" for word, names in (("not", failing), ("wrong:", wrong)) if names]
    return "; ".join(words)


def of_table(found: Any) -> str:
    words = [f"{len(found['rows'])} rows"]
    words += [f"{len(found[key])} {key.replace('_', ' ')}" for key in ("left_out", "failures") if found.get(key)]
    return ", ".join(words)


# -- doing it


def run(
    device: Tuple[str, int], cudnn_only: bool, budget: Optional[int], out: Path, tell: Callable[[str], Any]
) -> bool:
    """Does every step that there is time for; whether there were no failures."""
    record = Record(device, cudnn_only, budget, out, tell)
    for step in first(device):
        record.do(step)
    machine = record.found("machine")
    if machine:
        for step in others(device, cudnn_only or machine["libraries_only"]):
            record.do(step)
    else:
        record.tell("all else is left out: there is no such device that MXNet can use")
    record.close()
    return record.well


class Record:
    """The result file, and the time that is left."""

    def __init__(
        self, device: Tuple[str, int], cudnn_only: bool, budget: Optional[int], out: Path, tell: Callable[[str], Any]
    ):
        self.path, self.tell, self._began, self._budget = out, tell, time.monotonic(), budget
        self._steps: List[Dict[str, Any]] = []
        self._file = {
            "table": "gpu",
            "title": "All steps on one device",
            "provenance": host(),
            "settings": {"device": "{}:{}".format(*device), "cudnn_only": cudnn_only, "budget": budget},
            "rows": [],  # those of the tables are with their steps
            "finished": False,
            "steps": self._steps,
        }
        self._write()

    @property
    def well(self) -> bool:
        return all(step["status"] in ("ok", "left out") for step in self._steps)

    def found(self, name: str) -> Any:
        return next(step["found"] for step in self._steps if step["name"] == name)

    def do(self, step: Step) -> None:
        """One step and one line; left out where its budget is spent."""
        entry: Dict[str, Any] = {
            "name": step.name,
            "command": " ".join(("python", *step.arguments)),
            "environment": step.environment,
            "status": "running",
            "seconds": None,
            "summary": "",
            "found": None,
        }
        self._steps.append(entry)
        limit = self._limit(step)
        if limit <= 0:
            entry.update(status="left out", summary="the budget is spent")
        else:
            self._write()
            entry.update(outcome(step, limit))
        if step.name == "machine" and entry["found"]:
            self._file["provenance"] = {**entry["found"]["provenance"], **host()}
        self._write()
        took = "" if entry["seconds"] is None else f" in {entry['seconds']:.0f} s"
        self.tell(f"{step.name}: {entry['status']}{took}: {entry['summary']}")

    def close(self) -> None:
        self._file.update(finished=True, seconds=round(time.monotonic() - self._began, 1))
        self._write()
        self.tell(str(self.path))

    def _limit(self, step: Step) -> float:
        """No step gets more than a third of what is left, so that one that hangs does not take all."""
        if self._budget is None:
            return step.limit
        left = self._budget - (time.monotonic() - self._began)
        return min(step.limit, left, max(LEAST, left / 3))

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.part")
        draft.write_text(json.dumps(self._file, indent=1) + "\n", encoding="utf-8")
        os.replace(draft, self.path)


def host() -> Dict[str, Any]:
    """What can be known without MXNet."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "nvidia_smi": nvidia_smi(),
    }


def nvidia_smi() -> List[str]:
    """A line for each GPU; none where the program is not there or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={ASKED}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, timeout=30).stdout.decode(errors="replace").splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def outcome(step: Step, limit: float) -> Dict[str, Any]:
    """What became of a step: a process, with those it starts, that is ended when its time is up."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **step.environment}
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "found.json"), Path(folder, "output")
        command = [sys.executable, *(str(file) if part == FILE else part for part in step.arguments)]
        began = time.monotonic()
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: Optional[int] = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end(process)
        seconds = round(time.monotonic() - began, 1)
        said = log.read_text(encoding="utf-8", errors="replace")
        found = read(file, said)
    status, why = judged(code, limit, found is not None)
    summary = "; ".join(filter(None, [why, found is not None and step.summary(found), found is None and last(said)]))
    more = {} if status == "ok" else {"output": said[-4000:]}
    return {"status": status, "seconds": seconds, "summary": summary, "found": found, **more}


def judged(code: Optional[int], limit: float, has_found: bool) -> Tuple[str, str]:
    """(status, why it is not ok)."""
    if code is None:
        return "out of time", f"ended after {limit:.0f} s"
    if code < 0:
        names = {int(each): each.name for each in signal.Signals}
        return "crashed", f"killed by {names.get(-code, f'signal {-code}')}"
    if code:
        return "failed", f"exit code {code}"
    return ("ok", "") if has_found else ("failed", "nothing was found")


def read(file: Path, said: str) -> Any:
    """What the step has written into its file; or else printed as JSON, whatever else is printed before and after."""
    if file.exists():
        texts = [file.read_text(encoding="utf-8")]
    else:
        texts = [said[said.find("{\n") :], *(line for line in reversed(said.splitlines()) if line.startswith("{"))]
    for text in texts:
        try:
            found, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def last(said: str) -> str:
    """The last line that says something."""
    return next((line.strip()[:300] for line in reversed(said.splitlines()) if line.strip()), "nothing was said")


def end(process: Any) -> None:
    """Ends a process and those it has started, if the kernel lets go of them: a driver that hangs may not."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        pass
