"""Measuring plans on this machine: `autotune`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy as np

from mxsame import _gluon, measured, planner, validation
from mxsame._mxnet import mx
from mxsame.graphs import files, tracing
from mxsame.plan import Plan, Window, force
from mxsame.planner import Work

__all__ = ["Tuned", "autotune"]

FLAGS = {"static_alloc": True, "static_shape": True}  # of `hybridize`, for every net that is timed
FORMAT = "mxsame plans 4"
GAIN = 0.02  # what another plan must save of a whole net's time, or of a layer's estimate, to be told from noise


@dataclass(frozen=True)
class Tuned:
    """What was measured for the layers of one geometry: seconds of the whole net by strategy, and the one chosen.

    >>> Tuned((Window(8, 3, 2),), Work("conv", 1, 8, 8), {"slice": 0.002, "concat": 0.001}, "concat").chosen
    'concat'
    """

    windows: tuple[Window, ...]
    work: Work
    seconds: dict[str, float]
    chosen: str


def autotune(net: Any, *args: Any, training: bool = False, rounds: int = 9, path: Optional[str] = None) -> list[Tuned]:
    """Measure the plans that a net's layers have to choose from, and remember the fastest.

    Layer by layer, and those of one geometry together, the net runs with each of the plans, in turns. So what a layer
    costs its neighbours counts too. What is remembered serves every layer of the same geometry, on data of the same
    shape, in every graph of static shape that is built from now on in this process: by `mxsame.hybridize`, and by
    `mxsame.export` with a shape. Every plan runs a dozen times or more: a small net takes about a second, a big one
    minutes. A plan must save more than 2 % of the net's time to take the place of the planner's: a smaller difference
    may be noise, and changes nothing.

    Parameters
    ----------
    net : gluon.HybridBlock
        Initialized, and called once if its channels are deferred. Its parameters are left as they are.
    args : NDArray or mx.np.ndarray
        Data as the net will be called with.
    training : bool
        Whether to measure a forward and backward pass, and to remember it for training.
    rounds : int
        How often every plan has its turn.
    path : str or path, optional
        A file that is read before, if it exists, and written after each geometry: what it holds is not measured again.
        So in another process the same call chooses these plans, and measures nothing. Of processes that write one file
        at the same time, the last one's plans stay.

    Returns
    -------
    A `Tuned` for each geometry that had a choice and was measured now.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, data that does not fit the net, a net that is not initialized or overrides `forward`, and
        a file of another kind.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> net = mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3)
    >>> net.initialize()
    >>> (tuned,) = mxsame.autotune(net, nd.ones((1, 3, 32, 32)), rounds=1)
    >>> sorted(tuned.seconds)
    ['concat', 'flip', 'kernel', 'slice']
    >>> mxsame.autotune(net, nd.ones((1, 3, 32, 32)))  # there is nothing left to measure
    []
    >>> mxsame.planner.forget()
    """
    tracing.check_ready(net)
    arrays = tracing.flattened(args)
    if not arrays or not all(isinstance(array, mx.nd.NDArray) for array in arrays):
        raise TypeError(f"args must be arrays; received args of types {[type(arg).__name__ for arg in args]}")
    training, rounds = validation.flag("training", training), validation.integer("rounds", rounds, 1)
    if path is not None:
        path = files.check_path(path)
        _read(path)
    call = tracing.Call.of(args, arrays, training)
    try:
        with tracing.explained(shapes=list(call.shapes)), _kept(net, arrays):
            return _Tuning(net, arrays, call, call.traced(net), rounds, path).run()
    finally:
        net.apply(_gluon.changed)  # graphs that are there already were built without knowing


def _read(path: str) -> None:
    """Add what was measured in another process, if the file exists."""
    if not os.path.exists(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            measured.add(json.load(file)[FORMAT])
    except (AttributeError, LookupError, OSError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"path must be a file that mxsame.autotune of this version has written ({error!r}); "
            f"{validation.received(path=path)}"
        ) from None


class _Tuning(NamedTuple):
    """A net that is measured, and how."""

    net: Any
    arrays: list
    call: tracing.Call
    trace: tracing.Trace
    rounds: int
    path: Optional[str]

    def run(self) -> list[Tuned]:
        """Measure each geometry that has a choice and was not measured yet."""
        tuned_layers: list[Tuned] = []
        decisions = [decision for each in self._lowered().decisions for decision in each]
        for decision in {(decision.windows, decision.work): decision for decision in decisions}.values():
            plans = planner.candidates(decision.windows, decision.work, decision.allowed)
            if len(plans) > 1 and measured.fastest(decision.windows, decision.work) is None:
                if not tuned_layers:
                    self._save()  # what cannot be written fails now
                tuned_layers.append(self._fastest(decision, plans))
                self._save()  # who loses patience keeps what was measured
        return tuned_layers

    def _lowered(self) -> tracing.Lowered:
        with force(None):
            return self.call.lowered(self.net, self.trace)

    def _save(self) -> None:
        if self.path is not None:
            with files.draft_for(self.path) as draft, open(draft, "w", encoding="utf-8") as file:
                json.dump({FORMAT: measured.everything()}, file, indent=1)

    def _fastest(self, decision: Any, plans: dict[str, Plan]) -> Tuned:
        """Time the net with each strategy for the layers of one geometry; remember the fastest."""
        windows, work, calls = decision.windows, decision.work, {}
        try:
            for strategy in plans:
                measured.prefer(windows, work, strategy)
                calls[strategy] = self._step()
        finally:
            measured.prefer(windows, work, None)
        seconds = {name: spread(figures)[1] for name, figures in measure(calls, self.rounds, seconds=1.0).items()}
        planned = next((strategy for strategy, plan in plans.items() if plan == decision.plan), next(iter(plans)))
        fastest = min(seconds, key=lambda strategy: seconds[strategy])
        chosen = fastest if seconds[fastest] < (1 - GAIN) * seconds[planned] else planned
        measured.prefer(windows, work, chosen)
        return Tuned(windows, work, seconds, chosen)

    def _step(self) -> Callable[[], Any]:
        """What is timed: the net by the plans that are the fastest as far as is known."""
        graph = tracing.NetGraph(self.net, self.call, self._lowered().outputs, FLAGS)
        if self.call.purpose != "training":
            return lambda: graph(*self.arrays)

        def step() -> None:
            with mx.autograd.record():
                outputs = tracing.flattened(graph(*self.arrays))
            mx.autograd.backward(outputs)

        return step


@contextlib.contextmanager
def _kept(net: Any, arrays: list) -> Iterator[None]:
    """What a training step writes is put back: moving statistics and gradients."""
    written = [array.grad for array in arrays if array.grad is not None]
    for parameter in net.collect_params().values():
        written += parameter.list_data() if parameter.grad_req == "null" else parameter.list_grad()
    copies = [array.copy() for array in written]
    try:
        yield
    finally:
        for array, copied in zip(written, copies):
            array[:] = copied


# ---- variants timed in interleaved rounds, so that whatever else the machine does affects all of them ---------------


def measure(
    variants: dict[str, Callable[[], object]],
    rounds: int = 15,
    seconds: float = 3.0,
    turn: float = 5e-3,
) -> dict[str, list[float]]:
    """Seconds per call of each variant, one figure a round; in a round each has one turn, in a random order.

    In its turn a variant runs as often as fills `turn` seconds, and once before, not counted, so that its data is in
    the caches, as it is for a user who runs no other variant in between. Rounds end early after `seconds` per variant,
    but not before the fifth.
    """
    repeats = {}
    for name, call in variants.items():
        _timed(call, 2)
        repeats[name] = max(1, round(turn / max(_timed(call, 1), 1e-6)))
    seconds_of: dict[str, list[float]] = {name: [] for name in variants}
    order, shuffle = list(variants), random.Random(0).shuffle
    began = time.perf_counter()
    for finished in range(rounds):
        shuffle(order)
        for name in order:
            _timed(variants[name], 1)
            seconds_of[name].append(_timed(variants[name], repeats[name]) / repeats[name])
        if finished >= 4 and time.perf_counter() - began > seconds * len(variants):
            break
    return seconds_of


def spread(figures: list[float]) -> tuple[float, float, float]:
    """(lower quartile, median, upper quartile)."""
    return tuple(np.percentile(figures, (25, 50, 75)).tolist())


def _timed(call: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    mx.nd.waitall()
    return time.perf_counter() - began
