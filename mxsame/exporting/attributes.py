"""The attributes of a node: with MXNet's own defaults, and a record of those that a row has read."""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, List

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.rewriting.graph import Node, entries

# What shapes and types show anyway, what tunes speed, where an array is, and what only the gradient of a loss reads.
MEANINGLESS = (
    "num_filter|num_hidden|input_dim|output_dim|no_bias|num_args|is_int|workspace|cudnn_.*|sparse_grad|forward_stype|"
    "ctx|grad_scale|ignore_label|use_ignore|normalization|out_grad|smooth_alpha|valid_thresh|name|__.*__"
)


class Attributes(Dict[str, str]):
    """The attributes of a node; those that are not given are MXNet's defaults."""

    def __init__(self, node: Node):
        super().__init__(node.attrs)
        self._defaults, self._read = _defaults_of(node.op), set()  # type: Node, set[str]

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, self._defaults.attrs.get(name, default))

    def check_all_read(self, node: Node, unread: str) -> None:
        """Raise `ValueError` if an attribute was not read, unless its name matches `unread` or it has its default."""
        for name in self:
            if name in self._read or re.fullmatch(f"{MEANINGLESS}|{unread}", name):
                continue
            value, default = node.attr(name), self._defaults.attr(name)
            validation.check(_plain(value) == _plain(default), f"{name} must be {default}", **{name: value})


@functools.lru_cache(maxsize=None)
def _defaults_of(op: str) -> Node:
    """A node with the default of each attribute of an operator, as MXNet's registry has it."""
    arguments, found = mx.operator.get_operator_arguments(op), {}
    for name, kind in zip(arguments.names, arguments.types):
        _, given, text = kind.partition("default=")
        if given:
            text = text.strip("'")
            found[name] = {"0": "False", "1": "True"}.get(text, text) if kind.startswith("boolean") else text
    return Node(op, op, attrs=found)


def _plain(value: Any) -> List[Any]:
    """An attribute's value, so that equal ones compare so: numbers as MXNet keeps them."""
    return [np.float32(each) if isinstance(each, (int, float)) else each for each in entries(value)]
