"""Rows of functions along axes."""

from __future__ import annotations

from typing import Any

from mxsame.port import blocks, types
from mxsame.port.rows._shared import axes_after_batch
from mxsame.port.site import Site
from mxsame.port.table import name_of, operator
from mxsame.port.values import Value


@operator("mean", names={"keep_dims": "keepdims"}, types=types.CAST_IN_KERAS[3])
@operator("sum", names={"keep_dims": "keepdims"}, types=types.ARITHMETIC)
@operator("max", "min", names={"keep_dims": "keepdims"}, types=types.KEPT)
@operator("any", names={"keep_dims": "keepdims"}, types=types.OWN)
@operator("prod", names={"keep_dims": "keepdims"})
def _reduction(site: Site, x: Value, axis: Any = None, keepdims: bool = False) -> Value:
    axes = axes_after_batch(list(range(x.rank)) if axis is None else axis, x.rank)
    if x.turned and not keepdims and axes != list(range(1, x.rank - 1)):
        x = site.keras(x)
    function = name_of(site.layer.operator)
    if function == "any":
        function, x = "max", site.cast(x, "bool")
    out = site.function(function, x, turned=x.turned and keepdims, axis=x.axes(axes), keepdims=bool(keepdims))
    return out._replace(dtype=x.dtype)


@operator("argmax", "argmin", types=types.OWN)
def _position(site: Site, x: Value, axis: Any = None, keepdims: bool = False, output_type: Any = None) -> Value:
    (axis,) = axes_after_batch(axis, x.rank)
    x = x if keepdims else site.keras(x)
    out = site.function(name_of(site.layer.operator), x, turned=x.turned, axis=x.axis(axis), keepdims=bool(keepdims))
    out = out._replace(dtype=types.STORED[x.dtype])  # MXNet's positions have the type of the data
    return site.cast(out, types.known(output_type or ("int64" if site.version == 2 else "int32")))


@operator("cumsum")
def _cumsum(site: Site, x: Value, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    (axis,) = axes_after_batch(axis, x.rank)
    return site.function(blocks.cumulated, x, axis=x.axis(axis), exclusive=bool(exclusive), backwards=bool(reverse))
