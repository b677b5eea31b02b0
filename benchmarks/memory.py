"""Peak memory of networks, each variant in a process of its own: what the process had at most, less what it had once
MXNet was imported and warm. It counts weights, activations, gradients and what oneDNN and graphs take.
"""

from __future__ import annotations

from typing import List

from benchmarks import networks, results
from benchmarks.architectures import named
from benchmarks.worker import alone, peak, resident
from mxsame._mxnet import mx

STEPS = 3  # after which memory does not grow any more


def measure(case: networks.Case) -> List[dict]:
    """Rows for inference, deployed inference and training; ratios to symmetric padding."""
    modes = (
        ("inference", networks.GRAPHS, "inference"),
        ("inference, deployed", networks.DEPLOYED, "inference"),
        ("training step", networks.GRAPHS, "training"),
    )
    rows = []
    for mode, variants, task in modes:
        given = {**case.numbers, "task": task}
        figures = {name: [alone("memory:measure_one", variant=name, **given)] for name in variants}
        rows.append(results.row(case.name, mode, figures, variants[0], unit="MiB", **case.numbers))
    return rows


def measure_one(variant: str, task: str, network: str, batch: int, size: int, width: float) -> float:
    """MiB of one variant, in this process."""
    mx.nd.dot(mx.nd.ones((64, 64)), mx.nd.ones((64, 64))).wait_to_read()
    case = networks.case(named(network), batch, size, width)
    data, aims = networks.images(case), networks.targets(case)
    mx.nd.waitall()
    before = resident()
    net = networks.prepared(case, variant, networks.kits(case, [variant])[variant])
    call = networks.training_step(case, net, data, aims) if task == "training" else networks.applied(net, data)
    for _ in range(STEPS):
        call()
        mx.nd.waitall()
    return peak() - before
