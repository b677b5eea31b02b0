"""mxsame inside keras-mxnet 2.2.4.3: its convolutions and poolings replaced by exact ones, and put back.

What Keras's layers call are functions of `keras.backend`, the same objects in `keras.backend.mxnet_backend`, where
four more, private, do the work; names that somebody imported from there before still lead to those four. All are
replaced. A layer of a transposed convolution tells them the size of its output and nothing of its output padding, so
its `call` is wrapped as well.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import functools
import importlib
import os
import sys
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

from mxsame import _mxnet, ops, validation
from mxsame import padding as arithmetic
from mxsame._mxnet import mx
from mxsame.keras import layouts
from mxsame.keras._translate import DATA_FORMATS, SAME_OR_VALID, word
from mxsame.ops import _arrays

KERAS_MXNET_VERSION = "2.2.4.3"
KERAS_MXNET = f"keras-mxnet=={KERAS_MXNET_VERSION}"
COMPANIONS = ("numpy==1.19.5", "h5py==2.10.0", "scipy==1.5.4")  # what it is known to run with
NEWEST_PYTHON = (3, 9)  # it takes from `collections` what Python 3.10 has no more

PUBLIC = (
    "conv1d",
    "conv2d",
    "conv3d",
    "conv2d_transpose",
    "conv3d_transpose",
    "depthwise_conv2d",
    "separable_conv1d",
    "separable_conv2d",
    "pool2d",
    "pool3d",
)
PRIVATE = ("_convnd", "_convnd_transpose", "_dw_conv", "_poolnd")
PROBES = (251, 383)  # lengths that networks do not reduce to nothing; no memory is allocated
KERNEL_AXES = {  # with channels_first, before the kernel size; with channels_last behind it, all but depthwise reversed
    "conv": ("output channels", "input channels"),
    "depthwise": ("input channels", "depth multiplier"),
    "pointwise": ("output channels", "input channels"),
    "transposed": ("input channels", "output channels"),
}
TRANSPOSED_LAYERS = ("Conv2DTranspose", "Conv3DTranspose")

_replaced: list[tuple[Any, str, Any]] = []  # (owner, name, what was there before), in the order of replacement


def install() -> None:
    """Let keras-mxnet compute its convolutions and poolings as TensorFlow does, from now on and until `uninstall`.

    Every layer built afterwards is exact: Conv1D, Conv2D, Conv3D, SeparableConv1D, SeparableConv2D, DepthwiseConv2D,
    Conv2DTranspose, Conv3DTranspose, max and average poolings in 1-D, 2-D and 3-D, for both data formats, any
    depth_multiplier and dilation, and spatial sizes that are None. Kernels keep the shapes that keras-mxnet gives
    them, so weight files load as before. Models built before keep the graphs they have. Installing twice is
    installing once.

    Raises
    ------
    ImportError
        Where keras-mxnet 2.2.4.3 is not installed, or another Keras is imported.
    RuntimeError
        Where Keras runs on another backend than MXNet.

    Examples
    --------
    >>> import mxsame.keras
    >>> mxsame.keras.install()  # doctest: +SKIP
    >>> from keras.layers import Conv2D  # doctest: +SKIP
    >>> Conv2D(64, 7, strides=2, padding="same")  # doctest: +SKIP
    """
    if _replaced:
        return
    backend = _backend()
    try:
        _replace_all(backend, importlib.import_module("keras.backend"), importlib.import_module("keras.layers"))
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Give keras-mxnet its own functions back, the identical objects; does nothing where nothing is installed.

    Models built in between keep their graphs, which are exact. A name that was imported from `keras.backend` in
    between keeps mxsame's function.

    Examples
    --------
    >>> import mxsame.keras
    >>> mxsame.keras.uninstall()
    """
    while _replaced:
        owner, name, original = _replaced.pop()
        setattr(owner, name, original)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """`install` for the length of a `with` block; afterwards everything is as it was before, after an error too.

    Examples
    --------
    >>> import mxsame.keras
    >>> with mxsame.keras.installed():  # doctest: +SKIP
    ...     model = keras.models.load_model("model.h5")
    """
    already = bool(_replaced)
    install()
    try:
        yield
    finally:
        if not already:
            uninstall()


