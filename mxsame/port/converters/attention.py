"""Converters of attention layers, and the functions of sequences (N, T, D) that compute them.

The functions take the query, key and value, then one mask for each name in `masks`: "query" (N, T), "value" (N, S),
"key" (N, S), "attention" (N, T, S). A mask is 0 at positions to exclude, and 1 elsewhere.
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

# How masked scores are excluded: 1e9 is subtracted from them; or they are set to -1e9, and a row that is masked
# completely gets equal weights; or they are set to -1e9, and their weights to 0.
SUBTRACTED, REPLACED, ZEROS = "subtracted", "replaced", "zeros"


def attend(F: Any, scores: Any, value: Any, masks: Mapping[str, Any], causal: bool, dropout: Mapping[str, Any],
             heads: int = 1, masking: str = SUBTRACTED) -> List[Any]:  # fmt: skip
    """Returns the output (N, T, D), the weights, and the weights after dropout.

    The weights are the softmax of the scores (N, T, S). `masking` is the rule for positions that any mask excludes. The
    batch of the scores has one entry for each head of each sequence, that of the masks one for each sequence.
    """
    allowed = None
    for name, mask in masks.items():
        mask = F.expand_dims(mask, axis=MASK_AXES[name]) if name in MASK_AXES else mask
        allowed = mask if allowed is None else F.broadcast_mul(allowed, mask)
    if allowed is not None and heads > 1:
        allowed = F.repeat(allowed, repeats=heads, axis=0)
    if causal:
        allowed = causal_mask(F, scores) if allowed is None else F.broadcast_mul(allowed, causal_mask(F, scores))
    if allowed is not None and masking == SUBTRACTED:
        scores = F.broadcast_add(scores, (1 - allowed) * MASKED)
    elif allowed is not None:
        scores = F.where(F.broadcast_like(allowed, scores), scores, F.zeros_like(scores) + MASKED)
    weights = F.softmax(scores, axis=-1)
    weights = F.broadcast_mul(weights, allowed) if masking == ZEROS and allowed is not None else weights
    dropped = F.Dropout(weights, **dropout) if dropout else weights
    return [F.batch_dot(dropped, value), weights, dropped]


def causal_mask(F: Any, scores: Any) -> Any:
    """Returns a mask (1, T, S) for scores (N, T, S): position t does not attend to later positions."""
    rows, columns = (F.contrib.arange_like(F.BlockGrad(scores), axis=axis) for axis in (1, 2))
    return F.broadcast_greater_equal(F.reshape(rows, shape=(1, -1, 1)), F.reshape(columns, shape=(1, 1, -1)))


def attention(F: Any, query: Any, key: Any, value: Any, *arrays: Any, scale: Any = None,
              concat_score_weight: Any = None, score_mode: str, use_causal_mask: bool, dropout: Mapping[str, Any],
              masks: Sequence[str], return_attention_scores: bool, replaces: bool) -> Any:  # fmt: skip
    """Returns the output of `keras.layers.Attention` or `AdditiveAttention`. Where the query's mask is 0, the output is
    set to 0 if `replaces`, else multiplied by 0.

    The scores depend on `score_mode`: "dot" is q . k; "concat" is weight * sum(tanh(scale * (q + k))); "additive" is
    sum(scale * tanh(q + k)). `concat_score_weight` and `scale` have the shape (1,); for "additive", `scale` has (D,).
    """

    def times(x: Any, weight: Any, ndim: int) -> Any:
        """Multiplies x by a weight along its last axis, if there is a weight."""
        return x if weight is None else F.broadcast_mul(x, F.reshape(weight, shape=(*(1,) * (ndim - 1), -1)))

    named_masks = dict(zip(masks, arrays))
    query_mask = named_masks.pop("query", None)
    if score_mode == "dot":
        scores = times(F.batch_dot(query, key, transpose_b=True), scale, 3)
    else:
        inner_scale, outer_scale = (scale, None) if score_mode == "concat" else (None, scale)
        pairs = F.broadcast_add(F.expand_dims(query, axis=2), F.expand_dims(key, axis=1))
        pairs = times(F.tanh(times(pairs, inner_scale, 4)), outer_scale, 4)
        scores = times(F.sum(pairs, axis=3), concat_score_weight, 3)
    output, _, weights = attend(F, scores, value, named_masks, use_causal_mask, dropout)
    if query_mask is not None:
        output = (where_mask if replaces else multiply_by_mask)(F, output, query_mask)
    return [output, weights] if return_attention_scores else output


def multi_head_attention(F: Any, query: Any, key: Any, value: Any, *arrays: Any, heads: int, key_heads: int,
                         units: Dict[str, int], use_causal_mask: bool, dropout: Mapping[str, Any], masks: Sequence[str],
                         return_attention_scores: bool, masking: str, **parameters: Any) -> Any:  # fmt: skip
    """Returns the output (N, T, units) of `keras.layers.MultiHeadAttention` (Vaswani et al. 2017). If `key_heads` is
    less than `heads`, it is that of `GroupQueryAttention` (Ainslie et al. 2023).

    `parameters` are `query_weight`, `query_bias` and so on: one pair each for the query, key, value and output, and for
    the gate, if there is one. `units` maps these names to the numbers of rows of the weights.
    """

    def project(x: Any, name: str) -> Any:
        weight, bias = parameters[f"{name}_weight"], parameters.get(f"{name}_bias")
        return F.FullyConnected(x, weight, bias, num_hidden=units[name], flatten=False, no_bias=bias is None)

    def split_heads(x: Any, count: int) -> Any:
        """Maps (N, T, count * D) to (N * heads, T, D). With fewer than `heads`, each head is repeated."""
        x = F.transpose(F.reshape(x, shape=(0, 0, -4, count, -1)), axes=(0, 2, 1, 3))
        x = F.repeat(x, repeats=heads // count, axis=1) if count < heads else x
        return F.reshape(x, shape=(-3, -2))

    gate = F.sigmoid(project(query, "gate")) if "gate" in units else None
    query = split_heads(project(query, "query") / math.sqrt(units["query"] // heads), heads)
    key, value = (split_heads(project(x, name), key_heads) for x, name in ((key, "key"), (value, "value")))
    scores = F.batch_dot(query, key, transpose_b=True)
    outputs = attend(F, scores, value, dict(zip(masks, arrays)), use_causal_mask, dropout, heads, masking)[:2]
    output, weights = (F.reshape(each, shape=(-4, -1, heads, -2)) for each in outputs)
    output = F.reshape(F.transpose(output, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
    output = project(output if gate is None else output * gate, "output")
    return [output, weights] if return_attention_scores else output


# -- converters


def _projections(config: Dict[str, Any]) -> List[WeightSpec]:
    """Returns the specs of the weights of all projections. In files of Keras 3, a group has the name of an attribute:
    those of GroupQueryAttention and of the gate are private, and begin with an underscore."""
    names, specs = ["query", "key", *["gate"] * bool(config.get("use_gate")), "value", "output"], []
    private = names if "num_query_heads" in config else ["gate"]
    for name in names:
        group, path = f"{'_' * (name in private)}{name}_dense", f"{'attention_' * (name == 'output')}{name}"
        spec = partial(WeightSpec, group=group)
        specs.append(spec(f"{name}_kernel", f"{name}_weight", path=f"{path}/kernel"))
        specs.append(spec(f"{name}_bias", f"{name}_bias", "use_bias", path=f"{path}/bias"))
    return specs


def _check_sequences(*inputs: Tensor) -> None:
    are_sequences, shapes = all(x.rank == 3 and x.shape[2] for x in inputs), [x.shape for x in inputs]
    check(are_sequences, "inputs must be sequences (N, T, D) with a static D", shapes=shapes)
    masks = [x.mask.shape for x in inputs if x.mask is not None]
    check(all(len(shape) == 2 for shape in masks), "masks of the inputs must be (N, T)", shapes=masks)


def _as_matrix(shape: Tuple[int, ...], is_output: bool) -> Conversion:
    """Returns the conversion of a kernel (D, heads, depth), or the output's (heads, depth, units), to a matrix, and of
    a bias to a vector."""
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
    """Builds multi-head attention. In Keras 3, masks of the inputs may be arguments; its MultiHeadAttention ignores
    `query_mask`, and removes the masks of its inputs also for later layers."""
    if call.version == 3 and call.layer.class_name == "MultiHeadAttention":
        query_mask = None
        call.steps.unmasked.update(x.keras_key for x in (query, value, key) if x is not None)
    pairs = zip((query, value, value if key is None else key), (query_mask, value_mask, key_mask))
    inputs = [x if mask is None else x._replace(mask=call.cast(mask, "bool")) for x, mask in pairs]
    if key is None and key_mask is None:
        inputs[2] = inputs[1]
    axes, options = call.config.get("attention_axes"), (bool(use_causal_mask), bool(return_attention_scores))
    axes = list(range(1, query.rank - 1)) if axes is None else as_list(axes)
    # negative axes are refused: Keras resolves them against different ranks
    are_valid = all(type(axis) is int and 0 < axis < query.rank - 1 for axis in axes)
    check(are_valid, f"attention_axes must be within 1 and {query.rank - 2}", attention_axes=axes)
    if query.rank <= 3:
        out, *scores = _multi_head_of_sequences(call, inputs, attention_mask, *options)
        return [out._replace(mask=query.mask), *scores]
    is_plain = attention_mask is None and not any(x.mask for x in inputs) and not any(options)
    check(is_plain, "attention over axes of an image must have no masks, and must not return its scores")
    return [_multi_head_of_images(call, sorted(axes), inputs)]


def _multi_head_of_sequences(call: CallContext, inputs: Sequence[Tensor], attention_mask: Optional[Tensor],
                             use_causal_mask: bool, return_attention_scores: bool) -> List[Tensor]:  # fmt: skip
    """Builds multi-head attention for a query, value and key (N, T, D)."""
    config, named = call.config, dict(zip(("query", "value", "key"), inputs))
    _check_sequences(*inputs)
    is_multi_head = call.layer.class_name == "MultiHeadAttention"
    head_keys = ("num_heads", "key_dim") if is_multi_head else ("num_query_heads", "head_dim")
    heads, key_dim = map(call.integer, head_keys)
    key_heads = heads if is_multi_head else call.integer("num_key_value_heads")
    check_divisible("query heads", heads, "key heads", key_heads)
    units = config.get("output_shape") or inputs[0].shape[2]
    (units,) = units if isinstance(units, (list, tuple)) and len(units) == 1 else (units,)
    integer("output_shape", units, 1)
    masks = {name: x.mask for name, x in named.items() if x.mask is not None}
    if attention_mask is not None:
        check(attention_mask.rank == 3, "attention_mask must have 3 axes", shape=attention_mask.shape)
        is_bool = call.version == 3 or masks or use_causal_mask  # without other masks, Keras 2 does not cast it
        masks["attention"] = call.cast(attention_mask, "bool") if is_bool else attention_mask
    value_dim = integer("value_dim", config.get("value_dim") or key_dim, 1)
    rows = {"query": heads * key_dim, "key": key_heads * key_dim, "value": key_heads * value_dim, "output": units}
    columns = {name: x.shape[2] for name, x in named.items()}
    columns.update(output=heads * value_dim, gate=columns["query"])
    if config.get("use_gate"):
        rows["gate"] = columns["output"]
    specs = call.layer.weight_specs or ()
    shapes = {spec.parameter: (rows[name], columns[name])[: 1 + (kind == "kernel")]
              for spec in specs for name, kind in [spec.name.split("_")]}  # fmt: skip
    pairs = zip(specs, call.layer.weights)
    conversions = {spec.name: _as_matrix(tuple(array.shape), spec.name == "output_kernel") for spec, array in pairs}
    masking = SUBTRACTED
    if call.version == 3:  # only in these cases Keras 3 uses a Softmax layer, which sets masked weights to 0
        masking = ZEROS if return_attention_scores or config.get("dropout") else REPLACED
    inputs = [named[name] for name in ("query", "key", "value")]
    return _apply_attention(
        call, multi_head_attention, inputs, masks, shapes, conversions, heads=heads, key_heads=key_heads, units=rows,
        masking=masking, use_causal_mask=use_causal_mask, return_attention_scores=return_attention_scores,
    )  # fmt: skip


def _multi_head_of_images(call: CallContext, axes: List[int], inputs: Sequence[Tensor]) -> Tensor:
    """Builds multi-head attention along some axes of images, which are merged into one; the others join the batch."""
    query, shapes, rank = inputs[0], [x.shape for x in inputs], inputs[0].rank
    free = [axis for axis in range(1, rank - 1) if axis not in axes]
    are_static = all(len(shape) == rank and None not in shape[1:] for shape in shapes)
    agree = are_static and len({tuple(shape[axis] for axis in free) for shape in shapes}) == 1
    check(agree, "inputs must have static lengths, and the same along the axes without attention", shapes=shapes)
    order = [0, *free, *axes, rank - 1]
    moved = [permute(call, x, order) for x in inputs]
    lengths = [math.prod(shape[axis] for axis in axes) for shape in shapes]
    merged = [merge_into_batch(call, x, len(free)) for x in moved]
    sequences = [call.apply(reshape, x, to=(0, n, x.shape[-1])) for x, n in zip(merged, lengths)]
    (out,) = _multi_head_of_sequences(call, sequences, None, False, False)
    out = call.apply(reshape, out, to=(0, *(query.shape[axis] for axis in axes), -1))
    out = split_from_batch(call, out, moved[0], len(free))
    return permute(call, out, [order.index(axis) for axis in range(rank)])


def _apply_attention(call: CallContext, function: Any, inputs: List[Tensor], masks: Dict[str, Tensor], shapes: Any,
                     conversions: Any, **arguments: Any) -> List[Tensor]:  # fmt: skip
    """Applies an attention function, and returns its outputs. The first output has the mask of the query."""
    rate = 0.0 if call.training is False else dropout_rate(call, "dropout", 0.0)
    dropout = {"p": rate, "mode": "always" if call.training else "training"} if rate else {}
    arguments.update(dropout=dropout, masks=list(masks))
    make = partial(Function, function, shapes=shapes, **arguments)
    outputs = call.add_block(make, *inputs, *masks.values(), conversions=conversions, options=arguments)
    return [outputs[0]._replace(mask=inputs[0].mask), *outputs[1:]]


def _attention_weights(config: Dict[str, Any]) -> List[WeightSpec]:
    has_weight = {"scale": config.get("use_scale"), "concat_score_weight": config.get("score_mode") == "concat"}
    return [WeightSpec(name, name) for name in has_weight if has_weight[name]]


@layer("Attention", "AdditiveAttention", order=KERAS_ORDER, weights=_attention_weights, masks=HANDLES_MASK, dtypes=CAST,
       ignored="dropout")  # fmt: skip
def _attention(call: CallContext, query: Tensor, value: Tensor, key: Optional[Tensor] = None,
               return_attention_scores: bool = False, use_causal_mask: bool = False) -> List[Tensor]:  # fmt: skip
    config, is_additive = call.config, call.layer.class_name == "AdditiveAttention"
    mode = "additive" if is_additive else config.get("score_mode", "dot")
    check(mode in ("dot", "concat", "additive"), "score_mode must be dot or concat", score_mode=mode)
    key = value if key is None else key
    _check_sequences(query, key, value)
    shapes = {spec.name: value.shape[-1:] if is_additive else (1,) for spec in call.layer.weight_specs or ()}
    masks = {name: x.mask for name, x in (("query", query), ("value", value)) if x.mask is not None}
    if call.version == 3:
        masks = {name: call.cast(mask, "bool") for name, mask in masks.items()}
    causal = bool(use_causal_mask) or bool(config.get("causal", False))
    conversion = UNCHANGED if is_additive else SCALAR
    return _apply_attention(
        call, attention, [query, key, value], masks, shapes, conversion, score_mode=mode, replaces=call.version == 3,
        use_causal_mask=causal, return_attention_scores=bool(return_attention_scores),
    )  # fmt: skip
