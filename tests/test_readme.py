"""The README's Python runs, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[-2][:40])
def test_a_block_prints_what_its_comments_say(block):
    said = re.findall(r"^print\(.*\)  # (.*?)(?:: .*)?$", block, re.MULTILINE)
    assert len(said) == block.count("print(") > 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    assert printed.getvalue().splitlines() == said


def test_it_has_the_two_commands():
    commands = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert [command.count("\n") for command in commands] == [1, 1]
    assert "mxsame demo" in commands[0]
    assert "pytest" in commands[1]
