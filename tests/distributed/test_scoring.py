"""Scores by actors are those of one process, each once and in order, also if an actor is killed or a run continued."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import cluster
import measure
import mxsame
import numpy as np
import pyarrow
import pytest
import score
from mxnet import nd
from ray._common.usage import usage_lib

import networks
from conftest import EXAMPLES

pytestmark = pytest.mark.usefixtures("engine")
COUNT, BATCH, LIMIT = 10_000, 64, 120.0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The paths of a deployed network and of images; the scores of all images in one process."""
    folder = tmp_path_factory.mktemp("scoring")
    images = np.random.RandomState(7).standard_normal((COUNT, *networks.SHAPE)).astype(np.float32)
    np.save(folder / "images.npy", images)
    net = networks.frozen()
    mxsame.deploy(net, (1, *networks.SHAPE)).export(str(folder / "network"))
    scores = np.concatenate([net(nd.array(part)).asnumpy() for part in np.array_split(images, 10)])
    return folder / "network", folder / "images.npy", scores


def rows(out):
    """Keys, labels and scores, as the files have them in order."""
    tables = score.tables(out)
    assert len(tables) > 1
    columns = [[table[name].to_numpy() for table in tables] for name in (score.KEY, score.LABEL)]
    scores = [np.stack(table[score.SCORES].to_numpy()) for table in tables]
    return (*map(np.concatenate, columns), np.concatenate(scores))


def check(out, expected):
    keys, labels, scores = rows(out)
    assert np.array_equal(keys, np.arange(COUNT))
    assert np.array_equal(labels, scores.argmax(axis=1))
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    assert abs(expected[1:] - expected[:-1]).max(axis=1).min() > 2e-5, "a row in another's place is noticed"
    assert not out.with_name(out.name + ".writing").exists()


class Marked(score.Scorer):
    """Leaves a file with its process's number, starts when there are two, and is killed once, at a given key."""

    folder: Path
    fatal: int

    def __init__(self, *arguments):
        super().__init__(*arguments)
        (self.folder / str(os.getpid())).touch()

    def scored(self, keys):
        deadline = time.monotonic() + LIMIT
        while len(list(self.folder.iterdir())) < 2:
            assert time.monotonic() < deadline, "there is no second actor"
            time.sleep(0.01)
        killed = self.folder / "killed"
        if self.fatal in keys and not killed.exists():
            killed.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().scored(keys)


def marked(folder, fatal):
    folder.mkdir()
    return type("Marked", (Marked,), {"folder": folder, "fatal": fatal})


