"""Rows of attention layers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from mxsame import validation
from mxsame.port.attention import REPLACED, SUBTRACTED, ZEROS, attention, multi_head_attention
from mxsame.port.blocks import Function
from mxsame.port.description import Weight
from mxsame.port.parameters import SAME, SCALAR, Conversion
from mxsame.port.rows._shared import rate
from mxsame.port.table import KERAS, TAKES, Site, Value, layer
from mxsame.port.types import CAST


def _projections(config: Dict[str, Any]) -> List[Weight]:
    """Files of Keras 3 keep the underscore of private attributes: all of GroupQueryAttention, and the gate."""
    names = ["query", "key", *["gate"] * bool(config.get("use_gate")), "value", "output"]
    private = names if "num_query_heads" in config else ["gate"]
    return [
        Weight(f"{name}_{kind}", f"{name}_{parameter}", option, group=f"{'_' * (name in private)}{name}_dense")
        for name in names
        for kind, parameter, option in (("kernel", "weight", ""), ("bias", "bias", "use_bias"))
    ]


def _sequences(*inputs: Value) -> None:
    fits, shapes = all(x.rank == 3 and x.shape[2] for x in inputs), [x.shape for x in inputs]
    validation.check(fits, "inputs must be sequences (N, T, D) of a static D", shapes=shapes)
    masks = [x.mask.shape for x in inputs if x.mask is not None]
    validation.check(all(len(shape) == 2 for shape in masks), "masks must be those of steps, (N, T)", shapes=masks)


def _as_matrix(shape: Tuple[int, ...], is_output: bool) -> Conversion:
    """A kernel (D, heads, depth), that of the output (heads, depth, units), or a bias (heads, depth)."""
    if len(shape) < 3:
        return Conversion(np.ravel, lambda array: array.reshape(shape))
    columns = shape[2] if is_output else math.prod(shape[1:])
    return Conversion(lambda array: array.reshape(-1, columns).T, lambda array: array.T.reshape(shape))


@layer("MultiHeadAttention", "GroupQueryAttention", order=KERAS, weights=_projections, masks=TAKES, types=CAST,
       unread="dropout|(query|key|value)_shape")  # fmt: skip
def _multi_head(
    site: Site, query: Value, value: Value, key: Optional[Value] = None, attention_mask: Optional[Value] = None,
    return_attention_scores: bool = False, use_causal_mask: bool = False, query_mask: Optional[Value] = None,
    value_mask: Optional[Value] = None, key_mask: Optional[Value] = None,
) -> List[Value]:  # fmt: skip
    """Keras 3 writes the masks of the inputs as arguments."""
    config, key = site.config, value if key is None else key
    _sequences(query, key, value)
    pairs = zip((query, value, key), (query_mask, value_mask, key_mask))
    query, value, key = (x if mask is None else x._replace(mask=site.cast(mask, "bool")) for x, mask in pairs)
    axes = config.get("attention_axes")
    validation.check(axes in (None, 1, [1], (1,)), "attention_axes must be that of the sequence", attention_axes=axes)
    multi = site.layer.class_name == "MultiHeadAttention"
    heads, key_dim = map(site.integer, ("num_heads", "key_dim") if multi else ("num_query_heads", "head_dim"))
    key_heads = heads if multi else site.integer("num_key_value_heads")
    units = config.get("output_shape") or query.shape[2]
    (units,) = units if isinstance(units, (list, tuple)) and len(units) == 1 else (units,)
    validation.integer("output_shape", units, 1)
    validation.check_divisible("query heads", heads, "key heads", key_heads)
    pairs = zip(("query", "value", "key"), (query, value, key))
    masks = {name: x.mask for name, x in pairs if x.mask is not None}
    if attention_mask is not None:
        validation.check(attention_mask.rank == 3, "attention_mask must have 3 axes", shape=attention_mask.shape)
        is_bool = site.version == 3 or masks or use_causal_mask  # alone, Keras 2 takes it as numbers
        masks["attention"] = site.cast(attention_mask, "bool") if is_bool else attention_mask
    value_dim = validation.integer("value_dim", config.get("value_dim") or key_dim, 1)
    rows = {"query": heads * key_dim, "key": key_heads * key_dim, "value": key_heads * value_dim, "output": units}
    columns = [query.shape[2], key.shape[2], value.shape[2], heads * value_dim]
    if config.get("use_gate"):
        rows["gate"] = columns[3]
        columns.append(query.shape[2])
    shapes: Dict[str, Any] = {f"{name}_weight": (rows[name], n) for name, n in zip(rows, columns)}
    shapes.update({f"{name}_bias": (rows[name],) for name in rows} if config.get("use_bias", True) else {})
    options = {"use_causal_mask": bool(use_causal_mask), "return_attention_scores": bool(return_attention_scores)}
    conversions = {
        role.name: _as_matrix(tuple(stored.shape), role.name == "output_kernel")
        for role, stored in zip(site.layer.roles or (), site.layer.weights)
    }
    left_out = SUBTRACTED
    if site.version == 3:  # which takes its own softmax for scores and dropout
        left_out = ZEROS if return_attention_scores or config.get("dropout") else REPLACED
    return _attended(
        site, multi_head_attention, [query, key, value], masks, options, shapes, conversions,
        heads=heads, key_heads=key_heads, units=rows, left_out=left_out,
    )  # fmt: skip


def _attended(
    site: Site, function: Any, inputs: List[Value], masks: Dict[str, Value], options: Dict[str, bool], shapes: Any,
    conversions: Any, **arguments: Any,
) -> List[Value]:  # fmt: skip
    """The outputs of a function of attention; the first has the mask of the query."""
    part = 0.0 if site.training is False else rate(site, "dropout", 0.0)
    dropout = {"p": part, "mode": "always" if site.training else "training"} if part else {}
    site.same_in_all_calls(masks=sorted(masks), dropout=dropout, **options)
    arguments.update(options, dropout=dropout, masks=list(masks))
    make = partial(Function, function, shapes=shapes, **arguments)
    outputs = site.block(make, *inputs, *masks.values(), conversions=conversions)
    return [outputs[0]._replace(mask=inputs[0].mask), *outputs[1:]]


def _attention_weights(config: Dict[str, Any]) -> List[Weight]:
    given = {"scale": config.get("use_scale"), "concat_score_weight": config.get("score_mode") == "concat"}
    return [Weight(name, name) for name in given if given[name]]


@layer("Attention", "AdditiveAttention", order=KERAS, weights=_attention_weights, masks=TAKES, types=CAST,
       unread="dropout")  # fmt: skip
def _attention(
    site: Site, query: Value, value: Value, key: Optional[Value] = None, return_attention_scores: bool = False,
    use_causal_mask: bool = False,
) -> List[Value]:  # fmt: skip
    config, additive = site.config, site.layer.class_name == "AdditiveAttention"
    mode = "additive" if additive else config.get("score_mode", "dot")
    validation.check(mode in ("dot", "concat", "additive"), "score_mode must be dot or concat", score_mode=mode)
    key = value if key is None else key
    _sequences(query, key, value)
    shapes = {role.name: value.shape[-1:] if additive else (1,) for role in site.layer.roles or ()}
    masks = {name: x.mask for name, x in (("query", query), ("value", value)) if x.mask is not None}
    if site.version == 3:
        masks = {name: site.cast(mask, "bool") for name, mask in masks.items()}
    causal = bool(use_causal_mask) or bool(config.get("causal", False))
    options = {"use_causal_mask": causal, "return_attention_scores": bool(return_attention_scores)}
    conversions = dict.fromkeys(shapes, SAME if additive else SCALAR)
    arguments: Dict[str, Any] = {"score_mode": mode, "replaces": site.version == 3}
    return _attended(site, attention, [query, key, value], masks, options, shapes, conversions, **arguments)
