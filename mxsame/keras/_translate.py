"""From Keras's functions to those of `mxsame.ops`, for any rank.

Everything is checked here under Keras's names, in Keras's orders of axes, and handed on under those of `mxsame.ops`.
`arrays` maps Keras's names of the data and of the kernels, in their order, to the arrays; `rank` is the number of
spatial axes where the function has it in its name, None where the arrays tell.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Iterator, Mapping, NamedTuple, NoReturn, Optional, Sequence

from mxsame import ops, validation
from mxsame import padding as arithmetic
from mxsame._mxnet import mx
from mxsame.keras import layouts
from mxsame.ops import _arguments, _arrays

DATA_FORMATS = ("channels_first", "channels_last")
SAME_OR_VALID = ("same", "valid")

_image_data_format = "channels_last"


def image_data_format() -> str:
    """The data format of a function that is told none: "channels_last" until it is set, as in Keras.

    Examples
    --------
    >>> import mxsame.keras
    >>> mxsame.keras.backend.image_data_format()
    'channels_last'
    """
    return _image_data_format


def set_image_data_format(data_format: str) -> None:
    """Sets what :func:`image_data_format` returns, for all of `mxsame.keras`.

    Parameters
    ----------
    data_format : "channels_first" or "channels_last"

    Raises
    ------
    TypeError, ValueError
        For anything else.

    Examples
    --------
    >>> import mxsame.keras
    >>> mxsame.keras.backend.set_image_data_format("channels_first")
    >>> mxsame.keras.backend.image_data_format()
    'channels_first'
    >>> mxsame.keras.backend.set_image_data_format("channels_last")
    """
    global _image_data_format
    _image_data_format = word("data_format", data_format, DATA_FORMATS)


# ---- operators -------------------------------------------------------------------------------------------------------


def conv(
    arrays: Mapping[str, Any],
    strides: Any,
    padding: Any,
    data_format: Any,
    dilation_rate: Any,
    *,
    rank: Optional[int] = None,
    paddings: Sequence[str] = SAME_OR_VALID,
) -> Any:
    """Convolution, in as many groups as the kernel's input channels fit into the data's."""
    call = _call(arrays, data_format, rank)
    kernel = _kernel(call, 1, "(*kernel size, input channels / groups, output channels)", may_be_unknown=-2)
    *size, share, channels = kernel
    groups = 1
    if share is not None:
        in_channels = _channels(call, probe=True)
        if in_channels is not None:
            validation.divisible(f"{call.names[0]} channels", in_channels, "kernel input channels", share)
            groups = in_channels // share
            validation.divisible("kernel output channels", channels, "groups", groups)
    arguments = _window(call, strides, padding, dilation_rate, paddings)
    with _keras_words(call):
        weight = layouts.to_mxnet(call.args.arrays[1], "conv", call.layout)
        shape = {"channels": channels, "kernel_size": size, "groups": groups, "layout": call.layout}
        return call.args.restore(ops.conv(call.args.arrays[0], weight, **shape, **arguments))


def depthwise_conv(
    arrays: Mapping[str, Any],
    strides: Any,
    padding: Any,
    data_format: Any,
    dilation_rate: Any,
    *,
    rank: Optional[int] = None,
) -> Any:
    """Depthwise convolution; with a third array, the pointwise kernel, a separable one."""
    call = _call(arrays, data_format, rank)
    *size, channels, depth_multiplier = _kernel(
        call, 1, "(*kernel size, input channels, depth multiplier)", channels=_channels(call)
    )
    shape = {
        "kernel_size": size,
        "in_channels": channels,
        "depth_multiplier": depth_multiplier,
        "layout": call.layout,
    }
    arguments = _window(call, strides, padding, dilation_rate)
    data, depthwise_kernel, *rest = call.args.arrays
    if rest:
        inner = channels * depth_multiplier
        meaning = "(1, .., input channels * depth multiplier, output channels)"
        shape["channels"] = _kernel(call, 2, meaning, size=1, channels=inner, may_be_unknown=-2)[-1]
    with _keras_words(call):
        depthwise_weight = layouts.to_mxnet(depthwise_kernel, "depthwise", call.layout)
        if not rest:
            return call.args.restore(ops.depthwise_conv(data, depthwise_weight, **shape, **arguments))
        pointwise_weight = layouts.to_mxnet(rest[0], "pointwise", call.layout)
        return call.args.restore(ops.separable_conv(data, depthwise_weight, pointwise_weight, **shape, **arguments))


def conv_transpose(
    arrays: Mapping[str, Any],
    strides: Any,
    padding: Any,
    data_format: Any,
    dilation_rate: Any,
    *,
    output_padding: Any,
) -> Any:
    """Transposed convolution as Keras 3 describes it: by its output padding."""
    call = _call(arrays, data_format, None)
    size, channels = _transposed_kernel(call)
    arguments = _window(call, strides, padding, dilation_rate)
    if output_padding is not None:
        output_padding = validation.per_axis("output_padding", output_padding, call.rank, 0)
    return _transposed(call, size, channels, {**arguments, "output_padding": output_padding})


def conv_transpose_to(
    arrays: Mapping[str, Any],
    output_shape: Any,
    strides: Any,
    padding: Any,
    data_format: Any,
    dilation_rate: Any,
    *,
    rank: int,
) -> Any:
    """Transposed convolution as Keras 2 describes it: by the shape of its output.

    It is the gradient of the convolution that makes the data's shape of the output's, so the pads of that convolution
    are what is cut, and what is missing is added at the end.
    """
    call = _call(arrays, data_format, rank)
    size, channels = _transposed_kernel(call)
    arguments = _window(call, strides, padding, dilation_rate)
    batch, lengths = _output_shape(call, output_shape, channels)
    found: list = [None] * rank  # the input's lengths that follow from the output's
    cuts = []
    for axis, length in enumerate(lengths):
        k, s, d = size[axis], arguments["strides"][axis], arguments["dilation"][axis]
        with _keras_words(call):
            arithmetic.effective_kernel_size(k, d)
        if length is None:
            cuts.append(arithmetic.transposed_cuts(k, s, d, arguments["padding"]))
            continue
        cut = None
        with contextlib.suppress(ValueError):  # shorter than the kernel
            found[axis], cut = arithmetic.transposed_cuts_to(length, k, s, d, arguments["padding"])
        if cut is None or call.shape[axis + 2] not in (None, found[axis]):
            _refuse_output_length(call, output_shape, axis, (k, s, d, arguments["padding"]))
        cuts.append(cut)
    arguments["padding"], arguments["output_padding"] = arithmetic.split_cuts(cuts)
    return _transposed(_told(call, batch, found), size, channels, arguments)


def pool(
    mode: Any,
    arrays: Mapping[str, Any],
    pool_size: Any,
    strides: Any,
    padding: Any,
    data_format: Any,
    *,
    rank: Optional[int] = None,
) -> Any:
    """Pooling; `mode` is "max" or "avg"."""
    mode = word("pool_mode", mode, ("max", "avg"))
    call = _call(arrays, data_format, rank, pool_size)
    pool_size = validation.per_axis("pool_size", pool_size, call.rank, 1)
    arguments = _window(call, strides, padding)
    function = ops.max_pool if mode == "max" else ops.avg_pool
    with _keras_words(call, kernel_size="pool_size"):
        return call.args.restore(function(call.args.arrays[0], pool_size, layout=call.layout, **arguments))


# ---- what they have in common ----------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """The arrays of one call, and what is known of the data."""

    names: tuple  # Keras's, of the arrays
    args: _arrays.Arguments
    rank: int
    layout: str  # MXNet's
    shape: tuple  # of the data: (batch, channels, *size), None for what is unknown


def _call(arrays: Mapping[str, Any], data_format: Any, rank: Optional[int], pool_size: Any = None) -> _Call:
    data_format = image_data_format() if data_format is None else word("data_format", data_format, DATA_FORMATS)
    names, args = tuple(arrays), _arrays.classic(**arrays)
    shape = args.shapes[0]
    if rank is None:
        rank = _rank(names, args, pool_size)
    elif shape is not None:
        meaning = "(batch, channels, *size)" if data_format == "channels_first" else "(batch, *size, channels)"
        validation.shape(names[0], shape, (None,) * (rank + 2), meaning)
    layout = validation.LAYOUTS[rank][DATA_FORMATS.index(data_format)]
    if shape is None:
        shape = (None,) * (rank + 2)
    elif data_format == "channels_last":
        shape = _arrays.shape_channels_first(shape)
    return _Call(names, args, rank, layout, tuple(shape))


def _rank(names: Sequence[str], args: _arrays.Arguments, pool_size: Any) -> int:
    """The number of spatial axes on which all arrays agree."""
    axes = {f"{name}.ndim - 2": None if shape is None else len(shape) - 2 for name, shape in zip(names, args.shapes)}
    if len(names) == 1:
        axes["len(pool_size)"] = len(pool_size) if validation.is_sequence(pool_size) else None
    if all(count is None for count in axes.values()):
        if len(names) > 1:
            _refuse_unknown(names[1], None)
        raise ValueError(
            f"the number of spatial axes must be known: give {names[0]} a shape, or pool_size one entry per axis; "
            f"{validation.received(pool_size=pool_size)}, and {names[0]} of unknown shape"
        )
    return validation.rank(axes)


def _kernel(
    call: _Call,
    place: int,
    meaning: str,
    *,
    size: Optional[int] = None,
    channels: Optional[int] = None,
    may_be_unknown: Optional[int] = None,
) -> tuple:
    """The shape of a kernel in Keras's order, checked; only the axis `may_be_unknown` may be."""
    name, shape = call.names[place], call.args.shapes[place]
    if shape is None:
        _refuse_unknown(name, shape)
    validation.shape(name, shape, (size,) * call.rank + (channels, None), meaning)
    if any(length is None and axis != may_be_unknown for axis, length in enumerate(shape, -len(shape))):
        _refuse_unknown(name, shape)
    return tuple(shape)


