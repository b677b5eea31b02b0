"""MXNet's parameter server: steps of one and two workers, what the server costs, and a model of more machines.

Workers are pinned to a core each; scheduler and server run on any. All of a round run one after the other, each in
processes of its own, and only steps after the first are timed. The model is fitted to exchanges of gradients and
weights on this machine and compared with them and with the steps of the networks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from benchmarks import results
from mxsame._timing import spread

ROOT = Path(__file__).parent.parent
LAUNCH = ROOT / "examples" / "distributed" / "launch.py"
NETWORKS = (("mobilenetv2", 0.5, 64, 8), ("resnet50", 0.25, 64, 8))  # name, width, size, batch of a worker
EXCHANGES = ((4, 2**16), (64, 2**16), (4, 2**21), (64, 2**21), (16, 2**23))  # arrays, and elements of all together
LARGE = ("mobilenetv2", "resnet50")  # of full width: what is extrapolated
MACHINES = (2, 8, 64)
GIGABITS = (1, 10, 100)
# Elements from which MXNet divides an array among the servers, MXNET_KVSTORE_BIGARRAY_BOUND: by default, and less.
BOUNDS = (10**6, 10**4)
BYTES = 4


# -- the model


class Held(NamedTuple):
    """What a server has: arrays or parts of arrays, each a message of every worker, and elements of all together."""

    messages: int
    elements: float


def placed(sizes: Sequence[int], servers: int = 1, bound: int = BOUNDS[0]) -> List[Held]:
    """What each server has of arrays of these sizes, in the order of their keys; those of size 0 are not exchanged.

    MXNet gives an array below `bound` to the server of number key * 9973 modulo `servers`, and divides larger ones
    (EncodeDefaultKey in its src/kvstore/kvstore_dist.h).

    >>> placed([10, 0, 20, 10**6], servers=2)
    [Held(messages=3, elements=500030.0), Held(messages=1, elements=500000.0)]
    """
    held = [Held(0, 0.0)] * servers
    for key, size in enumerate(sizes):
        for server in range(servers) if size >= bound else [key * 9973 % servers] if size else []:
            messages, elements = held[server]
            held[server] = Held(messages + 1, elements + (size / servers if size >= bound else size))
    return held


@dataclass(frozen=True)
class Costs:
    """Seconds of an exchange in which a worker sends gradients and gets weights: fitted to what was measured here."""

    message_at_worker: float
    message_at_server: float
    byte_at_worker: float
    byte_at_server: float

    def seconds(self, workers: int, held: Sequence[Held]) -> float:
        """Of one step. Nothing overlaps: a worker's own time, and the busiest server's for all workers."""
        messages, elements = (sum(numbers) for numbers in zip(*held))
        worker = messages * self.message_at_worker + BYTES * elements * self.byte_at_worker
        server = max(
            each.messages * self.message_at_server + BYTES * each.elements * self.byte_at_server for each in held
        )
        return worker + workers * server


def wire_seconds(workers: int, held: Sequence[Held], bytes_per_second: float) -> float:
    """What the network adds where each machine has a worker and a server: gradients out, and replies to all workers.

    The busiest machine sends its own gradients, and its server's part of the weights to every worker.
    """
    elements = sum(each.elements for each in held) + workers * max(each.elements for each in held)
    return BYTES * elements / bytes_per_second


def fitted(rows: Sequence[dict]) -> Costs:
    """The costs that fit measured exchanges best, relative to their time; none is negative."""
    features, times = [], []
    for row in rows:
        for variant, figure in row["figures"].items():
            workers, (messages, elements) = int(variant.split()[0]), _on_one_server(row)
            features.append([messages, workers * messages, BYTES * elements, workers * BYTES * elements])
            times.append(figure["median"])
    scaled = np.array(features) / np.array(times)[:, None]  # times become ones
    return Costs(*_nonnegative(scaled, np.ones(len(times))))


def _on_one_server(row: dict) -> Held:
    return Held(row["keys"], row["bytes"] / BYTES)


def _nonnegative(matrix: np.ndarray, wanted: np.ndarray) -> List[float]:
    """Least squares without negative unknowns: the best of all subsets, of which there are 15."""
    best: Tuple[float, List[float]] = (float("inf"), [])
    count = matrix.shape[1]
    for chosen in range(1, 2**count):
        columns = [column for column in range(count) if chosen >> column & 1]
        found = np.linalg.lstsq(matrix[:, columns], wanted, rcond=None)[0]
        wrong = float(np.sum((matrix[:, columns] @ found - wanted) ** 2))
        if (found >= 0).all() and wrong < best[0]:
            full = [0.0] * count
            for column, value in zip(columns, found):
                full[column] = float(value)
            best = wrong, full
    return best[1]


def extrapolated(costs: Costs, name: str, sizes: Sequence[int]) -> List[dict]:
    """What an exchange takes on more machines, each with a worker and a server: on processors, and on the wire.

    A network whose step computes for less than this is bound by it.
    """
    rows = []
    for bound in BOUNDS:
        for machines in MACHINES:
            held = placed(sizes, machines, bound)
            rows.append(
                {
                    "name": name,
                    "bytes": BYTES * sum(sizes),
                    "machines": machines,
                    "bound": bound,
                    "messages": sum(each.messages for each in held),
                    "share": max(each.elements for each in held) / sum(sizes),
                    "processors": costs.seconds(machines, held),
                    "wires": {str(speed): wire_seconds(machines, held, speed * 1e9 / 8) for speed in GIGABITS},
                }
            )
    return rows


# -- what is measured


def measure_training(name: str, width: float, size: int, batch: int, rounds: int) -> List[dict]:
    """Seconds per step with the same batch for each worker: how little a second worker costs is how well it scales."""
    task = {"task": "training", "network": name, "width": width, "size": size, "batch": batch}
    variants = {"1 process": 0, "1 worker": 1, "2 workers": 2}
    found: Dict[str, List[float]] = {variant: [] for variant in variants}
    for turn in range(rounds):
        for variant, workers in list(variants.items())[:: 1 if turn % 2 else -1]:
            measured = run(workers, task)
            found[variant].append(spread(measured["seconds"])[1])
    more = {"batch": batch, "keys": sum(map(bool, measured["sizes"])), "bytes": BYTES * sum(measured["sizes"])}
    return [results.row(f"{name}, width {width}, {batch} pictures", "training step", found, "1 process", **more)]


def measure_exchanges(rounds: int) -> List[dict]:
    """Seconds of an exchange, for one worker and for two."""
    task = {"task": "exchange", "exchanges": EXCHANGES}
    found: List[Dict[str, List[float]]] = [{"1 worker": [], "2 workers": []} for _ in EXCHANGES]
    for turn in range(rounds):
        for workers in (1, 2) if turn % 2 else (2, 1):
            for each, seconds in zip(found, run(workers, task)["seconds"]):
                each["1 worker" if workers == 1 else "2 workers"].append(spread(seconds)[1])
    return [
        results.row(
            f"{elements * BYTES / 2**20:g} MiB in {keys} arrays",
            "exchange",
            each,
            "1 worker",
            keys=keys,
            bytes=elements * BYTES,
        )
        for (keys, elements), each in zip(EXCHANGES, found)
    ]


def compared(costs: Costs, rows: Sequence[dict]) -> List[dict]:
    """Measured and by the model: exchanges, and steps of two workers, which are one process's and an exchange."""
    found = []
    for row in rows:
        for variant, figure in row["figures"].items():
            workers = int(variant.split()[0])
            model = costs.seconds(workers, [_on_one_server(row)])
            if row["mode"] == "training step":
                if variant == "1 process":
                    continue
                model += row["figures"]["1 process"]["median"]
            found.append({"name": row["name"], "variant": variant, "measured": figure["median"], "model": model})
    return found


