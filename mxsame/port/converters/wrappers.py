"""Converters of layers that wrap other layers."""

from __future__ import annotations

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
    """Builds the wrapped layer for data and mask whose steps are merged into the batch. The mask of the output is that
    of the data in Keras 3, in Keras 2 that of the layer's output, or that of steps with any entry that is not
    masked."""
    check(x.rank >= 3 and call.layer.model is not None, "inputs must have 3 axes or more", shape=x.shape)
    entries, mask = merge_into_batch(call, x, 1)._replace(dtype=x.dtype), x.mask
    if mask is not None:
        entries = entries._replace(mask=merge_into_batch(call, mask, 1))
    (out,) = call.build_model(call.layer.model, call.path, [entries], call.training, call.is_only_call)

    def steps(of_entries: Tensor) -> Tensor:
        return split_from_batch(call, of_entries, x, 1)._replace(dtype=of_entries.dtype)

    if call.version == 2 and out.mask is not None and (mask is None or out.mask.key != entries.mask.key):
        mask = steps(out.mask)
    elif call.version == 2 and out.mask is None and mask is not None and mask.rank > 2:
        mask = call.apply("max", mask, axis=tuple(range(2, mask.rank)))
    return steps(out)._replace(mask=mask)


def _wrapped(config: Dict[str, Any]) -> Layer:
    class_name, inner = class_and_config(config["layer"])
    check(class_name in LAYERS, f"layer of {config.get('name')!r} must be supported; received a {class_name}")
    return Layer(class_name, "", inner)


def _spectral_weights(config: Dict[str, Any]) -> List[WeightSpec]:
    inner = _wrapped(config)
    weight_specs = LAYERS[inner.class_name].weights_of(inner.config)
    return [*(spec._replace(group="layer") for spec in weight_specs), WeightSpec("vector_u", trainable=False)]


@layer("SpectralNormalization", weights=_spectral_weights, masks=HANDLES_MASK, dtypes=SETS_DTYPE,
       ignored="power_iterations")  # fmt: skip
def _spectral_norm(call: CallContext, x: Tensor) -> Any:
    """Builds the wrapped layer, whose stored kernel is already normalized. Training does not normalize it again."""
    inner, layer = _wrapped(call.config), call.layer
    check(not call.training, "a layer with spectral normalization must not be called with training=True")
    inner.weight_specs = (layer.weight_specs or [])[:-1]
    inner.weights = layer.weights[: len(inner.weight_specs)]  # a `.keras` file has the kernel again, next to the vector
    inner.config = {**inner.config, "trainable": layer.trainable and inner.trainable}
    warn_about_training(call, "does not normalize its kernel in training, unlike Keras")
    out = delegate(call, inner, x)
    layer.weights = [*inner.weights, np.asarray(layer.weights[-1])]
    return out
