"""What all layers share: they store their arguments, check their input, and delegate to `mxsame.ops`."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from mxsame import padding as arithmetic
from mxsame import validation
from mxsame._mxnet import mx
from mxsame.ops import _arrays

ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign")


class Layer(mx.gluon.HybridBlock):
    """A window over `num_spatial_dims` axes. Subclasses store arguments and call one function of `mxsame.ops`."""

    num_spatial_dims: int

    def __init__(self, layout: Optional[str], prefix: Optional[str], params: Any):
        if prefix is not None and not isinstance(prefix, str):
            raise TypeError(f"prefix must be a string or None; {validation.received(prefix=prefix)}")
        if params is not None and not isinstance(params, mx.gluon.ParameterDict):
            raise TypeError(f"params must be a gluon.ParameterDict or None; {validation.received(params=params)}")
        super().__init__(prefix=prefix, params=params)
        self._layout = validation.layout(layout, self.num_spatial_dims)
        self._channels_last = not self._layout.startswith("NC")

    def forward(self, x: Any, *args: Any) -> Any:
        """Check and settle what a graph could only stumble over, then run as every HybridBlock does."""
        self.check(x, *args)
        if isinstance(x, mx.nd.NDArray):
            self._settle_in_channels(self._channels_of(x.shape))
        else:
            shape = _arrays.traced_shape(x)
            if shape is not None and len(shape) == self.num_spatial_dims + 2:
                self._check_channels(shape)
            self._renew_dtypes()
        return super().forward(x)

    def cast(self, dtype: Any) -> None:
        """As every Block; graphs learn of it too."""
        super().cast(dtype)
        self._renew_dtypes()

    def _renew_dtypes(self) -> None:
        for parameter in self._reg_params.values():
            _arrays.renew_dtype(parameter)

    def check(self, x: Any, *args: Any) -> None:
        """Raise what is wrong with an input."""
        if args:
            raise TypeError(
                f"{type(self).__name__} must be called with one input; {validation.received(inputs=1 + len(args))}"
            )
        _arrays.check("data", x)
        if isinstance(x, mx.nd.NDArray):
            self._check_input(x)

    def infer_shape(self, x: Any) -> None:
        """Shapes of the parameters from an input; no graph is needed for that."""
        self._settle_in_channels(self._channels_of(x.shape))

    def _channels_of(self, shape: Any) -> int:
        return shape[-1] if self._channels_last else shape[1]

    def _check_input(self, x: Any) -> None:
        rank, shape = self.num_spatial_dims, x.shape
        if len(shape) != rank + 2:
            expected = ", ".join(self._layout)
            raise ValueError(
                f"data must have the {rank + 2} axes ({expected}); {validation.received(**{'data.shape': shape})}"
            )
        if mx.util.is_np_array() and not isinstance(x, mx.np.ndarray):
            raise TypeError(f"data must be an mx.np.ndarray in np mode (npx.set_np); {_arrays.received('data', x)}")
        size = shape[1:-1] if self._channels_last else shape[2:]
        lengths = [self._check_size(axis, length) for axis, length in enumerate(size)]
        self._check_channels(shape)
        validation.elements("the output", (shape[0], self._out_channels(self._channels_of(shape)), *lengths))
        self._check_parameters(x)

    def _check_size(self, axis: int, length: int) -> Optional[int]:
        """The output's length along an axis; raises where nothing is left of it."""

    def _check_channels(self, shape: Any) -> None:
        """Raises where data of this shape does not fit the parameters."""

    def _check_parameters(self, x: Any) -> None:
        """Raises where the data is elsewhere than the parameters, or of another type."""

    def _out_channels(self, in_channels: int) -> int:
        return in_channels

    def _settle_in_channels(self, in_channels: int) -> None:
        """Gives parameters their shapes as soon as the channels of the data are known."""


