"""One of MXNet's operators, with the steps of a plan around it: pure data, run on arrays or Symbols by `F`.

MXNet's operator is looked up in `F` at each call: `mxnet.contrib.amp`, for one, puts others in its place.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.plan import Plan, arrays
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.steps import Setting
from mxsame.target import NOTE

_NOTHING = contextlib.nullcontext()
ONES, ZEROS = ((1,), (1, 1), (1, 1, 1)), ((0,), (0, 0), (0, 0, 0))
COMMON: Dict[str, Tuple[Any, ...]] = {"stride": ONES, "dilate": ONES, "pad": ZEROS, "num_group": (1,)}
DEFAULTS: Dict[str, Dict[str, Tuple[Any, ...]]] = {  # of MXNet's operators, for any number of axes
    "Convolution": {**COMMON, "no_bias": (False,)},
    "Deconvolution": {**COMMON, "no_bias": (True,), "adj": ZEROS},
    "Pooling": {**COMMON, "pool_type": ("max",), "pooling_convention": ("valid",)},
}


def without_defaults(name: str, arguments: Dict[str, Any], in_graph: bool) -> Dict[str, Any]:
    """The arguments that MXNet's operator is given. It parses them in each call, so a call on arrays has no defaults
    among them; a graph has them all, for whoever reads it."""
    defaults: Dict[str, Tuple[Any, ...]] = {} if in_graph else DEFAULTS[name]
    return {key: value for key, value in arguments.items() if value not in defaults.get(key, ())}


@dataclass(frozen=True)
class Operator(Setting):
    """MXNet's operator of this name, by a plan; called with `F` and arrays, or Symbols, in the caller's layout.

    If it is `turned`, the caller has channels last, and the operator channels first; `pads` are zeros that are data.
    `note` is the value of `NOTE` for all of the plan's nodes, if there is one.
    """

    plan: Plan
    turned: bool
    pads: Tuple[Tuple[int, int], ...]
    note: Optional[str]
    name: str
    arguments: Dict[str, Any]

    def __call__(self, F: Any, data: Any, *weights: Any) -> Any:
        ndim = len(self.windows) + SPATIAL
        if self.turned:
            first = (tensors.channels_first(F, array, ndim) for array in (data, *weights[:1]))
            data, *weights = *first, *weights[1:]  # type: ignore[assignment]
        if self.pads:
            data = arrays.padded(F, data, self.pads)
        with _NOTHING if self.note is None else mx.AttrScope(**{NOTE: self.note}):
            out = self.run(F, data, *weights)
        return tensors.channels_last(F, out, ndim) if self.turned else out

    def run(self, F: Any, data: Any, *weights: Any) -> Any:
        """The output for arrays in the operator's layout."""
        raise NotImplementedError

    def before(self, F: Any, data: Any) -> Any:
        """The data that MXNet's operator is given."""
        for step in self.plan.steps:
            data = step.before(F, self, data)
        return data

    def after(self, F: Any, out: Any, data: Any) -> Any:
        """The final output: that of MXNet's operator after all steps."""
        for step in reversed(self.plan.steps):
            out = step.after(F, self, out, data)
        return out
