"""Base classes of the layers: a layer stores the spec of an operator of `mxsame.ops`, and checks its input."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional, Sequence, get_args

import numpy as np

from mxsame import _gluon, tensors, validation
from mxsame._mxnet import mx
from mxsame.graphs.hybridize import HybridBlock
from mxsame.graphs.tracing import CheckedBlock, traces
from mxsame.nn._gluon_arguments import GluonArguments
from mxsame.ops._call import apply
from mxsame.plan.windows import padded_and_output_size
from mxsame.scope import Scope, deferred_in_trace, scope
from mxsame.tensors import operands, probing
from mxsame.types import Activation

if TYPE_CHECKING:
    from mxsame._mxnet import Array, NDArray

ACTIVATIONS = get_args(Activation)
OTHER_ACTIVATIONS = {  # Keras's, and what to write instead
    **dict.fromkeys(("swish", "silu"), "gluon.nn.Swish() as the next layer"),
    **{name.lower(): f"gluon.nn.{name}() as the next layer" for name in ("ELU", "GELU", "PReLU", "SELU")},
    "leaky_relu": "gluon.nn.LeakyReLU(alpha) as the next layer",
    "linear": "None",
    "softplus": '"softrelu"',
}


class Layer(CheckedBlock, HybridBlock):
    """A layer with `num_spatial_dims` spatial axes: it stores the spec of an operator of `mxsame.ops`, and applies it
    to its input and its parameters."""

    num_spatial_dims: int
    act: Any = None  # the activation block
    _spec: Any  # a checked mxsame.ops._inputs.Spec

    def __init_subclass__(cls, num_spatial_dims: Optional[int] = None) -> None:
        """Replaces `{shared}` in the docstring with that of the first base, and makes `__init__` report misnamed
        arguments."""
        super().__init_subclass__()
        if num_spatial_dims is not None:
            cls.num_spatial_dims = num_spatial_dims
        if cls.__doc__:
            cls.__doc__ = cls.__doc__.replace("{shared}", (cls.__bases__[0].__doc__ or "").strip())
        # a user's subclass may use other argument names
        if "__init__" in vars(cls) and cls.__module__.startswith("mxsame."):
            cls.__init__ = validation.check_arguments(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, spec: Any, prefix: Optional[str], params: Any):
        validation.check_type(isinstance(prefix, (str, type(None))), "prefix must be a string or None", prefix=prefix)
        is_dict = isinstance(params, (mx.gluon.ParameterDict, type(None)))
        validation.check_type(is_dict, "params must be a gluon.ParameterDict or None", params=params)
        # not super(): subclasses also derive from Gluon's layer of the same name
        mx.gluon.HybridBlock.__init__(self, prefix=prefix, params=params)
        rank = self.num_spatial_dims
        self._spec = spec.checked(rank)
        self._spec.windows((None,) * rank)  # raises for arguments that are invalid for every size
        self._channels_last = validation.has_channels_last(self._spec.layout)

    # -- hooks for subclasses

    def _operator_output(self, x: Any, **parameters: Any) -> Any:
        """Returns the operator's output, before the activation."""
        return apply(self._spec, data=x, **parameters)

    def _known_in_channels(self) -> Optional[int]:
        """Returns the required number of input channels, or None if it is not known yet."""
        return None

    def _out_channels(self, in_channels: Optional[int]) -> Any:
        """Returns the number of output channels for `in_channels` input channels, or None if it is not known yet."""
        return in_channels

    def _parameter_shapes(self, in_channels: int) -> dict:
        """Returns the shapes of the parameters, by name, for data of `in_channels`."""
        return {}

    # -- a call

    @traces
    def forward(self, x: Array) -> Array:
        """Returns the output for an array or a Symbol. Invalid data raises here, not in Gluon or in a graph.

        A Symbol becomes a part of a graph. Gluon's `forward` runs arrays of a hybridized layer by its cached graph, and
        those of an uninitialized layer: it completes deferred parameters, or raises. All other arrays go straight
        to the operator, and are checked only if it fails.
        """
        if not isinstance(x, mx.nd.NDArray):
            return self._traced(x)
        if _gluon.is_hybridized(self) or mx.util.is_np_array() != isinstance(x, mx.np.ndarray):
            self.infer_shape(x)  # it checks x, which a cached graph does not
            return super().forward(operands.without_pinned_memory(x))
        context = x.ctx
        try:
            own = {name: parameter.data(context) for name, parameter in _gluon.own_parameters(self).items()}
        except (RuntimeError, ValueError):  # parameters not initialized yet, or not on this device
            self.check(x)
            return super().forward(x)
        try:
            return self.hybrid_forward(mx.nd, x, **own)
        except (TypeError, ValueError) as error:
            self.check(x)  # may raise a more specific error than the operator's
            raise self._named(error) from None

    def hybrid_forward(self, F: Any, x: Array, **parameters: Array) -> Array:
        """Runs the operator. On Symbols, names the output as Gluon does, and updates the dtypes and shapes of the
        parameters' variables."""
        if F is mx.sym:
            for parameter in _gluon.own_parameters(self).values():
                tensors.update_variable(parameter)
        out = self._operator_output(x, **parameters)
        if F is mx.sym:
            out._set_attr(name=self.prefix + "fwd")
        return out if self.act is None else self.act(out)

    @deferred_in_trace
    def _traced(self, x: Any) -> Any:
        """Returns the output for a Symbol."""
        operands.check("data", x)
        shape = tensors.known_shape(x)
        if shape is not None:
            self._check_shape(shape)
        # Gluon's own graph runs on the parameters' device.
        is_gluon_graph = _gluon.is_hybridized(self) and scope() == Scope()
        for parameter in _gluon.own_parameters(self).values() if is_gluon_graph else ():
            if _gluon.is_on_cpu(parameter):
                dtype = np.dtype(parameter.dtype).name
                validation.check_float_type(parameter.name, dtype, operands.CPU_CONV_TYPES, operands.WHY_NO_FLOAT16)
        if _gluon.own_parameters(self) and not self._known_in_channels():
            self._set_deferred_shapes(probing.probe_channels(x, self.num_spatial_dims, self._channels_last))
        try:
            return super().forward(x)
        except ValueError as error:
            raise self._named(error) from None

    def _named(self, error: Exception) -> Exception:
        """Returns a `ValueError` with the name of the layer, any other error unchanged."""
        return validation.InvalidValue(f"layer {self.name}: {error}") if isinstance(error, ValueError) else error

    @property
    def _kwargs(self) -> GluonArguments:
        """The arguments of MXNet's operator; Gluon's layers have the same attribute."""
        return GluonArguments(self)

    def infer_shape(self, x: NDArray) -> None:
        """Sets the parameters' shapes from an input, without building a graph."""
        self.check(x)
        self._set_deferred_shapes(self._channels_of(x.shape))

    def _set_deferred_shapes(self, in_channels: Optional[int]) -> None:
        """Sets the shapes of deferred parameters if `in_channels` is known."""
        for name, parameter in _gluon.own_parameters(self).items():
            if in_channels and parameter.shape is not None and any(length <= 0 for length in parameter.shape):
                shape = self._parameter_shapes(in_channels)[name]
                validation.check_element_count(parameter.name, shape)
                parameter.shape = shape

    # -- checks of the data

    def check(self, x: NDArray) -> None:
        """Raises `TypeError` or `ValueError` for an array that the layer does not support."""
        operands.check("data", x)
        shape = x.shape
        self._check_shape(shape)
        if mx.util.is_np_array() and not isinstance(x, mx.np.ndarray):
            rule = "data must be an mx.np.ndarray in np mode (npx.set_np)"
            raise validation.InvalidType(f"{rule}; {operands.received('data', x)}")
        channels = self._out_channels(self._channels_of(shape))
        try:
            _, outputs = padded_and_output_size(self._spec.windows(shape[1:-1] if self._channels_last else shape[2:]))
            validation.check_element_count("the output", (shape[0], channels, *outputs))
        except ValueError as error:
            raise self._named(error) from None
        for parameter in _gluon.own_parameters(self).values():
            _gluon.check_initialized(parameter)
            operands.check_convolvable("data", x)
            dtype = x.dtype if operands.are_cast(parameter, x) else parameter.dtype
            operands.check_fits("data", x, "the parameters", [dtype], parameter.list_ctx())

    def _channels_of(self, shape: Sequence[Any]) -> Any:
        return shape[-1] if self._channels_last else shape[1]

    def _check_shape(self, shape: Sequence[Any]) -> None:
        layout, known = self._spec.layout, self._known_in_channels()
        wanted = [known if axis == "C" else None for axis in layout]
        if not validation.fits(shape, wanted):
            rule = f"in_channels={known} channels, axis C of {layout}"
            rule = rule if len(shape) == len(layout) else f"{len(layout)} axes ({', '.join(layout)})"
            rule = f"data must have {rule}{validation.remedy('data', shape, wanted)}"
            validation.check(False, rule, **{"data.shape": tuple(shape)})


