"""Whole networks with SAME padding, inference and training, compared with symmetric padding and with TensorFlow.

Every variant has the same weights. Before anything is timed, those that claim to compute the same must agree.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

import mxsame
from benchmarks import results
from benchmarks.architectures import CLASSES, Network, named
from benchmarks.kits import LEARNING_RATE, MOMENTUM, STYLES, Kit, copy_weights
from benchmarks.timing import FLAGS, measure
from benchmarks.worker import Remote, closing
from mxsame import processor
from mxsame._mxnet import mx

TOLERANCE = 1e-4  # of outputs, as a part of the largest: rounding
LOSS_TOLERANCE = 1e-3  # normalization by a batch magnifies rounding
CHANNELS = 3
GRAPHS = ("symmetric", "mxsame", "mxsame, dynamic shape", "explicit pad")
REWRITTEN = ("symmetric, rewritten", "mxsame", "explicit pad, rewritten")  # by `mxsame.hybridize`, whatever the padding
PLAIN = ("symmetric", "mxsame, dynamic shape")  # trained as they are, by `net.hybridize()`
NARROW = "mxsame, deployed, bfloat16"
DEPLOYED = ("symmetric, deployed", "mxsame, deployed", "explicit pad, deployed")
DEPLOYED += (NARROW,) * processor.has("AVX512_CORE_BF16")
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


class Disagreement(RuntimeError):
    """Variants that should compute the same do not; timing them would mean nothing."""


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

    @property
    def name(self) -> str:
        """Of its rows."""
        return f"{self.network.name}, batch {self.batch}"

    @property
    def numbers(self) -> Dict[str, Any]:
        """What its rows have, and `case` is made of."""
        return {"network": self.network.name, "batch": self.batch, "size": self.size, "width": self.width}


def case(network: Network, batch: int, size: Optional[int] = None, width: float = 1.0) -> Case:
    """At the network's own size by default; at one that it cannot take, the next larger that it can."""
    return Case(network, batch, network.size if size is None else network.fitting(size), width)


def kits(case: Case, variants: Sequence[str]) -> Dict[str, Kit]:
    """The network for each variant, in its style and all with the same weights."""
    made = {variant: STYLES[variant.split(",")[0]](case.width) for variant in variants}
    mx.random.seed(0)
    for kit in made.values():
        case.network.build(kit, kit.input(CHANNELS, (case.size, case.size)))
        kit.net.initialize(mx.init.MSRAPrelu("in", slope=0))
    first, *others = made.values()
    randomise_norms(first.net)
    for other in others:
        copy_weights(first, other)
    return made


def randomise_norms(net: Any) -> None:
    """Statistics as after some training, so that folding them into a convolution wrongly shows."""
    random = np.random.RandomState(1)

    def randomise(block: Any) -> None:
        if isinstance(block, mx.gluon.nn.BatchNorm):
            shape = block.gamma.shape
            block.gamma.set_data(mx.nd.array(random.uniform(0.5, 1.5, shape)))
            block.beta.set_data(mx.nd.array(random.normal(0, 0.1, shape)))
            block.running_mean.set_data(mx.nd.array(random.normal(0, 0.1, shape)))
            block.running_var.set_data(mx.nd.array(random.uniform(0.5, 1.5, shape)))

    net.apply(randomise)


def images(case: Case) -> Any:
    return mx.nd.array(np.random.RandomState(2).uniform(0, 1, case.shape))


def targets(case: Case) -> Any:
    """What a training step aims at: classes, or for an autoencoder the images."""
    if not case.network.classifies:
        return images(case)
    return mx.nd.array(np.random.RandomState(3).randint(0, CLASSES, case.batch))


def prepared(case: Case, variant: str, kit: Kit) -> Any:
    """The kit's net as the variant runs it."""
    if variant in DEPLOYED:
        return mxsame.deploy(kit.net, case.shape, dtype="bfloat16" if variant == NARROW else None)
    if variant in REWRITTEN:
        return mxsame.hybridize(kit.net, **FLAGS)
    kit.net.hybridize(**FLAGS)
    return kit.net


# -- inference


def inference_calls(case: Case, tensorflow: bool) -> Dict[str, Callable[[], Any]]:
    """Calls by variant, each of which returns the output."""
    made, data = kits(case, (*GRAPHS, *DEPLOYED)), images(case)
    calls = {name: applied(prepared(case, name, kit), data) for name, kit in made.items()}
    return {**calls, "TensorFlow": Remote("networks:tensorflow", train=False, **case.numbers)} if tensorflow else calls


def applied(net: Any, data: Any) -> Callable[[], Any]:
    return lambda: net(data)


# -- training


