"""Flattens and rebuilds the nested arguments of a net: arrays, lists of them, and None."""

from __future__ import annotations

from typing import Any


def flatten(args: Any) -> list:
    """Returns the arrays as a flat list, in order, without None."""
    if isinstance(args, (list, tuple)):
        return [leaf for entry in args for leaf in flatten(entry)]
    return [] if args is None else [args]


def regroup(args: Any, leaves: Any) -> Any:
    """Returns `leaves` (an iterator) in the nesting of `args`; the inverse of `flatten`."""
    if isinstance(args, (list, tuple)):
        entries = [regroup(entry, leaves) for entry in args]
        return tuple(entries) if isinstance(args, tuple) else entries
    return None if args is None else next(leaves)
