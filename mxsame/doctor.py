"""The checks of `mxsame doctor`: problems of the installation, and the command that fixes each.

A child process with a time limit imports MXNet and computes with it; this process imports neither NumPy nor MXNet. So
the doctor has an answer even if nothing else works.

`mxsame doctor --json` prints `as_data`::

    {"mxsame": version, "well": whether no check is a problem, "checks": [check, ...]}

    check: {"name": .., "status": .., "text": .., "fix": ..}
    status: "ok" (tested, and right), "note" (a fact), "problem"
    fix: the shell command that fixes it, never null for a problem
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from mxsame import __version__
from mxsame.installation.problems import InstallationError, mxnet_wheels, reinstall
from mxsame.installation.requirements import FIRST_TOO_NEW, KERNELS, MXNET_CUDA_WHEEL, MXNET_VERSION, OLDEST_CAPABILITY
from mxsame.threads import MXNET_VARIABLES, SETTING, WAIT_POLICY, CpuLimits

__all__ = ["Check", "as_data", "examine"]

REPORT_MARK = "mxsame-doctor:"  # before each report of the child; MXNet and drivers may print other lines
CHILD_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])  # the parent's sys.path
from mxsame.doctor import report
report()
"""
FOR_NUMPY_2 = ". MXNet's metadata asks for NumPy 1: use `pip install --no-deps mxnet==1.9.1`, or pip replaces NumPy"
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader")


class Check(NamedTuple):
    """One line of the doctor's output."""

    name: str
    status: str
    text: str
    fix: Optional[str] = None


def as_data(checks: List[Check]) -> Dict[str, Any]:
    """Return the checks as `mxsame doctor --json` prints them."""
    well = not any(check.status == "problem" for check in checks)
    return {"mxsame": __version__, "well": well, "checks": [check._asdict() for check in checks]}


