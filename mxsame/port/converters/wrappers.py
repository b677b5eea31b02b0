"""Converters of layers that wrap other layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import numpy as np

from mxsame.keras_format.description import Layer, WeightSpec, class_and_config
from mxsame.keras_format.dtypes import SETS_DTYPE
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import merge_into_batch, split_from_batch, warn_about_training
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, delegate, layer
from mxsame.port.tensors import Tensor
from mxsame.validation import check


@layer("TimeDistributed", order=KERAS_ORDER, masks=HANDLES_MASK, dtypes=SETS_DTYPE, ignored="layer")
def _time_distributed(call: CallContext, x: Tensor) -> Tensor:
    """Builds the wrapped layer for steps that are merged into the batch, and their mask.

    The output has the mask of the data. In Keras 2, a mask that the wrapped layer sets replaces it; if that layer drops
    its mask, a step is masked if all of its elements are.
    """
    check(x.rank >= 3 and call.layer.model is not None, "inputs must have 3 axes or more", shape=x.shape)
    merged, mask = merge_into_batch(call, x, 1)._replace(dtype=x.dtype), x.mask
    if mask is not None:
        merged = merged._replace(mask=merge_into_batch(call, mask, 1))
    (out,) = call.build_model(call.layer.model, call.path, [merged], call.training, call.is_only_call)

    def split(output: Tensor) -> Tensor:
        return split_from_batch(call, output, x, 1)._replace(dtype=output.dtype)

    if call.version == 2 and out.mask is not None and (mask is None or out.mask.key != merged.mask.key):
        mask = split(out.mask)
    elif call.version == 2 and out.mask is None and mask is not None and mask.rank > 2:
        mask = call.apply("max", mask, axis=tuple(range(2, mask.rank)))
    return split(out)._replace(mask=mask)


def _wrapped_layer(config: Dict[str, Any]) -> Layer:
    class_name, wrapped_config = class_and_config(config["layer"])
    check(class_name in LAYERS, f"layer of {config.get('name')!r} must be supported; received a {class_name}")
    return Layer(class_name, "", wrapped_config)


def _spectral_weights(config: Dict[str, Any]) -> List[WeightSpec]:
    wrapped = _wrapped_layer(config)
    weight_specs = LAYERS[wrapped.class_name].weights_of(wrapped.config)
    return [*(spec._replace(group="layer") for spec in weight_specs), WeightSpec("vector_u", trainable=False)]


@layer("SpectralNormalization", weights=_spectral_weights, masks=HANDLES_MASK, dtypes=SETS_DTYPE,
       ignored="power_iterations")  # fmt: skip
def _spectral_norm(call: CallContext, x: Tensor) -> Any:
    """Builds the wrapped layer. Its stored kernel is already normalized, and is not normalized again in training."""
    wrapped, layer = _wrapped_layer(call.config), call.layer
    check(not call.training, "a layer with spectral normalization must not be called with training=True")
    specs = (layer.weight_specs or [])[:-1]
    weights = layer.weights[: len(specs)]  # a `.keras` file repeats the kernel after them
    config = {**wrapped.config, "trainable": layer.trainable and wrapped.trainable}
    warn_about_training(call, "does not normalize its kernel in training, unlike Keras")
    call.state.weights["vector_u"] = np.asarray(layer.weights[-1])
    return delegate(call, replace(wrapped, weight_specs=specs, weights=weights, config=config), x)
