"""Rows of layers around other layers."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from mxsame.port.description import Layer, Weight, class_and_config
from mxsame.port.rows._shared import at_inference_only, merged_axes, unmerged_axes
from mxsame.port.table import KERAS, LAYERS, TAKES, Site, Value, in_place, layer
from mxsame.port.types import OWN
from mxsame.validation import check


@layer("TimeDistributed", order=KERAS, masks=TAKES, types=OWN, unread="layer")
def _time_distributed(site: Site, x: Value) -> Value:
    """Build what is wrapped for each step. Steps in time become entries of the batch for the layer, and are steps again
    after it; so does the mask. Keras 3 passes on the mask of the data, Keras 2 that of the layer's output, or what any
    entry of a step keeps."""
    check(x.rank >= 3 and site.layer.model is not None, "inputs must have 3 axes or more", shape=x.shape)
    entries, mask = merged_axes(site, x, 1)._replace(dtype=x.dtype), x.mask
    if mask is not None:
        entries = entries._replace(mask=merged_axes(site, mask, 1))
    (out,) = site.built(site.layer.model, site.path, [entries], site.training, site.once)

    def steps(of_entries: Value) -> Value:
        return unmerged_axes(site, of_entries, x, 1)._replace(dtype=of_entries.dtype)

    if site.version == 2 and out.mask is not None and (mask is None or out.mask.key != entries.mask.key):
        mask = steps(out.mask)
    elif site.version == 2 and out.mask is None and mask is not None and mask.rank > 2:
        mask = site.function("max", mask, axis=tuple(range(2, mask.rank)))
    return steps(out)._replace(mask=mask)


def _wrapped(config: Dict[str, Any]) -> Layer:
    class_name, inner = class_and_config(config["layer"])
    check(class_name in LAYERS, f"layer of {config.get('name')!r} must be supported; received a {class_name}")
    return Layer(class_name, "", inner)


def _spectral_weights(config: Dict[str, Any]) -> List[Weight]:
    inner = _wrapped(config)
    roles = LAYERS[inner.class_name].weights_of(inner.config)
    return [*(role._replace(group="layer") for role in roles), Weight("vector_u", trained=False)]


@layer("SpectralNormalization", weights=_spectral_weights, masks=TAKES, types=OWN, unread="power_iterations")
def _spectral_norm(site: Site, x: Value) -> Any:
    """Build the layer that is wrapped: its kernel is stored as it was divided in training, which is not done here."""
    inner, layer = _wrapped(site.config), site.layer
    check(not site.training, "a layer with spectral normalization must not be called with training=True")
    inner.roles = (layer.roles or [])[:-1]
    inner.weights = layer.weights[: len(inner.roles)]  # a `.keras` file has the kernel again, next to the vector
    inner.config = {**inner.config, "trainable": layer.trainable and inner.trainable}
    at_inference_only(site, "does not divide its kernel here in training")
    out = in_place(site, inner, x)
    layer.weights = [*inner.weights, np.asarray(layer.weights[-1])]
    return out