def examine() -> Iterator[Check]:
    """Run the checks, and yield what each of them finds."""
    yield Check("Python", "note", f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")
    wheels, reported = mxnet_wheels(), ask()
    fix = reinstall(next(iter(wheels), "mxnet"))
    numpy = reported.get("NumPy", "cannot be imported")
    yield Check("NumPy", "note", numpy + FOR_NUMPY_2 * numpy.startswith("2."))
    installed = ", ".join(map(" ".join, wheels.items())) or "no wheel"
    if "MXNet" not in reported:
        text = reported["error"] + f" ({installed})" * bool(wheels)
        yield Check("MXNet", "problem", text, reported.get("fix") or fix)
    else:
        version, path = reported["MXNet"]
        note = f"; its version is {version}, and mxsame is made for {MXNET_VERSION}" * (version != MXNET_VERSION)
        yield Check("MXNet", "ok", f"{installed}, {path}{note}")
    yield driver(wheels, reported)
    if "MXNet" not in reported:
        return
    if "threads" in reported:
        yield threads(*reported["threads"])
    for device in ("cpu(0)", *(f"gpu({number})" for number in range(reported.get("gpus", 0)))):
        if device not in reported:  # the child has ended here, and has tested no other device
            device_fix = fix if device == "cpu(0)" else reinstall("mxnet")
            yield Check(device, "problem", f"a convolution fails: {reported['error']}", device_fix)
            return
        yield Check(device, "ok", "a convolution and its gradient are right")


def driver(wheels: Dict[str, str], reported: Dict[str, Any]) -> Check:
    """Returns the check of NVIDIA's driver and GPUs, and of whether an MXNet for CUDA can use them."""
    try:
        printed, code = output_of(NVIDIA_SMI, 30)
        text = " ".join(printed.split("\n")).strip()
        text = "no answer from nvidia-smi within 30 seconds" if code is None else text
    except FileNotFoundError:
        text = "no NVIDIA driver found (nvidia-smi is missing)"
    if not any("-cu" in wheel for wheel in wheels):
        return Check("driver", "note", f"{text}; MXNet computes on the CPU")
    capabilities = {f"gpu({number})": tuple(each) for number, each in enumerate(reported.get("capabilities", ()))}
    unsupported = {gpu: each for gpu, each in capabilities.items() if not OLDEST_CAPABILITY <= each < FIRST_TOO_NEW}
    failed = unsupported.keys() - reported  # the others run: examples/hopper may have built kernels for them
    texts = [f"{gpu} has compute capability {'.'.join(map(str, unsupported[gpu]))}" for gpu in failed]
    if failed and MXNET_CUDA_WHEEL in wheels:
        text += f"; {', '.join(sorted(texts))}, and {KERNELS}"
    elif reported.get("gpus", 0):
        return Check("driver", "note", text)
    else:
        text += f"; MXNet sees no GPU{'' if 'gpus' in reported else ': ' + str(reported.get('error'))}"
    return Check("driver", "problem", f"{text.rstrip('.')}. The command changes to the CPU.", reinstall("mxnet"))


def threads(count: int, processors: int, cores: int, quota: Optional[float], sleep: bool) -> Check:
    """Returns the check of whether MXNet uses the cores that the process may use, and of how its threads wait."""
    limits = CpuLimits(processors, cores, quota)
    text = f"MXNet has {count}; the process may use {cores} cores, {processors} hardware threads"
    text += f" and a quota of {quota:g}" if quota else ""
    text += f"; other processes keep the machine busy, so threads sleep ({WAIT_POLICY}=passive)" if sleep else ""
    variable = next(filter(os.environ.get, (*MXNET_VARIABLES, SETTING)), None)
    if count > (limits.threads if quota else processors):
        return Check("threads", "problem", f"{text}: too few", f"unset {variable}")
    if count < limits.threads:
        return Check("threads", "note", f"{text}: {variable} is set", f"unset {variable}")
    return Check("threads", "ok", text)


# -- the child process


def output_of(command: Sequence[str], limit: float) -> Tuple[str, Optional[int]]:
    """Returns what a command prints, and its exit code: None if it was killed because it took longer than `limit`
    seconds.

    A driver that hangs may keep a process in the kernel, where it cannot be killed; this function does not wait for it.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, code = process.communicate(timeout=limit)[0], process.returncode
    except subprocess.TimeoutExpired as error:
        output, code = error.output or b"", process.poll()  # a code if only another process keeps its output open
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            output = process.communicate(timeout=5)[0]
    return output.decode(errors="replace"), code


def ask(limit: float = 120.0) -> Dict[str, Any]:
    """Returns what `probe` reports in a child process, by name; "error" says how the process ended, and "fix" is the
    command that fixes the error, if there is one."""
    output, code = output_of([sys.executable, "-c", CHILD_CODE, json.dumps(sys.path)], limit)
    end = f"no answer within {limit:g} seconds" if code is None else f"the process exited: {code}"
    if code is not None and code < 0:
        end = f"the process was killed by {signal.Signals(-code).name}"
    reported: Dict[str, Any] = {"error": end}
    for line in output.splitlines():
        _, mark, content = line.partition(REPORT_MARK)
        if mark:
            reported.update(json.loads(content))
        elif line.strip():
            reported["error"] = f"{end}: {line.strip()[:200]}"
    return reported


def report() -> None:
    """Prints, in the child process, what `probe` yields, and the error if there is one."""

    def write(**values: Any) -> None:
        os.write(1, f"\n{REPORT_MARK}{json.dumps(values)}\n".encode())

    try:
        for name, value in probe():
            write(**{name: value})
    except InstallationError as problem:
        write(error=problem.problem, fix=problem.command)
    except Exception as problem:
        write(error=[type(problem).__name__, *str(problem).split("\n")][-1])
    os._exit(0)


def probe() -> Iterator[Tuple[str, Any]]:
    """Yields (name, value) for NumPy, MXNet, its threads and GPUs, and each device on which a convolution is right."""
    with contextlib.suppress(ImportError, AttributeError):  # the import of MXNet below explains these errors
        import numpy

        yield "NumPy", f"{numpy.__version__}, {os.path.dirname(str(numpy.__file__))}"
    from mxsame import threads as threading
    from mxsame._mxnet import mx
    from mxsame.installation import cuda

    yield "MXNet", (mx.__version__, os.path.dirname(mx.__file__))
    yield "threads", (threading.in_use(), *threading.cpu_limits(), threading.WAIT_POLICY in threading.set_variables)
    yield str(mx.cpu()), smoke(mx.cpu())
    yield "gpus", mx.context.num_gpus()
    yield "capabilities", cuda.capabilities()
    for device in map(mx.gpu, range(mx.context.num_gpus())):
        yield str(device), smoke(device)


def smoke(device: Any) -> bool:
    """Returns True if a SAME convolution of integers and its gradients are right; else raises an `ArithmeticError`."""
    from mxsame import ops
    from mxsame._mxnet import mx

    with device:
        data, weight = mx.nd.arange(16).reshape((1, 1, 4, 4)), mx.nd.arange(9).reshape((1, 1, 3, 3))
        for array in (data, weight):
            array.attach_grad()
        with mx.autograd.record():
            out = ops.conv(data, weight, strides=2)
        out.backward()
    for array, expected in (
        (out, [258, 186, 187, 113]),
        (data.grad, [0, 1, 2, 1, 3, 4, 8, 4, 6, 8, 16, 8, 3, 4, 8, 4]),
        (weight.grad, [20, 24, 12, 36, 40, 20, 18, 20, 10]),
    ):
        values = array.asnumpy().ravel().tolist()
        if values != expected:
            raise ArithmeticError(f"it must return {expected}; received {values}")
    return True
