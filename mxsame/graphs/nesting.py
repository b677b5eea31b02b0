"""Arguments of a net: arrays, or lists of arrays that may be nested, and None."""

from __future__ import annotations

from typing import Any


def flatten(args: Any) -> list:
    """Returns the arrays, one after the other."""
    if isinstance(args, (list, tuple)):
        return [leaf for entry in args for leaf in flatten(entry)]
    return [] if args is None else [args]


def regroup(args: Any, leaves: Any) -> Any:
    """Returns the leaves, nested as these arguments are."""
    if isinstance(args, (list, tuple)):
        entries = [regroup(entry, leaves) for entry in args]
        return tuple(entries) if isinstance(args, tuple) else entries
    return None if args is None else next(leaves)
