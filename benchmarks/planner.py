"""The planner against the best of its plans: every exact strategy is forced on a layer, and timed beside its choice.

Strategies that give the same graph are one contestant. What beats the planner's choice is measured against it once
more, the two alone: the least of many noisy medians would flatter it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import mxsame
from benchmarks import results
from benchmarks.layers import FLAGS, Layer, alone, call, inputs
from mxsame._timing import measure as timed
from mxsame.plan import STRATEGIES, TRANSPOSED_STRATEGIES, force

PLANNER = "planner"
LEFT_ALONE = ("native", "full")  # most layers do not know these and keep their plan, which gets its name from others


def measure(layer: Layer, known: bool, train: bool = False, **timing: Any) -> dict:
    """One row; `loss` is the planner's time over the best plan's, `best` that plan's name."""
    data = inputs(layer, train)
    nets, alias = plans(layer, known)
    for strategy, net in nets.items():
        with force(None if strategy == PLANNER else strategy):
            net(data).wait_to_read()
    calls = {name: call(net, data, train) for name, net in nets.items()}
    figures = timed(calls, **timing)
    row = results.row(layer.name, _mode(known, train), figures, PLANNER, odd=layer.odd, planned=alias)
    best = min(figures, key=lambda name: row["figures"][name]["median"])
    row.update(best=best, loss=1.0)
    if best != PLANNER:
        again = timed({name: calls[name] for name in (PLANNER, best)}, **timing)
        row["loss"] = max(1.0, 1 / results.ratio(results.row(layer.name, "", again, PLANNER), best))
    return row


def plans(layer: Layer, known: bool) -> Tuple[Dict[str, Any], List[str]]:
    """The planner's net and one for each other graph that a strategy gives; and the strategies that give the
    planner's."""
    family = TRANSPOSED_STRATEGIES if layer.kind == "transposed" else STRATEGIES
    nets, names = {}, {}
    for strategy in (PLANNER, *sorted(family, key=LEFT_ALONE.__contains__)):
        net = alone(layer)
        graph = _graph(layer, net, known, None if strategy == PLANNER else strategy)
        if graph is not None:
            names.setdefault(graph, []).append(strategy)
            nets.setdefault(names[graph][0], net)
    for net in nets.values():
        if known:
            mxsame.hybridize(net, **FLAGS)
        else:
            net.hybridize(**FLAGS)
    return nets, next(iter(names.values()))[1:]


def _graph(layer: Layer, net: Any, known: bool, strategy: Optional[str]) -> Optional[str]:
    """The graph's operators, attributes and edges, without names; None if the strategy is not exact here."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with force(strategy):
                file, _ = mxsame.export(net, str(Path(folder, "net")), layer.shape if known else None)
        except ValueError as error:
            if "is not exact" not in str(error):
                raise
            return None
        nodes = json.loads(Path(file).read_text(encoding="utf-8"))["nodes"]
    return json.dumps([(node["op"], node.get("attrs", {}), node["inputs"]) for node in nodes], sort_keys=True)


def _mode(known: bool, train: bool) -> str:
    return f"size {'known' if known else 'unknown'}, {'forward and backward' if train else 'forward'}"
