"""Keras's attention layers as Gluon blocks, of sequences (N, T, D).

A mask is an array of ones, and of zeros where nothing is attended to; it broadcasts to the scores (N, T, S).
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence

from mxsame.port.blocks import MASKED, Weighted


def causal_mask(F: Any, scores: Any) -> Any:
    """(1, T, S) for scores (N, T, S): position t attends to none after t."""
    rows, columns = (F.contrib.arange_like(F.BlockGrad(scores), axis=axis) for axis in (1, 2))
    return F.broadcast_greater_equal(F.reshape(rows, shape=(1, -1, 1)), F.reshape(columns, shape=(1, 1, -1)))


def masked_softmax(F: Any, scores: Any, masks: Sequence[Any]) -> Any:
    """The softmax along the last axis; what any of the masks leaves out gets almost nothing."""
    allowed = None
    for mask in masks:
        allowed = mask if allowed is None else F.broadcast_mul(allowed, mask)
    if allowed is not None:
        scores = F.broadcast_add(scores, (1 - allowed) * MASKED)
    return F.softmax(scores, axis=-1)


class Attend(Weighted):
    """What attention layers share: scores to weights to the output.

    Called with the query, key and value, then with the masks whose names are in `masks`, in the order "query" (N, T),
    "value" (N, S), "key" (N, S), "attention" (N, T, S) or (1, T, S).
    """

    def __init__(
        self,
        causal: bool,
        dropout: float,
        masks: Sequence[str],
        return_attention_scores: bool,
        prefix: Optional[str] = None,
        **shapes: Any,
    ):
        super().__init__(prefix, **shapes)
        self._causal, self._dropout, self._masks = causal, dropout, tuple(masks)
        self._return_attention_scores = return_attention_scores

    def _weights(self, F: Any, scores: Any, masks: Sequence[Any]) -> Any:
        """Of scores (N, T, S)."""
        return masked_softmax(F, scores, [*masks, causal_mask(F, scores)] if self._causal else masks)

    def _dropped(self, F: Any, weights: Any) -> Any:
        return F.Dropout(weights, p=self._dropout) if self._dropout else weights


class Attention(Attend):
    """`keras.layers.Attention` and `AdditiveAttention`: each position of the query weighs the values.

    Parameters
    ----------
    score_mode : "dot", "concat" or "additive"
        q . k; the sum of tanh(scale (q + k)), times a weight; the sum of scale tanh(q + k).
    shapes
        Of the parameters that the layer has: `scale`, (1,) or for "additive" (D,), and `concat_score_weight`, (1,).
    """

    def __init__(
        self,
        score_mode: str = "dot",
        causal: bool = False,
        dropout: float = 0.0,
        masks: Sequence[str] = (),
        return_attention_scores: bool = False,
        prefix: Optional[str] = None,
        **shapes: Any,
    ):
        super().__init__(causal, dropout, masks, return_attention_scores, prefix, **shapes)
        self._score_mode = score_mode

    def hybrid_forward(
        self, F: Any, query: Any, key: Any, value: Any, *arrays: Any, scale: Any = None, concat_score_weight: Any = None
    ) -> Any:
        masks: Dict[str, Any] = dict(zip(self._masks, arrays))
        ones = (1, 1, 1)
        if self._score_mode == "dot":
            scores = F.batch_dot(query, key, transpose_b=True)
            scores = scores if scale is None else F.broadcast_mul(scores, F.reshape(scale, shape=ones))
        else:
            pairs = F.broadcast_add(F.expand_dims(query, axis=2), F.expand_dims(key, axis=1))
            shaped = None if scale is None else F.reshape(scale, shape=(1, 1, 1, -1))
            if self._score_mode == "concat" and shaped is not None:
                pairs = F.broadcast_mul(pairs, shaped)
            pairs = F.tanh(pairs)
            if self._score_mode == "additive" and shaped is not None:
                pairs = F.broadcast_mul(pairs, shaped)
            scores = F.sum(pairs, axis=3)
            if concat_score_weight is not None:
                scores = F.broadcast_mul(scores, F.reshape(concat_score_weight, shape=ones))
        of_values = [F.expand_dims(masks["value"], axis=1)] if "value" in masks else []
        weights = self._weights(F, scores, of_values)
        output = F.batch_dot(self._dropped(F, weights), value)
        if "query" in masks:
            output = F.broadcast_mul(output, F.expand_dims(masks["query"], axis=2))
        return [output, weights] if self._return_attention_scores else output


class MultiHeadAttention(Attend):
    """`keras.layers.MultiHeadAttention`, and with fewer heads of keys `GroupQueryAttention` (Vaswani et al. 2017;
    Ainslie et al. 2023): (N, T, units).

    Parameters
    ----------
    heads, key_heads : int
        Of the query; of keys and values, each of which serves heads / key_heads heads of the query.
    key_dim, value_dim, units : int
        Per head, and of the output.
    in_units : sequence of ints
        D of the query, key and value.
    """

    def __init__(
        self,
        heads: int,
        key_heads: int,
        key_dim: int,
        value_dim: int,
        units: int,
        in_units: Sequence[int],
        use_bias: bool = True,
        causal: bool = False,
        dropout: float = 0.0,
        masks: Sequence[str] = (),
        return_attention_scores: bool = False,
        prefix: Optional[str] = None,
    ):
        rows = {"query": heads * key_dim, "key": key_heads * key_dim, "value": key_heads * value_dim, "output": units}
        columns = dict(zip(rows, (*in_units, heads * value_dim)))
        shapes: Dict[str, Any] = {f"{name}_weight": (rows[name], columns[name]) for name in rows}
        if use_bias:
            shapes.update({f"{name}_bias": (rows[name],) for name in rows})
        super().__init__(causal, dropout, masks, return_attention_scores, prefix, **shapes)
        self._rows, self._heads, self._key_heads, self._key_dim = rows, heads, key_heads, key_dim

    def hybrid_forward(self, F: Any, query: Any, key: Any, value: Any, *arrays: Any, **parameters: Any) -> Any:
        masks = dict(zip(self._masks, arrays))

        def projected(x: Any, name: str) -> Any:
            more = [parameters[f"{name}_bias"]] if f"{name}_bias" in parameters else []
            return F.FullyConnected(
                x, parameters[f"{name}_weight"], *more, num_hidden=self._rows[name], flatten=False, no_bias=not more
            )

        def parted(x: Any, heads: int) -> Any:
            """(N, T, heads * D) -> (N * heads of the query, T, D)."""
            x = F.transpose(F.reshape(x, shape=(0, 0, -4, heads, -1)), axes=(0, 2, 1, 3))
            if heads < self._heads:
                x = F.repeat(x, repeats=self._heads // heads, axis=1)
            return F.reshape(x, shape=(-3, -2))

        query = parted(projected(query, "query") / math.sqrt(self._key_dim), self._heads)
        key, value = (parted(projected(x, name), self._key_heads) for x, name in ((key, "key"), (value, "value")))
        scores = F.batch_dot(query, key, transpose_b=True)
        weights = self._weights(F, scores, [self._for_heads(F, mask) for mask in self._merged(F, masks)])
        output = F.batch_dot(self._dropped(F, weights), value)
        output = F.reshape(output, shape=(-4, -1, self._heads, -2))
        output = projected(F.reshape(F.transpose(output, axes=(0, 2, 1, 3)), shape=(0, 0, -3)), "output")
        return (
            [output, F.reshape(weights, shape=(-4, -1, self._heads, -2))] if self._return_attention_scores else output
        )

    def _merged(self, F: Any, masks: Dict[str, Any]) -> List[Any]:
        """One mask (N, T or 1, S or 1), or none."""
        axes = {"query": 2, "value": 1, "key": 1}
        found = [F.expand_dims(masks[name], axis=axes[name]) for name in axes if name in masks]
        if "attention" in masks:
            found.append(masks["attention"])
        merged = None
        for mask in found:
            merged = mask if merged is None else F.broadcast_mul(merged, mask)
        return [] if merged is None else [merged]

    def _for_heads(self, F: Any, mask: Any) -> Any:
        """The mask of an entry of the batch for each of its heads."""
        return F.repeat(mask, repeats=self._heads, axis=0)
