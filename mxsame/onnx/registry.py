"""The table of operators: what each of MXNet's is in ONNX.

A row is a function of the writer, the node and the names of the node's inputs; it adds ONNX's nodes by `Writer.add` and
returns the name of the output, or a list of names. The rows are in `mxsame.onnx.rows` and register themselves, under
the kinds of `mxsame.rewriting.Node`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

Row = Callable[..., Any]
OPERATORS: Dict[str, Row] = {}


def writes(*kinds: str) -> Callable[[Row], Row]:
    """A decorator: the function writes nodes of these kinds.

    Raises `ValueError` if one of them has a row already."""

    def register(row: Row) -> Row:
        for kind in kinds:
            if kind in OPERATORS:
                raise ValueError(f"a kind of node must have one row; received {kind!r} again")
            OPERATORS[kind] = row
        return row

    return register
