"""Converters of dropout, noise, and other layers that are the identity at inference."""

from __future__ import annotations

from typing import Sequence

from mxsame.keras_format.description import snake_case
from mxsame.keras_format.dtypes import ANY_DTYPE, CAST, STORED_AS_FLOAT32
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import RANDOM_OPTIONS, dropout_rate, random_layer
from mxsame.port.table import PASSES_MASK, PASSES_MASK_IN_KERAS, layer
from mxsame.port.tensors import Tensor
from mxsame.validation import check


def _dropped(call: CallContext, x: Tensor, rate: float, axes: Sequence[int]) -> Tensor:
    if not rate or call.training is False:
        return x
    out = call.apply("Dropout", x, p=rate, axes=x.axes(axes), mode="always" if call.training else "training")
    return out._replace(same_as=None if call.training else x.keras_key)


@layer("Dropout", masks=PASSES_MASK, dtypes=STORED_AS_FLOAT32)
def _dropout(call: CallContext, x: Tensor) -> Tensor:
    shape = call.config.get("noise_shape") or ()
    return _dropped(call, x, dropout_rate(call), [axis for axis, length in enumerate(shape) if length == 1])


@layer("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", masks=PASSES_MASK, dtypes=STORED_AS_FLOAT32,
       ignored="noise_shape")  # fmt: skip
def _spatial_dropout(call: CallContext, x: Tensor) -> Tensor:
    return _dropped(call, x, dropout_rate(call), call.spatial_axes(x))


@layer("StochasticDepth", masks=PASSES_MASK)
def _stochastic_depth(call: CallContext, x: Tensor) -> Tensor:
    """Drops all elements of an entry of the batch, or none, like the layer in `keras.applications.convnext`."""
    return _dropped(call, x, dropout_rate(call, "drop_path_rate"), range(1, x.rank))


@layer("AlphaDropout", "GaussianDropout", "GaussianNoise", masks=PASSES_MASK)
def _noise(call: CallContext, x: Tensor) -> Tensor:
    name = snake_case(call.layer.class_name)
    amount = call.number("stddev") if name == "gaussian_noise" else dropout_rate(call)
    check(not call.training, "layers of noise must not be called with training=True")
    if not amount or call.training is False:
        return x
    return call.apply(getattr(blocks, name), x, amount=amount)._replace(same_as=x.keras_key)


@layer("ActivityRegularization", masks=PASSES_MASK, ignored="l1|l2")
@layer("Identity", masks=PASSES_MASK_IN_KERAS[3], dtypes=ANY_DTYPE)
def _identity(call: CallContext, x: Tensor) -> Tensor:
    return x


RANDOM = {"masks": PASSES_MASK_IN_KERAS[2], "ignored": RANDOM_OPTIONS}  # Keras 2 returns its input, with the mask
layer("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", dtypes=CAST, **RANDOM)(random_layer)
layer("RandomContrast", "RandomBrightness", "RandomHeight", "RandomWidth", **RANDOM)(random_layer)