def run(workers: int, task: dict) -> Dict[str, Any]:
    """What benchmarks.distributed_worker finds, in a cluster of so many workers, or without a cluster."""
    cores = sorted(os.sched_getaffinity(0))[: max(workers, 1)]
    own = [sys.executable, "-m", "benchmarks.distributed_worker", json.dumps({**task, "core": cores[0]})]
    pinned = [sys.executable, str(LAUNCH), "--workers", str(workers), "--cores", ",".join(map(str, cores)), "--", *own]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = pinned if workers else own
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{task} failed with {workers} workers:\n{(done.stdout + done.stderr)[-2000:]}")
    (line,) = (line for line in done.stdout.splitlines() if "RESULT " in line)
    return json.loads(line.split("RESULT ", 1)[1])


def sizes_of(name: str) -> List[int]:
    """Elements of the arrays that a network of full width exchanges, in the order of their keys."""
    from benchmarks import networks
    from benchmarks.architectures import NETWORKS as ALL

    case = networks.case(next(network for network in ALL if network.name == name), 1)
    parameters = networks.kits(case, ["mxsame"])["mxsame"].net.collect_params()
    return exchanged(parameters)


def exchanged(parameters: Any) -> List[int]:
    """How many elements each parameter exchanges, as Gluon's trainer numbers them, by name; 0 without a gradient."""
    return [int(np.prod(value.shape)) * (value.grad_req != "null") for _, value in sorted(parameters.items())]


def measure(rounds: int, report: Any) -> Dict[str, Any]:
    """Everything: rows, and what is made of them."""
    rows = []
    for network in NETWORKS:
        report(f"{network[0]} ..")
        rows += measure_training(*network, rounds)
    report("exchanges ..")
    rows += measure_exchanges(rounds)
    costs = fitted([row for row in rows if row["mode"] == "exchange"])
    return {
        "rows": rows,
        "costs": asdict(costs),
        "compared": compared(costs, rows),
        "extrapolated": [row for name in LARGE for row in extrapolated(costs, name, sizes_of(name))],
    }


def show(result: Dict[str, Any]) -> None:
    results.show(result)
    lines = [
        [row["name"], row["variant"], row["measured"] * 1e3, row["model"] * 1e3, row["model"] / row["measured"]]
        for row in result["compared"]
    ]
    results.print_table("The model, ms", ["", "", "measured", "model", "ratio"], lines)
    lines = []
    for row in result["extrapolated"]:
        text = (
            f"{row['name']}, {row['bytes'] / 2**20:.0f} MiB",
            str(row["machines"]),
            str(row["bound"]),
            str(row["messages"]),
        )
        seconds = (row["processors"], *row["wires"].values())
        lines.append([*text, f"{row['share']:.3f}", *(each * 1e3 for each in seconds)])
    speeds = [f"on the wire, {speed} Gbit/s" for speed in GIGABITS]
    columns = ["", "machines", "bound", "messages", "busiest server's share", "on processors", *speeds]
    results.print_table("An exchange with a worker and a server on each machine, ms", columns, lines)
