"""Converters of attention layers, and their functions of sequences (N, T, D).

The functions take the query, key and value, then the masks that `masks` names: "query" (N, T), "value" (N, S), "key"
(N, S), "attention" (N, T, S). A mask is 1, and 0 at positions to which nothing attends.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from mxsame.keras_format.description import WeightSpec, as_list
from mxsame.keras_format.dtypes import CAST
from mxsame.port.blocks import MASKED, Function, multiply_by_mask, reshape, where_mask
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import dropout_rate, merge_into_batch, permute, split_from_batch
from mxsame.port.parameters import SCALAR, UNCHANGED, Conversion
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, layer
from mxsame.port.tensors import Tensor
from mxsame.validation import check, check_divisible, integer

MASK_AXES = {"query": 2, "value": 1, "key": 1}  # the axis of the scores (N, T, S) that a mask of one sequence lacks

# What masked scores become: a large number is subtracted from them; they are replaced by -1e9, and the weights are
# equal where all are masked; or they are replaced, and their weights are set to 0.
SUBTRACTED, REPLACED, ZEROS = "subtracted", "replaced", "zeros"


def attend(F: Any, scores: Any, value: Any, masks: Mapping[str, Any], causal: bool, dropout: Mapping[str, Any],
             heads: int = 1, masking: str = SUBTRACTED) -> List[Any]:  # fmt: skip
    """Returns the values (N, S, D), weighted by the softmax of the scores (N, T, S), the weights, and the weights after
    dropout. Positions that any mask excludes get no weight, by the rule `masking`. The batch N has an entry for each
    head, that of the masks has one for all heads."""
    allowed = None
    for name, mask in masks.items():
        mask = F.expand_dims(mask, axis=MASK_AXES[name]) if name in MASK_AXES else mask
        allowed = mask if allowed is None else F.broadcast_mul(allowed, mask)
    if allowed is not None and heads > 1:
        allowed = F.repeat(allowed, repeats=heads, axis=0)
    if causal:
        before = causal_mask(F, scores)
        allowed = before if allowed is None else F.broadcast_mul(allowed, before)
    if allowed is not None and masking == SUBTRACTED:
        scores = F.broadcast_add(scores, (1 - allowed) * MASKED)
    elif allowed is not None:
        scores = F.where(F.broadcast_like(allowed, scores), scores, F.zeros_like(scores) + MASKED)
    weights = F.softmax(scores, axis=-1)
    weights = F.broadcast_mul(weights, allowed) if masking == ZEROS and allowed is not None else weights
    dropped = F.Dropout(weights, **dropout) if dropout else weights
    return [F.batch_dot(dropped, value), weights, dropped]


def causal_mask(F: Any, scores: Any) -> Any:
    """Returns a mask (1, T, S) for scores (N, T, S): position t does not attend to later ones."""
    rows, columns = (F.contrib.arange_like(F.BlockGrad(scores), axis=axis) for axis in (1, 2))
    return F.broadcast_greater_equal(F.reshape(rows, shape=(1, -1, 1)), F.reshape(columns, shape=(1, 1, -1)))


def attention(F: Any, query: Any, key: Any, value: Any, *arrays: Any, scale: Any = None,
              concat_score_weight: Any = None, score_mode: str, use_causal_mask: bool, dropout: Mapping[str, Any],
              masks: Sequence[str], return_attention_scores: bool, replaces: bool) -> Any:  # fmt: skip
    """Returns the output of `keras.layers.Attention` or `AdditiveAttention`. Positions that the query's mask excludes
    are set to 0 (`replaces`), or multiplied by it.

    The scores are, by `score_mode`: "dot", q . k; "concat", weight * sum(tanh(scale * (q + k))); "additive",
    sum(scale * tanh(q + k)). The shape of `scale` is (1,), for "additive" (D,), that of `concat_score_weight` (1,).
    """

    def times(x: Any, weight: Any, ndim: int) -> Any:
        """Returns x times a weight along its last axis; x itself without a weight."""
        return x if weight is None else F.broadcast_mul(x, F.reshape(weight, shape=(*(1,) * (ndim - 1), -1)))

    given = dict(zip(masks, arrays))
    query_mask = given.pop("query", None)
    if score_mode == "dot":
        scores = times(F.batch_dot(query, key, transpose_b=True), scale, 3)
    else:
        before, after = (scale, None) if score_mode == "concat" else (None, scale)
        pairs = F.broadcast_add(F.expand_dims(query, axis=2), F.expand_dims(key, axis=1))
        pairs = times(F.tanh(times(pairs, before, 4)), after, 4)
        scores = times(F.sum(pairs, axis=3), concat_score_weight, 3)
    output, _, weights = attend(F, scores, value, given, use_causal_mask, dropout)
    if query_mask is not None:
        output = (where_mask if replaces else multiply_by_mask)(F, output, query_mask)
    return [output, weights] if return_attention_scores else output


def multi_head_attention(F: Any, query: Any, key: Any, value: Any, *arrays: Any, heads: int, key_heads: int,
                         units: Dict[str, int], use_causal_mask: bool, dropout: Mapping[str, Any], masks: Sequence[str],
                         return_attention_scores: bool, masking: str, **parameters: Any) -> Any:  # fmt: skip
    """Returns the output (N, T, units) of `keras.layers.MultiHeadAttention` (Vaswani et al. 2017), or with fewer heads
    of keys and values than of the query that of `GroupQueryAttention` (Ainslie et al. 2023).

    The parameters are `query_weight`, `query_bias` and so on, of the query, key, value, output, and of the gate, if the
    output has one. `units` are the rows of each weight.
    """

    def projected(x: Any, name: str) -> Any:
        weight, bias = parameters[f"{name}_weight"], parameters.get(f"{name}_bias")
        return F.FullyConnected(x, weight, bias, num_hidden=units[name], flatten=False, no_bias=bias is None)

    def split_heads(x: Any, count: int) -> Any:
        """Split the heads: (N, T, count * D) -> (N * heads, T, D)."""
        x = F.transpose(F.reshape(x, shape=(0, 0, -4, count, -1)), axes=(0, 2, 1, 3))
        x = F.repeat(x, repeats=heads // count, axis=1) if count < heads else x
        return F.reshape(x, shape=(-3, -2))

    gate = F.sigmoid(projected(query, "gate")) if "gate" in units else None
    query = split_heads(projected(query, "query") / math.sqrt(units["query"] // heads), heads)
    key, value = (split_heads(projected(x, name), key_heads) for x, name in ((key, "key"), (value, "value")))
    scores = F.batch_dot(query, key, transpose_b=True)
    outputs = attend(F, scores, value, dict(zip(masks, arrays)), use_causal_mask, dropout, heads, masking)[:2]
    output, weights = (F.reshape(each, shape=(-4, -1, heads, -2)) for each in outputs)
    output = F.reshape(F.transpose(output, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
    output = projected(output if gate is None else output * gate, "output")
    return [output, weights] if return_attention_scores else output


# -- converters


def _projections(config: Dict[str, Any]) -> List[WeightSpec]:
    """Returns the weights of all projections. Files of Keras 3 keep the underscores of private attributes, as those of
    GroupQueryAttention and of the gate."""
    names, weights = ["query", "key", *["gate"] * bool(config.get("use_gate")), "value", "output"], []
    private = names if "num_query_heads" in config else ["gate"]
    for name in names:
        group, path = f"{'_' * (name in private)}{name}_dense", f"{'attention_' * (name == 'output')}{name}"
        spec = partial(WeightSpec, group=group)
        weights.append(spec(f"{name}_kernel", f"{name}_weight", path=f"{path}/kernel"))
        weights.append(spec(f"{name}_bias", f"{name}_bias", "use_bias", path=f"{path}/bias"))
    return weights


def _check_sequences(*inputs: Tensor) -> None:
    fits, shapes = all(x.rank == 3 and x.shape[2] for x in inputs), [x.shape for x in inputs]
    check(fits, "inputs must be sequences (N, T, D) of a static D", shapes=shapes)
    masks = [x.mask.shape for x in inputs if x.mask is not None]
    check(all(len(shape) == 2 for shape in masks), "masks must be those of steps, (N, T)", shapes=masks)


def _as_matrix(shape: Tuple[int, ...], is_output: bool) -> Conversion:
    """Returns the conversion of a kernel (D, heads, depth), of the output's (heads, depth, units), or of a bias."""
    if len(shape) < 3:
        return Conversion.of(shape, range(len(shape)), (-1,))
    units, axes = (shape[2], (2, 0, 1)) if is_output else (math.prod(shape[1:]), (1, 2, 0))
    return Conversion.of(shape, axes, (units, -1))


