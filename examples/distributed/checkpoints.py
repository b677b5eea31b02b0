"""Checkpoints: folders that are complete or absent.

A checkpoint is written under another name, synced to the disk, and renamed, which is atomic. So a folder with the name
of a checkpoint is complete, whenever the writer is killed.
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
    """Yields a folder for the files of a checkpoint, which becomes the checkpoint of this step at the end of the block.

    The newest `keep` checkpoints remain. If the block raises, the checkpoints stay as they were.

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
    """Returns the checkpoints of a folder, the oldest first."""
    return sorted(path for path in folder.glob("step-*") if PATTERN.fullmatch(path.name))


def newest(folder: Path) -> Path | None:
    """Returns the last checkpoint; None if there is none."""
    return next(reversed(all_of(folder)), None)


def step_of(checkpoint: Path) -> int:
    """Returns the number of steps before a checkpoint."""
    return int(PATTERN.fullmatch(checkpoint.name).group(1))


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
