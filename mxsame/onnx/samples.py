"""Data that a file and its net are compared on: random numbers that the net tells from each other."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from mxsame.rewriting import Graph, Node

MOVES = {  # what leaves elements as they are
    *("identity", "Reshape", "Flatten", "expand_dims", "squeeze", "transpose", "SwapAxis", "Concat", "stack", "tile"),
    *("SliceChannel", "slice", "slice_axis", "reverse", "repeat", "broadcast_axis", "broadcast_to", "broadcast_like"),
}
INTEGERS = {"uint8": (0, 255), "int8": (-100, 100), "int32": (-100, 100), "int64": (-100, 100), "bool": (0, 1)}
Count = Callable[[Node, Tuple[int, ...]], int]  # of rows, from the node and the shape of its first input
ROWS: Dict[str, Tuple[int, Count]] = {  # operator -> the position of row numbers among its inputs, and how many rows
    "Embedding": (0, lambda node, shape: int(node.attr("input_dim"))),
    "one_hot": (0, lambda node, shape: int(node.attr("depth"))),
    "take": (1, lambda node, shape: shape[int(node.attr("axis", 0))]),
    "pick": (1, lambda node, shape: shape[int(node.attr("axis", -1))]),
}
STEPS: Dict[str, Callable[[float, float, float], Tuple[float, float]]] = {  # kind: (scale, offset, number) -> the next
    "add": lambda scale, offset, number: (scale, offset + number),
    "subtract": lambda scale, offset, number: (scale, offset - number),
    "multiply": lambda scale, offset, number: (scale * number, offset * number),
    "divide": lambda scale, offset, number: (scale / number, offset / number),
}


class Range(NamedTuple):
    """From the lowest number to the highest one, all of them or whole ones, and whether these are numbers of rows; what
    an input must be times `scale`, plus `offset`."""

    low: float
    high: float
    whole: bool = False
    rows: bool = False
    scale: float = 1.0
    offset: float = 0.0

    @property
    def width(self) -> float:
        """Of the input's range."""
        return abs((self.high - self.low) / self.scale)

    def data(self, random: Any, shape: Tuple[int, ...]) -> np.ndarray:
        """Random numbers for the input; with numbers of rows, one is the last."""
        if not self.whole:
            values = random.uniform(self.low, self.high, shape)
        else:
            values = random.integers(int(self.low), int(self.high), shape, endpoint=True)
            values.flat[: int(self.rows)] = int(self.high)
        return np.asarray((values - self.offset) / self.scale)


def samples(graph: Graph, shapes: Mapping[str, Tuple[int, ...]], dtype: Any) -> Dict[str, np.ndarray]:
    """Arrays for the inputs of a graph.

    Numbers of rows, for what goes into Embedding, take, one_hot or pick, are from all of them. What is scaled first, as
    pictures are, has about 1 after that. What is cast to integers has several of them."""
    random, traced, users = np.random.default_rng(0), graph.shapes(), graph.users()
    found: Dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        variable = next((node for node in users if node.op == "null" and node.name == name), None)
        ranges = [] if variable is None else list(_ranges(graph, users, traced, variable))
        rows = [each for each in ranges if each.rows]
        if rows:
            chosen = min(rows, key=lambda each: each.width)
        else:
            chosen = max(ranges, key=lambda each: each.width, default=Range(-1, 1))
        found[name] = chosen.data(random, shape).astype(dtype)
    return found


def _ranges(graph: Graph, users: Mapping[Node, list], shapes: Mapping[Node, tuple], variable: Node) -> Iterator[Range]:
    """What each operator wants that uses an input, or what is made of it by moving, casting and scaling alone."""
    waiting: List[Tuple[Node, Range]] = [(variable, Range(-1, 1))]
    seen = set()
    while waiting:
        source, wanted = waiting.pop()
        if (source, wanted) in seen:
            continue
        seen.add((source, wanted))
        for node, position in users[source]:
            if node is None:
                yield wanted
            elif node.kind in MOVES:
                waiting.append((node, wanted))
            elif node.op == "Cast":
                low, high = INTEGERS.get(node.attr("dtype"), wanted[:2])
                waiting.append((node, wanted._replace(low=low, high=high, whole=node.attr("dtype") in INTEGERS)))
            elif node.op in ROWS and ROWS[node.op][0] == position:
                count = ROWS[node.op][1](node, shapes.get(node.inputs[0].node, ()))
                yield wanted._replace(low=0, high=count - 1, whole=True, rows=True)
            else:
                step = _step(graph, node, position, wanted)
                if step is None:
                    yield wanted
                else:
                    waiting.append((node, wanted._replace(scale=step[0], offset=step[1])))


def _step(graph: Graph, node: Node, position: int, wanted: Range) -> Optional[Tuple[float, float]]:
    """Scale and offset after arithmetic with a number, or with a parameter, whose mean is taken; None for anything
    else, and for numbers that leave nothing of the data."""
    kind = node.kind[: -len("_scalar")] if node.kind.endswith("_scalar") else node.kind
    if kind not in STEPS or (position and kind in ("subtract", "divide")):
        return None
    if kind != node.kind:
        number = float(node.attr("scalar"))
    else:
        value = graph.value(node.inputs[1 - position])
        if value is None:
            return None
        number = float(value.mean())
    if not np.isfinite(number) or (kind in ("multiply", "divide") and not 1e-6 < abs(number) < 1e6):
        return None
    return STEPS[kind](wanted.scale, wanted.offset, number)