def _refuse_unknown(name: str, shape: Optional[tuple]) -> NoReturn:
    raise ValueError(
        f"{name} must have a known shape, given to the variable as mx.sym.var(..., shape=...); received {name} of the "
        f"shape {'unknown' if shape is None else shape}"
    )


def _channels(call: _Call, probe: bool = False) -> Optional[int]:
    """The data's channels; `probe` looks for them in the graph where the shape does not tell."""
    if call.shape[1] is not None or not probe:
        return call.shape[1]
    data = call.args._replace(arrays=call.args.arrays[:1], shapes=call.args.shapes[:1])
    return _arguments.graph_channels(_arguments.geometry(data, call.layout, "kernel_size", None))


def _window(
    call: _Call, strides: Any, padding: Any, dilation_rate: Any = None, paddings: Sequence[str] = SAME_OR_VALID
) -> dict:
    """How the kernel moves, in the words of `mxsame.ops`."""
    arguments = {"strides": validation.per_axis("strides", strides, call.rank, 1)}
    arguments["padding"] = word("padding", padding, paddings)
    if len(call.names) > 1:
        arguments["dilation"] = validation.per_axis("dilation_rate", dilation_rate, call.rank, 1)
    return arguments


def word(name: str, value: Any, allowed: Sequence[str]) -> str:
    """One of the `allowed` words; in any case, and nothing but a word."""
    if not isinstance(value, str):
        words = ", ".join(f'"{entry}"' for entry in allowed)
        raise TypeError(f"{name} must be one of {words}; {validation.received(**{name: value})}")
    return validation.mode(name, value, allowed)


