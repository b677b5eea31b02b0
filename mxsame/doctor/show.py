"""What `mxsame doctor` prints: lines of plain text, coloured in a terminal."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap

import click

from mxsame.doctor import Check, as_data, examine

COLORS = {"ok": "green", "note": None, "problem": "red"}
STATUS_WIDTH, NARROWEST = 8, 40


def run() -> dict:
    """Examines, prints each check at once, and returns what `as_data` gives."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # libraries' messages may not fit into the terminal's encoding
    found = []
    for check in examine():
        found.append(check)
        click.echo(lines(check, shutil.get_terminal_size((100, 24)).columns))
    problems = sum(check.status == "problem" for check in found)
    text = "All is well." if not problems else f"{problems} problem{'s' if problems > 1 else ''} found."
    text += " The first may be the cause of the others: fix it, and run this again." if problems > 1 else ""
    click.echo(click.style(f"\n{text}", fg="red" if problems else "green", bold=True))
    return as_data(found)


def lines(check: Check, width: int) -> str:
    """Status, name and text, wrapped; below it the command in one piece, to be copied."""
    status, indent = f"{check.status:{STATUS_WIDTH}}", " " * STATUS_WIDTH
    width = max(width, NARROWEST)
    text = f"{status}{check.name}: {check.text}"
    text = textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    text = click.style(status, fg=COLORS[check.status]) + text[STATUS_WIDTH:]
    return f"{text}\n{indent}fix it with: {click.style(check.fix, bold=True)}" if check.fix else text
