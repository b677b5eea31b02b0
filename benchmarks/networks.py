"""Whole networks with SAME padding, inference and training, against themselves with symmetric padding and TensorFlow.

Every contestant has the same weights. Before anything is timed, those that claim to compute the same must agree.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

import mxsame
from benchmarks import results
from benchmarks.architectures import CLASSES, Network
from benchmarks.kits import LEARNING_RATE, MOMENTUM, STYLES, Kit, copy_weights
from benchmarks.places import BY_LIBRARIES, HERE, Disagreement, Place, by_libraries, difference
from mxsame._mxnet import mx
from mxsame._timing import measure

FLAGS = {"static_alloc": True, "static_shape": True}
LOSS_TOLERANCE = 1e-3  # where normalising by a batch magnifies rounding; that of outputs is the place's
CHANNELS = 3
GRAPHS = ("symmetric", "mxsame", "mxsame, any size", "explicit pad")
DEPLOYED = ("symmetric, deployed", "mxsame, deployed", "explicit pad, deployed")
ALONE = (f"symmetric, {BY_LIBRARIES}", f"mxsame, {BY_LIBRARIES}")
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


@dataclass(frozen=True)
class Case:
    """A network at one size; `width` scales its channels."""

    network: Network
    batch: int
    size: int
    width: float = 1.0

    @property
    def shape(self) -> tuple:
        return (self.batch, CHANNELS, self.size, self.size)


def case(network: Network, batch: int, size: Optional[int] = None, width: float = 1.0) -> Case:
    return Case(network, batch, size or network.size, width)


def build(case: Case, kit: Any) -> Any:
    """The network made of a kit's layers; returns its output."""
    return case.network.build(kit, kit.input(CHANNELS, (case.size, case.size)))


def kits(case: Case, contestants: Sequence[str]) -> Dict[str, Kit]:
    """The network for each contestant, in its style and all with the same weights."""
    made = {contestant: STYLES[contestant.split(",")[0]](case.width) for contestant in contestants}
    mx.random.seed(0)
    for kit in made.values():
        build(case, kit)
        kit.net.initialize(mx.init.MSRAPrelu("in", slope=0))
    first, *others = made.values()
    _randomise_norms(first)
    for other in others:
        copy_weights(first, other)
    return made


def _randomise_norms(kit: Kit) -> None:
    """Statistics as after some training, so that folding them into a convolution wrongly shows."""
    random = np.random.RandomState(1)
    for block in kit.weighted:
        if isinstance(block, mx.gluon.nn.BatchNorm):
            shape = block.gamma.shape
            block.gamma.set_data(mx.nd.array(random.uniform(0.5, 1.5, shape)))
            block.beta.set_data(mx.nd.array(random.normal(0, 0.1, shape)))
            block.running_mean.set_data(mx.nd.array(random.normal(0, 0.1, shape)))
            block.running_var.set_data(mx.nd.array(random.uniform(0.5, 1.5, shape)))


def images(case: Case) -> Any:
    return mx.nd.array(np.random.RandomState(2).uniform(0, 1, case.shape))


def targets(case: Case) -> Any:
    """What a training step wants: classes, or for an autoencoder the images."""
    if not case.network.classifies:
        return images(case)
    return mx.nd.array(np.random.RandomState(3).randint(0, CLASSES, case.batch))


def prepared(case: Case, contestant: str, kit: Kit) -> Any:
    """The kit's net as the contestant runs it."""
    if contestant.endswith(", deployed"):
        return mxsame.deploy(kit.net, case.shape)
    if contestant == "mxsame":
        return mxsame.hybridize(kit.net, **FLAGS)
    kit.net.hybridize(**FLAGS)
    return kit.net


# -- inference


def inference_calls(case: Case, tensorflow: bool) -> Dict[str, Callable[[], Any]]:
    """Calls by contestant, each of which returns the output."""
    made, data = kits(case, GRAPHS + (DEPLOYED if hasattr(mxsame, "deploy") else ())), images(case)
    calls = {name: applied(prepared(case, name, kit), data) for name, kit in made.items()}
    if tensorflow:
        calls["TensorFlow"] = _tensorflow_inference(case, made["mxsame"], data)
    return calls


def applied(net: Any, data: Any) -> Callable[[], Any]:
    return lambda: net(data)


def _tensorflow_inference(case: Case, source: Kit, data: Any) -> Callable[[], Any]:
    from benchmarks import tensorflow_kit

    return tensorflow_kit.inference(_tensorflow_model(case, source), data.asnumpy())


def _tensorflow_model(case: Case, source: Kit) -> Any:
    from benchmarks import tensorflow_kit

    kit = tensorflow_kit.TensorFlow(case.width)
    tf_input = kit.input(CHANNELS, (case.size, case.size))
    model = tensorflow_kit.tf.keras.Model(tf_input.value, case.network.build(kit, tf_input).value)
    tensorflow_kit.copy_weights(source, kit)
    return model


