"""A network called with many sizes: what first calls cost, and whether later ones are slower than with one size only.

MXNet plans its memory anew whenever the shape changes, so symmetric padding, called in the same way, is here too.
"""

from __future__ import annotations

import random
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import mxsame
from benchmarks import networks, results
from benchmarks.architectures import named
from benchmarks.worker import alone, resident
from mxsame._mxnet import mx
from mxsame.graphs.hybridize import GraphCache

VARIANTS = ("symmetric", "mxsame", "mxsame, dynamic shape")
COUNTS = (1, 10, 100)
SHAPES = ("squares", "rectangles")
RANGE = range(64, 164)
ONE, IN_TURN = "one size at a time", "sizes in turn"


def sizes(shape: str, count: int) -> List[Tuple[int, int]]:
    """So many different sizes in no order; the heights and widths of rectangles are independent."""
    heights, widths = list(RANGE), list(RANGE)
    random.Random(0).shuffle(heights)
    random.Random(1).shuffle(widths)
    return list(zip(heights, heights if shape == "squares" else widths))[:count]


def net(network: str, width: float, variant: str) -> Any:
    """A net without static memory, which would have to be laid out anew for every size."""
    made = networks.kits(networks.case(named(network), 1, RANGE.start, width), [variant])[variant].net
    if variant == "mxsame":
        return mxsame.hybridize(made)
    made.hybridize()
    return made


def images(shape: str, count: int) -> List[Any]:
    return [mx.nd.random.uniform(shape=(1, networks.CHANNELS, *size)) for size in sizes(shape, count)]


def turns(variants: Sequence[Any], rounds: int) -> Iterator[Any]:
    """Each of them once in every round, in a random order."""
    for number in range(rounds):
        yield from random.Random(number).sample(variants, len(variants))


# -- first calls


def first_calls(network: str, width: float, variant: str, shape: str, count: int) -> Dict[str, float]:
    """Seconds and MiB of the first calls with so many sizes."""
    data, made = images(shape, count), net(network, width, variant)
    mx.nd.waitall()
    before, started = resident(), time.perf_counter()
    for image in data:
        made(image).wait_to_read()
    return {"seconds": time.perf_counter() - started, "MiB": resident() - before}


def measure_first_calls(network: str, width: float, shape: str, count: int, rounds: int) -> List[dict]:
    """Two rows: time and memory of the first calls; in every round a new process of each variant, in random order."""
    given = {"network": network, "width": width, "shape": shape, "count": count}
    runs_of: Dict[str, List[Dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for variant in turns(VARIANTS, rounds):
        runs_of[variant].append(alone("sizes:first_calls", variant=variant, **given))
    name = _name(shape, count)
    times = {variant: [each["seconds"] for each in runs] for variant, runs in runs_of.items()}
    memory = {variant: [max(each["MiB"], 0.1) for each in runs] for variant, runs in runs_of.items()}
    return [
        results.row(name, "first calls", times, "symmetric", **given),
        results.row(name, "memory after first calls", memory, "symmetric", unit="MiB", **given),
    ]


# -- the steady state


def measure_steady(network: str, width: float, shape: str, count: int, rounds: int) -> List[dict]:
    """How much slower a variant is when the sizes take turns; and variants compared with symmetric padding."""
    data = images(shape, count)
    nets = {name: net(network, width, name) for name in VARIANTS}
    for made in nets.values():
        for _ in range(GraphCache.COMPILING_CALL):  # a new signature then has its graph
            in_turn(made, data)
    figures: Dict[str, Dict[str, List[float]]] = {name: {ONE: [], IN_TURN: []} for name in VARIANTS}
    for name, way in turns([(name, way) for name in VARIANTS for way in (one_at_a_time, in_turn)], rounds):
        figures[name][ONE if way is one_at_a_time else IN_TURN].append(way(nets[name], data))
    name, more = _name(shape, count), {"network": network, "width": width, "shape": shape, "count": count}
    own = [
        results.row(f"{name}, {variant}", "steady state", times, ONE, variant=variant, **more)
        for variant, times in figures.items()
    ]
    between = [
        results.row(name, way, {key: times[way] for key, times in figures.items()}, "symmetric", **more)
        for way in (ONE, IN_TURN)
    ]
    return own + between


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
    started = time.perf_counter()
    made(image).wait_to_read()
    return time.perf_counter() - started


def _name(shape: str, count: int) -> str:
    return f"{count} {shape if count > 1 else shape[:-1]}"
