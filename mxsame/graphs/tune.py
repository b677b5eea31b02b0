"""Measuring plans on this machine: `autotune`."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from mxsame import _gluon, measured, planner, validation
from mxsame._mxnet import mx
from mxsame.graphs import files, timing, tracing
from mxsame.plan import Plan, Window, force
from mxsame.planner import Work

__all__ = ["Tuned", "autotune"]

GAIN = 0.02  # what another plan must save of a whole net's time, or of a layer's estimate, to be told from noise


@dataclass(frozen=True)
class Tuned:
    """What was measured for the layers of one geometry: seconds of the whole net by strategy, and the one chosen.

    >>> Tuned((Window(8, 3, 2),), Work("conv", 1, 8, 8), {"slice": 0.002, "concat": 0.001}, "concat").chosen
    'concat'
    """

    windows: Tuple[Window, ...]
    work: Work
    seconds: Dict[str, float]
    chosen: str


def autotune(net: Any, *args: Any, training: bool = False, rounds: int = 9, path: Optional[str] = None) -> List[Tuned]:
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
        Initialised, and called once if its channels are deferred. Its parameters are left as they are.
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
        For wrong arguments, data that does not fit the net, a net that is not initialised or overrides `forward`, and
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
    if not tracing.is_traceable(net):
        raise TypeError(f"net must not override forward; received net of type {type(net).__name__}")
    arrays = tracing.flattened(args)
    if not arrays or not all(isinstance(array, mx.nd.NDArray) for array in arrays):
        raise TypeError(f"args must be arrays; received args of types {[type(arg).__name__ for arg in args]}")
    training, rounds = validation.flag("training", training), validation.integer("rounds", rounds, 1)
    path = None if path is None else _checked_path(path)
    has_gradients = any(array.grad is not None for array in arrays) or any(
        parameter.grad_req != "null" for parameter in net.collect_params().values()
    )
    if training and not has_gradients:
        raise ValueError(
            f"training must be False where nothing has a gradient; {validation.received(training=training)}"
        )
    call = tracing.Call.of(args, arrays, training)
    try:
        with _kept(net, arrays):
            return _Tuning(net, arrays, call, call.traced(net), rounds, path).run()
    except mx.base.MXNetError as error:
        raise ValueError(
            f"net must run on args; {validation.received(shapes=list(call.shapes))}; "
            f"MXNet says: {tracing.reason(error)}"
        ) from None
    finally:
        _renew(net)


def _checked_path(path: Any) -> str:
    """The path of the file, which has been read if it exists."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a string, a path or None; {validation.received(path=path)}")
    path = os.fspath(path)
    if not path:
        raise ValueError(f"path must not be empty; {validation.received(path=path)}")
    files.check_folder(path)
    if os.path.isdir(path):
        raise ValueError(f"path must be a file, not a folder; {validation.received(path=path)}")
    if os.path.exists(path):
        measured.read(path)
    return path


class _Tuning(NamedTuple):
    """A net that is measured, and how."""

    net: Any
    arrays: list
    call: tracing.Call
    trace: tracing.Trace
    rounds: int
    path: Optional[str]

    def run(self) -> List[Tuned]:
        """Measure each geometry that has a choice and was not measured yet."""
        found: List[Tuned] = []
        decisions = [decision for each in self._lowered().decisions for decision in each]
        for decision in {(decision.windows, decision.work): decision for decision in decisions}.values():
            plans = planner.candidates(decision.windows, decision.work, decision.allowed)
            if len(plans) > 1 and measured.fastest(decision.windows, decision.work) is None:
                if not found:
                    self._save()  # what cannot be written fails now
                found.append(self._fastest(decision, plans))
                self._save()  # who loses patience keeps what was measured
        return found

    def _lowered(self) -> tracing.Lowered:
        with force(None):
            return self.call.lowered(self.net, self.trace)

    def _save(self) -> None:
        if self.path is not None:
            measured.write(self.path)

    def _fastest(self, decision: Any, plans: Dict[str, Plan]) -> Tuned:
        """Time the net with each strategy for the layers of one geometry; remember the fastest."""
        windows, work, calls = decision.windows, decision.work, {}
        try:
            for strategy in plans:
                measured.prefer(windows, work, strategy)
                calls[strategy] = self._step(self.call.graph(self.net, self._lowered().outputs, timing.FLAGS))
        finally:
            measured.prefer(windows, work, None)
        times = timing.measure(calls, self.rounds, seconds=1.0)
        seconds = {strategy: timing.spread(figures)[1] for strategy, figures in times.items()}
        planned = next((strategy for strategy, plan in plans.items() if plan == decision.plan), next(iter(plans)))
        fastest = min(seconds, key=lambda strategy: seconds[strategy])
        chosen = fastest if seconds[fastest] < (1 - GAIN) * seconds[planned] else planned
        measured.prefer(windows, work, chosen)
        return Tuned(windows, work, seconds, chosen)

    def _step(self, graph: tracing.NetGraph) -> Callable[[], Any]:
        """What is timed."""
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


def _renew(net: Any) -> None:
    """Graphs that are there already were built without knowing."""
    _gluon.changed(net)
    for child in _gluon.children(net):
        _renew(child)
