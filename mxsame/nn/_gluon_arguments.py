"""What Gluon's layers keep in `_kwargs`, and code around Gluon reads and writes: a view of a layer's own arguments."""

from __future__ import annotations

from typing import Any, Iterator, MutableMapping

from mxsame import _gluon, validation

READ = {"kernel": ("kernel_size", "pool_size"), "stride": ("strides",), "dilate": ("dilation",), "layout": ("layout",)}
READ.update(num_filter=("channels",), num_group=("groups",))
WRITTEN = {"stride": "strides", "dilate": "dilation"}  # on these no parameter's shape depends


class GluonArguments(MutableMapping):
    """The arguments of a layer of `mxsame.nn` under the names of MXNet's operator.

    Strides and dilation can be written, as GluonCV does. `pad` is there for explicit padding with as much at both ends:
    that of "same" follows from the size of the data.

    >>> import mxsame
    >>> layer = mxsame.nn.Conv2D(8, 3, strides=2)
    >>> layer._kwargs["stride"] = (1, 1)
    >>> layer, dict(layer._kwargs)["kernel"]
    (Conv2D(None -> 8, kernel_size=(3, 3), strides=(1, 1), padding='same'), (3, 3))
    """

    def __init__(self, layer: Any):
        self._layer = layer

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, own in READ.items() if any(hasattr(self._layer, f"_{each}") for each in own))
        if self._pad() is not None:
            yield "pad"

    def __len__(self) -> int:
        return len(list(self))

    def __getitem__(self, name: str) -> Any:
        if name == "pad" and self._pad() is None:
            raise KeyError(f"pad follows from the size of the data; received padding={self._layer._padding!r}")
        if name == "pad":
            return self._pad()
        return next(getattr(self._layer, f"_{own}") for own in READ[name] if hasattr(self._layer, f"_{own}"))

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in WRITTEN or name not in self:
            raise TypeError(
                f"of a layer of mxsame.nn only stride and dilate can be written; {validation.received(**{name: value})}"
            )
        value = validation.per_axis(WRITTEN[name], value, self._layer.num_spatial_dims, 1)
        setattr(self._layer, f"_{WRITTEN[name]}", value)
        vars(self._layer).pop("_window_arguments", None)
        _gluon.changed(self._layer)

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"an argument of a layer cannot be deleted; {validation.received(name=name)}")

    def _pad(self) -> Any:
        padding = self._layer._padding
        if padding == "valid":
            return (0,) * self._layer.num_spatial_dims
        if isinstance(padding, str) or any(low != high for low, high in padding):
            return None
        return tuple(low for low, _ in padding)
