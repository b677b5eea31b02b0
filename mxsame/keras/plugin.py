"""Patches keras-mxnet 2.2.4.3: replaces its convolution and pooling functions by exact ones, and restores them.

Keras's layers call functions of `keras.backend`, which are also in `keras.backend.mxnet_backend`; both names are
replaced. A transposed convolution layer passes the shape of its output to them, but not its output padding, so its
`call` is replaced, too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from dataclasses import replace
from importlib import metadata
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from mxsame import tensors, validation
from mxsame._mxnet import mx
from mxsame.installation.problems import IN_THE_FOLDER, InstallationError
from mxsame.keras._translate import SAME_VALID_OR_CAUSAL, KerasCall
from mxsame.ops._inputs import Arrays
from mxsame.scope import Purpose, Target, building
from mxsame.tensors import probing
from mxsame.types import KernelKind

KERAS_MXNET_VERSION = "2.2.4.3"
REQUIREMENTS = "numpy==1.19.5 h5py==2.10.0 scipy==1.5.4"  # versions with which it runs
INSTALLATION = (
    "python3.8 -m venv .venv-keras-mxnet && "
    f".venv-keras-mxnet/bin/python -m pip install . mxnet==1.9.1 keras-mxnet=={KERAS_MXNET_VERSION} {REQUIREMENTS}"
)
ON_MXNET = "mxsame.keras.install needs Keras on MXNet: export KERAS_BACKEND=mxnet, before Keras is imported"

FUNCTIONS = {  # method of `KerasCall` -> functions of keras-mxnet that it replaces
    "conv": ("conv1d", "conv2d", "conv3d"),
    "conv_transpose": ("conv2d_transpose", "conv3d_transpose"),
    "depthwise_conv": ("depthwise_conv2d", "separable_conv1d", "separable_conv2d"),
    "pool": ("pool2d", "pool3d"),
}
ARRAYS = ("x", "kernel", "depthwise_kernel", "pointwise_kernel")
TRANSPOSED_LAYERS = ("Conv2DTranspose", "Conv3DTranspose")

_replaced: list[tuple[Any, str, Any]] = []  # (owner, name, what was there before), in the order of replacement


def install() -> None:
    """Make keras-mxnet compute its convolution and pooling layers as TensorFlow does, until `uninstall`.

    Layers built afterwards are exact: Conv1D, Conv2D, Conv3D, SeparableConv1D, SeparableConv2D, DepthwiseConv2D,
    Conv2DTranspose, Conv3DTranspose, and the max and average pooling layers in 1-D, 2-D and 3-D, for both data formats,
    any depth_multiplier and dilation, and spatial sizes of None. Kernels keep keras-mxnet's shapes, so weight files
    load as before. Models that were built earlier keep their graphs; functions that were imported from
    `keras.backend` earlier stay keras-mxnet's. A second call changes nothing.

    Raises
    ------
    ImportError
        If keras-mxnet 2.2.4.3 is not installed, or another Keras is imported.
    RuntimeError
        If Keras runs on a backend other than MXNet.

    Examples
    --------
    >>> import mxsame.keras
    >>> mxsame.keras.install()  # doctest: +SKIP
    >>> from keras.layers import Conv2D  # doctest: +SKIP
    >>> Conv2D(64, 7, strides=2, padding="same")  # doctest: +SKIP
    """
    if _replaced:
        return
    _check_keras()
    try:
        for owner, name, replacement in _replacements():
            _replaced.append((owner, name, vars(owner)[name]))
            setattr(owner, name, replacement)
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Restore keras-mxnet's own functions; do nothing if they are not replaced.

    Models that were built in between keep their exact graphs. Functions that were imported from `keras.backend` in
    between stay mxsame's.

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
    """Install within a `with` block, and restore the earlier state at its end, also after an error.

    Examples
    --------
    >>> import mxsame.keras
    >>> with mxsame.keras.installed():  # doctest: +SKIP
    ...     model = keras.models.load_model("model.h5")
    """
    was_installed = bool(_replaced)
    install()
    try:
        yield
    finally:
        if not was_installed:
            uninstall()


# -- environment


def _check_keras() -> None:
    """Imports Keras if necessary, and checks that it is the right version of keras-mxnet, on MXNet."""
    if "keras" not in sys.modules:
        try:
            metadata.version("keras-mxnet")  # does not import another Keras
        except metadata.PackageNotFoundError:
            raise InstallationError(
                f"mxsame.keras.install needs keras-mxnet {KERAS_MXNET_VERSION}, which is not installed.",
                INSTALLATION,
                IN_THE_FOLDER,
            ) from None
    try:
        keras = importlib.import_module("keras")
    except ImportError as error:  # another Keras may have written another backend to keras.json
        raise RuntimeError(f"{ON_MXNET}; received {type(error).__name__}: {error}") from error
    version = getattr(keras, "__version__", None)
    if version != KERAS_MXNET_VERSION:
        raise InstallationError(
            f"mxsame.keras.install needs keras-mxnet {KERAS_MXNET_VERSION}, and another Keras is imported; "
            f"{validation.received(version=version, path=getattr(keras, '__file__', None))}.",
            INSTALLATION,
            "keras-mxnet installs a package named keras, so no other Keras can be in the same environment.",
        )
    active = keras.backend.backend()
    if active != "mxnet":
        raise RuntimeError(f"{ON_MXNET}; {validation.received(backend=active)}")


# -- replacements: like keras-mxnet's functions, they map KerasSymbols to a KerasSymbol


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yields (owner, name, replacement) of every attribute that is replaced."""
    keras_backend, layers = importlib.import_module("keras.backend"), importlib.import_module("keras.layers")
    mxnet_backend = importlib.import_module("keras.backend.mxnet_backend")
    for method, names in FUNCTIONS.items():
        for name in names:
            function = _function(mxnet_backend, vars(mxnet_backend)[name], method)
            yield mxnet_backend, name, function
            yield keras_backend, name, function
    for name in TRANSPOSED_LAYERS:
        yield getattr(layers, name), "call", _call_of_transposed_layer(mxnet_backend)
    symbol_class = mxnet_backend.KerasSymbol
    yield symbol_class, "_get_shape", _probing(symbol_class._get_shape)