class ConvolutionLayer(Layer):
    """Arguments and parameters that convolutions share; see :class:`mxsame.nn.Conv2D` for their meaning."""

    _channels: int
    _groups = 1

    def _alias(self) -> str:
        return "conv"  # what gluon.nn's names of layers and parameters begin with

    def __init__(
        self,
        kernel_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        layout: Any,
        activation: Any,
        use_bias: Any,
        in_channels: Any,
        words: tuple,
        prefix: Any,
        params: Any,
    ):
        super().__init__(layout, prefix, params)
        rank = self.num_spatial_dims
        self._kernel_size = validation.per_axis("kernel_size", kernel_size, rank, 1)
        self._strides = validation.per_axis("strides", strides, rank, 1)
        self._dilation = validation.per_axis("dilation", dilation, rank, 1)
        self._padding = validation.padding(padding, rank, words=words)
        self._use_bias = validation.flag("use_bias", use_bias)
        self._in_channels = validation.integer("in_channels", in_channels, 0)
        for kernel, dilate in zip(self._kernel_size, self._dilation):
            arithmetic.effective_kernel_size(kernel, dilate)
        self.act = None
        if activation is not None:
            if not isinstance(activation, str):
                raise TypeError(f"activation must be a string or None; {validation.received(activation=activation)}")
            if activation not in ACTIVATIONS:
                raise ValueError(
                    f"activation must be one of {', '.join(ACTIVATIONS)}; {validation.received(activation=activation)}"
                )
            with self.name_scope():
                self.act = mx.gluon.nn.Activation(activation, prefix=activation + "_")

    def _parameter(self, name: str, shape: tuple, init: Any, argument: str) -> Any:
        """A parameter whose unknown lengths are 0 and are settled by the first input."""
        _check_initializer(argument, init)
        validation.elements(name, [length or None for length in shape])
        if mx.util.is_np_shape():
            shape = tuple(length or -1 for length in shape)
        try:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)
        except AssertionError as error:
            raise ValueError(f"params must fit the layer: {error}; {validation.received(params=self.params)}") from None

    def _set_channels(self, channels: Any, groups: Any) -> None:
        self._channels = validation.integer("channels", channels, 1)
        self._groups = validation.integer("groups", groups, 1)
        validation.divisible("channels", self._channels, "groups", self._groups)
        validation.divisible("in_channels", self._in_channels, "groups", self._groups)

    def _add_parameters(self, weight_initializer: Any, bias_initializer: Any) -> None:
        """`weight`, of the subclass's `_shape`, and `bias`."""
        with self.name_scope():
            shape = self._shape(self._in_channels)
            self.weight = self._parameter("weight", shape, weight_initializer, "weight_initializer")
            self.bias = self._bias_parameter(self._out_channels(self._in_channels), bias_initializer)

    def _bias_parameter(self, channels: int, init: Any) -> Any:
        return self._parameter("bias", (channels,), init, "bias_initializer") if self._use_bias else None

    def _weight_shape(self, outputs: int, inputs: int, kernel_size: tuple) -> tuple:
        """(O, I, *k), or (O, *k, I) with channels last."""
        return (outputs, *kernel_size, inputs) if self._channels_last else (outputs, inputs, *kernel_size)

    def _check_size(self, axis: int, length: int) -> Optional[int]:
        pads = arithmetic.by_axis(self._padding, "conv", self._kernel_size, self._strides, self._dilation)[axis]
        return arithmetic.output_size(length, self._kernel_size[axis], self._strides[axis], self._dilation[axis], pads)

    def _check_channels(self, shape: Any) -> None:
        known, in_channels = self._known_in_channels(), self._channels_of(shape)
        if in_channels is None:
            return
        if known and in_channels != known:
            raise ValueError(
                f"data must have in_channels={known} channels; {validation.received(**{'data.shape': tuple(shape)})}"
            )
        validation.divisible("data channels", in_channels, "groups", self._groups)

    def _check_parameters(self, x: Any) -> None:
        _arrays.forbid_float16_on_cpu(x, "convolution")
        for parameter in self._reg_params.values():
            contexts = parameter.list_ctx()
            if x.ctx not in contexts and (self._active or _arrays.place(x.ctx) not in map(_arrays.place, contexts)):
                raise ValueError(
                    f"data must be where the parameters are, on {contexts}; "
                    f"{validation.received(**{'data.context': str(x.ctx)})}"
                )
            if np.dtype(parameter.dtype) != np.dtype(x.dtype) and not _arrays.are_cast(parameter, x):
                raise TypeError(
                    f"data must have the type of the parameters, {np.dtype(parameter.dtype)} (see net.cast); "
                    f"{validation.received(**{'data.dtype': str(np.dtype(x.dtype))})}"
                )

    def _out_channels(self, in_channels: int) -> int:
        return self._channels

    def _shape(self, in_channels: int) -> tuple:
        """The shape of the weight."""
        raise NotImplementedError

    def _known_in_channels(self) -> Optional[int]:
        """The data's channels from the argument, or from a weight that has met its first input."""
        raise NotImplementedError

    def _settle(self, parameter: Any, shape: tuple) -> None:
        if parameter.shape is not None and any(length <= 0 for length in parameter.shape):
            validation.elements(parameter.name, shape)
            parameter.shape = shape

    def _activated(self, out: Any) -> Any:
        return out if self.act is None else self.act(out)

    def _window_arguments(self) -> dict:
        """What every function of `mxsame.ops` is given."""
        return {
            "kernel_size": self._kernel_size,
            "strides": self._strides,
            "padding": self._padding,
            "dilation": self._dilation,
            "layout": self._layout,
        }

    def _representation(self, mapping: str, **more: Any) -> str:
        parts = [mapping] if mapping else []
        parts += [f"kernel_size={self._kernel_size}", f"strides={self._strides}", f"padding={self._padding!r}"]
        if set(self._dilation) != {1}:
            parts.append(f"dilation={self._dilation}")
        parts += [f"{name}={value}" for name, value in more.items()]
        if self._channels_last:
            parts.append(f"layout={self._layout}")
        if not self._use_bias:
            parts.append("use_bias=False")
        if self.act is not None:
            parts.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(parts)})"


def _check_initializer(name: str, init: Any) -> None:
    if init is None or isinstance(init, mx.init.Initializer):
        return
    if not isinstance(init, str):
        raise TypeError(
            f"{name} must be a string, an mx.init.Initializer or None; {validation.received(**{name: init})}"
        )
    try:
        mx.init.create(init)
    except Exception:
        raise ValueError(f"{name} must be the name of an initializer; {validation.received(**{name: init})}") from None
