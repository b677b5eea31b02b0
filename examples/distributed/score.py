"""Scores a collection of images with a deployed network, on any number of machines, into Parquet files.

    python examples/distributed/score.py --network run/network --images folder --out scores --actors 2
    python examples/distributed/score.py --network run/network --images images.npy --out scores --actors 2

`--network` is what `mxsame.deploy(net, shape).export(path)` wrote, as train.py does. Each actor of Ray is a process
with a network of its own; one that dies is replaced. An interrupted run continues when the same command is run again.
The folder of results gets its name when it is complete, with each key once. With RAY_ADDRESS the actors run on that
cluster, whose machines must all reach the files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Callable, NamedTuple

import checkpoints
import cluster  # which says what must be installed, before pyarrow is imported
from images import in_channels_first

# isort: split
import numpy as np
import pyarrow.parquet

KEY, LABEL, SCORES, ERROR = "key", "label", "scores", "error"
ENDINGS = ["png", "jpg", "jpeg", "bmp"]
FACTS = "_facts.json"  # readers of Parquet ignore names with an underscore
PART = "{:06d}.parquet"
BATCHES = 16  # of a part
TRIES = 4  # of a part, if the actors that score it die


class Scorer:
    """An actor: a deployed network, called with batches of one size, so that it is one graph."""

    def __init__(self, network: str, batch_size: int, images: Path, shape: tuple[int, ...], skip_broken: bool):
        import mxsame  # noqa: F401  (first: it prepares the import of MXNet, here and not in the process that starts)
        from mxnet import gluon, nd

        cluster.end_with_ray()
        self.as_input, self.batch_size, self.optimized = nd.array, batch_size, False
        self.shape, self.skip_broken = shape, skip_broken
        self.read = of_file if images.is_dir() else array_of(images).__getitem__
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about types, of every file
            self.net = gluon.SymbolBlock.imports(f"{network}-symbol.json", ["data"], f"{network}-0000.params")

    def write(self, part: Path, keys: np.ndarray) -> int:
        """Scores the images of these keys into a file, which is complete or absent; returns their number."""
        batches = [keys[start : start + self.batch_size] for start in range(0, len(keys), self.batch_size)]
        draft = part.with_name(part.name + checkpoints.WRITING)
        pyarrow.parquet.write_table(pyarrow.concat_tables(map(self.scored, batches)), draft)
        checkpoints.sync(draft)
        os.rename(draft, part)
        return len(keys)

    def scored(self, keys: np.ndarray) -> pyarrow.Table:
        """Returns a row for each key: label and scores, or the reason why the image cannot be read."""
        data = np.zeros((self.batch_size, *self.shape), np.float32)
        errors = [self.error(key, place) for key, place in zip(keys, data)]
        is_broken = np.array([error is not None for error in errors])
        scores = self.outputs(data)[: len(keys)]
        labels = pyarrow.array(scores.argmax(axis=1), mask=is_broken)
        rows = [None if broken else row for broken, row in zip(is_broken, scores)]
        columns = {
            KEY: pyarrow.array(keys),
            LABEL: labels,
            SCORES: pyarrow.array(rows, pyarrow.list_(pyarrow.float32())),
            ERROR: pyarrow.array(errors, pyarrow.string()),
        }
        return pyarrow.table(columns)

    def error(self, key: Any, place: np.ndarray) -> str | None:
        """Copies an image into a row of the batch; returns the reason if it cannot be read."""
        try:
            image = self.read(key)
            if image.shape != self.shape:
                raise ValueError(f"its shape is {image.shape}, and that of the first image {self.shape}")
        except Exception as error:  # Pillow's decoders raise errors of many types
            reason = f"{type(error).__name__}: {error}"
            if not self.skip_broken:
                rule = f"images must be readable; received {str(key)!r}, {reason}"
                raise ValueError(f"{rule}; --skip-broken leaves such images out") from None
            return reason
        place[:] = image
        return None

    def outputs(self, data: np.ndarray) -> np.ndarray:
        inputs = self.as_input(data)
        if not self.optimized:  # files hold the graph before oneDNN fuses its operators
            self.net.optimize_for(inputs, backend="MKLDNN")
            self.optimized = True
        return self.net(inputs).asnumpy()


# -- the images


def of_file(path: str) -> np.ndarray:
    """Returns the image of a file, (3, H, W) in 0..1."""
    from PIL import Image

    with Image.open(path) as image:
        return in_channels_first(np.asarray(image.convert("RGB"))[None])[0]


def array_of(path: Path) -> np.ndarray:
    """Returns the images of an .npy file, which are read when they are used."""
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"images must be a complete .npy file; received {str(path)!r}: {error}") from None


def keys_of(images: Path) -> np.ndarray:
    """Returns the indices of the images of an array, or the sorted paths of those of a folder."""
    if images.is_dir():
        paths = sorted(str(path) for path in images.rglob("*") if path.suffix[1:].lower() in ENDINGS)
        if not paths:
            raise ValueError(f"images must be a folder with {', '.join(ENDINGS)}; received {str(images)!r}")
        return np.array(paths)
    if images.suffix != ".npy":
        raise ValueError(f"images must be an .npy file or a folder; received {str(images)!r}")
    return np.arange(len(array_of(images)))


def shape_of(images: Path, keys: np.ndarray) -> tuple[int, ...]:
    """Returns the shape that each image must have: that of the first one whose header can be read."""
    from PIL import Image

    if not images.is_dir():
        return array_of(images).shape[1:]
    for path in keys:
        try:
            width, height = Image.open(path).size
            return 3, height, width
        except Exception:  # an actor says why, if nobody asks to skip it
            continue
    raise ValueError(f"images must be readable; received {str(images)!r} with none that is")


def check_shape(network: Path, shape: tuple[int, ...]) -> None:
    """Raises an error unless the network takes images of this shape."""
    import mxsame  # noqa: F401  (first: it prepares the import of MXNet)
    from mxnet import base, symbol

    try:
        symbol.load(f"{network}-symbol.json").infer_shape(data=(1, *shape))
    except base.MXNetError as error:
        reason = str(error).split(": [")[0]
        raise ValueError(f"images must have the shape that {network} takes; received {shape}: {reason}") from None


# -- the run


class Result(NamedTuple):
    count: int  # of images with scores
    broken: dict[Any, str]  # those without, and why


def score(
    network: Path,
    images: Path,
    out: Path,
    actors: int = 2,
    batch_size: int = 64,
    skip_broken: bool = False,
    progress: Callable[[str], object] = lambda line: None,
    scorer: type = Scorer,
) -> Result:
    """Writes the scores of all images, or of those that an interrupted call has left.

    Parameters
    ----------
    network : path
        Of the files of a deployed network, without "-symbol.json"; (batch_size, \\*shape) to (batch_size, classes).
    images : path
        An .npy file, (N, \\*shape), or a folder of images of one size, which the network gets as (3, H, W) in 0..1.
    out : path
        A folder of Parquet files, whose names in order have the rows in order of their keys.
    actors, batch_size : int
    skip_broken : bool
        An image that cannot be read has a row with a null label, null scores, and the reason as its error.
    progress : callable
        Called with a line for each part that is done.

    Raises
    ------
    ValueError
        If an argument is wrong, before Ray starts; or if an image cannot be read, unless `skip_broken`.
    cluster.Failed
        If the actors that score a part die again and again.
    """
    if out.exists():
        raise ValueError(f"out must not exist yet; received out={str(out)!r}")
    network, images, out = (path.absolute() for path in (network, images, out))
    missing = [name for name in (f"{network}-symbol.json", f"{network}-0000.params") if not Path(name).is_file()]
    if missing:
        raise ValueError(f"network must be the path of a deployed network's files; there is no {missing[0]}")
    keys = keys_of(images)
    shape = shape_of(images, keys)
    check_shape(network, shape)
    draft = out.with_name(out.name + checkpoints.WRITING)
    begin(draft, facts(network, images, keys, batch_size))
    size = BATCHES * batch_size
    parts = {
        draft / PART.format(number): keys[start : start + size]
        for number, start in enumerate(range(0, len(keys), size))
    }
    left = {part: its for part, its in parts.items() if not part.exists()}
    if len(left) < len(parts):
        progress(f"continues: {len(keys) - sum(map(len, left.values()))} of {len(keys)} images are done")
    run(scorer, (str(network), batch_size, images, shape, skip_broken), actors, left, len(keys), progress)
    written = [(table[KEY].to_pylist(), table[ERROR].to_pylist()) for table in tables(draft, [KEY, ERROR])]
    if [key for part, _ in written for key in part] != keys.tolist():
        found = sum(len(part) for part, _ in written)
        raise RuntimeError(f"{len(keys)} keys should be written, each once and in order; found {found} in {draft}")
    os.rename(draft, out)
    broken = {key: error for part in written for key, error in zip(*part) if error is not None}
    return Result(len(keys) - len(broken), broken)


def facts(network: Path, images: Path, keys: np.ndarray, batch_size: int) -> dict[str, Any]:
    """Returns what a run must have in common with the one that it continues."""
    digest = hashlib.sha256()
    for name in (f"{network}-symbol.json", f"{network}-0000.params"):
        digest.update(Path(name).read_bytes())
    changed = None if images.is_dir() else images.stat().st_mtime_ns
    return {
        "network": digest.hexdigest(),
        "images": [str(images), changed, hashlib.sha256("\n".join(map(str, keys)).encode()).hexdigest()],
        "batch_size": batch_size,
    }


def begin(draft: Path, expected: dict[str, Any]) -> None:
    """Makes the folder of a run, or checks that it belongs to the same run."""
    draft.mkdir(parents=True, exist_ok=True)
    if not (draft / FACTS).exists():
        unfinished = draft / (FACTS + checkpoints.WRITING)
        unfinished.write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
        os.rename(unfinished, draft / FACTS)
    for name, value in json.loads((draft / FACTS).read_text(encoding="utf-8")).items():
        if value != expected[name]:
            raise ValueError(
                f"{name} must be as in the interrupted run; received another than that of {draft}. "
                "Remove that folder to start anew"
            )


def run(
    scorer: type, settings: tuple, count: int, parts: dict[Path, np.ndarray], total: int, progress: Callable
) -> None:
    """Lets actors write the parts; each takes the next one when it has finished one."""
    if not parts:
        return
    import ray

    cluster.start(count + 1)
    remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=TRIES - 1)(scorer)  # one CPU: one OpenMP thread
    actors = [remote.options(scheduling_strategy="SPREAD").remote(*settings) for _ in range(min(count, len(parts)))]
    waiting, began = iter(parts), time.perf_counter()
    done = before = total - sum(map(len, parts.values()))
    running = {}
    try:
        for actor, part in zip(actors, waiting):
            running[actor.write.remote(part, parts[part])] = actor, part
        while running:
            (ready, *_), _ = ray.wait(list(running))
            actor, part = running.pop(ready)
            done += written(ready, parts[part])
            progress(f"{done}/{total} images, {(done - before) / (time.perf_counter() - began):.0f} images/s")
            for following in waiting:
                running[actor.write.remote(following, parts[following])] = actor, following
                break
    finally:
        for actor in actors:
            ray.kill(actor)


def written(part: Any, keys: np.ndarray) -> int:
    """Returns the number of images that an actor has written to a part; raises the error that it has raised."""
    import ray

    try:
        return ray.get(part)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from (None if isinstance(error.cause, ValueError) else error)
    except ray.exceptions.RayActorError as error:
        if error.actor_init_failed:
            raise cluster.Failed(f"an actor did not start: {str(error).strip().splitlines()[-1]}") from error
        raise cluster.Failed(f"{TRIES} actors died while they scored {keys[0]} to {keys[-1]}") from None


def tables(folder: Path, columns: list[str] | None = None) -> list[pyarrow.Table]:
    """Returns the tables of a folder of results, in order."""
    return [pyarrow.parquet.read_table(path, columns=columns) for path in sorted(folder.glob("*.parquet"))]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--network", type=Path, required=True, help="PATH of PATH-symbol.json and PATH-0000.params")
    parser.add_argument("--images", type=Path, required=True, help="an .npy file, or a folder of images")
    parser.add_argument("--out", type=Path, required=True, help="a new folder, for Parquet files")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--skip-broken", action="store_true", help="list images that cannot be read, and go on")
    options = parser.parse_args(arguments)
    for name in ("actors", "batch_size"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1; received {getattr(options, name)}")
    try:
        result = score(**vars(options), progress=lambda line: print(line, flush=True))
    except (ValueError, cluster.Failed) as error:
        sys.exit(f"score: {error}")
    except KeyboardInterrupt:
        sys.exit("score: interrupted; the same command continues")
    finally:
        cluster.stop()
    for key, reason in result.broken.items():
        print(f"left out: {key}: {reason}")
    print(f"{result.count} images scored: {options.out}")


if __name__ == "__main__":
    main()
