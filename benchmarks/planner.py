"""The planner against the best of its plans: every exact strategy is forced on a layer, and timed beside its choice.

Strategies that give the same graph are one contestant. What beats the planner's choice is measured against it once
more, the two alone: the least of many noisy medians would flatter it.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Tuple

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
    calls, alias = plans(layer, known, train, data)
    figures = timed(calls, **timing)
    row = results.row(layer.name, _mode(known, train), figures, PLANNER, odd=layer.odd, planned=alias)
    best = min(figures, key=lambda name: row["figures"][name]["median"])
    row.update(best=best, loss=1.0)
    if best != PLANNER:
        again = timed({name: calls[name] for name in (PLANNER, best)}, **timing)
        row["loss"] = max(1.0, 1 / results.ratio(results.row(layer.name, "", again, PLANNER), best))
    return row


def plans(layer: Layer, known: bool, train: bool, data: Any) -> Tuple[Dict[str, Callable[[], Any]], List[str]]:
    """Calls of the planner's net and of one for each other graph that a strategy gives; and the strategies that give
    the planner's. The graphs are built, each under its force."""
    family = TRANSPOSED_STRATEGIES if layer.kind == "transposed" else STRATEGIES
    calls, names = {}, {}
    for strategy in (PLANNER, *sorted(family, key=LEFT_ALONE.__contains__)):
        net = alone(layer)
        if known:
            mxsame.hybridize(net, **FLAGS)
        else:
            net.hybridize(**FLAGS)
        made = call(net, data, train)
        try:
            with force(None if strategy == PLANNER else strategy):
                made()
        except ValueError as error:
            if "is not exact" not in str(error):
                raise
            continue
        same = names.setdefault(_graph(net), [])
        same.append(strategy)
        calls.setdefault(same[0], made)
    return calls, next(iter(names.values()))[1:]


def _graph(net: Any) -> str:
    """The operators, attributes and edges of the graph that a net has built, without names."""
    (built,) = net.forward.graphs.values() if "forward" in vars(net) else (net,)
    nodes = json.loads(built._cached_graph[1].tojson())["nodes"]
    return json.dumps([(node["op"], node.get("attrs", {}), node["inputs"]) for node in nodes], sort_keys=True)


def _mode(known: bool, train: bool) -> str:
    return f"size {'known' if known else 'unknown'}, {'forward and backward' if train else 'forward'}"