class ConvolutionLayer(Layer):
    """Base class of the convolution layers; :class:`mxsame.nn.Conv2D` documents their arguments."""

    def _alias(self) -> str:
        return "conv"  # Gluon's hook: the prefix of layer and parameter names

    def __init__(self, spec: Any, activation: Any, use_bias: Any, in_channels: Any, prefix: Any, params: Any):
        kernel_size = validation.per_axis("kernel_size", spec.kernel_size, self.num_spatial_dims, 1)
        super().__init__(replace(spec, kernel_size=kernel_size), prefix, params)
        self._use_bias = validation.flag("use_bias", use_bias)
        self._in_channels = validation.integer("in_channels", in_channels, 0)
        for name, count in (("channels", self._spec.channels or 0), ("in_channels", self._in_channels)):
            validation.check_divisible(name, count, "groups", self._spec.groups)
        if activation is not None:
            instead = OTHER_ACTIVATIONS.get(activation) if isinstance(activation, str) else None
            rule = f"activation must be one that gluon.nn.Activation has; use {instead}"
            validation.check(instead is None, rule, activation=activation)
            activation = validation.one_of("activation", activation, ACTIVATIONS)
            with self.name_scope():
                self.act = mx.gluon.nn.Activation(activation, prefix=activation + "_")

    def _check_shape(self, shape: Sequence[Any]) -> None:
        super()._check_shape(shape)
        validation.check_divisible("data channels", self._channels_of(shape) or 0, "groups", self._spec.groups)

    def _spec_for(self, x: Any) -> Any:
        """Returns the spec of a call with this data."""
        return self._spec

    def _operator_output(self, x: Any, bias: Any = None, **weights: Any) -> Any:
        return apply(self._spec_for(x), data=x, **weights, bias=bias)

    def _add_parameters(self, **initializers: Any) -> None:
        """Adds parameters of these names; unknown lengths are 0 until the first input."""
        shapes = self._parameter_shapes(self._in_channels)
        for name, init in initializers.items():
            _check_initializer(f"{name.replace('_weight', '')}_initializer", init)
            shape = shapes[name]
            validation.check_element_count(name, [length or None for length in shape])
            if mx.util.is_np_shape():
                shape = tuple(length or -1 for length in shape)
            setattr(self, name, self._parameter(name, shape, init) if name != "bias" or self._use_bias else None)

    def _parameter(self, name: str, shape: tuple, init: Any) -> Any:
        try:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)
        except AssertionError as error:
            received = validation.received(params=self.params)
            raise validation.InvalidValue(f"params must fit the layer: {error}; {received}") from None

    def _weight_shapes(self, in_channels: int) -> dict:
        """Returns the shapes of the weights, by name, with channels first."""
        raise NotImplementedError

    def _parameter_shapes(self, in_channels: int) -> dict:
        shapes: dict = {"bias": (self._out_channels(in_channels),)}
        for name, (first, second, *kernel) in self._weight_shapes(in_channels).items():
            shapes[name] = (first, *kernel, second) if self._channels_last else (first, second, *kernel)
        return shapes

    def _out_channels(self, in_channels: Optional[int]) -> Any:
        return self._spec.channels

    def _repr_arguments(self) -> dict:
        """Returns the arguments that only this layer shows in its `repr`."""
        return {} if self._spec.groups == 1 else {"groups": self._spec.groups}

    def __repr__(self) -> str:
        known, spec = self._known_in_channels(), self._spec
        parts = [f"{known} -> {self._out_channels(known)}"]
        parts += [f"kernel_size={spec.kernel_size}", f"strides={spec.strides}", f"padding={spec.padding!r}"]
        if set(spec.dilation) != {1}:
            parts.append(f"dilation={spec.dilation}")
        parts += [f"{name}={value}" for name, value in self._repr_arguments().items()]
        if self._channels_last:
            parts.append(f"layout={spec.layout}")
        if not self._use_bias:
            parts.append("use_bias=False")
        if self.act is not None:
            parts.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(parts)})"


def _check_initializer(name: str, init: Any) -> None:
    if init is None or isinstance(init, mx.init.Initializer):
        return
    try:
        mx.init.create(init)
    except Exception:
        rule = f"{name} must be the name of an initializer, an mx.init.Initializer or None"
        error = validation.InvalidValue if isinstance(init, str) else validation.InvalidType
        raise error(f"{rule}; {validation.received(**{name: init})}") from None