def training_calls(case: Case, tensorflow: bool) -> Dict[str, Callable[[], float]]:
    """Steps of gradient descent by variant, each of which returns the loss before it."""
    made, data, aims = kits(case, REWRITTEN + PLAIN), images(case), targets(case)
    calls = {name: training_step(case, prepared(case, name, kit), data, aims) for name, kit in made.items()}
    return {**calls, "TensorFlow": Remote("networks:tensorflow", train=True, **case.numbers)} if tensorflow else calls


def training_step(case: Case, net: Any, data: Any, aims: Any) -> Callable[[], float]:
    """One step of gradient descent with momentum; returns the loss before it."""
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss() if case.network.classifies else mx.gluon.loss.L2Loss()
    loss.hybridize(**FLAGS)
    settings = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=None)

    def step() -> float:
        with mx.autograd.record():
            value = loss(net(data), aims).mean()
        value.backward()
        trainer.step(1)
        return value.asscalar()

    return step


# -- TensorFlow, in a process of its own


def tensorflow(network: str, batch: int, size: int, width: float, train: bool) -> Callable[[], Any]:
    """A call of tf.keras's model with the same weights, or its training step."""
    from benchmarks import tensorflow_kit

    case = Case(named(network), batch, size, width)
    kit, data = tensorflow_kit.TensorFlow(width), images(case).asnumpy()
    tf_input = kit.input(CHANNELS, (size, size))
    model = tensorflow_kit.tf.keras.Model(tf_input.value, case.network.build(kit, tf_input).value)
    tensorflow_kit.copy_weights(kits(case, ["mxsame"])["mxsame"], kit)
    if not train:
        return tensorflow_kit.inference(model, data)
    return tensorflow_kit.training(model, data, targets(case).asnumpy(), case.network.classifies)


# -- agreement


def difference(got: Any, reference: Any) -> float:
    """The largest difference, relative to the largest value of the reference; infinite if shapes differ."""
    got, reference = (np.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x) for x in (got, reference))
    if got.shape != reference.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - reference).max() / max(np.abs(reference).max(), 1e-12))


def check(calls: Dict[str, Callable[[], Any]], allowed: float, calls_each: int = 1) -> Dict[str, float]:
    """Raises `Disagreement` unless all variants except those with symmetric padding, and in bfloat16, give what
    explicit padding gives; returns how far each is from that, after its first call.

    TensorFlow is left to the tests: on the CPU its weight gradients of strided 1x1 convolutions, which ResNet has, are
    wrong.
    """
    differences: Dict[str, float] = {}
    reference = next(name for name in calls if name.startswith("explicit pad"))
    for _ in range(calls_each):
        outputs = {name: call() for name, call in calls.items()}
        for name, got in outputs.items():
            wrong = difference(got, outputs[reference])
            if name not in ("TensorFlow", NARROW) and "symmetric" not in name and wrong > allowed:
                raise Disagreement(f"{name} and explicit pad differ by {wrong:.2g} of the largest output")
            differences.setdefault(name, wrong)
    return differences


# -- the table


def measure_inference(case: Case, tensorflow: bool = False, **timing: Any) -> List[dict]:
    """Rows from one run: graphs compared with the hybridized net with symmetric padding, deployed ones with that net
    deployed, and both with TensorFlow."""
    with closing(inference_calls(case, tensorflow)) as calls:
        differences = check(calls, TOLERANCE)
        return _rows(case, "inference", measure(calls, **timing), differences)


def measure_training(case: Case, tensorflow: bool = False, **timing: Any) -> List[dict]:
    """Rows from one run: a step of each compared with that of the net with symmetric padding that is hybridized in the
    same way, and with TensorFlow's."""
    with closing(training_calls(case, tensorflow)) as calls:
        differences = check(calls, LOSS_TOLERANCE, calls_each=2)
        return _rows(case, "training step", measure(calls, **timing), differences)


GROUPS = {  # by mode: the suffix of each group of rows, and its variants, the reference first
    "inference": {"": GRAPHS, ", deployed": DEPLOYED},
    "training step": {"": REWRITTEN, ", net.hybridize()": PLAIN},
}


def _rows(case: Case, mode: str, figures: Dict[str, List[float]], differences: Dict[str, float]) -> List[dict]:
    groups = [(mode + suffix, variants) for suffix, variants in GROUPS[mode].items()]
    if "TensorFlow" in figures:
        groups.append((f"{mode}, compared with TensorFlow", ("TensorFlow", *figures)))
    rows = []
    for mode, variants in groups:
        shown = {name: figures[name] for name in variants if name in figures}
        if shown:
            wrong = {name: differences[name] for name in shown}  # from explicit padding
            rows.append(results.row(case.name, mode, shown, variants[0], **case.numbers, differences=wrong))
    return rows