def _replace_all(backend: Any, keras_backend: Any, layers: Any) -> None:
    functions = _Functions(backend)
    for name in PUBLIC + PRIVATE:
        replacement = _as_backend_function(backend, getattr(functions, name))
        for namespace in (backend, keras_backend) if name in PUBLIC else (backend,):
            _replace(namespace, name, replacement)
    for name in TRANSPOSED_LAYERS:
        layer = getattr(layers, name)
        _replace(layer, "call", _telling_output_padding(layer.call))
    _replace(backend.KerasSymbol, "_get_shape", _probing(backend.KerasSymbol._get_shape))


def _replace(owner: Any, name: str, replacement: Any) -> None:
    _replaced.append((owner, name, vars(owner)[name]))
    setattr(owner, name, replacement)


# Find keras-mxnet, or say what is missing.


def _backend() -> Any:
    """The module `keras.backend.mxnet_backend` of the right Keras, in use."""
    keras = sys.modules.get("keras") or _import_keras()
    version, backend_name = getattr(keras, "__version__", None), _active_backend()
    if version != KERAS_MXNET_VERSION:
        raise ImportError(
            _mxnet.message(
                f"mxsame.keras.install needs keras-mxnet {KERAS_MXNET_VERSION}, and another Keras is imported; "
                f"{validation.received(version=version, path=getattr(keras, '__file__', None))}.",
                _installation(),
                "keras-mxnet is a folder keras of its own, so no other Keras can be installed beside it.",
            )
        )
    if backend_name != "mxnet":
        raise RuntimeError(
            _mxnet.message(
                f"mxsame.keras.install needs Keras on MXNet; {validation.received(backend=backend_name)}.",
                "export KERAS_BACKEND=mxnet",
                "It has to be set before Keras is imported.",
            )
        )
    return importlib.import_module("keras.backend.mxnet_backend")


def _active_backend() -> Optional[str]:
    module = sys.modules.get("keras.backend")
    return module.backend() if hasattr(module, "backend") else None


def _import_keras() -> Any:
    """Keras, where it is keras-mxnet that would be imported; anything else is left alone."""
    if _distribution_version("keras-mxnet") is None:
        raise ImportError(
            _mxnet.message(
                f"mxsame.keras.install needs keras-mxnet {KERAS_MXNET_VERSION}, which is not installed.",
                _installation(),
                "It runs on Python 3.8 with NumPy 1.19.5, h5py 2.10.0 and scipy 1.5.4.",
            )
        )
    try:
        return importlib.import_module("keras")
    except Exception as error:
        is_set = os.environ.get("KERAS_BACKEND") == "mxnet"
        raise ImportError(
            _mxnet.message(
                f"Keras cannot be imported: {type(error).__name__}: {error}.",
                _installation(*COMPANIONS) if is_set else "export KERAS_BACKEND=mxnet",
                "keras-mxnet runs on Python 3.8 with NumPy 1.19.5, h5py 2.10.0 and scipy 1.5.4.",
            )
        ) from error


def _installation(*companions: str) -> str:
    """The command that brings keras-mxnet; a new environment where this Python is too new for it."""
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return _mxnet.pip(" ".join(["install", KERAS_MXNET, *companions]))
    packages = " ".join(["'.[cpu]'", KERAS_MXNET, *COMPANIONS])
    return f"python3.8 -m venv .venv && .venv/bin/python -m pip install {packages}"


def _distribution_version(name: str) -> Optional[str]:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# What the functions have in common: two learning phases, an output padding that nobody passes on.


