"""From a call to MXNet's operator: a spec is what a call asks for, checked and lowered once for all arrays alike.

The way of the argument `padding` of :func:`mxsame.ops.conv`, for arrays that it has not been called with before:

1. `conv` puts its arguments into a `ConvSpec`;
2. `run` looks for the operator of the same spec, and finds none;
3. `ConvSpec.checked` brings the arguments into canonical form: from here on a padding is one of few words, or numbers;
4. `ConvSpec.lower` compares them with the arrays, and makes a window of each axis: the padding is in them;
5. `choose_plan` chooses the fastest of the exact plans for these windows;
6. `Convolution.of` makes an operator of the plan: arguments of MXNet's operator, and steps around it;
7. `Convolution.__call__` runs the steps before MXNet's operator, that operator, and the steps after it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.ops._inputs import Inputs, Spec, inputs_of
from mxsame.plan import STRATEGIES, AxisPlan, Plan, Window, forced, strategies_for
from mxsame.plan.choice import PlannedOperator, chosen
from mxsame.plan.exact import first_of
from mxsame.plan.steps import StepContext
from mxsame.plan.strategies import CHANNELS, WEIGHT
from mxsame.plan.windows import AnyWindow, serialize_windows
from mxsame.scope import NOTE, deferred_in_trace, is_in_subgraph, scope
from mxsame.tensors import operands

_is_training, _is_recording = mx.autograd.is_training, mx.autograd.is_recording
_OPERATORS: Dict[Any, Any] = {}  # by `_key`
MOST_OPERATORS = 4096
WRITTEN = ("file", "format", "deployment")  # purposes of graphs that are made with an input_shape
GIVE_SHAPE = "give data of static shape, or the net to mxsame.hybridize"
_PLAIN, _INTEGERS, _DENSE = {int, str, type(None)}, {int}, operands.DENSE
IN_A_FORMAT = ("native", "pad", "slice", "dilate")  # strategies that leave the kernel as it is


@deferred_in_trace
def run(spec: Spec, **named: Any) -> Any:
    """Returns the output of an operator for its arrays, the data first and a bias last, in the kind in which they came.
    A second call with the same arguments and arrays of the same shapes costs a look-up."""
    arrays = tuple(named.values())
    key = _key(spec, arrays)
    operator = _OPERATORS.get(key)
    if operator is None:
        inputs = inputs_of(spec, named)
        try:
            operator = spec.checked(len(inputs.size)).lower(inputs)
        except validation.DynamicShapeError as error:
            advice = "give an input_shape" if inputs.target.purpose in WRITTEN else GIVE_SHAPE
            raise validation.InvalidValue(f"{error}; {advice}") from None
        if key is not None:
            if len(_OPERATORS) >= MOST_OPERATORS:
                _OPERATORS.clear()
            _OPERATORS[key] = operator
        return inputs.restore(operator(inputs.F, *inputs.fixed_arrays()))
    if type(arrays[0]) is mx.nd.NDArray:
        return operator(mx.nd, *arrays)
    return operator(mx.nd, *operands.as_classic(arrays)).as_np_ndarray()


def _key(spec: Spec, arrays: Sequence[Any]) -> Any:
    """Returns all that the operator of a spec on arrays depends on, and all that its checks look at. None unless all
    arrays are dense NDArrays, and no argument may change."""
    facts: List[Any] = [type(spec), _is_training(), _is_recording(), forced(), operands.amp_type()]
    for array in arrays:
        if type(array) in _DENSE:
            context = array.ctx
            facts += type(array), array.shape, array.dtype, context.device_typeid, context.device_id
        elif array is None:
            facts.append(None)
        else:
            return None
    try:
        return (spec if _PLAIN.issuperset(map(type, spec)) else tuple(map(_exact, spec)), *facts)
    except TypeError:
        return None


def _exact(value: Any) -> Any:
    """Returns an argument as a part of a key, with its type: True and 1.0 equal 1, and checks refuse them."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return (kind, *value) if set(map(type, value)) == _INTEGERS else (kind, *map(_exact, value))
    if kind is bool or isinstance(value, np.generic):
        return kind, value
    raise TypeError(f"an argument that may change: {kind}")


