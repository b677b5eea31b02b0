"""Whether a device computes what it should: MXNet's operators and mxsame's plans, compared with NumPy, in children."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any, Callable, Dict, Iterator, List, Tuple

from mxsame.doctor import child, steps
from mxsame.doctor.check import Check, listed
from mxsame.doctor.software import Mxnet

ROUNDING = 1e-4  # as a part of the largest value; wrong results differ by 0.09 and more
TENSOR_FLOAT = 5e-3  # GPUs since Ampere may round what they multiply to 10 bits
REFUSED = "is not exact here"  # what a strategy says of a device that does not know it
VERBOSE = {"DNNL_VERBOSE": "1", "MKLDNN_VERBOSE": "1"}  # oneDNN says what it does
DID = re.compile(r"(?:dnnl|mkldnn)_verbose,exec,cpu,convolution,([^,]+),(\w+)")
FORWARD, BACKWARD = "forward", "backward"


def checks(mxnet: Mxnet, device: Tuple[str, int], say: Callable[[str], None]) -> Iterator[Check]:
    """Of one device."""
    kind, number = device
    group = "cpu" if kind == "cpu" else f"gpu {number}"
    mend = mxnet.reinstalled(None if kind == "cpu" else "mxnet")
    allowed = TENSOR_FLOAT if kind == "gpu" else ROUNDING
    heard: List[str] = []
    stages = {"operators": list(steps.operators()), "plans": list(steps.plans()), "deployed": [steps.DEPLOYED]}
    works, hangs = True, False
    for name, tried in stages.items():
        if hangs or (name == "plans" and kind == "gpu" and not works):
            why = "a step has hung" if hangs else "MXNet's own operators fail"
            yield Check(group, name, "skipped", f"not tried, since {why}.")
            continue
        say(f"trying {name} on {group.upper()}")
        arguments = ("compute", tried, kind, str(number))
        results = []
        with closing(child.results(*arguments, environment=VERBOSE, alone=kind == "gpu", heard=heard)) as found:
            for result in found:
                results.append(result)
                if result.kind == "hang":
                    break
                say(f"trying {name} on {group.upper()}: {result.step} done")
        hangs = any(result.kind == "hang" for result in results)
        check = judged(group, name, results, allowed, mend)
        works = works and check.status == "ok"
        yield check
    if kind == "cpu":
        yield onednn(group, heard, mxnet.has_onednn)


def judged(group: str, name: str, results: List[child.Result], allowed: float, mend: str) -> Check:
    """All steps in one line, or what is wrong with those that are."""
    refused = [result for result in results if REFUSED in (result.error or "")]
    tried = [result for result in results if result not in refused]
    differences = {result.step: result.found["difference"] for result in tried if not result.error}
    failures = {result.step: child.shortened(result.error) for result in tried if result.error}
    facts = {"differences": differences, "failures": failures}
    wrong = {step: value for step, value in differences.items() if not value <= allowed}
    if not wrong and not failures:
        largest = max(differences.values(), default=0.0)
        what = f"all {len(differences)} compute" if name == "plans" else f"{listed(list(differences))} compute"
        text = f"{what}{'s' * (len(differences) == 1)} what NumPy computes (largest difference {largest:.0e}"
        text += ", as TensorFloat-32 rounds)." if largest > ROUNDING else ")."
        return Check(group, name, "ok", text, facts=facts)
    parts = [f"{step} differs from NumPy by {value:.0e} of the largest value" for step, value in wrong.items()]
    parts += [f"{step} fails: {error}" for step, error in failures.items()]
    text = f"{len(parts)} of {len(tried)} steps are wrong. {'; '.join(parts[:3])}"
    text += f"; and {len(parts) - 3} more." if len(parts) > 3 else "."
    return Check(group, name, "problem", text, mend, facts)


def onednn(group: str, heard: List[str], built: bool) -> Check:
    """Whether oneDNN ran the convolutions, by its own account."""
    said = "\n".join(heard)
    version = re.search(r"_verbose,info,(?:oneDNN|DNNL|Intel MKL-DNN) (v[\d.]+)", said)
    isa = re.search(r"_verbose,info,cpu,isa:(.*)", said)
    did: Dict[str, List[str]] = {}
    for implementation, purpose in DID.findall(said):
        kinds = did.setdefault(purpose.split("_")[0], [])
        if implementation not in kinds:
            kinds.append(implementation)
    facts: Dict[str, Any] = {
        "version": version.group(1) if version else None,
        "isa": isa.group(1).strip() if isa else None,
        "convolutions": did,
    }
    if FORWARD in did and BACKWARD in did:
        text = f"{facts['version']} runs convolutions forward and backward, for {facts['isa']}."
        return Check(group, "oneDNN", "ok", text, facts=facts)
    if not built:
        return Check(group, "oneDNN", "note", "this MXNet was built without it: convolutions are slow.", facts=facts)
    idle = listed([purpose for purpose in (FORWARD, BACKWARD) if purpose not in did])
    text = f"built in, and not seen to run a convolution {idle}: MXNET_MKLDNN_ENABLED=0 turns it off."
    return Check(group, "oneDNN", "note", text, "unset MXNET_MKLDNN_ENABLED", facts)
