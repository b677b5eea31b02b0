"""What Gluon's layers keep in `_kwargs`, and code around Gluon reads and writes: a view of a layer's own arguments."""

from __future__ import annotations

import collections
from dataclasses import replace
from typing import Any

from mxsame import _gluon, validation

WRITABLE = {"stride": "strides", "dilate": "dilation", "num_filter": "channels"}  # names of arguments
NAMES = {"kernel": "kernel_size", "layout": "layout", "num_group": "groups", **WRITABLE}


class GluonArguments(collections.UserDict):
    """The arguments of a layer of `mxsame.nn` under the names of MXNet's operator.

    Strides and dilation can be set, as GluonCV does; so can the number of channels, if the caller also sets the
    parameters' shapes. `pad` is present only for explicit symmetric padding: that of "same" depends on the
    size of the data.

    >>> import mxsame
    >>> layer = mxsame.nn.Conv2D(8, 3, strides=2)
    >>> layer._kwargs["stride"] = (1, 1)
    >>> layer, dict(layer._kwargs)["kernel"]
    (Conv2D(None -> 8, kernel_size=(3, 3), strides=(1, 1), padding='same'), (3, 3))
    """

    def __init__(self, layer: Any):
        self._layer, spec = layer, layer._spec
        own = {"kernel_size": getattr(spec, "pool_size", None), **vars(spec)}
        self.data = {name: own[argument] for name, argument in NAMES.items() if own.get(argument) is not None}
        pads = ((0, 0),) * layer.num_spatial_dims if layer._spec.padding == "valid" else layer._spec.padding
        if not isinstance(pads, str) and all(low == high for low, high in pads):
            self.data["pad"] = tuple(low for low, _ in pads)

    def __missing__(self, name: str) -> Any:
        padding = self._layer._spec.padding
        raise KeyError(
            f"{name} is not an argument of this layer, or depends on the input size; received padding={padding!r}"
        )

    def __setitem__(self, name: str, value: Any) -> None:
        rule = "only stride, dilate and num_filter of a layer of mxsame.nn can be set"
        validation.check_type(name in WRITABLE and name in self, rule, **{name: value})
        if name == "num_filter":
            value = validation.integer("channels", value, 1)
        else:
            value = validation.per_axis(WRITABLE[name], value, self._layer.num_spatial_dims, 1)
        self.data[name] = value
        self._layer._spec = replace(self._layer._spec, **{WRITABLE[name]: value})
        _gluon.drop_graph(self._layer)

    def __delitem__(self, name: str) -> None:
        raise validation.InvalidType(f"an argument of a layer cannot be deleted; {validation.received(name=name)}")
