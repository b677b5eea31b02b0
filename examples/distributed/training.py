"""What train.py does in each worker: network, data by rank, steps, checkpoints, evaluation."""

from __future__ import annotations

import importlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import mxsame
import numpy as np
from mxnet import autograd, gluon, kvstore, lr_scheduler, nd, random
from mxnet.gluon import nn

import checkpoints
import server
from images import in_channels_first, stripes

UNUSED_KEY = 100_000  # of no parameter; MXNet multiplies it by 9973 in 32 bits
EPSILON = 1e-7  # Keras's: probabilities are at least that before the logarithm
ENDINGS = (".h5", ".hdf5", ".keras", ".json")


# -- the network


def network(source: str, images: np.ndarray) -> gluon.HybridBlock:
    """Returns the network of a Keras model file or of MODULE:FUNCTION; (N, C, H, W) to probabilities of classes."""
    if source.endswith(ENDINGS):
        net = mxsame.from_keras(source, layout="NCHW")
    else:
        module, _, function = source.partition(":")
        if not function:
            raise ValueError(f"network must be a file of {', '.join(ENDINGS)}, or MODULE:FUNCTION; received {source!r}")
        net = getattr(importlib.import_module(module), function)()
    # Parameters get their shapes. As in training: inference leaves weights in an order of oneDNN's, which MXNet's
    # store cannot send. Statistics of a batch norm only move with gradients.
    with autograd.train_mode():
        net(nd.array(images[:1]))
    return mxsame.hybridize(net, static_alloc=True, static_shape=True)