def test_an_actor_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(files, tmp_path):
    network, images, expected = files
    actors = marked(tmp_path / "actors", fatal=COUNT // 2)
    settings = {"actors": 2, "batch_size": BATCH, "scorer": actors}
    assert score.score(network, images, tmp_path / "out", **settings) == (COUNT, {})
    check(tmp_path / "out", expected)
    names = {path.name for path in (tmp_path / "actors").iterdir()}
    assert (tmp_path / "actors" / "killed").read_text() in names
    assert len(names) == 4, "two, the third in place of the killed one, and the file that says so"


class Dying(score.Scorer):
    def scored(self, keys):
        os._exit(3)


def test_actors_that_always_die_end_the_run(files, tmp_path, monkeypatch):
    monkeypatch.setattr(score, "TRIES", 2)
    with pytest.raises(cluster.Failed, match=r"^2 actors died while they scored 0 to 1023$"):
        score.score(*files[:2], tmp_path / "out", actors=1, batch_size=BATCH, scorer=Dying)


class Doubling(score.Scorer):
    def scored(self, keys):
        table = super().scored(keys)
        return pyarrow.concat_tables([table, table]) if 0 in keys else table


class Raising(score.Scorer):
    def scored(self, keys):
        raise ArithmeticError("the network is wrong")


@pytest.mark.parametrize(
    ("scorer", "error", "message"),
    [
        (Doubling, RuntimeError, r"10000 keys should be written, each once and in order; found 10064"),
        (Raising, ArithmeticError, "the network is wrong"),
    ],
)
def test_what_is_wrong_gets_no_name(files, tmp_path, scorer, error, message):
    with pytest.raises(error, match=message):
        score.score(*files[:2], tmp_path / "out", actors=1, batch_size=BATCH, scorer=scorer)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_continues(files, tmp_path):
    network, images, expected = files
    own = tmp_path / "images.npy"
    shutil.copy(images, own)
    lines, out = [], tmp_path / "out"

    def interrupt(line):
        lines.append(line)
        if len(lines) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score.score(network, own, out, actors=1, batch_size=BATCH, progress=interrupt)
    assert re.fullmatch(r"3072/10000 images, \d+ images/s", lines[-1])
    first, *_ = parts = sorted(tmp_path.glob("out.writing/*.parquet"))
    done, inode = min(COUNT, len(parts) * score.BATCHES * BATCH), first.stat().st_ino

    mxsame.deploy(networks.plain(), (1, *networks.SHAPE)).export(str(tmp_path / "other"))
    for name, arguments in (
        ("network", (tmp_path / "other", own, out, 1, BATCH)),
        ("images", (network, images, out, 1, BATCH)),
        ("batch_size", (network, own, out, 1, 8)),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be as in the interrupted run.*Remove that folder"):
            score.score(*arguments)

    assert score.score(network, own, out, actors=1, batch_size=BATCH, progress=lines.append) == (COUNT, {})
    assert lines[3] == f"continues: {done} of {COUNT} images are done"
    assert next(iter(sorted(out.glob("*.parquet")))).stat().st_ino == inode, "what was done is not done again"
    check(out, expected)


def test_wrong_arguments_are_named(files, tmp_path):
    network, images, _ = files
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "wide.npy", np.zeros((5, 3, 11, 10), np.float32))
    for arguments, message in (
        ((network, images, tmp_path), "out must not exist yet; received out="),
        ((tmp_path / "none", images, tmp_path / "out"), "there is no .*none-symbol.json"),
        ((network, tmp_path / "images.txt", tmp_path / "out"), r"must be an \.npy file or a folder; received"),
        ((network, tmp_path / "wide.npy", tmp_path / "out"), r"the shape that .*network takes; received \(3, 11, 10\)"),
        ((network, tmp_path / "empty", tmp_path / "out"), "must be a folder with png, .*; received"),
    ):
        with pytest.raises(ValueError, match=message):
            score.score(*arguments)


def test_ray_does_not_report_its_use():
    assert not usage_lib.usage_stats_enabled()


def test_the_command_scores_a_folder_of_images_and_leaves_out_broken_ones(files, tmp_path):
    pil = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
    _, height, width = networks.SHAPE
    images = np.random.RandomState(8).randint(0, 256, (12, height, width, 3), dtype=np.uint8)
    paths = [tmp_path / "images" / f"{number:02}.png" for number in range(12)]
    paths[0].parent.mkdir()
    for path, image in zip(paths, images):
        pil.fromarray(image).save(path)
    paths[7].write_bytes(paths[7].read_bytes()[:200])  # truncated, with a whole header
    paths[9].write_bytes(b"no image")
    pil.fromarray(images[11][1:]).save(paths[11])
    command = [sys.executable, EXAMPLES / "score.py", "--network", files[0]]
    command += ["--images", tmp_path / "images", "--out", tmp_path / "out", "--batch-size", "5", "--actors", "1"]
    mark = f"MARK={tmp_path}"  # of all processes of a run

    def run(*more):
        environment = {**os.environ, "MARK": str(tmp_path)}
        settings = {"capture_output": True, "text": True, "timeout": LIMIT, "env": environment}
        return subprocess.run(list(map(str, [*command, *more])), **settings)

    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    rule = "score: images must be readable; received"
    assert done.stderr == (
        f"{rule} {str(paths[7])!r}, OSError: image file is truncated; --skip-broken leaves such images out\n"
    )
    done = run("--skip-broken")
    assert (done.returncode, done.stderr) == (0, "")
    progress, *listed, last = done.stdout.splitlines()
    assert re.fullmatch(r"12/12 images, \d+ images/s", progress)
    assert listed == [
        f"left out: {paths[7]}: OSError: image file is truncated",
        f"left out: {paths[9]}: UnidentifiedImageError: cannot identify image file {str(paths[9])!r}",
        f"left out: {paths[11]}: ValueError: its shape is (3, 10, 9), and that of the first image (3, 11, 9)",
    ]
    assert last == f"9 images scored: {tmp_path / 'out'}"

    (table,) = score.tables(tmp_path / "out")
    assert table[score.KEY].to_pylist() == list(map(str, paths))
    broken = [index for index, error in enumerate(table[score.ERROR].to_pylist()) if error is not None]
    assert broken == [7, 9, 11]
    expected = networks.frozen()(nd.array(images.transpose(0, 3, 1, 2) / 255)).asnumpy()
    for index, (label, scores) in enumerate(zip(*(table[name].to_pylist() for name in (score.LABEL, score.SCORES)))):
        if index in broken:
            assert label is scores is None
        else:
            np.testing.assert_allclose(scores, expected[index], atol=2e-6)
            assert label == expected[index].argmax()

    deadline = time.monotonic() + 20
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not marked_processes(mark), "no process outlives the command"


def test_what_more_actors_gain_is_measured(tmp_path, capsys):
    settings = ("--shape", 1, 8, 8, "--actors", 1, 2, "--rounds", 1, "--parts", 2, "--batch-size", 2)
    measure.main(["--model", str(mxsame.sample("digits")), *map(str, settings)])
    one, two = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"1 actors: \d+ images/s, 1\.00 \(1\.00 to 1\.00\) of 1; first part after \S+ s", one)
    assert two.startswith("2 actors: ")


def marked_processes(mark):
    """The numbers of the processes that were started with a variable of the environment."""

    def environment(process):
        try:
            return (process / "environ").read_bytes().split(b"\0")
        except OSError:
            return []

    return [path.name for path in Path("/proc").glob("[0-9]*") if mark.encode() in environment(path)]
