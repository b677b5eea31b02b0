"""Converters of layers for categorical data, such as Embedding, and for masks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mxsame._mxnet import mx
from mxsame.keras_format.description import WeightSpec
from mxsame.keras_format.dtypes import CAST, FLOATS, SETS_DTYPE, STORED, standardize_dtype
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import LORA
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, layer, operator
from mxsame.port.tensors import Tensor
from mxsame.validation import check, integer


@layer("Embedding", order=KERAS_ORDER, weights=[WeightSpec("embeddings", "weight")], masks=HANDLES_MASK,
       dtypes=SETS_DTYPE, ignored=f"input_length|{LORA}")  # fmt: skip
def _embedding(call: CallContext, x: Tensor) -> Tensor:
    """Looks up rows by index. In Keras 3, negative indices count from the end. MXNet clips indices that are out of
    range."""
    config = call.config
    mask = call.apply(blocks.scalar, x, operator="not_equal", value=0.0) if config.get("mask_zero") else None
    if call.version == 3 and not x.dtype.startswith(("uint", "bool")):
        x = call.apply(blocks.indices_from_end, x, length=config["input_dim"], truncates=x.dtype in FLOATS)
    (out,) = call.add_block(partial(mx.gluon.nn.Embedding, config["input_dim"], config["output_dim"]), x)
    return out._replace(mask=mask)


@layer("Masking", order=KERAS_ORDER, masks=HANDLES_MASK)
def _masking(call: CallContext, x: Tensor) -> Tensor:
    """Masks the steps whose elements all equal `mask_value`."""
    mask = call.apply(blocks.any_not_equal, x, value=call.number("mask_value", 0.0))
    return call.apply(blocks.multiply_by_mask if call.version == 2 else blocks.where_mask, x, mask)._replace(mask=mask)


@layer("CategoryEncoding", order=KERAS_ORDER, dtypes=CAST)
def _category_encoding(call: CallContext, x: Tensor) -> Tensor:
    return _encoded(call, x, call.config["num_tokens"], str(call.config.get("output_mode", "multi_hot")))


@layer("Discretization", order=KERAS_ORDER, dtypes=SETS_DTYPE, ignored="num_bins|epsilon|dtype")
def _discretization(call: CallContext, x: Tensor) -> Tensor:
    """Returns the bin of each element: the number of boundaries that are not greater than it."""
    boundaries = np.asarray(call.config.get("bin_boundaries") or (), dtype="float32")
    is_sorted = boundaries.ndim == 1 and boundaries.size and all(np.diff(boundaries) >= 0)
    check(is_sorted, "bin_boundaries must be sorted", bin_boundaries=boundaries)
    x, arrays = call.cast(x, "float32"), {"boundaries": boundaries.reshape(*(1,) * x.rank, -1)}
    out = call.cast(call.constant(blocks.bucketize, x, arrays), "int64" if call.version == 2 else "int32")
    return _encoded(call, out, len(boundaries) + 1, str(call.config.get("output_mode", "int")))


@operator("one_hot", order=KERAS_ORDER, dtypes=SETS_DTYPE, aliases={"indices": "x", "depth": "num_classes"})
def _one_hot(call: CallContext, x: Tensor, num_classes: int, axis: Any = -1, dtype: Any = None) -> Tensor:
    """Encodes integers along a new last axis. MXNet reads only 32 bits of an int64, which is clipped to fit."""
    check(axis in (None, -1, x.rank), "axis must be the last", axis=axis)
    count = integer("num_classes", num_classes, 1)
    x = call.apply("clip", x, a_min=-1.0, a_max=float(count)) if STORED[x.dtype] == "int64" else x
    out = call.apply("one_hot", x, depth=count)
    return call.cast(out._replace(dtype="float32"), standardize_dtype(dtype or "float32"))


def _encoded(call: CallContext, x: Tensor, count: Any, mode: str) -> Tensor:
    """Encodes integers below `count` by Keras's `output_mode`. "multi_hot" and "count" combine the encodings along the
    first axis after the batch."""
    if mode == "int":
        return x
    modes = {"one_hot": "one_hot", "multi_hot": "max", "count": "sum"}
    is_supported = mode in modes and (x.rank <= 2 or call.version == 3)
    check(is_supported, f"output_mode must be one of int, {', '.join(modes)}", output_mode=mode)
    if mode == "one_hot" and x.shape[-1] == 1:
        x = call.apply("squeeze", x, axis=-1)
    ones = call.apply("one_hot", x, depth=integer("num_tokens", count, 1))
    return ones if mode == "one_hot" else call.apply(modes[mode], ones, axis=1 if x.rank > 1 else 0)
