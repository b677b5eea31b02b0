"""Runs plans: their steps around one of MXNet's operators, on classic arrays or Symbols."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Optional, Sequence

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.building import NOTE, current
from mxsame.plan import Plan, Window, arrays
from mxsame.plan.arrays import SPATIAL

ONES, ZEROS = ((1,), (1, 1), (1, 1, 1)), ((0,), (0, 0), (0, 0, 0))
COMMON: Dict[str, tuple] = {"stride": ONES, "dilate": ONES, "pad": ZEROS, "num_group": (1,)}
DEFAULTS: Dict[str, Dict[str, tuple]] = {  # of MXNet's operators, for any number of axes
    "Convolution": {**COMMON, "no_bias": (False,)},
    "Deconvolution": {**COMMON, "no_bias": (True,), "adj": ZEROS},
    "Pooling": {**COMMON, "pool_type": ("max",), "pooling_convention": ("valid",)},
}


@dataclass(frozen=True)
class Lowering:
    """An operator on MXNet: `run` it on data; for a convolution, `kernel` first gives it the weight that it needs.

    Parameters
    ----------
    F : mx.nd or mx.sym
    windows, plan
        What is wanted, and how.
    channels : int, optional
        Of the data; only shifting, picking, and concatenation in 3-D depend on it.
    fill : "zero" or "edge"
        What padding holds that becomes part of the data: zeros, or copies of the nearest element, which never win a
        maximum over a window that holds that element too.
    first : int
        The first spatial axis: 2 with channels first, 1 with channels last (`Strategy.channels_last`).
    plain : bool
        The data is what the graph is fed, and not in oneDNN's blocks.
    """

    F: Any
    windows: Sequence[Any]
    plan: Plan
    channels: Optional[int] = None
    fill: str = "zero"
    first: int = SPATIAL
    plain: bool = False

    def run(self, data: Any, operator: Callable) -> Any:
        """`operator(data)` with all that the plan does before and after it."""
        if current().windows_noted and not self._shows_windows():
            with mx.AttrScope(**{NOTE: repr(list(map(asdict, self.windows)))}):
                return self._run(data, operator)
        return self._run(data, operator)

    def _shows_windows(self) -> bool:
        """Whether the operator's own attributes are the windows, for every size. Those of a convolution of dilated data
        are; MXNet's Deconvolution is not right for all of its own."""
        own = (
            isinstance(window, Window)
            and (window.kernel_size, window.padding, window.ceil_mode) == (axis.kernel_size, (axis.pad,) * 2, False)
            for window, axis in zip(self.windows, self.plan.axes)
        )
        return self.plan.dilates or (not self.plan.steps and all(own))

    def _run(self, data: Any, operator: Callable) -> Any:
        prepared, steps = data, self.plan.steps
        for step in steps:
            prepared = step.before(self, prepared)
        out = operator(prepared)
        for step in reversed(steps):
            out = step.after(self, out, data)
        return out

    def kernel(self, weight: Any, channels: int, data: Any) -> Any:
        """The weight of an operator with so many output channels; some follow from the size of `data`."""
        for step in self.plan.steps:
            weight = step.weight(self, weight, channels, data)
        return weight

    def thin(self, data: Any) -> Any:
        """One batch entry and one channel of the data."""
        return arrays.thin(self.F, data, (0, 1 if self.first == SPATIAL else len(self.windows) + 1))

    def operator(self, name: str, arguments: Dict[str, Any]) -> Callable:
        """MXNet's operator as a function of its inputs. It parses its arguments in each call, so a call on arrays has
        no defaults among them; a graph has them all, for whoever reads it."""
        defaults: Dict[str, tuple] = {} if self.F is mx.sym else DEFAULTS[name]
        told = {key: value for key, value in arguments.items() if value not in defaults.get(key, ())}
        return functools.partial(getattr(self.F, name), **told)

    def is_on_cpu(self, array: Any) -> bool:
        """Whether the array is, or its graph is built for it."""
        return tensors.purpose_and_device(array)[1] == "cpu"