@layer("MultiHeadAttention", "GroupQueryAttention", order=KERAS_ORDER, weights=_projections, masks=HANDLES_MASK,
       dtypes=CAST, ignored="dropout|(query|key|value)_shape")  # fmt: skip
def _multi_head(call: CallContext, query: Tensor, value: Tensor, key: Optional[Tensor] = None,
                attention_mask: Optional[Tensor] = None, return_attention_scores: bool = False,
                use_causal_mask: bool = False, query_mask: Optional[Tensor] = None, value_mask: Optional[Tensor] = None,
                key_mask: Optional[Tensor] = None) -> List[Tensor]:  # fmt: skip
    """Builds the attention of several heads. In Keras 3, masks of the inputs may be arguments; its MultiHeadAttention
    ignores `query_mask`, and removes the masks from its inputs."""
    given = [query, value, *([] if key is None else [key])]
    if call.version == 3 and call.layer.class_name == "MultiHeadAttention":
        query_mask = None
        call.steps.unmasked.update(x.keras_key for x in given)
    pairs = zip((query, value, value if key is None else key), (query_mask, value_mask, key_mask))
    inputs = [x if mask is None else x._replace(mask=call.cast(mask, "bool")) for x, mask in pairs]
    if key is None and key_mask is None:
        inputs[2] = inputs[1]
    axes, options = call.config.get("attention_axes"), (bool(use_causal_mask), bool(return_attention_scores))
    axes = list(range(1, query.rank - 1)) if axes is None else as_list(axes)
    # Keras resolves negative axes against different ranks
    fits = all(type(axis) is int and 0 < axis < query.rank - 1 for axis in axes)
    check(fits, f"attention_axes must be within 1 and {query.rank - 2}", attention_axes=axes)
    if query.rank <= 3:
        out, *scores = _of_sequences(call, inputs, attention_mask, *options)
        return [out._replace(mask=query.mask), *scores]
    is_plain = attention_mask is None and not any(x.mask for x in inputs) and not any(options)
    check(is_plain, "attention over axes of an image must be without masks, and without scores as an output")
    return [_over_axes(call, sorted(axes), inputs)]


