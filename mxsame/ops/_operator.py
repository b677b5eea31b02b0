"""One of MXNet's operators, with the steps of a plan around it: pure data, run on arrays or Symbols by `F`.

MXNet's operator is looked up in `F` at each call: `mxnet.contrib.amp`, for one, puts others in its place.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ContextManager, Dict, Mapping, Optional, Tuple

from mxsame._mxnet import mx
from mxsame.ops._inputs import Inputs
from mxsame.plan import AxisPlan, Plan, Window
from mxsame.plan.steps import Setting
from mxsame.plan.windows import AnyWindow, serialize_windows
from mxsame.scope import NOTE

_NOTHING = contextlib.nullcontext()
ONES, ZEROS = ((1,), (1, 1), (1, 1, 1)), ((0,), (0, 0), (0, 0, 0))
COMMON: Dict[str, Tuple[Any, ...]] = {"stride": ONES, "dilate": ONES, "pad": ZEROS, "num_group": (1,)}
DEFAULTS: Dict[str, Dict[str, Tuple[Any, ...]]] = {  # of MXNet's operators, for any number of axes
    "Convolution": {**COMMON, "no_bias": (False,)},
    "Deconvolution": {**COMMON, "no_bias": (True,), "adj": ZEROS},
    "Pooling": {**COMMON, "pool_type": ("max",), "pooling_convention": ("valid",)},
}


@dataclass(frozen=True)
class Operator:
    """MXNet's operator by a plan; called with `F` and arrays, or Symbols, in the caller's layout.

    Parameters
    ----------
    name : str
        Of MXNet's operator.
    transposes : bool
        Whether the caller has channels last, and MXNet's operator channels first.
    arguments : dict
        What MXNet's operator is given. It parses them in each call, so a call on arrays has no defaults among them; a
        graph has them all, for whoever reads it.
    windows_note : str, optional
        The value of `NOTE` for all of the plan's nodes, in a graph for another format: the windows, if the attributes
        of MXNet's operator are not the windows for every size. Those of a convolution of dilated data are; MXNet's
        Deconvolution is not right for all of its own.
    """

    name: str
    setting: Setting
    plan: Plan
    transposes: bool
    arguments: Dict[str, Any]
    windows_note: Optional[str]

    @classmethod
    def by_plan(
        cls, name: str, inputs: Inputs, setting: Setting, plan: Plan, arguments: Mapping[str, Any], **fields: Any
    ) -> Any:
        """Returns MXNet's operator of this name; `arguments` are those that do not follow from the plan, and `fields`
        those of the subclass."""
        ones, zeros = ((1,), (0,)) if plan.pairs else ((), ())  # for an axis of pairs, along which nothing is pooled
        arguments = {
            "kernel": (*ones, *(axis.kernel_size for axis in plan.axes)),
            "stride": (*ones, *(axis.strides(window) for axis, window in zip(plan.axes, setting.windows))),
            "pad": (*zeros, *(axis.pad for axis in plan.axes)),
            **arguments,
        }
        if inputs.keeps_layout:
            arguments["layout"] = inputs.layout
        defaults = {} if inputs.in_graph else DEFAULTS[name]
        given = {key: value for key, value in arguments.items() if value not in defaults.get(key, ())}
        shows = plan.dilates or (not plan.steps and all(map(_shows, plan.axes, setting.windows)))
        note = None if shows or inputs.target.purpose != "format" else serialize_windows(setting.windows)
        transposes = inputs.channels_last and not inputs.keeps_layout
        return cls(name, setting, plan, transposes, given, note, **fields)

    def attributes(self) -> ContextManager[Any]:
        """Gives Symbols the note within the `with` block."""
        return _NOTHING if self.windows_note is None else mx.AttrScope(**{NOTE: self.windows_note})

    def before(self, F: Any, data: Any) -> Any:
        """Returns the data after all steps before MXNet's operator."""
        for step in self.plan.steps:
            data = step.before(F, self.setting, data)
        return data

    def after(self, F: Any, out: Any, data: Any) -> Any:
        """Returns the output of MXNet's operator after all steps."""
        for step in reversed(self.plan.steps):
            out = step.after(F, self.setting, out, data)
        return out


def _shows(axis: AxisPlan, window: AnyWindow) -> bool:
    """Returns whether the attributes of MXNet's operator are those of the window."""
    own = axis.kernel_size, (axis.pad,) * 2, False
    return isinstance(window, Window) and (window.kernel_size, window.padding, window.ceil_mode) == own
