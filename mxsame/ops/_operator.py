"""One of MXNet's operators, with the steps of a plan around it: pure data, run on arrays or Symbols by `F`.

MXNet's operator is looked up in `F` at each call: `mxnet.contrib.amp`, for one, puts others in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Optional, Tuple

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.plan import Plan, arrays
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.steps import Setting
from mxsame.target import NOTE

ONES, ZEROS = ((1,), (1, 1), (1, 1, 1)), ((0,), (0, 0), (0, 0, 0))
COMMON: Dict[str, Tuple[Any, ...]] = {"stride": ONES, "dilate": ONES, "pad": ZEROS, "num_group": (1,)}
DEFAULTS: Dict[str, Dict[str, Tuple[Any, ...]]] = {  # of MXNet's operators, for any number of axes
    "Convolution": {**COMMON, "no_bias": (False,)},
    "Deconvolution": {**COMMON, "no_bias": (True,), "adj": ZEROS},
    "Pooling": {**COMMON, "pool_type": ("max",), "pooling_convention": ("valid",)},
}


def told(name: str, arguments: Dict[str, Any], in_graph: bool) -> Dict[str, Any]:
    """What MXNet's operator is told. It parses its arguments in each call, so a call on arrays has no defaults among
    them; a graph has them all, for whoever reads it."""
    defaults: Dict[str, Tuple[Any, ...]] = {} if in_graph else DEFAULTS[name]
    return {key: value for key, value in arguments.items() if value not in defaults.get(key, ())}


@dataclass(frozen=True)
class Around(Setting):
    """A plan around an operator. If it is `turned`, the caller has channels last, and the operator channels first;
    `note` is the value of `NOTE` for all of its nodes, if there is one."""

    plan: Plan
    turned: bool
    note: Optional[str] = None

    def run(self, F: Any, data: Any, operator: Callable[[Any], Any]) -> Any:
        """`operator(data)` with all that the plan does before and after it."""
        if self.note is not None:
            with mx.AttrScope(**{NOTE: self.note}):
                return replace(self, note=None).run(F, data, operator)
        prepared, steps = data, self.plan.steps
        for step in steps:
            prepared = step.before(F, self, prepared)
        out = operator(prepared)
        for step in reversed(steps):
            out = step.after(F, self, out, data)
        return out

    def kernel(self, F: Any, weight: Any, channels: int, data: Any) -> Any:
        """The weight of an operator with so many output channels; some follow from the size of `data`."""
        for step in self.plan.steps:
            weight = step.weight(F, self, weight, channels, data)
        return weight

    def thin(self, F: Any, data: Any) -> Any:
        """One batch entry and one channel of the data."""
        return arrays.thin(F, data, (0, 1 if self.first == SPATIAL else len(self.windows) + 1))


@dataclass(frozen=True)
class Operator:
    """MXNet's operator of this name, by a plan; called with `F` and arrays, or Symbols, in the caller's layout."""

    name: str
    arguments: Dict[str, Any]
    around: Around

    def __call__(self, F: Any, data: Any, *weights: Any) -> Any:
        if not self.around.turned:
            return self.run(F, data, *weights)
        ndim = len(self.around.windows) + SPATIAL
        first = (tensors.channels_first(F, array, ndim) for array in (data, *weights[:1]))
        return tensors.channels_last(F, self.run(F, *first, *weights[1:]), ndim)

    def run(self, F: Any, data: Any, *weights: Any) -> Any:
        """The output for arrays in the operator's layout."""
        raise NotImplementedError
