"""Scores by actors are those of one process, each once and in order, also when an actor is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mxsame
import numpy as np
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
    """The paths of a deployed network and of pictures; the scores of all pictures in one process."""
    folder = tmp_path_factory.mktemp("scoring")
    pictures = np.random.RandomState(7).standard_normal((COUNT, *networks.SHAPE)).astype(np.float32)
    np.save(folder / "pictures.npy", pictures)
    net = networks.frozen()
    mxsame.deploy(net, (1, *networks.SHAPE)).export(str(folder / "network"))
    scores = np.concatenate([net(nd.array(part)).asnumpy() for part in np.array_split(pictures, 10)])
    return folder / "network", folder / "pictures.npy", scores


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

    def __call__(self, batch):
        deadline = time.monotonic() + LIMIT
        while len(list(self.folder.iterdir())) < 2:
            assert time.monotonic() < deadline, "there is no second actor"
            time.sleep(0.01)
        killed = self.folder / "killed"
        if self.fatal in batch[score.KEY] and not killed.exists():
            killed.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


def marked(folder, fatal):
    folder.mkdir()
    return type("Marked", (Marked,), {"folder": folder, "fatal": fatal})


def test_an_actor_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(files, tmp_path):
    network, pictures, expected = files
    actors = marked(tmp_path / "actors", fatal=COUNT // 2)
    assert score.score(network, pictures, tmp_path / "out", actors=2, batch_size=BATCH, scorer=actors) == COUNT
    check(tmp_path / "out", expected)
    names = {path.name for path in (tmp_path / "actors").iterdir()}
    assert (tmp_path / "actors" / "killed").read_text() in names
    assert len(names) == 4, "two, the third in place of the killed one, and the file that says so"


class Doubling(score.Scorer):
    def __call__(self, batch):
        made = super().__call__(batch)
        return {name: np.repeat(values, 2, axis=0) for name, values in made.items()} if 0 in batch[score.KEY] else made


class Raising(score.Scorer):
    def __call__(self, batch):
        raise ArithmeticError("the network is wrong")


@pytest.mark.parametrize(
    ("scorer", "error", "message"),
    [
        (Doubling, RuntimeError, r"10000 keys should be written, each once and in order; found 10064"),
        (Raising, Exception, "the network is wrong"),
    ],
)
def test_what_is_wrong_gets_no_name(files, tmp_path, scorer, error, message):
    with pytest.raises(error, match=message):
        score.score(*files[:2], tmp_path / "out", actors=1, batch_size=BATCH, scorer=scorer)
    assert not (tmp_path / "out").exists()


def test_wrong_arguments_are_named(files, tmp_path):
    network, pictures, _ = files
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "wide.npy", np.zeros((5, 3, 11, 10), np.float32))
    for arguments, message in (
        ((network, pictures, tmp_path), "out must not exist yet; received out="),
        ((tmp_path / "none", pictures, tmp_path / "out"), "there is no .*none-symbol.json"),
        ((network, tmp_path / "pictures.txt", tmp_path / "out"), r"must be an \.npy file or a folder; received"),
        ((network, tmp_path / "wide.npy", tmp_path / "out"), r"the shape that .*network takes; received \(3, 11, 10\)"),
        ((network, tmp_path / "empty", tmp_path / "out"), "must be a folder with png, .*; received"),
    ):
        with pytest.raises(ValueError, match=message):
            score.score(*arguments)


def test_ray_does_not_report_its_use():
    assert not usage_lib.usage_stats_enabled()


def test_the_command_scores_a_folder_of_pictures(files, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
    _, height, width = networks.SHAPE
    pictures = np.random.RandomState(8).randint(0, 256, (12, height, width, 3), dtype=np.uint8)
    (tmp_path / "pictures").mkdir()
    for number, picture in enumerate(pictures):
        image.fromarray(picture).save(tmp_path / "pictures" / f"{number:02}.png")
    command = [sys.executable, EXAMPLES / "score.py", "--network", files[0]]
    command += ["--pictures", tmp_path / "pictures", "--out", tmp_path / "out", "--batch-size", "5", "--actors", "1"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"12 pictures scored: {tmp_path / 'out'}\n")
    tables = score.tables(tmp_path / "out")
    keys = [key for table in tables for key in table[score.KEY].to_pylist()]
    assert [Path(key).name for key in keys] == [f"{number:02}.png" for number in range(12)]
    expected = networks.frozen()(nd.array(pictures.transpose(0, 3, 1, 2) / 255)).asnumpy()
    scores = np.concatenate([np.stack(table[score.SCORES].to_numpy()) for table in tables])
    np.testing.assert_allclose(scores, expected, atol=2e-6)