def stripes_network() -> gluon.HybridBlock:
    """Returns a small network as written in Keras: SAME, strides, batch norm, softmax."""
    net = mxsame.nn.HybridSequential()
    for channels in (16, 32, 64):
        net.add(mxsame.nn.Conv2D(channels, 3, strides=2, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.GlobalAvgPool2D(), nn.Dropout(0.1), nn.Dense(4), nn.HybridLambda("softmax"))
    net.initialize()
    return net


def losses_of(probabilities: nd.NDArray, labels: nd.NDArray) -> nd.NDArray:
    """Computes Keras's sparse_categorical_crossentropy, (N, classes) and (N,) to (N,)."""
    return -nd.log(nd.clip(nd.pick(probabilities, labels), EPSILON, 1 - EPSILON))


# -- the data


class Data(NamedTuple):
    images: np.ndarray  # (N, C, H, W), float32
    labels: np.ndarray  # (N,)


def read(path: str | None, seed: int) -> tuple[Data, Data]:
    """Reads the data for training and evaluation from an .npz file, (N, H, W, C) or (N, H, W); or generates it."""
    if path is None:
        return Data(*stripes(1024, seed)), Data(*stripes(256, seed + 1))
    with np.load(path, allow_pickle=False) as file:
        missing = {f"{kind}_{part}" for kind in "xy" for part in ("train", "test")} - set(file)
        if missing:
            raise ValueError(f"data must hold x_train, y_train, x_test and y_test; received {path!r} without {missing}")
        return tuple(Data(in_channels_first(file[f"x_{use}"]), file[f"y_{use}"].ravel()) for use in ("train", "test"))


def part(size: int, step: int, batch_size: int, seed: int, rank: int, workers: int) -> np.ndarray:
    """Returns which of `size` images a worker takes in a step; all workers together take the batch of one process.

    >>> whole = part(100, 7, batch_size=6, seed=0, rank=0, workers=1)
    >>> list(whole) == [*part(100, 7, 6, 0, 0, workers=2), *part(100, 7, 6, 0, 1, workers=2)]
    True
    """
    epoch, number = divmod(step, size // batch_size)
    order = np.random.RandomState([seed, epoch]).permutation(size)
    each = batch_size // workers
    start = number * batch_size + rank * each
    return order[start : start + each]


# -- the parameter server


class Trainer(gluon.Trainer):
    """Gluon's trainer, which can also save its state if servers update the weights: see server.py."""

    def join(self) -> None:
        """Sends the optimizer to the servers, and the weights of the first worker to all."""
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    def save_states(self, folder: Path) -> None:
        """Called by the first worker."""
        if self._update_on_kvstore:
            server.send(self._kvstore, server.SAVE, folder)
        else:
            super().save_states(str(folder / "states"))

    def load_states(self, folder: Path) -> None:
        """Called by every worker."""
        if not self._update_on_kvstore:
            super().load_states(str(folder / "states"))
        elif self._kvstore.rank == 0:
            server.send(self._kvstore, server.LOAD, folder)


def joined() -> Any:
    """Returns the store that all workers share; None in a single process."""
    return kvstore.create("dist_sync") if "DMLC_PS_ROOT_URI" in os.environ else None


def agree(store: Any, name: str, value: int) -> None:
    """Raises an error unless this worker has the number of the first worker, sent with a key that no parameter has."""
    shared = nd.array([value], dtype="float64")
    store.broadcast(UNUSED_KEY, shared.copy(), shared)
    if shared.asscalar() != value:
        raise ValueError(f"all workers must have the same {name}, {shared.asscalar():.0f}; received {value}")


# -- the run


class Run:
    """A network, its trainer, and the step that is next."""

    def __init__(self, options: Any, store: Any):
        self.options, self.store = options, store
        self.rank, self.workers = (store.rank, store.num_workers) if store else (0, 1)
        if options.batch_size % self.workers:
            raise ValueError(
                f"batch_size must be a multiple of the {self.workers} workers; received batch_size={options.batch_size}"
            )
        self.train, self.test = read(options.data, options.seed)
        if len(self.train.images) < options.batch_size:
            raise ValueError(
                f"batch_size must be at most the {len(self.train.images)} images for training; "
                f"received batch_size={options.batch_size}"
            )
        self.steps_per_epoch = len(self.train.images) // options.batch_size
        self.steps = options.epochs * self.steps_per_epoch
        self.schedule = lr_scheduler.CosineScheduler(self.steps + 1, base_lr=options.learning_rate)
        random.seed(options.seed)
        self.net = network(options.network, self.train.images)
        self.trainer = Trainer(
            self.net.collect_params(),
            options.optimizer,
            {
                "lr_scheduler": self.schedule,
                "rescale_grad": 1 / options.batch_size,  # of all workers: servers add the gradients up
                **({"momentum": 0.9} if options.optimizer == "sgd" else {}),
            },
            kvstore=store,
            update_on_kvstore=options.update_on == "servers" if store else None,
        )
        self.step = 0

    # -- checkpoints

    @property
    def folder(self) -> Path:
        return Path(self.options.out, "checkpoints")

    def facts(self) -> dict:
        """Returns what a run must have in common with the one that wrote its checkpoint."""
        names = ("network", "data", "epochs", "batch_size", "optimizer", "learning_rate", "seed")
        on_servers = self.store is not None and self.options.update_on == "servers"
        return {
            **{name: getattr(self.options, name) for name in names},
            "states": f"on {os.environ['DMLC_NUM_SERVER']} servers" if on_servers else "on workers",
        }

    def resume(self) -> None:
        """Continues from the last checkpoint if there is one."""
        checkpoint = checkpoints.newest(self.folder)
        if self.store:
            agree(self.store, "last checkpoint", checkpoints.step_of(checkpoint) if checkpoint else 0)
        if checkpoint is None:
            self.trainer.join()
            return
        facts = json.loads((checkpoint / "facts.json").read_text(encoding="utf-8"))
        for name, value in self.facts().items():
            if facts[name] != value:
                raise ValueError(f"{name} must be that of {checkpoint}, {facts[name]!r}; received {name}={value!r}")
        self.net.load_parameters(str(checkpoint / "network.params"))
        self.trainer.join()
        self.trainer.load_states(checkpoint)
        self.step = checkpoints.step_of(checkpoint)

    def save(self) -> None:
        """Writes a checkpoint. Servers change nothing meanwhile: they wait for the next gradient of this worker."""
        nd.waitall()
        with checkpoints.written(self.folder, self.step) as folder:
            self.net.save_parameters(str(folder / "network.params"))
            self.trainer.save_states(folder)
            (folder / "facts.json").write_text(json.dumps(self.facts(), indent=1) + "\n", encoding="utf-8")

    # -- steps

    def advance(self) -> float:
        """Runs one step; returns the mean loss of the images of this worker."""
        seed, batch_size = self.options.seed, self.options.batch_size
        mine = part(len(self.train.images), self.step, batch_size, seed, self.rank, self.workers)
        # MXNet's random numbers cannot be saved, so each step starts them anew: a run that resumes draws the same.
        random.seed(int(np.random.RandomState([seed, self.step, self.rank]).randint(2**31)))
        labels = nd.array(self.train.labels[mine])
        with autograd.record():
            losses = losses_of(self.net(nd.array(self.train.images[mine])), labels)
        losses.backward()
        self.trainer.step(1)  # 1 / batch_size is in rescale_grad
        self.step += 1
        return float(losses.mean().asscalar())

    def evaluate(self) -> tuple[float, float]:
        """Returns the mean loss and the accuracy over the images for evaluation."""
        loss = right = 0.0
        for images, labels in batches(self.test, self.options.batch_size):
            probabilities = self.net(nd.array(images))
            loss += float(losses_of(probabilities, nd.array(labels)).sum().asscalar())
            right += int((probabilities.asnumpy().argmax(axis=1) == labels).sum())
        return loss / len(self.test.labels), right / len(self.test.labels)


def batches(data: Data, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(data.labels), size):
        yield data.images[start : start + size], data.labels[start : start + size]


def train(options: Any) -> Iterator[str]:
    """Runs all epochs from the last checkpoint on. The first worker evaluates, writes and yields lines about it."""
    run = Run(options, joined())
    run.resume()
    first, is_first = run.step, run.rank == 0
    if is_first:
        yield f"{run.workers} workers, {run.steps} steps, from step {first}"
    began = time.perf_counter()
    while run.step < run.steps:
        loss = run.advance()
        epoch, number = divmod(run.step - 1, run.steps_per_epoch)
        if not math.isfinite(loss):
            raise ArithmeticError(f"the loss of step {run.step} is {loss}")
        if is_first:
            rate = (run.step - first) * options.batch_size / (time.perf_counter() - began)
            yield (
                f"epoch {epoch + 1}/{options.epochs} step {run.step}/{run.steps} loss {loss:.7g} "
                f"learning rate {run.schedule(run.step):.3g}, {rate:.0f} images/s"
            )
            if run.step % options.checkpoint_every == 0 or run.step == run.steps:
                run.save()
            if number + 1 == run.steps_per_epoch:
                yield "epoch {}: loss {:.5f}, accuracy {:.4f}".format(epoch + 1, *run.evaluate())
    nd.waitall()  # MXNet would drop what is queued when a process ends, and the others would wait for it
    if is_first:
        shape = (1, *run.test.images.shape[1:])
        files = mxsame.deploy(run.net, shape).export(str(Path(options.out, "network")))
        yield " ".join(["written:", *files, "for images of", " x ".join(map(str, shape[1:]))])
