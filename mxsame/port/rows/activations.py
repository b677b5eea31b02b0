"""Rows of activations: layers, and functions between layers."""

from __future__ import annotations

from typing import Any

from mxsame import validation
from mxsame.port import blocks
from mxsame.port.activations import ACTIVATIONS, arguments_of
from mxsame.port.rows._shared import activated, applied
from mxsame.port.site import Site
from mxsame.port.table import PASSES, TAKES, layer, name_of, operator
from mxsame.port.types import CAST, CAST_IN_KERAS
from mxsame.port.values import Value


@layer("Activation", masks=PASSES)
def _activation(site: Site, x: Value) -> Value:
    return activated(site, x)


@layer("ReLU", masks=PASSES)
def _relu(site: Site, x: Value) -> Value:
    largest = None if site.config.get("max_value") is None else site.number("max_value")
    slope, threshold = site.number("negative_slope", 0.0), site.number("threshold", 0.0)
    return applied(site, "relu", x, max_value=largest, negative_slope=slope, threshold=threshold)


@layer("LeakyReLU", masks=PASSES, types=CAST)
def _leaky_relu(site: Site, x: Value) -> Value:
    """`negative_slope` is `alpha` in Keras 2."""
    return applied(site, "leaky_relu", x, negative_slope=site.number("negative_slope", site.number("alpha", 0.3)))


@layer("ELU", masks=PASSES)
def _elu(site: Site, x: Value) -> Value:
    return applied(site, "elu", x, alpha=site.number("alpha", 1.0))


@layer("ThresholdedReLU", masks=PASSES)
def _thresholded(site: Site, x: Value) -> Value:
    return applied(site, "threshold", x, threshold=site.number("theta", 1.0))


@layer("Softmax", masks=TAKES)
def _softmax(site: Site, x: Value) -> Value:
    mask = x.mask
    if mask is not None:
        validation.must(mask.shape == x.shape, f"mask must have the shape of the data, {x.shape}", shape=mask.shape)
        x = site.function(blocks.masked_scores, site.keras(x), mask)
    axis = site.config.get("axis", -1)
    (axis,) = axis if isinstance(axis, (list, tuple)) and len(axis) == 1 else (axis,)
    out = applied(site, "softmax", x, axis=axis)
    if mask is not None and site.version == 3:  # zeros even if all is masked
        out = site.function(blocks.ELEMENTWISE["multiply"], out, mask)
    return out._replace(mask=mask)


@operator(*(name for name in ACTIVATIONS if name != "tanh"))
@operator("tanh", types=CAST_IN_KERAS[3])
def _operator(site: Site, x: Value, **given: Any) -> Value:
    name = name_of(site.layer.operator)
    names = arguments_of(ACTIVATIONS[name])
    if given.get("axis", 0) is None and site.version == 2:  # TensorFlow's default, which is the last
        del given["axis"]
    if "alpha" in given and "negative_slope" in names:  # TensorFlow's name
        given["negative_slope"] = given.pop("alpha")
    unknown = [key for key in given if key not in names]
    if unknown:
        raise ValueError(f"argument {unknown[0]} must not be given; received {unknown[0]}={given[unknown[0]]!r:.100}")
    if name == "gelu" and site.version == 3:  # keras.ops.gelu's default; TensorFlow's is False
        given.setdefault("approximate", True)
    return applied(site, name, x, **given)
