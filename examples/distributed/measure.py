"""Measures what more actors gain in scoring: the images per second of 1, 2, 4 actors, as ratios to one.

    python examples/distributed/measure.py --model mobilenet_v2.h5 --shape 3 224 224 --actors 1 2 4

Each round scores images with every number of actors in turn. Measure on a machine that does nothing else, with a
core for each actor. The images are zeros, which take as long as any.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import mxsame
import numpy as np

import cluster
import score


def rates(network: Path, images: Path, out: Path, actors: int, batch_size: int) -> tuple[float, float]:
    """Seconds until the first part of a run is done, and images per second after it."""
    began, ends = time.perf_counter(), []

    def progress(line: str) -> None:
        ends.append(time.perf_counter())

    result = score.score(network, images, out, actors, batch_size, progress=progress)
    part = score.BATCHES * batch_size
    return ends[0] - began, (result.count - part) / (ends[-1] - ends[0])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="a Keras model file")
    parser.add_argument("--shape", type=int, nargs=3, default=[3, 224, 224], help="channels, height, width of an image")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--parts", type=int, default=16, help=f"of {score.BATCHES} batches each, for each actor")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    shape = tuple(options.shape)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mxsame.deploy(mxsame.from_keras(options.model, layout="NCHW"), (1, *shape)).export(str(folder / "network"))
        for actors in options.actors:
            count = actors * options.parts * score.BATCHES * options.batch_size
            np.lib.format.open_memmap(folder / f"{actors}.npy", "w+", np.float32, (count, *shape))
        cluster.start(max(options.actors) + 1)
        measured = {actors: [] for actors in options.actors}
        for number in range(options.rounds):
            for actors, runs in measured.items():
                paths = folder / "network", folder / f"{actors}.npy", folder / f"out-{number}-{actors}"
                runs.append(rates(*paths, actors, options.batch_size))
    first = measured[options.actors[0]]
    for actors, runs in measured.items():
        ratios = [rate / reference for (_, rate), (_, reference) in zip(runs, first)]
        start, rate = (statistics.median(column) for column in zip(*runs))
        print(
            f"{actors} actors: {rate:.0f} images/s, {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) of {options.actors[0]}; first part after {start:.1f} s"
        )


if __name__ == "__main__":
    main()
