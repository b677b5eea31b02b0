"""One of MXNet's operators, with the steps of a plan around it: pure data, run on arrays or Symbols by `F`.

MXNet's operator is looked up in `F` at each call: `mxnet.contrib.amp`, for one, puts others in its place.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ContextManager, Dict, Optional, Tuple

from mxsame._mxnet import mx
from mxsame.ops._inputs import Inputs
from mxsame.plan import Plan, Window
from mxsame.plan.steps import Setting
from mxsame.plan.windows import Windows, serialize_windows
from mxsame.scope import NOTE

_NOTHING = contextlib.nullcontext()
ONES, ZEROS = ((1,), (1, 1), (1, 1, 1)), ((0,), (0, 0), (0, 0, 0))
COMMON: Dict[str, Tuple[Any, ...]] = {"stride": ONES, "dilate": ONES, "pad": ZEROS, "num_group": (1,)}
DEFAULTS: Dict[str, Dict[str, Tuple[Any, ...]]] = {  # of MXNet's operators, for any number of axes
    "Convolution": {**COMMON, "no_bias": (False,)},
    "Deconvolution": {**COMMON, "no_bias": (True,), "adj": ZEROS},
    "Pooling": {**COMMON, "pool_type": ("max",), "pooling_convention": ("valid",)},
}


def arguments_of(name: str, inputs: Inputs, setting: Setting, plan: Plan, **more: Any) -> Dict[str, Any]:
    """Returns the arguments that MXNet's operator is given. It parses them in each call, so a call on arrays has no
    defaults among them; a graph has them all, for whoever reads it."""
    ones, zeros = ((1,), (0,)) if plan.pairs else ((), ())  # for an axis of pairs, along which nothing is pooled
    arguments = {
        "kernel": (*ones, *(axis.kernel_size for axis in plan.axes)),
        "stride": (*ones, *(axis.strides(window) for axis, window in zip(plan.axes, setting.windows))),
        "pad": (*zeros, *(axis.pad for axis in plan.axes)),
        **more,
    }
    if inputs.keeps_layout:
        arguments["layout"] = inputs.layout
    defaults: Dict[str, Tuple[Any, ...]] = {} if inputs.in_graph else DEFAULTS[name]
    return {key: value for key, value in arguments.items() if value not in defaults.get(key, ())}


def windows_note(inputs: Inputs, plan: Plan, windows: Windows) -> Optional[str]:
    """Returns the windows as a note, if a graph is made for another format and the attributes of MXNet's operator are
    not the windows for every size. Those of a convolution of dilated data are; MXNet's Deconvolution is not right for
    all of its own."""
    own = (
        isinstance(window, Window)
        and (window.kernel_size, window.padding, window.ceil_mode) == (axis.kernel_size, (axis.pad,) * 2, False)
        for window, axis in zip(windows, plan.axes)
    )
    is_shown = plan.dilates or (not plan.steps and all(own))
    return None if is_shown or inputs.target.purpose != "format" else serialize_windows(windows)


@dataclass(frozen=True)
class Operator:
    """MXNet's operator by a plan; called with `F` and arrays, or Symbols, in the caller's layout.

    Parameters
    ----------
    note : str, optional
        The value of `NOTE` for all of the plan's nodes, by :func:`windows_note`.
    transposes : bool
        Whether the caller has channels last, and MXNet's operator channels first.
    """

    setting: Setting
    plan: Plan
    note: Optional[str]
    transposes: bool
    arguments: Dict[str, Any]

    def attributes(self) -> ContextManager[Any]:
        """Within the `with` block, Symbols are given the note."""
        return _NOTHING if self.note is None else mx.AttrScope(**{NOTE: self.note})

    def before(self, F: Any, data: Any) -> Any:
        """Returns the data that MXNet's operator is given."""
        for step in self.plan.steps:
            data = step.before(F, self.setting, data)
        return data

    def after(self, F: Any, out: Any, data: Any) -> Any:
        """Returns the final output: that of MXNet's operator after all steps."""
        for step in reversed(self.plan.steps):
            out = step.after(F, self.setting, out, data)
        return out
