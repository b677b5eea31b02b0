"""Lowers a call to MXNet's operator. A spec holds the call's arguments; it is checked and lowered once per signature,
the kinds, shapes, dtypes and devices of the arrays.

What the first call of :func:`mxsame.ops.conv` with a signature does with `padding`:

1. `conv` puts its arguments into a `ConvSpec`;
2. `apply` looks for the recipe of an equal spec, and finds none;
3. `ConvSpec.checked` brings the arguments into canonical form: padding is now one of a few strings, or a (low, high)
   pair per axis;
4. `ConvSpec.lower` checks them against the arrays, and makes a `Window` for each axis, which holds its padding;
5. `choose_plan` chooses the fastest of the exact plans for these windows;
6. `Convolution.of` turns the plan into a recipe: the attributes of MXNet's operator, and the steps around it;
7. `apply` calls the recipe, which runs the steps before MXNet's operator, the operator, and the steps after it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Type, TypeVar

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.ops._inputs import Inputs, Spec, inputs_of
from mxsame.plan import STRATEGIES, AxisPlan, Plan, Window, current_strategy
from mxsame.plan.choice import PlannedOperator, fastest_plan
from mxsame.plan.costs import Workload
from mxsame.plan.exact import first_plan, narrowed, recorded, strategies_for
from mxsame.plan.recipe import Recipe
from mxsame.plan.strategies import CHANNELS, WEIGHT
from mxsame.plan.windows import AnyWindow, Windows
from mxsame.scope import deferred_in_trace, is_in_subgraph, scope
from mxsame.tensors import operands

_is_training, _is_recording = mx.autograd.is_training, mx.autograd.is_recording
_RECIPES: OrderedDict[Any, Any] = OrderedDict()  # `_key` -> recipe, oldest first
MAX_RECIPES = 4096
PURPOSES_WITH_INPUT_SHAPE = ("file", "format", "deployment")  # purposes whose functions take an input_shape
SHAPE_ADVICE = "use data of static shape, or mxsame.hybridize(net)"
FORMAT_STRATEGIES = ("native", "pad", "slice", "dilate")  # of graphs for another format, in this order


@deferred_in_trace
def apply(spec: Spec, **named: Any) -> Any:
    """Returns the output of an operator as an array of the same kind as the data. `named` are its arrays, data first
    and bias last. A second call with an equal signature only looks up the recipe."""
    arrays = tuple(named.values())
    key = _key(spec, arrays)
    recipe = _RECIPES.get(key)
    if recipe is None:
        inputs = inputs_of(spec, named)
        try:
            recipe = spec.checked(len(inputs.size)).lower(inputs)
        except validation.DynamicShapeError as error:
            advice = "pass an input_shape" if inputs.target.purpose in PURPOSES_WITH_INPUT_SHAPE else SHAPE_ADVICE
            raise validation.InvalidValue(f"{error}; {advice}") from None
        if key is not None:
            if len(_RECIPES) >= MAX_RECIPES:
                _RECIPES.popitem(last=False)
            _RECIPES[key] = recipe
        return inputs.restore(recipe(inputs.F, *inputs.fixed_arrays()))
    if type(arrays[0]) is mx.nd.NDArray:
        return recipe(mx.nd, *arrays)
    return recipe(mx.nd, *operands.as_classic(arrays)).as_np_ndarray()


def _key(spec: Spec, arrays: Sequence[Any]) -> Any:
    """Returns the cache key: everything that the recipe and its checks depend on. None if an array is not a dense
    NDArray, or an argument cannot be part of a key."""
    if spec.key is None:
        return None
    signature: List[Any] = [spec.key, _is_training(), _is_recording(), current_strategy(), operands.amp_type()]
    for array in arrays:
        if type(array) in operands.DENSE:
            context = array.ctx
            signature += type(array), array.shape, array.dtype, context.device_typeid, context.device_id
        elif array is None:
            signature.append(None)
        else:
            return None
    return tuple(signature)


def choose_plan(
    inputs: Inputs,
    windows: Windows,
    work: Workload,
    excluded: Sequence[str] = (),
    format_strategies: Sequence[str] = FORMAT_STRATEGIES,
) -> Plan:
    """Returns the fastest exact plan, without the `excluded` strategies (not exact, or not available on the device).
    In a loop body, strategies with a dynamic concat are excluded, too: MXNet cannot infer its shape there. In a graph
    exported to another format, speed does not matter: the plan is the first exact one of `format_strategies`."""
    target = inputs.target
    if target.purpose == "format":
        plan = first_plan(windows, work.operator, narrowed(tuple(format_strategies)))
        return recorded(plan, work.operator)
    if inputs.in_graph and is_in_subgraph():
        rows = STRATEGIES.items()
        excluded = (*excluded, *(name for name, each in rows if each.has_dynamic_concat(windows, work.operator)))
    no_weight = (WEIGHT,) if None in inputs.shapes[1:2] else ()  # pooling operators have no second array
    no_channels = (CHANNELS,) if work.in_channels is None else ()  # known for every static shape
    for_static_shape = narrowed(_usable(work.operator, tuple(excluded), no_weight, inputs.runs_channels_last))
    for_dynamic_shape = narrowed(_usable(work.operator, tuple(excluded), (*no_weight, *no_channels), False))
    # The channels of data of static shape are known, so with channels first the two tuples are equal.
    allowed = for_static_shape if inputs.passes_channels_last else for_dynamic_shape
    plan = recorded(fastest_plan(windows, work, allowed, target.for_both_purposes), work.operator)
    recorder = scope().recorder
    if inputs.in_graph and recorder is not None:
        work = replace(work, channels_last=inputs.runs_channels_last)  # of data of static shape
        recorder.planned.append(PlannedOperator(windows, work, for_static_shape, plan, inputs.channels_last))
    return plan


@functools.lru_cache(maxsize=None)
def _usable(operator: str, excluded: Tuple[str, ...], missing: Tuple[str, ...], channels_last: bool) -> Tuple[str, ...]:
    """Returns the strategies for an operator that are not excluded, need nothing that is missing, and support
    channels last if `channels_last`."""
    usable = (STRATEGIES[name] for name in strategies_for(operator) if name not in excluded)
    usable = (each for each in usable if each.needs not in missing and (each.channels_last or not channels_last))
    return tuple(each.name for each in usable)


# -- a plan becomes a recipe

ONES, ZEROS = ((1,), (1, 1), (1, 1, 1)), ((0,), (0, 0), (0, 0, 0))
COMMON: Dict[str, Tuple[Any, ...]] = {"stride": ONES, "dilate": ONES, "pad": ZEROS, "num_group": (1,)}
DEFAULTS: Dict[str, Dict[str, Tuple[Any, ...]]] = {  # of MXNet's operators, for any number of axes
    "Convolution": {**COMMON, "no_bias": (False,)},
    "Deconvolution": {**COMMON, "no_bias": (True,), "adj": ZEROS},
    "Pooling": {**COMMON, "pool_type": ("max",), "pooling_convention": ("valid",)},
}
AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def recipe_of(
    cls: Type[AnyRecipe],
    mxnet_operator: str,
    inputs: Inputs,
    windows: Windows,
    work: Workload,
    plan: Plan,
    attributes: Mapping[str, Any],
    **fields: Any,
) -> AnyRecipe:
    """Returns the recipe of a plan. `attributes` are MXNet attributes that the plan does not determine; `fields` are
    the additional fields of the class.

    MXNet parses attributes on every call, so a recipe for arrays omits default values. A recipe for a graph has them
    all, for tools that read the graph.
    """
    # For the axis of a channel pair, which is not pooled:
    ones, zeros = ((1,), (0,)) if plan.pairs_channels else ((), ())
    attributes = {
        "kernel": (*ones, *(axis.kernel_size for axis in plan.axes)),
        "stride": (*ones, *(axis.operator_stride(window) for axis, window in zip(plan.axes, windows))),
        "pad": (*zeros, *(axis.pad for axis in plan.axes)),
        **attributes,
    }
    if inputs.passes_channels_last:
        attributes["layout"] = inputs.layout
    defaults = {} if inputs.in_graph else DEFAULTS[mxnet_operator]
    given = {name: value for name, value in attributes.items() if value not in defaults.get(name, ())}
    attributes_suffice = plan.dilates_input or (not plan.steps and all(map(_attributes_match, plan.axes, windows)))
    transposes = inputs.channels_last and not inputs.passes_channels_last
    return cls(
        mxnet_operator,
        attributes=given,
        plan=plan,
        windows=windows,
        work=work,
        spatial_axis=inputs.spatial_axis,
        transposes=transposes,
        attributes_suffice=attributes_suffice,
        **fields,
    )


def _attributes_match(axis: AxisPlan, window: AnyWindow) -> bool:
    """Returns whether kernel, pad and convention of MXNet's operator alone describe the window."""
    own = axis.kernel_size, (axis.pad,) * 2, False
    return isinstance(window, Window) and (window.kernel_size, window.padding, window.ceil_mode) == own
