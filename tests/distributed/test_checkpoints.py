"""Checkpoints are there whole or not at all, wherever their writer is killed."""

import subprocess
import sys

import checkpoints
import pytest

FILES = {"weights": b"w" * 10_000, "states": b"s" * 5_000}

# Writes a second and a third checkpoint, and is killed before one of the calls that change something on the disk.
WRITER = """
import os, pathlib, shutil, signal, sys
import checkpoints

folder, calls_left = pathlib.Path(sys.argv[1]), int(sys.argv[2])

def counted(function):
    def call(*arguments, **more):
        global calls_left
        if calls_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        calls_left -= 1
        return function(*arguments, **more)
    return call

os.rename, os.fsync, os.unlink = map(counted, (os.rename, os.fsync, os.unlink))
pathlib.Path.write_bytes, pathlib.Path.mkdir = map(counted, (pathlib.Path.write_bytes, pathlib.Path.mkdir))
for step in (20, 30):
    with checkpoints.written(folder, step) as draft:
        (draft / "weights").write_bytes(b"w" * 10_000)
        (draft / "states").write_bytes(b"s" * 5_000)
"""


def write(folder, step, files=FILES, **how):
    with checkpoints.written(folder, step, **how) as draft:
        for name, content in files.items():
            (draft / name).write_bytes(content)


def is_whole(checkpoint):
    return {path.name: path.read_bytes() for path in checkpoint.iterdir()} == FILES


def test_a_writer_that_is_killed_anywhere_leaves_whole_checkpoints(tmp_path):
    steps = set()
    for calls in range(100):
        folder = tmp_path / str(calls)
        write(folder, 10)
        command = [sys.executable, "-c", WRITER, str(folder), str(calls)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        there = checkpoints.all_of(folder)
        assert there
        assert all(map(is_whole, there)), calls
        steps.add(checkpoints.step_of(checkpoints.newest(folder)))
        write(folder, 40)  # what is left of the other does not matter
        assert checkpoints.step_of(checkpoints.newest(folder)) == 40
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
    assert done.returncode == 0
    assert calls > 15, "it was killed at many points"
    assert steps == {10, 20, 30}


def test_only_the_newest_remain(tmp_path):
    for step in (1, 2, 10, 11):
        write(tmp_path, step, keep=2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000010", "step-00000011"]


def test_a_block_that_raises_leaves_what_there_was(tmp_path):
    write(tmp_path, 1)
    with pytest.raises(OSError, match="full"), checkpoints.written(tmp_path, 2):
        raise OSError("the disk is full")
    assert checkpoints.step_of(checkpoints.newest(tmp_path)) == 1
    write(tmp_path, 2)
    assert is_whole(checkpoints.newest(tmp_path))


def test_there_may_be_none(tmp_path):
    assert checkpoints.newest(tmp_path / "nothing") is None
    (tmp_path / "step-00000007.writing").mkdir()
    (tmp_path / "step-7").mkdir()
    assert checkpoints.newest(tmp_path) is None
