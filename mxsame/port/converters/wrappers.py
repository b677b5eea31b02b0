"""Converters of layers around other layers."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from mxsame.port.converters._shared import at_inference_only, merged_axes, unmerged_axes
from mxsame.port.description import Layer, WeightSpec, class_and_config
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, CallContext, Tensor, in_place, layer
from mxsame.port.types import SETS_DTYPE
from mxsame.validation import check


@layer("TimeDistributed", order=KERAS_ORDER, masks=HANDLES_MASK, types=SETS_DTYPE, ignored="layer")
def _time_distributed(call: CallContext, x: Tensor) -> Tensor:
    """Build what is wrapped for each step. Steps in time become entries of the batch for the layer, and are steps again
    after it; so does the mask. Keras 3 passes on the mask of the data, Keras 2 that of the layer's output, or what any
    entry of a step keeps."""
    check(x.rank >= 3 and call.layer.model is not None, "inputs must have 3 axes or more", shape=x.shape)
    entries, mask = merged_axes(call, x, 1)._replace(dtype=x.dtype), x.mask
    if mask is not None:
        entries = entries._replace(mask=merged_axes(call, mask, 1))
    (out,) = call.built(call.layer.model, call.path, [entries], call.training, call.once)

    def steps(of_entries: Tensor) -> Tensor:
        return unmerged_axes(call, of_entries, x, 1)._replace(dtype=of_entries.dtype)

    if call.version == 2 and out.mask is not None and (mask is None or out.mask.key != entries.mask.key):
        mask = steps(out.mask)
    elif call.version == 2 and out.mask is None and mask is not None and mask.rank > 2:
        mask = call.function("max", mask, axis=tuple(range(2, mask.rank)))
    return steps(out)._replace(mask=mask)


def _wrapped(config: Dict[str, Any]) -> Layer:
    class_name, inner = class_and_config(config["layer"])
    check(class_name in LAYERS, f"layer of {config.get('name')!r} must be supported; received a {class_name}")
    return Layer(class_name, "", inner)


def _spectral_weights(config: Dict[str, Any]) -> List[WeightSpec]:
    inner = _wrapped(config)
    weight_specs = LAYERS[inner.class_name].weights_of(inner.config)
    return [*(spec._replace(group="layer") for spec in weight_specs), WeightSpec("vector_u", trained=False)]


@layer(
    "SpectralNormalization", weights=_spectral_weights, masks=HANDLES_MASK, types=SETS_DTYPE, ignored="power_iterations"
)
def _spectral_norm(call: CallContext, x: Tensor) -> Any:
    """Build the layer that is wrapped: its kernel is stored as it was divided in training, which is not done here."""
    inner, layer = _wrapped(call.config), call.layer
    check(not call.training, "a layer with spectral normalization must not be called with training=True")
    inner.weight_specs = (layer.weight_specs or [])[:-1]
    inner.weights = layer.weights[: len(inner.weight_specs)]  # a `.keras` file has the kernel again, next to the vector
    inner.config = {**inner.config, "trainable": layer.trainable and inner.trainable}
    at_inference_only(call, "does not divide its kernel here in training")
    out = in_place(call, inner, x)
    layer.weights = [*inner.weights, np.asarray(layer.weights[-1])]
    return out
