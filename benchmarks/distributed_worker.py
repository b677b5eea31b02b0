"""A process of a cluster that benchmarks.distributed measures. In a server, importing MXNet serves."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable, Dict, List

WARM, TIMED = 3, 12  # steps


def main() -> None:
    task = json.loads(sys.argv[1])
    clustered = "DMLC_PS_ROOT_URI" in os.environ
    if not clustered:
        os.sched_setaffinity(0, {task["core"]})
    from mxsame._mxnet import mx

    store = mx.kvstore.create("dist_sync") if clustered else None
    found = {"training": training, "exchange": exchange}[task["task"]](store, task)
    mx.nd.waitall()
    if store is None or store.rank == 0:
        print("RESULT", json.dumps(found), flush=True)


def training(store: Any, task: Dict[str, Any]) -> Dict[str, Any]:
    """Seconds of steps of a network; the servers update."""
    from benchmarks import networks
    from benchmarks.architectures import named
    from benchmarks.distributed import exchanged
    from mxsame._mxnet import mx

    network = named(task["network"])
    case = networks.case(network, task["batch"], task["size"], task["width"])
    net = networks.prepared(case, "mxsame", networks.kits(case, ["mxsame"])["mxsame"])
    data, aims = networks.images(case), networks.targets(case)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    settings = {"learning_rate": networks.LEARNING_RATE, "momentum": networks.MOMENTUM}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store)

    def step() -> None:
        with mx.autograd.record():
            found = loss(net(data), aims)
        found.backward()
        trainer.step(task["batch"])
        mx.nd.waitall()

    return {"seconds": timed(step), "sizes": exchanged(net.collect_params())}


def exchange(store: Any, task: Dict[str, Any]) -> Dict[str, Any]:
    """Seconds in which gradients are sent and sums come back, for each number of arrays and of elements."""
    from mxsame._mxnet import mx

    found, key = [], 0
    for keys, elements in task["exchanges"]:
        arrays = [mx.nd.ones(elements // keys) for _ in range(keys)]
        numbers = range(key, key + keys)
        key += keys
        for number, array in zip(numbers, arrays):
            store.init(number, array)

        def step(numbers: range = numbers, arrays: List[Any] = arrays) -> None:
            for number, array in zip(numbers, arrays):
                store.pushpull(number, array, out=array, priority=-number)
            mx.nd.waitall()

        found.append(timed(step))
    return {"seconds": found}


def timed(step: Callable[[], None]) -> List[float]:
    for _ in range(WARM):
        step()
    seconds = []
    for _ in range(TIMED):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
