"""Measuring plans on this machine: `autotune`."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from mxsame import _timing, planner, validation
from mxsame import graph as graphs
from mxsame._mxnet import mx
from mxsame.ops import _arrays
from mxsame.plan import Window, exact_plans, force
from mxsame.planner import Work

__all__ = ["Tuned", "autotune"]

FLAGS = {"static_alloc": True, "static_shape": True}
GAIN = 0.02  # what another plan must save of a whole net's time, or of a layer's estimate, to be told from noise


@dataclass(frozen=True)
class Tuned:
    """What was measured for the layers of one geometry: seconds of the whole net by strategy, and the one chosen.

    >>> Tuned((Window(8, 3, 2),), Work("conv", 1, 8, 8), {"slice": 0.002, "tail": 0.001}, "tail").chosen
    'tail'
    """

    windows: Tuple[Window, ...]
    work: Work
    seconds: Dict[str, float]
    chosen: str


def autotune(net: Any, *args: Any, training: bool = False, rounds: int = 9, path: Optional[str] = None) -> List[Tuned]:
    """Measure the plans that a net's layers have to choose from, and remember the fastest.

    Layer by layer, and those of one geometry together, the net runs with each of the plans, in turns. So what a layer
    costs its neighbours counts too. What is remembered serves every layer of the same geometry, on data of the same
    shape, in every graph that knows its sizes and is built from now on in this process: by `mxsame.hybridize`, and by
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
    ['gather', 'kernel', 'mirror', 'pad', 'place', 'place tail', 'slice', 'tail']
    >>> mxsame.planner.recall(tuned.windows, tuned.work) == tuned.chosen
    True
    >>> mxsame.planner.forget()
    """
    graphs.check_ready(net)
    if not graphs.is_traceable(net):
        raise TypeError(f"net must not override forward; received net of type {type(net).__name__}")
    arrays = graphs.flattened(args)
    if not arrays or not all(isinstance(array, mx.nd.NDArray) for array in arrays):
        raise TypeError(f"args must be arrays; received args of types {[type(arg).__name__ for arg in args]}")
    training, rounds = validation.flag("training", training), validation.integer("rounds", rounds, 1)
    if path is not None:
        path = _checked_path(path)
    gradients = [array.grad for array in arrays] + [
        parameter.grad_req != "null" or None for parameter in net.collect_params().values()
    ]
    if training and all(gradient is None for gradient in gradients):
        raise ValueError(
            f"training must be False where nothing has a gradient; {validation.received(training=training)}"
        )

    purpose = "training" if training else "inference", _arrays.purpose_and_device(arrays[0])[1]
    try:
        with force(None), _kept(net, arrays):
            found = _all_tuned(net, args, arrays, purpose, rounds, path)
    except mx.base.MXNetError as error:
        shapes = [array.shape for array in arrays]
        raise ValueError(
            f"net must run on args; {validation.received(shapes=shapes)}; MXNet says: {graphs.reason(error)}"
        ) from None
    finally:
        _renew(net)
    return found


def _checked_path(path: Any) -> str:
    """The path of the file, which has been read if it exists."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a string, a path or None; {validation.received(path=path)}")
    path = os.fspath(path)
    graphs.check_folder(path)
    if os.path.isdir(path):
        raise ValueError(f"path must be a file, not a folder; {validation.received(path=path)}")
    if os.path.exists(path):
        planner.load(path)
    return path


def _all_tuned(net: Any, args: tuple, arrays: list, purpose: tuple, rounds: int, path: Optional[str]) -> List[Tuned]:
    _, decisions = graphs.build(net, args, arrays, purpose, FLAGS)
    choices = {(decision.windows, decision.work): decision for decision in decisions}
    found = []
    for (windows, work), decision in choices.items():
        plans = exact_plans(windows, decision.allowed, **decision.rules)
        if len(plans) > 1 and planner.recall(windows, work) is None:
            planned = next((strategy for strategy, plan in plans.items() if plan == decision.plan), next(iter(plans)))
            found.append(_tuned(net, args, arrays, purpose, windows, work, list(plans), planned, rounds))
            if path is not None:  # now: who loses patience keeps what was measured
                planner.save(path)
    return found


def _tuned(
    net: Any,
    args: tuple,
    arrays: list,
    purpose: tuple,
    windows: Tuple[Window, ...],
    work: Work,
    strategies: List[str],
    planned: str,
    rounds: int,
) -> Tuned:
    """Time the net with each strategy for the layers of one geometry; remember the fastest."""
    calls = {}
    for strategy in strategies:
        with planner.trying(windows, work, strategy):
            graph, _ = graphs.build(net, args, arrays, purpose, FLAGS)
        calls[strategy] = _call(graph, arrays, purpose[0] == "training")
    times = _timing.measure(calls, rounds, seconds=1.0)
    seconds = {strategy: _timing.spread(figures)[1] for strategy, figures in times.items()}
    fastest = min(seconds, key=lambda strategy: seconds[strategy])
    chosen = fastest if seconds[fastest] < (1 - GAIN) * seconds[planned] else planned
    planner.remember(windows, work, chosen)
    return Tuned(windows, work, seconds, chosen)


def _call(graph: Any, arrays: list, training: bool) -> Callable[[], Any]:
    if not training:
        return lambda: graph(*arrays)

    def step() -> None:
        with mx.autograd.record():
            outputs = graphs.flattened(graph(*arrays))
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
    net._clear_cached_op()
    for child in net._children.values():
        _renew(child)
