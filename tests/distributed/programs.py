"""Programs of workers, which tests start with `cluster.run` and Ray's processes import."""

import os
import signal
from pathlib import Path

import training
from mxnet import nd


def steps(options):
    """All steps, and the weights of each worker in a file."""
    run = training.Run(options, training.joined())
    run.resume()
    while run.step < run.steps:
        run.advance()
    nd.waitall()
    run.net.save_parameters(str(Path(options.out, f"rank-{run.rank}.params")))
    yield from ()


def faulty(options):
    """As train.py, but the worker of rank 1 gets `options.signal` once, when it has done six steps."""
    reached, advance = Path(options.out, "reached"), training.Run.advance

    def hit_once(run):
        if run.rank == 1 and run.step == 6 and not reached.exists():
            reached.touch()
            os.kill(os.getpid(), options.signal)
        return advance(run)

    training.Run.advance = hit_once
    yield from training.train(options)


def raising(options):
    training.joined()
    if options.signal == signal.SIGKILL:
        os._exit(3)
    raise ArithmeticError("no more images")
