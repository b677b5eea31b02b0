"""A deployed network before and after what gives the calling thread an OpenMP team: reading arrays that oneDNN keeps in
blocks, copying a large array, saving parameters. Every figure is of a new process, once with that team ended before a
graph runs, as mxsame ends it, and once without.
"""

from __future__ import annotations

import os
import statistics
from typing import Any, Dict, List

import mxsame
from benchmarks import networks, results, worker
from benchmarks.architectures import NETWORKS
from benchmarks.timing import timed
from mxsame import threads
from mxsame._mxnet import mx

BEFORE, AFTER, LEFT = "before", "after", "after, the team left"


def times(name: str, batch: int, ends: bool, calls: int = 30) -> Dict[str, float]:
    """Median seconds of a call before and after, in this process."""
    case = networks.case(next(network for network in NETWORKS if network.name == name), batch)
    net = networks.kits(case, ["mxsame"])["mxsame"].net
    run, data = mxsame.deploy(net, case.shape), networks.images(case)
    if not ends:
        threads.keep_awake()
        threads.keep_awake = lambda: None
    before = median(run, data, calls)
    weight = mx.nd.ones((32, 3, 3, 3))
    mx.nd.Convolution(data, weight, no_bias=True, kernel=(3, 3), num_filter=32).asnumpy()
    networks.images(case)
    run.save_parameters(os.devnull)
    return {"before": before, "after": median(run, data, calls)}


def median(run: Any, data: Any, calls: int) -> float:
    return statistics.median(timed(lambda: run(data), 1) for _ in range(calls))


def measure(name: str, batch: int, rounds: int) -> List[dict]:
    """A row: the call afterwards compared with that before, in both kinds of process."""
    figures: Dict[str, List[float]] = {BEFORE: [], AFTER: [], LEFT: []}
    for _ in range(rounds):
        for ends, after in ((True, AFTER), (False, LEFT)):
            medians = worker.alone("threads:times", name=name, batch=batch, ends=ends)
            figures[BEFORE].append(medians["before"])
            figures[after].append(medians["after"])
    return [results.row(f"{name}, batch {batch}", "inference, deployed", figures, BEFORE)]