@contextlib.contextmanager
def _keras_words(call: _Call, **words: str) -> Iterator[None]:
    """What `mxsame.ops` refuses is refused in Keras's words."""
    data = call.names[0]
    words = {"dilation": "dilation_rate", "layout": "data_format", "give input_size": f"give {data} a shape", **words}
    words = {rf"\b{word}\b": to for word, to in words.items()}
    words[r"\bdata(?= must|\.)"] = data
    try:
        yield
    except (TypeError, ValueError) as error:
        message = str(error)
        for pattern, to in words.items():
            message = re.sub(pattern, to, message)
        raise type(error)(message) from None


# ---- transposed convolutions -----------------------------------------------------------------------------------------


def _transposed_kernel(call: _Call) -> tuple[tuple, int]:
    """(kernel size, output channels); the data's channels are the kernel's last length."""
    meaning = "(*kernel size, output channels, input channels)"
    shape = _kernel(call, 1, meaning, may_be_unknown=-1)
    validation.shape("kernel", shape, (None,) * (call.rank + 1) + (_channels(call),), meaning)
    return shape[:-2], shape[-2]


def _output_shape(call: _Call, output_shape: Any, channels: int) -> tuple[Optional[int], Sequence[Optional[int]]]:
    """(batch, lengths) of an output shape in the order of the data format; None for what it leaves open."""
    if output_shape is None:
        return None, (None,) * call.rank
    given = output_shape.asnumpy() if isinstance(output_shape, mx.nd.NDArray) else output_shape
    if not validation.is_sequence(given) or isinstance(output_shape, mx.sym.Symbol):
        raise TypeError(
            f"output_shape must be a sequence of integers or None; {validation.received(output_shape=given)}"
        )
    if len(given) != call.rank + 2:
        order = "(batch, channels, *size)" if call.layout.startswith("NC") else "(batch, *size, channels)"
        raise ValueError(
            f"output_shape must have {call.rank + 2} entries, {order}; {validation.received(output_shape=given)}"
        )
    entries = [
        None if entry is None else validation.integer(f"output_shape[{place}]", entry, 1)
        for place, entry in enumerate(given)
    ]
    places = range(call.rank + 2)
    if not call.layout.startswith("NC"):
        entries, places = _arrays.shape_channels_first(entries), _arrays.shape_channels_first(places)
    validation.agree(f"output_shape[{places[0]}]", entries[0], f"the batch of {call.names[0]}", call.shape[0])
    validation.agree(f"output_shape[{places[1]}]", entries[1], "the output channels of kernel", channels)
    return entries[0], entries[2:]


