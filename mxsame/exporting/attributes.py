"""Records which attributes of a node an emitter has read."""

from __future__ import annotations

import re
from typing import Any, List

import numpy as np

from mxsame import validation
from mxsame.rewriting.attributes import value_of
from mxsame.rewriting.graph import Node, entries

# pattern of attributes that do not change an output
IGNORED = "|".join(
    (
        "num_filter|num_hidden|input_dim|output_dim|no_bias|num_args|is_int",  # implied by shapes and dtypes
        "workspace|cudnn_.*|sparse_grad|forward_stype|ctx|ndev",  # speed and placement
        "grad_scale|ignore_label|use_ignore|normalization|out_grad|smooth_alpha|valid_thresh",  # training
        "name|key|__.*__",  # names and notes
    )
)


class Attributes(validation.RecordingDict):
    """The attributes of a node, and which of them were read."""

    def check_all_read(self, node: Node, ignored: str) -> None:
        """Raises a `ValueError` if an attribute was not read, unless its name matches `ignored` or it has its
        default."""
        for name in self:
            if name in self.read or re.fullmatch(f"{IGNORED}|{ignored}", name):
                continue
            value, default = node.attr(name), value_of(node.op, name, None)
            validation.check(_comparable(value) == _comparable(default), f"{name} must be {default}", **{name: value})


def _comparable(value: Any) -> List[Any]:
    """Returns an attribute's value in a comparable form: numbers as float32, as MXNet stores them."""
    return [np.float32(each) if isinstance(each, (int, float)) else each for each in entries(value)]
