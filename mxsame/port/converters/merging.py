"""Converters of layers that merge several inputs."""

from __future__ import annotations

from typing import Any, List, Sequence

from mxsame.keras_format.description import as_list
from mxsame.keras_format.dtypes import ANY_DTYPE, ARITHMETIC
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import elementwise, with_static_lengths
from mxsame.port.table import HANDLES_MASK, SAME_ORDER, layer, operator
from mxsame.port.tensors import Tensor
from mxsame.validation import check


@layer("Add", "Subtract", "Multiply", masks=HANDLES_MASK, dtypes=ARITHMETIC)
@layer("Maximum", "Minimum", masks=HANDLES_MASK, dtypes=ANY_DTYPE)
@layer("Average", masks=HANDLES_MASK)
def _merge(call: CallContext, *inputs: Tensor) -> Tensor:
    name, masks = call.layer.class_name.lower(), [x.mask for x in inputs]
    check(name != "subtract" or len(inputs) == 2, f"inputs must be two; received {len(inputs)}")
    if call.version == 3 and any(masks) and name in ("multiply", "maximum", "minimum"):
        out = _merged_without_masked_steps(call, name, inputs)
    else:
        out = elementwise(call, name, inputs)
    return out._replace(mask=_merged_mask(call, masks))


def _merged_mask(call: CallContext, masks: Sequence[Any]) -> Any:
    """Returns the mask of a merged output. Keras 2 masks a step if any input masks it. Keras 3 masks a step if all
    inputs mask it; the output has no mask if an input has none."""
    present = [mask for mask in masks if mask is not None]
    check(len({mask.rank for mask in present}) <= 1, "masks must agree", shapes=[mask.shape for mask in present])
    if call.version == 2:
        return _combined_mask(call, "multiply", present)
    return None if None in masks else _combined_mask(call, "maximum", present)


def _combined_mask(call: CallContext, name: str, masks: Sequence[Tensor]) -> Any:
    """Combines distinct masks by an elementwise function. Returns None if there is no mask."""
    distinct = list({mask.key: mask for mask in masks}.values())
    return call.apply(blocks.ELEMENTWISE[name], *distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _merged_without_masked_steps(call: CallContext, name: str, inputs: Sequence[Tensor]) -> Tensor:
    """Merges inputs as Keras 3 does: products, maxima and minima skip masked steps. A product is 0 where all inputs are
    masked."""
    agree = len({x.rank if name == "multiply" else x.shape for x in inputs}) == 1
    lack_last_axis = all(x.mask is None or x.mask.rank == x.rank - 1 for x in inputs)
    check(agree and lack_last_axis, "masked inputs must have one shape", shapes=[x.shape for x in inputs])
    inputs, masks = [call.to_keras_order(x) for x in inputs], [x.mask for x in inputs]
    if name == "multiply":
        factors = [x if x.mask is None else call.apply(blocks.where_mask, x, x.mask, other=1.0) for x in inputs]
        out = elementwise(call, name, factors)
        return out if None in masks else call.apply(blocks.where_mask, out, _combined_mask(call, "maximum", masks))
    function, out, mask = blocks.ELEMENTWISE[name], inputs[0], masks[0]
    for x in inputs[1:]:  # where one operand is masked, the other replaces it
        right = x if x.mask is None else call.apply(blocks.where_mask, x, x.mask, out)
        left = out if mask is None else call.apply(blocks.where_mask, out, mask, right)
        out = call.apply(function, left, right)
        mask = None if mask is None or x.mask is None else _combined_mask(call, "maximum", [mask, x.mask])
    return out


@layer("CustomScaleLayer")
def _custom_scale(call: CallContext, x: Tensor, y: Tensor) -> Tensor:
    """Returns x + scale * y, like the layer in `keras.applications.inception_resnet_v2`."""
    scaled = call.apply(blocks.scalar, y, operator="multiply", value=call.number("scale"))
    return elementwise(call, "add", [x, scaled])


@layer("Concatenate", order=SAME_ORDER, masks=HANDLES_MASK, dtypes=ANY_DTYPE)
def _concatenate(call: CallContext, *inputs: Tensor) -> Tensor:
    """Concatenates inputs and masks. If the axis is the last, masks are merged as `Add` merges them."""
    axis, masks = call.config.get("axis", -1), [x.mask for x in inputs]
    out = _concatenated(call, inputs, axis)
    if not any(masks):
        return out
    positive_axis = axis % out.rank
    present = [mask for mask in masks if mask is not None]
    lack_last_axis = all(mask.rank == out.rank - 1 for mask in present)
    check(lack_last_axis, "masks must lack the last axis", shapes=[mask.shape for mask in present])
    if positive_axis == out.rank - 1:
        return out._replace(mask=_merged_mask(call, masks))
    rule = "either all inputs or none must have a mask, if axis is not the last"
    check(call.version == 3 or len(present) == len(masks), rule, axis=axis)
    masks = [call.apply(blocks.ones_mask, call.to_keras_order(x)) if x.mask is None else x.mask for x in inputs]
    return out._replace(mask=call.apply(blocks.concatenate, *masks, axis=positive_axis))


@operator("concatenate", order=SAME_ORDER, dtypes=ANY_DTYPE)
def _concatenate_operator(call: CallContext, xs: List[Tensor], axis: int) -> Tensor:
    return _concatenated(call, as_list(xs), axis)


def _concatenated(call: CallContext, inputs: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenates tensors of one axis order along `axis`, which is counted in Keras's order."""
    check(len({x.rank for x in inputs}) == 1, "shapes must agree", shapes=[x.shape for x in inputs])
    array_axis = inputs[0].axis(axis)
    if len(inputs) == 1:
        return inputs[0]
    inputs = with_static_lengths(inputs, axis % inputs[0].rank)
    out = call.apply(blocks.concatenate, *inputs, axis=array_axis, copies=inputs[0].shape[axis] in (1, None))
    scales_batch = array_axis == 0 and out.batch_factor is not None
    return out._replace(batch_factor=out.batch_factor * len(inputs)) if scales_batch else out
