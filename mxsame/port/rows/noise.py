"""Rows of dropout, noise, and other layers that do nothing at inference."""

from __future__ import annotations

from typing import Sequence

from mxsame.port import blocks
from mxsame.port.description import snake_case
from mxsame.port.rows._shared import OF_CHANGES, random_layer, rate
from mxsame.port.table import PASSES, PASSES_IN_KERAS, Site, Value, layer
from mxsame.port.types import CAST, KEPT, KEPT_IN_FLOAT32
from mxsame.validation import check


def _dropped(site: Site, x: Value, part: float, axes: Sequence[int]) -> Value:
    if not part or site.training is False:
        return x
    out = site.function("Dropout", x, p=part, axes=x.axes(axes), mode="always" if site.training else "training")
    return out._replace(same_as=None if site.training else x.tensor)


@layer("Dropout", masks=PASSES, types=KEPT_IN_FLOAT32)
def _dropout(site: Site, x: Value) -> Value:
    noise = site.config.get("noise_shape") or ()
    return _dropped(site, x, rate(site), [axis for axis, length in enumerate(noise) if length == 1])


@layer("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", masks=PASSES, types=KEPT_IN_FLOAT32,
       unread="noise_shape")  # fmt: skip
def _spatial_dropout(site: Site, x: Value) -> Value:
    return _dropped(site, x, rate(site), site.spatial(x))


@layer("StochasticDepth", masks=PASSES)
def _stochastic_depth(site: Site, x: Value) -> Value:
    """Drop as `keras.applications.convnext` does: the whole branch of an image is dropped, or not."""
    return _dropped(site, x, rate(site, "drop_path_rate"), range(1, x.rank))


@layer("AlphaDropout", "GaussianDropout", "GaussianNoise", masks=PASSES)
def _noise(site: Site, x: Value) -> Value:
    name = snake_case(site.layer.class_name)
    amount = site.number("stddev") if name == "gaussian_noise" else rate(site)
    check(not site.training, "noise must not be called with training=True")
    if not amount or site.training is False:
        return x
    return site.function(getattr(blocks, name), x, amount=amount)._replace(same_as=x.tensor)


@layer("ActivityRegularization", masks=PASSES, unread="l1|l2")
@layer("Identity", masks=PASSES_IN_KERAS[3], types=KEPT)
def _identity(site: Site, x: Value) -> Value:
    return x


RANDOM = {"masks": PASSES_IN_KERAS[2], "unread": OF_CHANGES}  # Keras 2 gives back what it was given, with its mask
layer("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", types=CAST, **RANDOM)(random_layer)
layer("RandomContrast", "RandomBrightness", "RandomHeight", "RandomWidth", **RANDOM)(random_layer)
