"""Files of measured plans: what they keep, and what becomes of them if something goes wrong."""

from __future__ import annotations

import json
import os
import stat

import pytest

from mxsame import measured, planner
from mxsame.plan import Window
from mxsame.planner import Work

WORK = Work("conv", 1, 8, 8)


@pytest.fixture(autouse=True)
def nothing_remembered():
    planner.forget()
    yield
    planner.forget()


def remember(*sizes):
    for size in sizes:
        planner.remember([Window(size, 3, 2)], WORK, "concat")


def sizes_in(path):
    return [entry["windows"][0]["size"] for entry in json.loads(path.read_text(encoding="utf-8"))["measured"]]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_keeps_what_other_processes_saved(tmp_path):
    path = tmp_path / "plans.json"
    remember(8, 10)
    planner.save(str(path))
    planner.forget()
    remember(12)
    planner.save(str(path))
    assert sizes_in(path) == [8, 10, 12]
    assert measured._MEASURED.keys() == {((Window(12, 3, 2),), WORK)}  # only `load` remembers


def test_the_last_strategy_is_the_one_that_is_kept(tmp_path):
    path = tmp_path / "plans.json"
    remember(8)
    planner.save(str(path))
    planner.remember([Window(8, 3, 2)], WORK, "slice")
    planner.save(str(path))
    planner.load(str(path))
    assert planner.recall([Window(8, 3, 2)], WORK) == "slice"


@pytest.mark.parametrize("wanted", [0o644, 0o600, 0o664])
def test_a_file_keeps_its_mode(tmp_path, wanted):
    path = tmp_path / "plans.json"
    planner.save(str(path))
    path.chmod(wanted)
    remember(8)
    planner.save(str(path))
    assert mode(path) == wanted and sizes_in(path) == [8]


def test_a_new_file_has_the_mode_of_every_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        planner.save(str(tmp_path / "plans.json"))
    finally:
        os.umask(before)
    assert mode(tmp_path / "plans.json") == 0o640


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "plans.json", tmp_path / "link.json"
    link.symlink_to(target)
    remember(8)
    planner.save(str(link))
    assert link.is_symlink() and sizes_in(target) == [8]


@pytest.mark.parametrize("exists", [False, True])
def test_a_save_that_fails_leaves_everything_as_it_was(tmp_path, monkeypatch, exists):
    path = tmp_path / "plans.json"
    if exists:
        remember(8)
        planner.save(str(path))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(*args, **more):
        raise OSError(28, "No space left on device")

    remember(10)
    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space left"):
        planner.save(str(path))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_of_another_kind_is_not_overwritten(tmp_path):
    path = tmp_path / "plans.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="path must be a file that mxsame has saved plans in"):
        planner.save(str(path))
    assert path.read_text() == "{}" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 200_000], ids=["lists", "objects"])
def test_deeply_nested_json(tmp_path, content):
    path = tmp_path / "plans.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"path must be a file that mxsame has saved plans in \(RecursionError"):
        planner.load(str(path))


def test_without_locks(tmp_path, monkeypatch):
    """Where there are none, and where a file system refuses them."""
    remember(8)
    monkeypatch.setattr(measured, "fcntl", None)
    planner.save(str(tmp_path / "one.json"))

    class Refusing:
        LOCK_EX = 2

        @staticmethod
        def flock(descriptor, operation):
            raise OSError("not here")

    monkeypatch.setattr(measured, "fcntl", Refusing)
    planner.save(str(tmp_path / "two.json"))
    assert sizes_in(tmp_path / "one.json") == sizes_in(tmp_path / "two.json") == [8]
