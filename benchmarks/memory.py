"""Peak memory of networks, each contestant in a process of its own: what the process had at most, less what it had once
MXNet was imported and warm. Weights, activations, gradients and what oneDNN and graphs take are all in it.
"""

from __future__ import annotations

from typing import List

import mxsame
from benchmarks import networks, results
from benchmarks.architectures import NETWORKS
from benchmarks.worker import alone, peak, resident
from mxsame._mxnet import mx

STEPS = 3  # after which nothing grows any more


def measure(case: networks.Case) -> List[dict]:
    """Rows for inference, deployed inference and training; ratios to symmetric padding."""
    rows = [_row(case, "inference", networks.GRAPHS, "inference")]
    if hasattr(mxsame, "deploy"):
        rows.append(_row(case, "inference, deployed", networks.DEPLOYED, "inference"))
    return [*rows, _row(case, "training step", networks.GRAPHS, "training")]


def _row(case: networks.Case, mode: str, contestants: tuple, task: str) -> dict:
    more = {"network": case.network.name, "batch": case.batch, "size": case.size, "width": case.width}
    figures = {name: [alone("memory:measure_one", contestant=name, task=task, **more)] for name in contestants}
    return results.row(f"{case.network.name}, batch {case.batch}", mode, figures, contestants[0], unit="MiB", **more)


def measure_one(contestant: str, task: str, network: str, batch: int, size: int, width: float) -> float:
    """MiB of one contestant, in this process."""
    mx.nd.dot(mx.nd.ones((64, 64)), mx.nd.ones((64, 64))).wait_to_read()
    case = networks.case(next(x for x in NETWORKS if x.name == network), batch, size, width)
    data, wanted = networks.images(case), networks.targets(case)
    before = resident()
    net = networks.prepared(case, contestant, networks.kits(case, [contestant])[contestant])
    call = networks.training_step(case, net, data, wanted) if task == "training" else networks.applied(net, data)
    for _ in range(STEPS):
        call()
        mx.nd.waitall()
    return peak() - before