def _as_backend_function(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as keras-mxnet has its own: run for the training graph and again for the one of prediction.

    Its decorator leaves the learning phase changed after an error; here it is what it was.
    """
    for_both_phases = backend.keras_mxnet_symbol(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        phase = backend.learning_phase()
        try:
            return for_both_phases(*args, **kwargs)
        finally:
            backend.set_learning_phase(phase)

    return run


_NOT_IN_A_LAYER = object()
_OUTPUT_PADDING: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "mxsame_keras_output_padding", default=_NOT_IN_A_LAYER
)


def _telling_output_padding(call: Callable[..., Any]) -> Callable[..., Any]:
    """A transposed layer's `call`, within which `_OUTPUT_PADDING` is the layer's."""

    @functools.wraps(call)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _OUTPUT_PADDING.set(self.output_padding)
        try:
            return call(self, *args, **kwargs)
        finally:
            _OUTPUT_PADDING.reset(token)

    return wrapped


def _probing(get_shape: Callable[..., Any]) -> Callable[..., Any]:
    """KerasSymbol's way to its shape, which does not fail where MXNet infers none because sizes are unknown."""

    @functools.wraps(get_shape)
    def wrapped(self: Any) -> Any:
        try:
            shape = get_shape(self)
        except mx.base.MXNetError:
            shape = None
        return shape or _probed_shape(self.symbol) or get_shape(self)

    return wrapped


def _probed_shape(symbol: Any) -> Optional[tuple]:
    """The shape of a Symbol, 0 for lengths that depend on what its inputs leave open; None where that fails.

    What is open is taken for one length and then for another; what stays the same is known. Arrays of which nothing is
    known, as Keras's targets, stay open.
    """
    declared = {
        name: ast.literal_eval(text["__shape__"]) for name, text in symbol.attr_dict().items() if "__shape__" in text
    }
    inputs = {name for name in symbol.list_arguments() if 0 in declared.get(name, ()) and any(declared[name])}
    found = []
    for length in PROBES:
        shapes = {name: tuple(entry or length for entry in declared[name]) for name in inputs}
        try:
            found.append(symbol.infer_shape_partial(**shapes)[1][0])
        except mx.base.MXNetError:
            return None
    return tuple(one if one == other else 0 for one, other in zip(*found))


# The functions themselves, in the order of keras-mxnet's own arguments.


class _Functions:
    """keras-mxnet's functions by their names; arrays are its KerasSymbols, arguments those of its own functions.

    Inside, channels come first. Kernels of channels_last are Keras's; those of channels_first MXNet's own, but that a
    depthwise one is (C, m, \\*k).
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def conv1d(
        self,
        x: Any,
        kernel: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = 1,
    ) -> Any:
        """1-D convolution; `padding` is "same", "valid" or "causal"."""
        return self._conv(1, x, kernel, strides, padding, data_format, dilation_rate)

    def conv2d(
        self,
        x: Any,
        kernel: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = (1, 1),
    ) -> Any:
        """2-D convolution."""
        return self._conv(2, x, kernel, strides, padding, data_format, dilation_rate)

    def conv3d(
        self,
        x: Any,
        kernel: Any,
        strides: Any = (1, 1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = (1, 1, 1),
    ) -> Any:
        """3-D convolution."""
        return self._conv(3, x, kernel, strides, padding, data_format, dilation_rate)

    def conv2d_transpose(
        self,
        x: Any,
        kernel: Any,
        output_shape: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = (1, 1),
    ) -> Any:
        """2-D transposed convolution."""
        cut = _Cut(output_shape, padding, _OUTPUT_PADDING.get())
        return self._conv_transpose(2, x, kernel, strides, data_format, dilation_rate, cut)

    def conv3d_transpose(
        self,
        x: Any,
        kernel: Any,
        output_shape: Any,
        strides: Any = (1, 1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
    ) -> Any:
        """3-D transposed convolution, on the CPU too."""
        cut = _Cut(output_shape, padding, _OUTPUT_PADDING.get())
        return self._conv_transpose(3, x, kernel, strides, data_format, 1, cut)

    def depthwise_conv2d(
        self,
        x: Any,
        depthwise_kernel: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = (1, 1),
    ) -> Any:
        """2-D depthwise convolution, of any depth multiplier."""
        return self._depthwise(2, x, depthwise_kernel, None, strides, padding, data_format, dilation_rate)

    def separable_conv1d(
        self,
        x: Any,
        depthwise_kernel: Any,
        pointwise_kernel: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = 1,
    ) -> Any:
        """1-D separable convolution."""
        return self._depthwise(1, x, depthwise_kernel, pointwise_kernel, strides, padding, data_format, dilation_rate)

    def separable_conv2d(
        self,
        x: Any,
        depthwise_kernel: Any,
        pointwise_kernel: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        dilation_rate: Any = (1, 1),
    ) -> Any:
        """2-D separable convolution."""
        return self._depthwise(2, x, depthwise_kernel, pointwise_kernel, strides, padding, data_format, dilation_rate)

    def pool2d(
        self,
        x: Any,
        pool_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        pool_mode: str = "max",
    ) -> Any:
        """2-D pooling; `pool_mode` is "max" or "avg"."""
        return self._pool(2, x, pool_size, strides, padding, data_format, pool_mode)

    def pool3d(
        self,
        x: Any,
        pool_size: Any,
        strides: Any = (1, 1, 1),
        padding: str = "valid",
        data_format: Optional[str] = None,
        pool_mode: str = "max",
    ) -> Any:
        """3-D pooling; `pool_mode` is "max" or "avg"."""
        return self._pool(3, x, pool_size, strides, padding, data_format, pool_mode)

    # keras-mxnet's private functions, of any rank

    def _convnd(
        self,
        x: Any,
        kernel: Any,
        strides: Any,
        filter_dilation: Any,
        name: Optional[str] = None,
        padding_mode: str = "valid",
        data_format: Optional[str] = "default",
    ) -> Any:
        return self._conv(len(strides), x, kernel, strides, padding_mode, data_format, filter_dilation)

    def _convnd_transpose(
        self,
        x: Any,
        kernel: Any,
        output_shape: Any,
        strides: Any,
        data_format: Optional[str],
        name: Optional[str] = None,
        dilation_rate: Any = (1, 1),
    ) -> Any:
        rank = len(strides)
        if rank != 2 and tuple(dilation_rate) == (1, 1):  # the default stands for every rank
            dilation_rate = 1
        return self._conv_transpose(rank, x, kernel, strides, data_format, dilation_rate, _Cut(output_shape, None))

    def _dw_conv(
        self,
        x: Any,
        kernel: Any,
        strides: Any,
        filter_dilation: Any,
        name: Optional[str] = None,
        padding_mode: str = "valid",
        data_format: Optional[str] = "default",
    ) -> Any:
        return self._depthwise(len(strides), x, kernel, None, strides, padding_mode, data_format, filter_dilation)

    def _poolnd(
        self,
        x: Any,
        name: Optional[str],
        pool_size: Any,
        strides: Any,
        padding_mode: str = "valid",
        data_format: Optional[str] = None,
        pool_mode: str = "max",
    ) -> Any:
        return self._pool(len(pool_size), x, pool_size, strides, padding_mode, data_format, pool_mode)

    # each family once

    def _conv(self, rank: int, x: Any, kernel: Any, strides: Any, padding: Any, data_format: Any, dilation: Any) -> Any:
        padding = word("padding", padding, (*SAME_OR_VALID, "causal") if rank == 1 else SAME_OR_VALID)
        strides, dilation = _steps(rank, strides, dilation)
        data = self._opened("x", x, rank, data_format)
        weight, (channels, _, *kernel_size) = self._weight("kernel", kernel, "conv", data, data.shape[1])
        with self._building():
            out = ops.conv(
                data.symbol,
                weight,
                channels=channels,
                kernel_size=kernel_size,
                strides=strides,
                padding=padding,
                dilation=dilation,
                layout=data.layout,
            )
        return self._closed(out, data)

    def _depthwise(
        self,
        rank: int,
        x: Any,
        depthwise: Any,
        pointwise: Any,
        strides: Any,
        padding: Any,
        data_format: Any,
        dilation: Any,
    ) -> Any:
        padding = word("padding", padding, SAME_OR_VALID)
        strides, dilation = _steps(rank, strides, dilation)
        data = self._opened("x", x, rank, data_format)
        weight, (in_channels, depth_multiplier, *kernel_size) = self._weight(
            "depthwise_kernel", depthwise, "depthwise", data, data.shape[1]
        )
        channels, weights, function, arguments = in_channels * depth_multiplier, [weight], ops.depthwise_conv, {}
        if pointwise is not None:
            weight, (channels, *_) = self._weight("pointwise_kernel", pointwise, "pointwise", data, channels, 1)
            weights, function, arguments = [*weights, weight], ops.separable_conv, {"channels": channels}
        with self._building():
            out = function(
                data.symbol,
                *weights,
                in_channels=in_channels,
                depth_multiplier=depth_multiplier,
                kernel_size=kernel_size,
                strides=strides,
                padding=padding,
                dilation=dilation,
                layout=data.layout,
                **arguments,
            )
        return self._closed(out, data)

    def _conv_transpose(
        self, rank: int, x: Any, kernel: Any, strides: Any, data_format: Any, dilation: Any, cut: _Cut
    ) -> Any:
        strides, dilation = _steps(rank, strides, dilation)
        data = self._opened("x", x, rank, data_format)
        weight, (_, channels, *kernel_size) = self._weight("kernel", kernel, "transposed", data, data.shape[1])
        padding, output_padding = cut.resolved(data, channels, kernel_size, strides, dilation)
        with self._building():
            out = ops.conv_transpose(
                data.symbol,
                weight,
                channels=channels,
                kernel_size=kernel_size,
                strides=strides,
                padding=padding,
                output_padding=output_padding,
                dilation=dilation,
                layout=data.layout,
            )
        return self._closed(out, data)

    def _pool(
        self, rank: int, x: Any, pool_size: Any, strides: Any, padding: Any, data_format: Any, pool_mode: Any
    ) -> Any:
        padding = word("padding", padding, SAME_OR_VALID)
        pool = {"max": ops.max_pool, "avg": ops.avg_pool}[word("pool_mode", pool_mode, ("max", "avg"))]
        pool_size = validation.per_axis("pool_size", pool_size, rank, 1)
        strides = validation.per_axis("strides", strides, rank, 1)
        data = self._opened("x", x, rank, data_format)
        with self._building():
            out = pool(data.symbol, pool_size, strides, padding, layout=data.layout)
        return self._closed(out, data)

    # from KerasSymbols to Symbols with channels first, and back

    def _opened(self, name: str, x: Any, rank: int, data_format: Any) -> _Data:
        if data_format in (None, "default"):
            data_format = self.backend.image_data_format()
        last = word("data_format", data_format, DATA_FORMATS) == "channels_last"
        symbol, shape = self._symbol(name, x, rank, "(batch, *size, channels)" if last else "(batch, channels, *size)")
        if last:
            symbol, shape = _arrays.channels_first(mx.sym, symbol, rank + 2), _arrays.shape_channels_first(shape)
        return _Data(symbol, shape, last)

    def _symbol(self, name: str, array: Any, rank: int, meaning: str) -> Any:
        """The Symbol of the learning phase, and its shape with None for what is unknown."""
        if not isinstance(array, self.backend.KerasSymbol):
            raise TypeError(f"{name} must be a tensor of Keras; {_arrays.received(name, array)}")
        symbol = array.symbol  # the shape that Keras keeps is wrong for states of ConvLSTM2D
        shape = _arrays.known_shape(symbol) or _probed_shape(symbol) or (None,) * (rank + 2)
        shape = tuple(length or None for length in shape)
        validation.shape(name, shape, (None,) * (rank + 2), meaning)
        return symbol, shape

    def _weight(
        self, name: str, kernel: Any, kind: str, data: _Data, in_channels: Optional[int], size: Optional[int] = None
    ) -> tuple[Any, tuple]:
        """MXNet's weight, and the kernel's shape in its order, where a depthwise kernel's is (C, m, \\*k)."""
        axes, ones = KERNEL_AXES[kind], (size,) * data.rank
        lengths = tuple(in_channels if axis == "input channels" else None for axis in axes)
        if data.channels_last and kind != "depthwise":
            axes, lengths = axes[::-1], lengths[::-1]
        meaning = f"(*kernel size, {', '.join(axes)})" if data.channels_last else f"({', '.join(axes)}, *kernel size)"
        symbol, shape = self._symbol(name, kernel, data.rank, meaning)
        validation.shape(name, shape, (*ones, *lengths) if data.channels_last else (*lengths, *ones), meaning)
        if None in shape:
            raise ValueError(f"{name} must have a known shape; {validation.received(**{f'{name}.shape': shape})}")
        if data.channels_last:
            last_two = shape[-2:] if kind == "depthwise" else shape[:-3:-1]
            shape = (*last_two, *shape[:-2])
            symbol = layouts.to_mxnet(symbol, kind, data.layout)
        elif kind == "depthwise" and shape[1] != 1:
            symbol = mx.sym.reshape(symbol, shape=(shape[0] * shape[1], 1, *shape[2:]))
        return symbol, shape

    def _building(self) -> Any:
        """While a graph is built: what for, and for which device."""
        purpose = "training" if self.backend.learning_phase() else "inference"
        device = self.backend._get_mxnet_context(None)[0].device_type
        return _arrays.inputs({}, sizes=False, purpose=purpose, device="gpu" if device == "gpu" else "cpu")

    def _closed(self, symbol: Any, data: _Data) -> Any:
        return self.backend.KerasSymbol(
            _arrays.channels_last(mx.sym, symbol, data.rank + 2) if data.channels_last else symbol
        )


class _Data(NamedTuple):
    """The data, channels first."""

    symbol: Any
    shape: tuple
    channels_last: bool  # as Keras has it

    @property
    def rank(self) -> int:
        return len(self.shape) - 2

    @property
    def layout(self) -> str:
        return validation.layout(None, self.rank)


class _Cut(NamedTuple):
    """What Keras tells a transposed convolution of its output."""

    output_shape: Any
    padding: Optional[str]  # None where nobody tells it
    output_padding: Any = _NOT_IN_A_LAYER

    def resolved(
        self, data: _Data, channels: int, kernel_size: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
    ) -> tuple[Any, Any]:
        """`padding` and `output_padding` of `mxsame.ops.conv_transpose`.

        A layer's are its own. Otherwise the output's size says what to cut: the pads of the convolution that makes the
        data's size of it.
        """
        padding = None if self.padding is None else word("padding", self.padding, SAME_OR_VALID)
        if self.output_padding is not _NOT_IN_A_LAYER:
            return padding, self.output_padding
        cuts = [
            self._cut_of_axis(size, wanted, padding, *window)
            for size, wanted, *window in zip(
                data.shape[2:], self._wanted(data, channels), kernel_size, strides, dilation
            )
        ]
        return arithmetic.split_cuts(cuts)

    def _wanted(self, data: _Data, channels: int) -> Sequence[Optional[int]]:
        """The lengths of the output, None where they are left open."""
        if not validation.is_sequence(self.output_shape) or len(self.output_shape) != data.rank + 2:
            raise ValueError(
                f"output_shape must have {data.rank + 2} entries; {validation.received(output_shape=self.output_shape)}"
            )
        shape = tuple(entry or None for entry in self.output_shape)
        shape = _arrays.shape_channels_first(shape) if data.channels_last else shape
        validation.agree("the channels of output_shape", shape[1], "those of kernel", channels)
        return [None if entry is None else validation.integer("output_shape", entry, 1) for entry in shape[2:]]

    def _cut_of_axis(
        self, size: Optional[int], wanted: Optional[int], padding: Optional[str], k: int, s: int, d: int
    ) -> tuple[int, int]:
        if wanted is None and padding is not None:
            return arithmetic.transposed_cuts(k, s, d, padding)
        if wanted is None or size is None:
            raise ValueError(
                "output_shape must go with data of known size, or leave the size open where the padding is known; "
                f"{validation.received(output_shape=self.output_shape)}"
            )
        if padding is None:  # valid is what cuts nothing
            padding = "valid" if wanted >= arithmetic.transposed_output_size(size, k, s, d, 0) else "same"
        found = cut = None
        with contextlib.suppress(ValueError):  # shorter than the kernel
            found, cut = arithmetic.transposed_cuts_to(wanted, k, s, d, padding)
        if cut is None or found != size:
            raise ValueError(
                "output_shape must have a length of which the convolution with this kernel, strides and padding makes "
                f"that of x, {size}, such as {arithmetic.transposed_output_size(size, k, s, d, padding)}; "
                f"{validation.received(output_shape=self.output_shape)}"
            )
        return cut


def _steps(rank: int, strides: Any, dilation: Any) -> tuple[tuple, tuple]:
    return validation.per_axis("strides", strides, rank, 1), validation.per_axis("dilation_rate", dilation, rank, 1)