def _function(backend: Any, original: Callable[..., Any], method: str) -> Any:
    """Returns the replacement of a function of the backend, which computes with `mxsame.ops`."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _translated(backend, method, **bound.arguments)

    return backend.keras_mxnet_symbol(function)


def _call_of_transposed_layer(backend: Any) -> Callable[..., Any]:
    """Returns the replacement of `call` of Conv2DTranspose and Conv3DTranspose. It uses the layer's output padding, so
    that the data may have any size."""

    def conv_transpose(x: Any, kernel: Any, layer: Any) -> Any:
        names = "data_format", "strides", "padding", "dilation_rate", "output_padding"
        arguments = {name: getattr(layer, name) for name in names}
        return _translated(backend, "conv_transpose", x=x, kernel=kernel, **arguments)

    function = backend.keras_mxnet_symbol(conv_transpose)

    def call(layer: Any, inputs: Any) -> Any:
        outputs = function(inputs, layer.kernel, layer)
        if layer.use_bias:
            outputs = backend.bias_add(outputs, layer.bias, data_format=layer.data_format)
        return outputs if layer.activation is None else layer.activation(outputs)

    return call


def _translated(backend: Any, method: str, data_format: Any, **arguments: Any) -> Any:
    """Returns the result of a method of `KerasCall`, in a graph for keras-mxnet's current learning phase."""
    # `symbol` is the graph of the current learning phase. `_keras_shape` is wrong for ConvLSTM2D's states.
    keras_symbols = {name: arguments.pop(name) for name in ARRAYS if name in arguments}
    arrays = {name: getattr(each, "symbol", each) for name, each in keras_symbols.items()}
    if validation.is_sequence(arguments.get("output_shape")):  # 0 stands for an unspecified length
        arguments["output_shape"] = (None, *(length or None for length in arguments["output_shape"][1:]))
    purpose: Purpose = "training" if backend.learning_phase() else "inference"
    device = backend._get_mxnet_context(None)[0].device_type
    with building(Target(purpose, "gpu" if device == "gpu" else "cpu"), is_only_graph=True):
        call = KerasMXNetCall(arrays, data_format or backend.image_data_format(), pool_size=arguments.get("pool_size"))
        if method == "conv" and call.rank == 1:
            arguments["paddings"] = SAME_VALID_OR_CAUSAL
        return backend.KerasSymbol(getattr(call, method)(**arguments))


class KerasMXNetCall(KerasCall):
    """A call of keras-mxnet, which stores kernels for channels_first as `(O, I, *k)`, and depthwise ones as
    `(C, m, *k)`."""

    def read_arrays(self, arrays: Mapping[str, Any]) -> Arrays:
        inputs = super().read_arrays(arrays)
        shapes = (shape or _probed_shape(symbol) for shape, symbol in zip(inputs.shapes, inputs.arrays))
        return replace(inputs, shapes=tuple(shapes))

    def stored_axes(self, kind: str) -> Sequence[int]:
        axes = super().stored_axes(kind)
        return axes if self.channels_last else (*axes[2:], *((0, 1) if kind == "depthwise" else (1, 0)))

    def weight(self, kernel: Any, kind: KernelKind, shape: tuple) -> Any:
        if self.channels_last:
            return super().weight(kernel, kind, shape)
        if kind == "depthwise" and shape[1] != 1:
            return mx.sym.reshape(kernel, shape=(shape[0] * shape[1], 1, *shape[2:]))
        return kernel


def _probing(get_shape: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the replacement of KerasSymbol's `_get_shape`, which also infers shapes if sizes are dynamic."""

    @functools.wraps(get_shape)
    def wrapped(self: Any) -> Any:
        with contextlib.suppress(mx.base.MXNetError):
            shape = get_shape(self)
            if shape:
                return shape
        probed = _probed_shape(self.symbol)
        return get_shape(self) if probed is None else tuple(length or 0 for length in probed)

    return wrapped


def _probed_shape(symbol: Any) -> Optional[tuple[Optional[int], ...]]:
    """Returns the shape of a Symbol, with None for lengths that depend on unknown ones; None if inference fails.

    Variables without a known length, such as Keras's targets, are not probed.
    """
    declared = tensors.declared_shapes(symbol)
    partly_known = {name: shape for name, shape in declared.items() if None in shape and any(shape)}
    return probing.probe_shape(symbol, partly_known)
