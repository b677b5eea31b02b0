"""Rows of a result file as tables in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Dict, List

from benchmarks.results import geometric_mean, ratio

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


def by_mode(rows: List[dict]) -> Dict[str, List[dict]]:
    """Rows of one kind together, in the order in which they come."""
    found: Dict[str, List[dict]] = {}
    for row in rows:
        found.setdefault(row["mode"], []).append(row)
    return found


def contestants(rows: List[dict]) -> List[str]:
    """All but the reference, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row["figures"] if name != row["reference"]))


def show(result: dict) -> None:
    """One table for each mode: ratios to the reference, and over all rows their geometric mean and the worst."""
    from rich.table import Table

    out = console()
    for mode, rows in by_mode(result["rows"]).items():
        reference, unit, names = rows[0]["reference"], rows[0]["unit"], contestants(rows)
        unit = {"s": "ms"}.get(unit, unit)
        table = Table(title=f"{result['title']}: {mode}, ratio to {reference}")
        table.add_column(result["table"])
        for column in (f"{reference}, {unit}", *names):
            table.add_column(column, justify="right", min_width=8)
        for row in rows:
            limit = row["figures"][reference]["median"] * (1e3 if row["unit"] == "s" else 1)
            table.add_row(row["name"], f"{limit:.2f}", *(_cell(ratio(row, name)) for name in names))
        if len(rows) > 1:
            table.add_section()
            columns = [[ratio(row, name) for row in rows if name in row["figures"]] for name in names]
            table.add_row("geometric mean", "", *(_cell(geometric_mean(column)) for column in columns))
            table.add_row("worst", "", *(_cell(max(column)) for column in columns))
        out.print(table)


def show_costs(rows: List[dict]) -> None:
    from rich.table import Table

    table = Table(title="Costs, in nanoseconds")
    for column in ("", "measured here", "the planner's", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        values = row["measured"], row["has"], row["measured"] / row["has"]
        table.add_row(row["name"], *(f"{value:.3g}" for value in values))
    console().print(table)


def _cell(value: float) -> str:
    return "-" if value != value else f"{value:.2f}"
