"""What `mxsame doctor` prints: lines of plain text, coloured in a terminal."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from typing import Iterator, List, Set

import click

from mxsame.doctor import Check, diagnose
from mxsame.doctor.checks import STATUSES

COLORS = dict(zip(STATUSES, ("green", None, "red")))
STATUS_WIDTH, NAME_WIDTH = max(map(len, STATUSES)), 13
NARROWEST = 16
TITLES = {"software": "Software", "cuda": "NVIDIA"}


def run() -> dict:
    """Examines, prints each check at once, and returns what `as_data` gives."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # libraries' messages may not fit into the terminal's encoding
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else 100
    groups: Set[str] = set()

    def write(line: str) -> None:
        print(line if is_terminal else click.unstyle(line), flush=True)

    def report(check: Check) -> None:
        if check.group not in groups:
            title = click.style(TITLES.get(check.group, check.group.upper()), bold=True)
            write(f"\n{title}" if groups else title)
            groups.add(check.group)
        for line in lines(check, width):
            write(line)

    found = diagnose(report)
    for line in verdict(found, width):
        write(line)
    return found


def lines(check: Check, width: int) -> Iterator[str]:
    """Status, name and text, wrapped; below it the command in one piece, to be copied."""
    indent = " " * (STATUS_WIDTH + NAME_WIDTH + 2)
    first, *others = wrapped(check.text, width - len(indent))
    status = click.style(f"{check.status:{STATUS_WIDTH}}", fg=COLORS[check.status])
    yield f"{status} {click.style(f'{check.name:{NAME_WIDTH}}', bold=True)} {first}"
    yield from (indent + text for text in others)
    if check.fix:
        yield f"{indent}fix it with: {click.style(check.fix, bold=True)}"


def wrapped(text: str, width: int) -> List[str]:
    """At least one line; paths and other long words are left whole."""
    return textwrap.wrap(text, max(width, NARROWEST), break_long_words=False, break_on_hyphens=False) or [""]


def verdict(found: dict, width: int) -> Iterator[str]:
    """The last lines."""
    count = sum(check["status"] == "problem" for check in found["checks"])
    text = "All is well" if not count else "1 problem found" if count == 1 else f"{count} problems found"
    text += f" ({found['seconds']} s)."
    if count > 1:
        text += " The first may be the cause of the others: fix it, and run this again."
    yield ""
    yield from (click.style(line, fg="red" if count else "green", bold=True) for line in wrapped(text, width))
