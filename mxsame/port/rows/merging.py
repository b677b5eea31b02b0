"""Rows of layers of several inputs of one kind."""

from __future__ import annotations

from typing import Any, List, Sequence

from mxsame.port import blocks
from mxsame.port.description import listed
from mxsame.port.rows._shared import agreeing, merged
from mxsame.port.table import ALIKE, TAKES, Site, Value, layer, operator
from mxsame.port.types import ARITHMETIC, KEPT
from mxsame.validation import check


@layer("Add", "Subtract", "Multiply", masks=TAKES, types=ARITHMETIC)
@layer("Maximum", "Minimum", masks=TAKES, types=KEPT)
@layer("Average", masks=TAKES)
def _merge(site: Site, *inputs: Value) -> Value:
    name, masks = site.layer.class_name.lower(), [x.mask for x in inputs]
    check(name != "subtract" or len(inputs) == 2, f"inputs must be two; received {len(inputs)}")
    if site.version == 3 and any(masks) and name in ("multiply", "maximum", "minimum"):
        out = _merged_by_masks(site, name, inputs)
    else:
        out = merged(site, name, inputs)
    return out._replace(mask=_merged_mask(site, masks))


def _merged_mask(site: Site, masks: Sequence[Any]) -> Any:
    """Merge masks: Keras 2 keeps a step that no input masks; Keras 3 one that any input keeps, if all have a mask."""
    given = [mask for mask in masks if mask is not None]
    check(len({mask.rank for mask in given}) <= 1, "masks must agree", shapes=[mask.shape for mask in given])
    if site.version == 2:
        return _combined(site, "multiply", given)
    return None if None in masks else _combined(site, "maximum", given)


def _combined(site: Site, name: str, masks: Sequence[Value]) -> Any:
    """Returns one mask of those that are different, by a function of two; None of none."""
    distinct = list({mask.key: mask for mask in masks}.values())
    return site.function(blocks.ELEMENTWISE[name], *distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _merged_by_masks(site: Site, name: str, inputs: Sequence[Value]) -> Value:
    """Merge as Keras 3, whose products and extremes leave out what is masked; a product is 0 where all inputs are."""
    fits = len({x.rank if name == "multiply" else x.shape for x in inputs}) == 1
    fits = fits and all(x.mask is None or x.mask.rank == x.rank - 1 for x in inputs)
    check(fits, "masked inputs must have one shape", shapes=[x.shape for x in inputs])
    inputs, masks = [site.keras(x) for x in inputs], [x.mask for x in inputs]
    if name == "multiply":
        factors = [x if x.mask is None else site.function(blocks.kept, x, x.mask, other=1.0) for x in inputs]
        out = merged(site, name, factors)
        return out if None in masks else site.function(blocks.kept, out, _combined(site, "maximum", masks))
    function, out, mask = blocks.ELEMENTWISE[name], inputs[0], masks[0]
    for x in inputs[1:]:
        own = x if x.mask is None else site.function(blocks.kept, x, x.mask, out)
        out = site.function(function, out if mask is None else site.function(blocks.kept, out, mask, own), own)
        mask = None if mask is None or x.mask is None else _combined(site, "maximum", [mask, x.mask])
    return out


@layer("CustomScaleLayer")
def _custom_scale(site: Site, x: Value, y: Value) -> Value:
    """Returns x + scale * y, as `keras.applications.inception_resnet_v2` does."""
    scaled = site.function(blocks.scalar, y, operator="multiply", value=site.number("scale"))
    return merged(site, "add", [x, scaled])


@layer("Concatenate", order=ALIKE, masks=TAKES, types=KEPT)
def _concatenate(site: Site, *inputs: Value) -> Value:
    """Concatenate inputs and masks. Along the last axis, Keras 2 keeps a step that no input masks, and Keras 3 one that
    any input keeps."""
    axis, masks = site.config.get("axis", -1), [x.mask for x in inputs]
    out = _concatenated(site, inputs, axis)
    if not any(masks):
        return out
    along = axis % out.rank
    given = [mask for mask in masks if mask is not None]
    fits = all(mask.rank == out.rank - 1 for mask in given)
    check(fits, "masks must lack the last axis", shapes=[mask.shape for mask in given])
    if along == out.rank - 1:
        return out._replace(mask=_merged_mask(site, masks))
    rule = "masks must be those of all inputs, along other axes than the last"
    check(site.version == 3 or len(given) == len(masks), rule, axis=axis)
    masks = [site.function(blocks.all_kept, site.keras(x)) if x.mask is None else x.mask for x in inputs]
    return out._replace(mask=site.function(blocks.concatenate, *masks, axis=along))


@operator("concatenate", order=ALIKE, types=KEPT)
def _concatenate_operator(site: Site, xs: List[Value], axis: int) -> Value:
    return _concatenated(site, listed(xs), axis)


def _concatenated(site: Site, inputs: Sequence[Value], axis: int) -> Value:
    """Concatenate along one of Keras's axes."""
    check(len({x.rank for x in inputs}) == 1, "shapes must agree", shapes=[x.shape for x in inputs])
    at = inputs[0].axis(axis)
    if len(inputs) == 1:
        return inputs[0]
    inputs = agreeing(inputs, axis % inputs[0].rank)
    out = site.function(blocks.concatenate, *inputs, axis=at, copies=inputs[0].shape[axis] in (1, None))
    return out if at or out.rows is None else out._replace(rows=out.rows * len(inputs))
