"""Graphs for a GPU, run on the CPU: operators that only a GPU has are replaced by those that every MXNet has."""

from __future__ import annotations

import json

from mxsame._mxnet import mx

FIRST = {"NHWC": "NCHW"}
WEIGHTED = ("Convolution", "Deconvolution")
INWARD, OUTWARD = "(0, 3, 1, 2)", "(0, 2, 3, 1)"


def on_cpu(symbol):
    """The same graph with every operator that has channels last between transposes."""
    graph = json.loads(symbol.tojson())
    written, position_of = [], {}

    def add(node) -> int:
        written.append(node)
        return len(written) - 1

    def turned(source, axes, name) -> list:
        node = {"op": "transpose", "name": name, "attrs": {"axes": axes}, "inputs": [source]}
        return [add(node), 0, 0]

    for position, node in enumerate(graph["nodes"]):
        node["inputs"] = [[position_of[source], index, 0] for source, index, *_ in node["inputs"]]
        layout = node.get("attrs", {}).get("layout")
        if layout not in FIRST:
            position_of[position] = add(node)
            continue
        node["attrs"]["layout"] = FIRST[layout]
        weighted = 2 if node["op"] in WEIGHTED else 1
        for number, source in enumerate(node["inputs"][:weighted]):
            node["inputs"][number] = turned(source, INWARD, f"{node['name']}_in{number}")
        position_of[position] = turned([add(node), 0, 0], OUTWARD, f"{node['name']}_out")[0]
    graph["heads"] = [[position_of[source], index, 0] for source, index, *_ in graph["heads"]]
    graph["arg_nodes"] = [position for position, node in enumerate(written) if node["op"] == "null"]
    graph["nodes"] = written
    graph.pop("node_row_ptr", None)
    return mx.sym.load_json(json.dumps(graph))
