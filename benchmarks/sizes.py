"""A network called with many sizes: what first calls cost, and whether later ones are slower than with one size alone.

MXNet plans its memory anew whenever the shape changes, so symmetric padding, called in the same way, is here too.
"""

from __future__ import annotations

import random
import time
from typing import Any, Dict, List, Tuple

import mxsame
from benchmarks import networks, results
from benchmarks.architectures import NETWORKS
from benchmarks.memory import taken
from benchmarks.places import HERE, Device, Place
from benchmarks.worker import alone
from mxsame._mxnet import mx

CONTESTANTS = ("symmetric", "mxsame", "mxsame, any size")
COUNTS = (1, 10, 100)
SHAPES = ("squares", "rectangles")
RANGE = range(64, 164)
ALONE, IN_TURN = "one size at a time", "sizes in turn"


def sizes(shape: str, count: int) -> List[Tuple[int, int]]:
    """So many different sizes in no order; rectangles have heights and widths that know nothing of each other."""
    heights, widths = list(RANGE), list(RANGE)
    random.Random(0).shuffle(heights)
    random.Random(1).shuffle(widths)
    return list(zip(heights, heights if shape == "squares" else widths))[:count]


def net(network: str, width: float, contestant: str) -> Any:
    """A net without static memory, which would have to be laid out anew for every size."""
    case = networks.case(next(x for x in NETWORKS if x.name == network), 1, RANGE.start, width)
    made = networks.kits(case, [contestant])[contestant].net
    if contestant == "mxsame":
        return mxsame.hybridize(made)
    made.hybridize()
    return made


def images(shape: str, count: int) -> List[Any]:
    return [mx.nd.random.uniform(shape=(1, networks.CHANNELS, *size)) for size in sizes(shape, count)]


# -- first calls, each contestant in a process of its own


def first_calls(
    network: str, width: float, contestant: str, shape: str, count: int, device: Device = HERE.device
) -> Dict[str, float]:
    """Seconds and MiB of the first calls with so many sizes, and how many graphs came of them."""
    place = Place((device[0], device[1]))
    with place.context:
        data, made = images(shape, count), net(network, width, contestant)
        mx.nd.waitall()
        before, began = taken(place), time.perf_counter()
        for image in data:
            made(image).wait_to_read()
        seconds = time.perf_counter() - began
    graphs = len(made.forward.graphs) if contestant == "mxsame" else 1
    return {"seconds": seconds, "MiB": taken(place) - before, "graphs": graphs}


def measure_first_calls(network: str, width: float, shape: str, count: int, place: Place = HERE) -> List[dict]:
    """Two rows: time and memory of the first calls."""
    arguments = {"network": network, "width": width, "shape": shape, "count": count}
    asked = {**arguments, "device": place.device}
    found = {name: alone("sizes:first_calls", contestant=name, **asked) for name in CONTESTANTS}
    name, more = _name(shape, count), {**arguments, "graphs": found["mxsame"]["graphs"]}
    times = {contestant: [figures["seconds"]] for contestant, figures in found.items()}
    memory = {contestant: [max(figures["MiB"], 0.1)] for contestant, figures in found.items()}
    return [
        results.row(name, "first calls", times, "symmetric", **more),
        results.row(name, "memory after first calls", memory, "symmetric", unit="MiB", **more),
    ]


# -- the steady state


def measure_steady(network: str, width: float, shape: str, count: int, rounds: int, place: Place = HERE) -> List[dict]:
    """How much slower a contestant is when the sizes take turns; and contestants against symmetric padding."""
    with place.home:
        figures = _steady(network, width, shape, count, rounds)
    more = {"network": network, "width": width, "shape": shape, "count": count}
    name = _name(shape, count)
    own = [
        results.row(f"{name}, {contestant}", "steady state", found, ALONE, contestant=contestant, **more)
        for contestant, found in figures.items()
    ]
    between = [
        results.row(name, way, {key: found[way] for key, found in figures.items()}, "symmetric", **more)
        for way in (ALONE, IN_TURN)
    ]
    return own + between


def _steady(network: str, width: float, shape: str, count: int, rounds: int) -> Dict[str, Dict[str, List[float]]]:
    data = images(shape, count)
    nets = {name: net(network, width, name) for name in CONTESTANTS}
    for made in nets.values():
        in_turn(made, data)
    mx.nd.waitall()
    figures: Dict[str, Dict[str, List[float]]] = {name: {ALONE: [], IN_TURN: []} for name in CONTESTANTS}
    order = [(name, way) for name in CONTESTANTS for way in (one_at_a_time, in_turn)]
    for number in range(rounds):
        random.Random(number).shuffle(order)
        for name, way in order:
            figures[name][ALONE if way is one_at_a_time else IN_TURN].append(way(nets[name], data))
    return figures


def in_turn(made: Any, data: List[Any]) -> float:
    """Seconds of one call with each size, one after the other."""
    return sum(_seconds(made, image) for image in data)


def one_at_a_time(made: Any, data: List[Any]) -> float:
    """The same where each call follows one of its own size, which is not counted."""
    seconds = 0.0
    for image in data:
        _seconds(made, image)
        seconds += _seconds(made, image)
    return seconds


def _seconds(made: Any, image: Any) -> float:
    began = time.perf_counter()
    made(image).wait_to_read()
    return time.perf_counter() - began


def _name(shape: str, count: int) -> str:
    return f"{count} {shape if count > 1 else shape[:-1]}"
