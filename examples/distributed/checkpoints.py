"""Checkpoints: folders that are there whole or not at all.

A checkpoint is written under another name, brought to the disk, and renamed, which a file system does whole or not at
all. So what has the name of a checkpoint is one, whenever the writer is killed.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

NAME = "step-{:08d}"
PATTERN = re.compile(r"step-(\d{8})")
WRITING = ".writing"


@contextmanager
def written(folder: Path, step: int, keep: int = 2) -> Iterator[Path]:
    """A folder to write a checkpoint's files to, which is the checkpoint of this step once the block is left.

    The newest `keep` remain. A block that raises leaves the checkpoints as they were.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written(folder, 12) as path:
    ...     _ = (path / "weights").write_bytes(b"...")
    >>> newest(folder).name, step_of(newest(folder))
    ('step-00000012', 12)
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / (NAME.format(step) + WRITING)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    yield draft
    for path in draft.iterdir():
        sync(path)
    sync(draft)
    os.rename(draft, folder / NAME.format(step))
    sync(folder)
    for old in all_of(folder)[:-keep]:
        withdrawn = old.with_name(old.name + WRITING)  # half a checkpoint must not have the name of one
        os.rename(old, withdrawn)
        shutil.rmtree(withdrawn)


def all_of(folder: Path) -> list[Path]:
    """The checkpoints of a folder, from the oldest to the newest."""
    return sorted(path for path in folder.glob("step-*") if PATTERN.fullmatch(path.name))


def newest(folder: Path) -> Path | None:
    """The last checkpoint; None where there is none yet."""
    return next(reversed(all_of(folder)), None)


def step_of(checkpoint: Path) -> int:
    """How many steps had been done."""
    return int(PATTERN.fullmatch(checkpoint.name).group(1))


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
