"""Keras's attention layers as functions of sequences (N, T, D), for :class:`mxsame.port.blocks.Function`.

They are called with the query, key and value, then with the masks whose names are in `masks`, in the order "query"
(N, T), "value" (N, S), "key" (N, S), "attention" (N, T, S). A mask has ones, and zeros where nothing is attended to.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Sequence

from mxsame.port.blocks import MASKED, kept, masked

MASK_AXES = {"query": 2, "value": 1, "key": 1}  # that a mask of one sequence lacks among those of the scores (N, T, S)

# What becomes of scores that are left out: a large number is subtracted from them; they are replaced by it, so that all
# weights are alike where all are left out; or their weights are then 0.
SUBTRACTED, REPLACED, ZEROS = "subtracted", "replaced", "zeros"


def attended(
    F: Any, scores: Any, value: Any, masks: Mapping[str, Any], causal: bool, dropout: Mapping[str, Any],
    heads: int = 1, left_out: str = SUBTRACTED,
) -> List[Any]:  # fmt: skip
    """The values (N, S, D), weighed by the softmax of scores (N, T, S), their weights, and those after dropout; what
    any of the masks leaves out gets almost nothing, by the rule `left_out`. All have an entry of the batch for each
    head, and the masks one for all."""
    allowed = None
    for name, mask in masks.items():
        mask = F.expand_dims(mask, axis=MASK_AXES[name]) if name in MASK_AXES else mask
        allowed = mask if allowed is None else F.broadcast_mul(allowed, mask)
    if allowed is not None and heads > 1:
        allowed = F.repeat(allowed, repeats=heads, axis=0)
    if causal:
        before = causal_mask(F, scores)
        allowed = before if allowed is None else F.broadcast_mul(allowed, before)
    if allowed is not None and left_out == SUBTRACTED:
        scores = F.broadcast_add(scores, (1 - allowed) * MASKED)
    elif allowed is not None:
        scores = F.where(F.broadcast_like(allowed, scores), scores, F.zeros_like(scores) + MASKED)
    weights = F.softmax(scores, axis=-1)
    weights = F.broadcast_mul(weights, allowed) if left_out == ZEROS and allowed is not None else weights
    dropped = F.Dropout(weights, **dropout) if dropout else weights
    return [F.batch_dot(dropped, value), weights, dropped]


def causal_mask(F: Any, scores: Any) -> Any:
    """(1, T, S) for scores (N, T, S): position t attends to none after t."""
    rows, columns = (F.contrib.arange_like(F.BlockGrad(scores), axis=axis) for axis in (1, 2))
    return F.broadcast_greater_equal(F.reshape(rows, shape=(1, -1, 1)), F.reshape(columns, shape=(1, 1, -1)))


def attention(
    F: Any, query: Any, key: Any, value: Any, *arrays: Any, scale: Any = None, concat_score_weight: Any = None,
    score_mode: str, use_causal_mask: bool, dropout: Mapping[str, Any], masks: Sequence[str],
    return_attention_scores: bool, replaces: bool,
) -> Any:  # fmt: skip
    """`keras.layers.Attention` and `AdditiveAttention`: each position of the query weighs the values. What the query's
    mask leaves out is replaced by 0, or multiplied by it.

    The score is, by `score_mode`: "dot", q . k; "concat", the sum of tanh(scale (q + k)), times a weight; "additive",
    the sum of scale tanh(q + k). `scale` is (1,), or for "additive" (D,), and `concat_score_weight` (1,).
    """

    def times(x: Any, weight: Any, ndim: int) -> Any:
        """x times a weight along the last of its axes, if there is one."""
        return x if weight is None else F.broadcast_mul(x, F.reshape(weight, shape=(*(1,) * (ndim - 1), -1)))

    given = dict(zip(masks, arrays))
    of_query = given.pop("query", None)
    if score_mode == "dot":
        scores = times(F.batch_dot(query, key, transpose_b=True), scale, 3)
    else:
        before, after = (scale, None) if score_mode == "concat" else (None, scale)
        pairs = F.broadcast_add(F.expand_dims(query, axis=2), F.expand_dims(key, axis=1))
        pairs = times(F.tanh(times(pairs, before, 4)), after, 4)
        scores = times(F.sum(pairs, axis=3), concat_score_weight, 3)
    output, _, weights = attended(F, scores, value, given, use_causal_mask, dropout)
    if of_query is not None:
        output = (kept if replaces else masked)(F, output, of_query)
    return [output, weights] if return_attention_scores else output


def multi_head_attention(
    F: Any, query: Any, key: Any, value: Any, *arrays: Any, heads: int, key_heads: int, units: Dict[str, int],
    use_causal_mask: bool, dropout: Mapping[str, Any], masks: Sequence[str], return_attention_scores: bool,
    left_out: str, **parameters: Any,
) -> Any:  # fmt: skip
    """`keras.layers.MultiHeadAttention`, and with fewer heads of keys and values `GroupQueryAttention`, where each of
    them serves heads / key_heads heads of the query (Vaswani et al. 2017; Ainslie et al. 2023): (N, T, units).

    The parameters are `query_weight`, .., `query_bias`, .., for each of the query, key, value and output, and of a
    gate, if the output is multiplied by one; `units` are the rows of each weight.
    """

    def projected(x: Any, name: str) -> Any:
        weight, bias = parameters[f"{name}_weight"], parameters.get(f"{name}_bias")
        return F.FullyConnected(x, weight, bias, num_hidden=units[name], flatten=False, no_bias=bias is None)

    def parted(x: Any, count: int) -> Any:
        """(N, T, count * D) -> (N * heads, T, D)."""
        x = F.transpose(F.reshape(x, shape=(0, 0, -4, count, -1)), axes=(0, 2, 1, 3))
        x = F.repeat(x, repeats=heads // count, axis=1) if count < heads else x
        return F.reshape(x, shape=(-3, -2))

    gate = F.sigmoid(projected(query, "gate")) if "gate" in units else None
    query = parted(projected(query, "query") / math.sqrt(units["query"] // heads), heads)
    key, value = (parted(projected(x, name), key_heads) for x, name in ((key, "key"), (value, "value")))
    scores = F.batch_dot(query, key, transpose_b=True)
    outputs = attended(F, scores, value, dict(zip(masks, arrays)), use_causal_mask, dropout, heads, left_out)[:2]
    output, weights = (F.reshape(each, shape=(-4, -1, heads, -2)) for each in outputs)
    output = F.reshape(F.transpose(output, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
    output = projected(output if gate is None else output * gate, "output")
    return [output, weights] if return_attention_scores else output