# -- inference by libraries alone


def library_calls(case: Case, place: Place) -> Dict[str, Callable[[], Any]]:
    """Calls by contestant, on the place's device; and what explicit padding gives on the CPU, to be compared with."""
    made, data = kits(case, (*ALONE, "explicit pad")), images(case)
    want, on_device = made.pop("explicit pad").net(data), data.copyto(place.context)
    calls = {name: applied(by_libraries(kit.net, case.shape, place.context), on_device) for name, kit in made.items()}
    return {**calls, "explicit pad": lambda: want}


# -- training


def training_calls(case: Case, tensorflow: bool) -> Dict[str, Callable[[], float]]:
    """Steps of gradient descent by contestant, each of which returns the loss before it."""
    made, data, wanted = kits(case, GRAPHS), images(case), targets(case)
    calls = {name: training_step(case, prepared(case, name, kit), data, wanted) for name, kit in made.items()}
    if tensorflow:
        from benchmarks import tensorflow_kit

        model, classifies = _tensorflow_model(case, made["mxsame"]), case.network.classifies
        calls["TensorFlow"] = tensorflow_kit.training(model, data.asnumpy(), wanted.asnumpy(), classifies)
    return calls


def training_step(case: Case, net: Any, data: Any, wanted: Any) -> Callable[[], float]:
    """One step of gradient descent with momentum; returns the loss before it."""
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss() if case.network.classifies else mx.gluon.loss.L2Loss()
    loss.hybridize(**FLAGS)
    settings = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=None)

    def step() -> float:
        with mx.autograd.record():
            found = loss(net(data), wanted).mean()
        found.backward()
        trainer.step(1)
        return found.asscalar()

    return step


# -- the guard


def check(
    calls: Dict[str, Callable[[], Any]], tolerance: float, tensorflow: bool, calls_each: int = 1
) -> Dict[str, float]:
    """Raises `Disagreement` unless all contestants but those with symmetric padding give what explicit padding does;
    returns how far each is from that, after its first call.

    TensorFlow is asked for its first answer only: on the CPU its weight gradients of strided 1x1 convolutions, which
    ResNet has, are wrong.
    """
    differences: Dict[str, float] = {}
    for number in range(calls_each):
        found = {name: call() for name, call in calls.items()}
        for name, got in found.items():
            wrong = difference(got, found["explicit pad"])
            claims = tensorflow and not number if name == "TensorFlow" else "symmetric" not in name
            if claims and wrong > tolerance:
                raise Disagreement(f"{name} and explicit pad differ by {wrong:.2g} of the largest output")
            differences.setdefault(name, wrong)
    return differences


# -- the table


def measure_inference(
    case: Case, tensorflow: bool = False, checks: bool = False, place: Place = HERE, **timing: Any
) -> List[dict]:
    """Rows from one run: graphs against the hybridized net with symmetric padding, deployed ones against the equally
    deployed one, and both against TensorFlow. Where only libraries run, what is deployed for them against the same."""
    with place.home:
        calls = library_calls(case, place) if place.libraries_only else inference_calls(case, tensorflow)
        differences = check(calls, place.tolerance(), checks)
        if place.libraries_only:
            del calls["explicit pad"]  # it does not run there
        return _rows(case, "inference", measure(calls, **timing), differences)


def measure_training(
    case: Case, tensorflow: bool = False, checks: bool = False, place: Place = HERE, **timing: Any
) -> List[dict]:
    """Rows from one run: a step of each against that of the net with symmetric padding, and against TensorFlow's."""
    with place.home:
        calls = training_calls(case, tensorflow)
        differences = check(calls, max(place.tolerance(), LOSS_TOLERANCE), checks, calls_each=2)
        return _rows(case, "training step", measure(calls, **timing), differences)


def _rows(case: Case, mode: str, figures: Dict[str, List[float]], differences: Dict[str, float]) -> List[dict]:
    groups = [(mode, "symmetric", [name for name in GRAPHS if name in figures])]
    for way, contestants in (("deployed", DEPLOYED), (BY_LIBRARIES, ALONE)):
        groups.append((f"{mode}, {way}", contestants[0], [name for name in contestants if name in figures]))
    if "TensorFlow" in figures:
        groups.append((f"{mode}, beside TensorFlow", "TensorFlow", list(figures)))
    more = {"network": case.network.name, "batch": case.batch, "size": case.size, "width": case.width}
    name = f"{case.network.name}, batch {case.batch}"
    return [
        results.row(
            name,
            mode,
            {name: figures[name] for name in names},
            reference,
            **more,
            differences={name: differences[name] for name in names},  # from explicit padding
        )
        for mode, reference, names in groups
        if names
    ]
