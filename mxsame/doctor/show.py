"""What `mxsame doctor` prints: plain lines; rich, where it is installed, colours them."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from typing import Any, Callable, Iterator, List, Tuple

from mxsame.doctor import diagnose
from mxsame.doctor.check import STATUSES, Check

STYLES = dict(zip(STATUSES, ("green", "dim", "yellow", "bold red")))
STATUS_WIDTH, NAME_WIDTH = max(map(len, STATUSES)), 13
NARROWEST = 16
TITLES = {"software": "Software", "cuda": "NVIDIA"}

Line = List[Tuple[str, str]]  # parts of a line: text, style


def run() -> dict:
    """Examines, prints, and returns what `as_data` gives."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what libraries say may not fit into the terminal's characters
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return _run(lambda line: print("".join(text for text, _ in line), flush=True), _width())
    console = Console()

    def write(line: Line) -> None:
        console.print(Text.assemble(*line), soft_wrap=True)

    with console.status("", spinner="line") as status:
        return _run(write, console.width, lambda what: status.update(what))


def _run(write: Callable[[Line], Any], width: int, say: Callable[[str], None] = lambda what: None) -> dict:
    groups: List[str] = []

    def tell(check: Check) -> None:
        if check.group not in groups:
            if groups:
                write([("", "")])
            write([(TITLES.get(check.group, check.group.upper()), "bold")])
            groups.append(check.group)
        for line in lines(check, width):
            write(line)

    found = diagnose(tell, say)
    for line in verdict(found, width):
        write(line)
    return found


def lines(check: Check, width: int) -> Iterator[Line]:
    """Status, name and text, wrapped; below it the command in one piece, to be copied."""
    indent = STATUS_WIDTH + NAME_WIDTH + 2
    name = f"{check.name:{NAME_WIDTH}}"
    for number, text in enumerate(wrapped(check.text, width - indent)):
        if number == 0:
            yield [(f"{check.status:{STATUS_WIDTH}}", STYLES[check.status]), (f" {name} ", "bold"), (text, "")]
        else:
            yield [(" " * indent + text, "")]
    if check.mend:
        words = "mend it with: " if check.status == "problem" else "if you want to: "
        yield [(" " * indent + words, "dim"), (check.mend, "bold")]


def wrapped(text: str, width: int) -> List[str]:
    """At least one line; paths and other long words are left whole."""
    return textwrap.wrap(text, max(width, NARROWEST), break_long_words=False, break_on_hyphens=False) or [""]


def verdict(found: dict, width: int) -> Iterator[Line]:
    """The last line."""
    count = sum(check["status"] == "problem" for check in found["checks"])
    text = "All is well" if not count else "1 problem found" if count == 1 else f"{count} problems found"
    text += f" ({found['seconds']} s)."
    if count > 1:
        text += " What comes first may be the cause of what follows: begin there, and ask again."
    style = "bold red" if count else "bold green"
    yield [("", "")]
    for line in wrapped(text, width):
        yield [(line, style)]


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