def choose_plan(
    inputs: Inputs, context: StepContext, refused: Sequence[str] = (), in_a_format: Sequence[str] = IN_A_FORMAT
) -> Plan:
    """Returns the fastest exact plan that uses no `refused` strategy, which is not exact, or does not run, on the
    device; nor, in the body of a loop, one that lengthens the data, whose shape MXNet does not infer there. In a graph
    for another format nothing runs: the plan is the first of those `in_a_format`."""
    windows, target = context.windows, inputs.target
    work = replace(context.work, channels_last=inputs.keeps_layout)
    if target.purpose == "format":
        return first_of(windows, work.operator, tuple(in_a_format))
    unknown = (WEIGHT,) if None in inputs.shapes[1:2] else ()
    possible = [name for name in strategies_for(work.operator) if name not in refused]
    if inputs.in_graph and is_in_subgraph():
        possible = [name for name in possible if not any(STRATEGIES[name].lengthens(each) for each in windows)]
    static = allowed = tuple(name for name in possible if STRATEGIES[name].needs not in unknown)
    if work.in_channels is None:  # a static shape has channels
        allowed = tuple(name for name in static if STRATEGIES[name].needs != CHANNELS)
    if inputs.native_layout:
        static = tuple(name for name in static if STRATEGIES[name].channels_last)
    plan = chosen(windows, work, static if inputs.keeps_layout else allowed, target.is_for_both)
    decisions = scope().decisions
    if inputs.in_graph and decisions is not None:
        work = replace(work, channels_last=inputs.native_layout)  # of data of static shape
        decisions.append(PlannedOperator(windows, work, static, plan, inputs.channels_last))
    return plan


# -- MXNet's operator, with the steps of a plan around it

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
    """MXNet's operator by a plan: pure data, called with `F` and arrays, or Symbols, in the caller's layout. MXNet's
    operator is looked up in `F` at each call: `mxnet.contrib.amp`, for one, puts others in its place.

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
    context: StepContext
    plan: Plan
    transposes: bool
    arguments: Dict[str, Any]
    windows_note: Optional[str]

    @classmethod
    def by_plan(
        cls, name: str, inputs: Inputs, context: StepContext, plan: Plan, arguments: Mapping[str, Any], **fields: Any
    ) -> Any:
        """Returns MXNet's operator of this name; `arguments` are those that do not follow from the plan, and `fields`
        those of the subclass."""
        ones, zeros = ((1,), (0,)) if plan.pairs else ((), ())  # for an axis of pairs, along which nothing is pooled
        arguments = {
            "kernel": (*ones, *(axis.kernel_size for axis in plan.axes)),
            "stride": (*ones, *(axis.strides(window) for axis, window in zip(plan.axes, context.windows))),
            "pad": (*zeros, *(axis.pad for axis in plan.axes)),
            **arguments,
        }
        if inputs.keeps_layout:
            arguments["layout"] = inputs.layout
        defaults = {} if inputs.in_graph else DEFAULTS[name]
        given = {key: value for key, value in arguments.items() if value not in defaults.get(key, ())}
        shows = plan.dilates or (not plan.steps and all(map(_shows, plan.axes, context.windows)))
        note = None if shows or inputs.target.purpose != "format" else serialize_windows(context.windows)
        transposes = inputs.channels_last and not inputs.keeps_layout
        return cls(name, context, plan, transposes, given, note, **fields)

    def attributes(self) -> ContextManager[Any]:
        """Gives Symbols the note within the `with` block."""
        return _NOTHING if self.windows_note is None else mx.AttrScope(**{NOTE: self.windows_note})

    def before(self, F: Any, data: Any) -> Any:
        """Returns the data after all steps before MXNet's operator."""
        for step in self.plan.steps:
            data = step.before(F, self.context, data)
        return data

    def after(self, F: Any, out: Any, data: Any) -> Any:
        """Returns the output of MXNet's operator after all steps."""
        for step in reversed(self.plan.steps):
            out = step.after(F, self.context, out, data)
        return out


def _shows(axis: AxisPlan, window: AnyWindow) -> bool:
    """Returns whether the attributes of MXNet's operator are those of the window."""
    own = axis.kernel_size, (axis.pad,) * 2, False
    return isinstance(window, Window) and (window.kernel_size, window.padding, window.ceil_mode) == own