def _refuse_output_length(call: _Call, output_shape: Any, axis: int, rule: tuple) -> NoReturn:
    """Says that no convolution makes the data's length of the output's."""
    place, n = axis + (2 if call.layout.startswith("NC") else 1), call.shape[axis + 2]
    found = "" if n is None else f", {n}, such as {arithmetic.transposed_output_size(n, *rule)}"
    raise ValueError(
        f"output_shape[{place}] must be a length of which the convolution with this kernel, strides and padding makes "
        f"the length of {call.names[0]}{found}; {validation.received(output_shape=output_shape)}"
    )


def _told(call: _Call, batch: Optional[int], lengths: Sequence[Optional[int]]) -> _Call:
    """The call with a graph that refuses data of another shape than the output's asks for, where it is unknown."""
    found = (batch, None, *lengths)
    missing = [None if known is not None else length for known, length in zip(call.shape, found)]
    if all(length is None for length in missing):
        return call
    if not call.layout.startswith("NC"):
        missing = [missing[0], *missing[2:], missing[1]]
    data, *rest = call.args.arrays
    return call._replace(args=call.args._replace(arrays=(_arrays.fixed(data, missing), *rest)))


def _transposed(call: _Call, size: tuple, channels: int, arguments: dict) -> Any:
    data, kernel = call.args.arrays
    with _keras_words(call):
        weight = layouts.to_mxnet(kernel, "transposed", call.layout)
        shape = {"channels": channels, "kernel_size": size, "layout": call.layout}
        return call.args.restore(ops.conv_transpose(data, weight, **shape, **arguments))
