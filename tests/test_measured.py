"""The file of measured plans."""

from __future__ import annotations

import json
import os

import pytest

from mxsame import measured, planner
from mxsame.plan import TransposedWindow, Window
from mxsame.planner import Work

MEASURED = [
    ((Window(56, 3, 2),) * 2, Work("conv", 8, 128, 128), "concat"),
    ((Window(None, 3, 2, 1, (1, 0), True),), Work("max", None, None, purpose="training", device="gpu"), "pad"),
    ((TransposedWindow(16, 3, 2, crop=(0, 1)),), Work("transposed", 2, 3, 4), "slice"),
]


@pytest.fixture(autouse=True)
def nothing_measured():
    planner.forget()
    yield
    planner.forget()


def test_what_was_measured_survives_a_file(tmp_path):
    path = tmp_path / "plans.json"
    for entry in MEASURED:
        measured.prefer(*entry)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    measured.write(str(link))
    assert link.is_symlink() and path.is_file()
    planner.forget()
    assert measured.fastest(*MEASURED[0][:2]) is None
    measured.read(str(path))
    assert [measured.fastest(windows, work) for windows, work, _ in MEASURED] == ["concat", "pad", "slice"]


@pytest.mark.parametrize(
    "content",
    ["", "no JSON", "\x00\xff", "[]", "{}", "null", "[" * 200_000]
    + [json.dumps({"format": "mxsame plans 0", "measured": {}})]
    + [json.dumps({"format": measured.FORMAT, "measured": entries}) for entries in (None, [3], {"a": "fastest"})],
    ids=str.strip,
)
def test_other_files_are_refused_and_change_nothing(tmp_path, content):
    path = tmp_path / "plans.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"^path must be a file that mxsame.autotune has written \(.*; received path="):
        measured.read(str(path))
    assert not measured._MEASURED


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ended"])
def test_a_file_that_is_not_written_to_the_end_stays_as_it_was(tmp_path, monkeypatch, error):
    path = tmp_path / "plans.json"
    measured.write(str(path))
    before = path.read_bytes()

    def fails(*args, **more):
        raise error

    monkeypatch.setattr(json, "dump", fails)
    with pytest.raises(ValueError if isinstance(error, OSError) else KeyboardInterrupt):
        measured.write(str(path))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["plans.json"]


def test_a_folder_that_is_not_there_is_named_with_the_rule(tmp_path):
    with pytest.raises(ValueError, match=r"path must be a file that can be written \(.*No such file.*received path="):
        measured.write(str(tmp_path / "no" / "plans.json"))
