"""Rows of layers of numbers that count or name something, and of masks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mxsame._mxnet import mx
from mxsame.port import blocks
from mxsame.port.description import Weight
from mxsame.port.rows._shared import LORA
from mxsame.port.table import KERAS, TAKES, Site, Value, layer, operator
from mxsame.port.types import CAST, OWN, STORED, known
from mxsame.validation import check, integer


@layer("Embedding", order=KERAS, weights=[Weight("embeddings", "weight")], masks=TAKES, types=OWN,
       unread=f"input_length|{LORA}")  # fmt: skip
def _embedding(site: Site, x: Value) -> Value:
    config = site.config
    mask = site.function(blocks.scalar, x, operator="not_equal", value=0.0) if config.get("mask_zero") else None
    (out,) = site.block(partial(mx.gluon.nn.Embedding, config["input_dim"], config["output_dim"]), x)
    return out._replace(mask=mask)


@layer("Masking", order=KERAS, masks=TAKES)
def _masking(site: Site, x: Value) -> Value:
    """Mask the steps whose elements all are the mask value."""
    mask = site.function(blocks.any_not_equal, x, value=site.number("mask_value", 0.0))
    return site.function(blocks.masked if site.version == 2 else blocks.kept, x, mask)._replace(mask=mask)


@layer("CategoryEncoding", order=KERAS, types=CAST)
def _category_encoding(site: Site, x: Value) -> Value:
    return _encoded(site, x, site.config["num_tokens"], str(site.config.get("output_mode", "multi_hot")))


@layer("Discretization", order=KERAS, types=OWN, unread="num_bins|epsilon|dtype")
def _discretization(site: Site, x: Value) -> Value:
    """Count how many boundaries are not above an element."""
    boundaries = np.asarray(site.config.get("bin_boundaries") or (), dtype="float32")
    is_sorted = boundaries.ndim == 1 and boundaries.size and all(np.diff(boundaries) >= 0)
    check(is_sorted, "bin_boundaries must be sorted", bin_boundaries=boundaries)
    x, arrays = site.cast(x, "float32"), {"boundaries": boundaries.reshape(*(1,) * x.rank, -1)}
    out = site.cast(site.constant(blocks.counted_below, x, arrays), "int64" if site.version == 2 else "int32")
    return _encoded(site, out, len(boundaries) + 1, str(site.config.get("output_mode", "int")))


@operator("one_hot", order=KERAS, types=OWN, names={"indices": "x", "depth": "num_classes"})
def _one_hot(site: Site, x: Value, num_classes: int, axis: Any = -1, dtype: Any = None) -> Value:
    """Put ones along a new last axis. MXNet takes the last 32 bits of an integer."""
    check(axis in (None, -1, x.rank), "axis must be the last", axis=axis)
    count = integer("num_classes", num_classes, 1)
    x = site.function("clip", x, a_min=-1.0, a_max=float(count)) if STORED[x.dtype] == "int64" else x
    out = site.function("one_hot", x, depth=count)
    return site.cast(out._replace(dtype="float32"), known(dtype or "float32"))


def _encoded(site: Site, x: Value, count: Any, mode: str) -> Value:
    """Returns integers below `count` as they are, or as ones, by Keras's `output_mode`: several in one vector are those
    along the first axis after the batch."""
    if mode == "int":
        return x
    modes = {"one_hot": "one_hot", "multi_hot": "max", "count": "sum"}
    fits = mode in modes and (x.rank <= 2 or site.version == 3)
    check(fits, f"output_mode must be one of int, {', '.join(modes)}", output_mode=mode)
    if mode == "one_hot" and x.shape[-1] == 1:
        x = site.function("squeeze", x, axis=-1)
    ones = site.function("one_hot", x, depth=integer("num_tokens", count, 1))
    return ones if mode == "one_hot" else site.function(modes[mode], ones, axis=1 if x.rank > 1 else 0)
