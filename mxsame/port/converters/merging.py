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
        out = _merged_by_masks(call, name, inputs)
    else:
        out = elementwise(call, name, inputs)
    return out._replace(mask=_merged_mask(call, masks))


def _merged_mask(call: CallContext, masks: Sequence[Any]) -> Any:
    """Merges masks: Keras 2 masks a step that any input masks; Keras 3 one that all inputs mask, if all have a mask."""
    given = [mask for mask in masks if mask is not None]
    check(len({mask.rank for mask in given}) <= 1, "masks must agree", shapes=[mask.shape for mask in given])
    if call.version == 2:
        return _combined(call, "multiply", given)
    return None if None in masks else _combined(call, "maximum", given)


def _combined(call: CallContext, name: str, masks: Sequence[Tensor]) -> Any:
    """Returns distinct masks combined by an elementwise function; None for no mask."""
    distinct = list({mask.key: mask for mask in masks}.values())
    return call.apply(blocks.ELEMENTWISE[name], *distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _merged_by_masks(call: CallContext, name: str, inputs: Sequence[Tensor]) -> Tensor:
    """Merges as Keras 3, whose products and extremes skip masked steps; a product is 0 where all inputs are masked."""
    fits = len({x.rank if name == "multiply" else x.shape for x in inputs}) == 1
    fits = fits and all(x.mask is None or x.mask.rank == x.rank - 1 for x in inputs)
    check(fits, "masked inputs must have one shape", shapes=[x.shape for x in inputs])
    inputs, masks = [call.to_keras_order(x) for x in inputs], [x.mask for x in inputs]
    if name == "multiply":
        factors = [x if x.mask is None else call.apply(blocks.where_mask, x, x.mask, other=1.0) for x in inputs]
        out = elementwise(call, name, factors)
        return out if None in masks else call.apply(blocks.where_mask, out, _combined(call, "maximum", masks))
    function, out, mask = blocks.ELEMENTWISE[name], inputs[0], masks[0]
    for x in inputs[1:]:
        own = x if x.mask is None else call.apply(blocks.where_mask, x, x.mask, out)
        out = call.apply(function, out if mask is None else call.apply(blocks.where_mask, out, mask, own), own)
        mask = None if mask is None or x.mask is None else _combined(call, "maximum", [mask, x.mask])
    return out


@layer("CustomScaleLayer")
def _custom_scale(call: CallContext, x: Tensor, y: Tensor) -> Tensor:
    """Returns x + scale * y, as `keras.applications.inception_resnet_v2` does."""
    scaled = call.apply(blocks.scalar, y, operator="multiply", value=call.number("scale"))
    return elementwise(call, "add", [x, scaled])


@layer("Concatenate", order=SAME_ORDER, masks=HANDLES_MASK, dtypes=ANY_DTYPE)
def _concatenate(call: CallContext, *inputs: Tensor) -> Tensor:
    """Concatenates inputs and masks. Along the last axis, masks are merged as those of an addition."""
    axis, masks = call.config.get("axis", -1), [x.mask for x in inputs]
    out = _concatenated(call, inputs, axis)
    if not any(masks):
        return out
    along = axis % out.rank
    given = [mask for mask in masks if mask is not None]
    fits = all(mask.rank == out.rank - 1 for mask in given)
    check(fits, "masks must lack the last axis", shapes=[mask.shape for mask in given])
    if along == out.rank - 1:
        return out._replace(mask=_merged_mask(call, masks))
    rule = "masks must be those of all inputs, along other axes than the last"
    check(call.version == 3 or len(given) == len(masks), rule, axis=axis)
    masks = [call.apply(blocks.ones_mask, call.to_keras_order(x)) if x.mask is None else x.mask for x in inputs]
    return out._replace(mask=call.apply(blocks.concatenate, *masks, axis=along))


@operator("concatenate", order=SAME_ORDER, dtypes=ANY_DTYPE)
def _concatenate_operator(call: CallContext, xs: List[Tensor], axis: int) -> Tensor:
    return _concatenated(call, as_list(xs), axis)


def _concatenated(call: CallContext, inputs: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenates along one of Keras's axes."""
    check(len({x.rank for x in inputs}) == 1, "shapes must agree", shapes=[x.shape for x in inputs])
    at = inputs[0].axis(axis)
    if len(inputs) == 1:
        return inputs[0]
    inputs = with_static_lengths(inputs, axis % inputs[0].rank)
    out = call.apply(blocks.concatenate, *inputs, axis=at, copies=inputs[0].shape[axis] in (1, None))
    return out if at or out.batch_factor is None else out._replace(batch_factor=out.batch_factor * len(inputs))
