"""Scores a collection of pictures with a deployed network, by Ray Data: any number of machines, results in Parquet.

    python examples/distributed/score.py --network run/network --pictures folder --out scores --actors 2
    python examples/distributed/score.py --network run/network --pictures pictures.npy --out scores --actors 2

`--network` is what `mxsame.deploy(net, shape).export(path)` wrote, as train.py does. Each actor is a process with a
network of its own. One that dies is replaced, and what it had not finished is done again. The folder of results gets
its name when all is there, each key once. With RAY_ADDRESS the actors run on that cluster, whose machines must all
reach the files.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import ray
from PIL import Image

import cluster
from pictures import in_channels_first

KEY, PICTURE, LABEL, SCORES = "key", "picture", "label", "scores"
ENDINGS = ["png", "jpg", "jpeg", "bmp"]


class Scorer:
    """An actor: a deployed network, called with batches of one size, so that it is one graph."""

    def __init__(self, network: str, batch_size: int, array: str | None):
        import mxsame  # noqa: F401  (first: it prepares the import of MXNet, here and not in the process that starts)
        from mxnet import gluon, nd

        self.as_input, self.batch_size, self.optimized = nd.array, batch_size, False
        self.array = None if array is None else np.load(array, mmap_mode="r")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about types, of every file
            self.net = gluon.SymbolBlock.imports(f"{network}-symbol.json", ["data"], f"{network}-0000.params")

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, Any]:
        """Rows of keys, and of pictures where they are files', to rows of keys, labels and scores."""
        keys = rows[KEY]
        data = np.asarray(self.array[keys], np.float32) if PICTURE not in rows else in_channels_first(rows[PICTURE])
        padded = np.zeros((self.batch_size, *data.shape[1:]), np.float32)
        padded[: len(keys)] = data
        inputs = self.as_input(padded)
        if not self.optimized:  # files hold the graph before oneDNN fuses its operators
            self.net.optimize_for(inputs, backend="MKLDNN")
            self.optimized = True
        scores = self.net(inputs).asnumpy()[: len(keys)]
        return {KEY: keys, LABEL: scores.argmax(axis=1), SCORES: list(scores)}


def read(pictures: Path) -> tuple[Any, np.ndarray, tuple[int, ...]]:
    """Rows for `Scorer`, their keys in order, and the shape of each picture.

    Keys are the numbers of an array file's pictures, or the paths of a folder's.
    """
    if pictures.is_dir():
        paths = sorted(path for path in pictures.rglob("*") if path.suffix[1:].lower() in ENDINGS)
        if not paths:
            raise ValueError(f"pictures must be a folder with {', '.join(ENDINGS)}; received {str(pictures)!r}")
        sizes = {Image.open(path).size for path in paths}
        if len(sizes) > 1:
            raise ValueError(f"pictures must have one size; received (width, height) of {sorted(sizes)}")
        width, height = sizes.pop()
        rows = ray.data.read_images([str(path) for path in paths], mode="RGB", include_paths=True)
        named = rows.map_batches(lambda batch: {KEY: batch["path"], PICTURE: batch["image"]}, zero_copy_batch=True)
        return named, np.array([str(path) for path in paths]), (3, height, width)
    if pictures.suffix != ".npy":
        raise ValueError(f"pictures must be an .npy file or a folder; received {str(pictures)!r}")
    array = np.load(pictures, mmap_mode="r")
    return ray.data.range(len(array)).rename_columns({"id": KEY}), np.arange(len(array)), array.shape[1:]


def check_shape(network: Path, shape: tuple[int, ...]) -> None:
    """Raise unless the network takes pictures of this shape."""
    import mxsame  # noqa: F401  (first: it prepares the import of MXNet)
    from mxnet import base, symbol

    try:
        symbol.load(f"{network}-symbol.json").infer_shape(data=(1, *shape))
    except base.MXNetError as error:
        reason = str(error).split(": [")[0]
        raise ValueError(f"pictures must have the shape that {network} takes; received {shape}: {reason}") from None


def score(
    network: Path, pictures: Path, out: Path, actors: int = 2, batch_size: int = 64, scorer: type = Scorer
) -> int:
    """Write the scores of all pictures, and return how many there are.

    Parameters
    ----------
    network : path
        Of the files of a deployed network, without "-symbol.json"; (batch_size, \\*shape) to (batch_size, classes).
    pictures : path
        An .npy file, (N, \\*shape), or a folder of pictures of one size, which the network gets as (3, H, W) in 0..1.
    out : path
        A folder of Parquet files, whose names in order have the rows in order of their keys.
    """
    if out.exists():
        raise ValueError(f"out must not exist yet; received out={str(out)!r}")
    network, pictures, out = (path.absolute() for path in (network, pictures, out))
    missing = [name for name in (f"{network}-symbol.json", f"{network}-0000.params") if not Path(name).is_file()]
    if missing:
        raise ValueError(f"network must be the path of a deployed network's files; there is no {missing[0]}")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    context.execution_options.preserve_order = True
    rows, keys, shape = read(pictures)
    check_shape(network, shape)
    draft = out.with_name(out.name + ".writing")
    shutil.rmtree(draft, ignore_errors=True)
    scored = rows.map_batches(
        scorer,
        fn_constructor_args=(str(network), batch_size, None if pictures.is_dir() else str(pictures)),
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,  # Ray also makes it the number of OpenMP's threads
    )
    scored.write_parquet(str(draft))
    keys_written = np.concatenate([table[KEY].to_numpy() for table in tables(draft, [KEY])])
    if not np.array_equal(keys_written, keys):
        raise RuntimeError(
            f"{len(keys)} keys should be written, each once and in order; found {len(keys_written)} in {draft}"
        )
    os.rename(draft, out)
    return len(keys)


def tables(folder: Path, columns: list[str] | None = None) -> list[Any]:
    """The tables of a folder of results, in order."""
    return [pyarrow.parquet.read_table(path, columns=columns) for path in sorted(folder.glob("*.parquet"))]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--network", type=Path, required=True, help="PATH of PATH-symbol.json and PATH-0000.params")
    parser.add_argument("--pictures", type=Path, required=True, help="an .npy file, or a folder of pictures")
    parser.add_argument("--out", type=Path, required=True, help="a new folder, for Parquet files")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args(arguments)
    for name in ("actors", "batch_size"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1; received {getattr(options, name)}")
    cluster.start(options.actors + 1)  # one for the tasks that read and write
    try:
        count = score(options.network, options.pictures, options.out, options.actors, options.batch_size)
    except ValueError as error:
        sys.exit(f"score: {error}")
    finally:
        ray.shutdown()
    print(f"{count} pictures scored: {options.out}")


if __name__ == "__main__":
    main()