def _of_sequences(call: CallContext, inputs: Sequence[Tensor], attention_mask: Optional[Tensor], use_causal_mask: bool,
                  return_attention_scores: bool) -> List[Tensor]:  # fmt: skip
    """Builds the attention of several heads for sequences."""
    config, named = call.config, dict(zip(("query", "value", "key"), inputs))
    _check_sequences(*inputs)
    multi = call.layer.class_name == "MultiHeadAttention"
    heads, key_dim = map(call.integer, ("num_heads", "key_dim") if multi else ("num_query_heads", "head_dim"))
    key_heads = heads if multi else call.integer("num_key_value_heads")
    check_divisible("query heads", heads, "key heads", key_heads)
    units = config.get("output_shape") or inputs[0].shape[2]
    (units,) = units if isinstance(units, (list, tuple)) and len(units) == 1 else (units,)
    integer("output_shape", units, 1)
    masks = {name: x.mask for name, x in named.items() if x.mask is not None}
    if attention_mask is not None:
        check(attention_mask.rank == 3, "attention_mask must have 3 axes", shape=attention_mask.shape)
        is_bool = call.version == 3 or masks or use_causal_mask  # without other masks, Keras 2 uses its numbers
        masks["attention"] = call.cast(attention_mask, "bool") if is_bool else attention_mask
    value_dim = integer("value_dim", config.get("value_dim") or key_dim, 1)
    rows = {"query": heads * key_dim, "key": key_heads * key_dim, "value": key_heads * value_dim, "output": units}
    columns = {name: x.shape[2] for name, x in named.items()}
    columns.update(output=heads * value_dim, gate=columns["query"])
    if config.get("use_gate"):
        rows["gate"] = columns["output"]
    specs = call.layer.weight_specs or ()
    shapes = {spec.parameter: (rows[part], columns[part])[: 1 + (kind == "kernel")]
              for spec in specs for part, kind in [spec.name.split("_")]}  # fmt: skip
    stored = zip(specs, call.layer.weights)
    conversions = {spec.name: _as_matrix(tuple(array.shape), spec.name == "output_kernel") for spec, array in stored}
    masking = SUBTRACTED
    if call.version == 3:  # whose softmax has a mask if there are scores to return or a dropout
        masking = ZEROS if return_attention_scores or config.get("dropout") else REPLACED
    inputs = [named[name] for name in ("query", "key", "value")]
    return _attended(call, multi_head_attention, inputs, masks, shapes, conversions, heads=heads, key_heads=key_heads,
                     units=rows, masking=masking, use_causal_mask=use_causal_mask,
                     return_attention_scores=return_attention_scores)  # fmt: skip


