"""Peak memory of networks, each contestant in a process of its own: what the process had at most, less what it had once
MXNet was imported and warm. Weights, activations, gradients and what oneDNN and graphs take are all in it.

On a GPU it is the GPU's memory, which MXNet keeps once it has it; nobody else should use that GPU meanwhile.
"""

from __future__ import annotations

from typing import List

import mxsame
from benchmarks import networks, results
from benchmarks.architectures import NETWORKS
from benchmarks.places import HERE, Device, Place
from benchmarks.worker import MIB, alone, peak, resident
from mxsame._mxnet import mx

STEPS = 3  # after which nothing grows any more


def measure(case: networks.Case, place: Place = HERE) -> List[dict]:
    """Rows for inference, deployed inference and training; ratios to symmetric padding."""
    rows = [_row(case, "inference", networks.GRAPHS, "inference", place)]
    if hasattr(mxsame, "deploy"):
        rows.append(_row(case, "inference, deployed", networks.DEPLOYED, "inference", place))
    return [*rows, _row(case, "training step", networks.GRAPHS, "training", place)]


def _row(case: networks.Case, mode: str, contestants: tuple, task: str, place: Place) -> dict:
    more = {"network": case.network.name, "batch": case.batch, "size": case.size, "width": case.width}
    asked = {**more, "task": task, "device": place.device}
    figures = {name: [alone("memory:measure_one", contestant=name, **asked)] for name in contestants}
    return results.row(f"{case.network.name}, batch {case.batch}", mode, figures, contestants[0], unit="MiB", **more)


def measure_one(
    contestant: str, task: str, network: str, batch: int, size: int, width: float, device: Device = HERE.device
) -> float:
    """MiB of one contestant, in this process."""
    place = Place((device[0], device[1]))
    with place.context:
        mx.nd.dot(mx.nd.ones((64, 64)), mx.nd.ones((64, 64))).wait_to_read()
        case = networks.case(next(x for x in NETWORKS if x.name == network), batch, size, width)
        data, wanted = networks.images(case), networks.targets(case)
        mx.nd.waitall()
        before = taken(place)
        net = networks.prepared(case, contestant, networks.kits(case, [contestant])[contestant])
        call = networks.training_step(case, net, data, wanted) if task == "training" else networks.applied(net, data)
        for _ in range(STEPS):
            call()
            mx.nd.waitall()
        return (taken(place) if device[0] == "gpu" else peak()) - before


def taken(place: Place) -> float:
    """MiB that the process has now, on a GPU those that are taken there."""
    if place.device[0] == "cpu":
        return resident()
    free, total = mx.context.gpu_memory_info(place.device[1])
    return float(total - free) / MIB