def _over_axes(call: CallContext, axes: List[int], inputs: Sequence[Tensor]) -> Tensor:
    """Attends along some axes of images: these are merged into one, and the other axes into the batch."""
    query, shapes, rank = inputs[0], [x.shape for x in inputs], inputs[0].rank
    free = [axis for axis in range(1, rank - 1) if axis not in axes]
    fits = all(len(shape) == rank and None not in shape[1:] for shape in shapes)
    fits = fits and len({tuple(shape[axis] for axis in free) for shape in shapes}) == 1
    check(fits, "inputs must have static lengths, and the same along the axes without attention", shapes=shapes)
    order = [0, *free, *axes, rank - 1]
    moved = [permute(call, x, order) for x in inputs]
    lengths = [math.prod(shape[axis] for axis in axes) for shape in shapes]
    merged = [merge_into_batch(call, x, len(free)) for x in moved]
    sequences = [call.apply(reshape, x, to=(0, n, x.shape[-1])) for x, n in zip(merged, lengths)]
    (out,) = _of_sequences(call, sequences, None, False, False)
    out = call.apply(reshape, out, to=(0, *(query.shape[axis] for axis in axes), -1))
    out = split_from_batch(call, out, moved[0], len(free))
    return permute(call, out, [order.index(axis) for axis in range(rank)])


def _attended(call: CallContext, function: Any, inputs: List[Tensor], masks: Dict[str, Tensor], shapes: Any,
              conversions: Any, **arguments: Any) -> List[Tensor]:  # fmt: skip
    """Adds a function of attention, and returns its outputs. The first one has the mask of the query."""
    part = 0.0 if call.training is False else dropout_rate(call, "dropout", 0.0)
    dropout = {"p": part, "mode": "always" if call.training else "training"} if part else {}
    arguments.update(dropout=dropout, masks=list(masks))
    make = partial(Function, function, shapes=shapes, **arguments)
    outputs = call.add_block(make, *inputs, *masks.values(), conversions=conversions, options=arguments)
    return [outputs[0]._replace(mask=inputs[0].mask), *outputs[1:]]


def _attention_weights(config: Dict[str, Any]) -> List[WeightSpec]:
    given = {"scale": config.get("use_scale"), "concat_score_weight": config.get("score_mode") == "concat"}
    return [WeightSpec(name, name) for name in given if given[name]]


@layer("Attention", "AdditiveAttention", order=KERAS_ORDER, weights=_attention_weights, masks=HANDLES_MASK, dtypes=CAST,
       ignored="dropout")  # fmt: skip
def _attention(call: CallContext, query: Tensor, value: Tensor, key: Optional[Tensor] = None,
               return_attention_scores: bool = False, use_causal_mask: bool = False) -> List[Tensor]:  # fmt: skip
    config, additive = call.config, call.layer.class_name == "AdditiveAttention"
    mode = "additive" if additive else config.get("score_mode", "dot")
    check(mode in ("dot", "concat", "additive"), "score_mode must be dot or concat", score_mode=mode)
    key = value if key is None else key
    _check_sequences(query, key, value)
    shapes = {spec.name: value.shape[-1:] if additive else (1,) for spec in call.layer.weight_specs or ()}
    masks = {name: x.mask for name, x in (("query", query), ("value", value)) if x.mask is not None}
    if call.version == 3:
        masks = {name: call.cast(mask, "bool") for name, mask in masks.items()}
    causal = bool(use_causal_mask) or bool(config.get("causal", False))
    conversion = UNCHANGED if additive else SCALAR
    return _attended(call, attention, [query, key, value], masks, shapes, conversion, score_mode=mode,
                     replaces=call.version == 3, use_causal_mask=causal,
                     return_attention_scores=bool(return_attention_scores))  # fmt: skip
