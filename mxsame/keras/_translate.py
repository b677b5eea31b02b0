"""The one translation of Keras's functions into those of `mxsame.ops`, for any number of spatial axes.

A function of Keras makes a :class:`KerasCall` from its arrays and runs one of the call's methods. Arguments are checked
here, under Keras's names and in Keras's orders of axes, and handed on under those of `mxsame.ops`.
"""

from __future__ import annotations

import contextlib
from typing import Any, Mapping, NoReturn, Optional, Sequence

from mxsame import ops, tensors, validation
from mxsame import padding as arithmetic
from mxsame._mxnet import mx
from mxsame.keras import layouts
from mxsame.plan.windows import MOST_RESIDUES

DATA_FORMATS = ("channels_first", "channels_last")
SAME_OR_VALID = ("same", "valid")
AXES = {  # the last two axes of a kernel in Keras's order, and the one that a Symbol may leave open
    "conv": ("input channels / groups", "output channels", 0),
    "depthwise": ("input channels", "depth multiplier", None),
    "pointwise": ("input channels * depth multiplier", "output channels", 0),
    "transposed": ("output channels", "input channels", 1),
}

_image_data_format = "channels_last"


def image_data_format() -> str:
    """The data format of a function that is given none: "channels_last" until it is set, as in Keras.

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
    _image_data_format = _word("data_format", data_format, DATA_FORMATS)


class KerasCall:
    """The arrays of one call of a Keras function, checked, and their shapes.

    Parameters
    ----------
    arrays : mapping of str to array
        The data and then the kernels, under the names that Keras's function gives them.
    data_format : "channels_first", "channels_last" or None
    rank : int, optional
        The number of spatial axes if the function has it in its name; otherwise the arrays tell, and for a pooling
        function `pool_size` as well.
    """

    has_groups = True  # whether a kernel with fewer input channels than the data makes a convolution in groups

    def __init__(
        self, arrays: Mapping[str, Any], data_format: Any, rank: Optional[int] = None, *, pool_size: Any = None
    ) -> None:
        data_format = image_data_format() if data_format is None else data_format
        self.channels_last = _word("data_format", data_format, DATA_FORMATS) == "channels_last"
        self.args, self.names = self.opened(arrays), tuple(arrays)
        self.data, self.data_name, shape = self.args.arrays[0], self.names[0], self.args.shapes[0]
        if rank is None:
            rank = self._rank(pool_size)
        elif shape is not None:
            validation.shape(self.data_name, shape, (None,) * (rank + 2), self._order)
        if len(self.names) > 1:
            tensors.forbid_float16_on_cpu(self.data, "convolution", self.data_name)
        self.rank, self.channel_axis = rank, rank + 1 if self.channels_last else 1
        # MXNet runs channels last in 2-D on GPUs only. Elsewhere data and kernels are transposed here, because
        # `mxsame.ops` would transpose the transposed kernel once more.
        runs_last = self.channels_last and rank == 2 and tensors.is_on_gpu(self.data)
        self.transposes = self.channels_last and not runs_last
        self.layout = validation.LAYOUTS[rank][runs_last]
        shape = (None,) * (rank + 2) if shape is None else shape
        self.batch, self.channels, *self.size = tensors.shape_channels_first(shape) if self.channels_last else shape

    # ---- operators

    def conv(self, strides: Any, padding: Any, dilation_rate: Any, *, causal: bool = False) -> Any:
        """Convolution, in as many groups as the kernel's input channels fit into the data's."""
        given = None if self.has_groups else self.channels
        weight, kernel_size, share, channels = self._weight(1, "conv", (given, None))
        groups = 1
        in_channels = self._graph_channels() if share is not None else None
        if in_channels is not None:
            validation.divisible(f"{self.data_name} channels", in_channels, "kernel input channels", share)
            groups = in_channels // share
            validation.divisible("kernel output channels", channels, "groups", groups)
        paddings = (*SAME_OR_VALID, "causal") if causal else SAME_OR_VALID
        window = self._window(kernel_size, strides, padding, dilation_rate, paddings)
        return self._run(ops.conv, weight, channels=channels, groups=groups, **window)

    def depthwise_conv(self, strides: Any, padding: Any, dilation_rate: Any) -> Any:
        """Depthwise convolution; with a third array, the pointwise kernel, a separable one."""
        weight, kernel_size, in_channels, multiplier = self._weight(1, "depthwise", (self.channels, None))
        arguments = self._window(kernel_size, strides, padding, dilation_rate)
        arguments.update(in_channels=in_channels, depth_multiplier=multiplier)
        if len(self.names) == 2:
            return self._run(ops.depthwise_conv, weight, **arguments)
        pointwise, _, _, channels = self._weight(2, "pointwise", (in_channels * multiplier, None), kernel_length=1)
        return self._run(ops.separable_conv, weight, pointwise, channels=channels, **arguments)

    def conv_transpose(
        self,
        strides: Any,
        padding: Any,
        dilation_rate: Any = 1,
        *,
        output_padding: Any = None,
        output_shape: Any = None,
    ) -> Any:
        """Transposed convolution: Keras 3 and Keras's layers give the output padding, Keras 2 the output shape."""
        weight, kernel_size, channels, _ = self._weight(1, "transposed", (None, self.channels))
        strides, dilation = self._steps(kernel_size, strides, dilation_rate)
        if output_shape is not None:
            windows = list(zip(kernel_size, strides, dilation))
            padding, output_padding = self._crops(output_shape, channels, windows, padding)
        else:
            padding = _word("padding", padding, SAME_OR_VALID)
            if output_padding is not None:
                output_padding = validation.per_axis("output_padding", output_padding, self.rank, 0)
        arguments = {"padding": padding, "output_padding": output_padding, "strides": strides, "dilation": dilation}
        return self._run(ops.conv_transpose, weight, channels=channels, kernel_size=kernel_size, **arguments)

    def pool(self, pool_size: Any, strides: Any, padding: Any, pool_mode: Any) -> Any:
        """Pooling; `pool_mode` is "max" or "avg"."""
        function = {"max": ops.max_pool, "avg": ops.avg_pool}[_word("pool_mode", pool_mode, ("max", "avg"))]
        pool_size = validation.per_axis("pool_size", pool_size, self.rank, 1)
        window = self._window(pool_size, strides, padding, 1)
        return self._run(function, pool_size=pool_size, strides=window["strides"], padding=window["padding"])

    def _run(self, function: Any, *weights: Any, **arguments: Any) -> Any:
        F, data, ndim = self.args.F, self.data, self.rank + 2
        if self.transposes:
            data = tensors.channels_first(F, data, ndim)
        out = function(data, *weights, layout=self.layout, **arguments)
        return self.args.restore(tensors.channels_last(F, out, ndim) if self.transposes else out)

    # ---- what differs in keras-mxnet

    def opened(self, arrays: Mapping[str, Any]) -> tensors.Arguments:
        """The arrays in classic form, and their shapes."""
        return tensors.classic(**arrays)

    def stored_order(self, kind: str, axes: Sequence) -> Sequence:
        """From Keras's order of a kernel's axes to the one in which kernels are stored; the same."""
        return axes

    def keras_order(self, kind: str, axes: Sequence) -> Sequence:
        """The way back."""
        return axes

    def weight(self, kernel: Any, kind: str, shape: tuple) -> Any:
        """A kernel, stored with this shape, as a weight for `mxsame.ops`."""
        return layouts.to_mxnet(kernel, kind, self.layout)

    def padding_to(self, lengths: Sequence[Optional[int]], windows: Sequence, padding: Any) -> str:
        """The padding of a transposed convolution with these lengths of the output, None where they are open."""
        return _word("padding", padding, SAME_OR_VALID)

    # ---- arguments

    def _rank(self, pool_size: Any) -> int:
        """The number of spatial axes on which all arrays agree."""
        axes = {f"{name}.ndim - 2": None if s is None else len(s) - 2 for name, s in zip(self.names, self.args.shapes)}
        if len(self.names) == 1:
            axes["len(pool_size)"] = len(pool_size) if validation.is_sequence(pool_size) else None
        if any(count is not None for count in axes.values()):
            return validation.rank(axes)
        if len(self.names) > 1:
            _refuse_unknown(self.names[1], None)
        raise ValueError(
            "the number of spatial axes must be known: "
            f"give {self.data_name} a shape, or pool_size one entry per axis; "
            f"{validation.received(pool_size=pool_size)}, and {self.data_name} of unknown shape"
        )

    def _graph_channels(self) -> Optional[int]:
        """The data's channels, looked for in the graph if the shape does not have them."""
        if self.channels is None and isinstance(self.data, mx.sym.Symbol):
            return tensors.probed_channels(self.data, self.rank + 2, self.channel_axis)
        return self.channels

    def _weight(
        self, position: int, kind: str, expected: tuple, kernel_length: Optional[int] = None
    ) -> tuple[Any, tuple, Any, Any]:
        """(weight, kernel size, length, length) of a kernel, the last two in the order of `AXES`.

        `expected` are the two lengths, and `kernel_length` each one before them, as far as they are given.
        """
        name, shape = self.names[position], self.args.shapes[position]
        if shape is None:
            _refuse_unknown(name, shape)
        *axes, open_axis = AXES[kind]
        order = ", ".join(self.stored_order(kind, ("*kernel size", *axes)))
        lengths = self.stored_order(kind, (*(kernel_length,) * self.rank, *expected))
        validation.shape(name, shape, lengths, f"({order})")
        *kernel_size, first, second = self.keras_order(kind, shape)
        if None in kernel_size or any(n is None and axis != open_axis for axis, n in enumerate((first, second))):
            _refuse_unknown(name, shape)
        return self.weight(self.args.arrays[position], kind, shape), tuple(kernel_size), first, second

    def _steps(self, kernel_size: Sequence[int], strides: Any, dilation_rate: Any) -> tuple[tuple, tuple]:
        strides = validation.per_axis("strides", strides, self.rank, 1)
        dilation = validation.per_axis("dilation_rate", dilation_rate, self.rank, 1)
        for k, d in zip(kernel_size, dilation):
            arithmetic.effective_kernel_size(k, d, self._names)
        return strides, dilation

    def _window(
        self,
        kernel_size: Sequence[int],
        strides: Any,
        padding: Any,
        dilation_rate: Any,
        paddings: Sequence[str] = SAME_OR_VALID,
    ) -> dict:
        """How the kernel moves over data that is long enough, under the names of `mxsame.ops`."""
        strides, dilation = self._steps(kernel_size, strides, dilation_rate)
        padding = _word("padding", padding, paddings)
        for n, k, s, d in zip(self.size, kernel_size, strides, dilation):
            if n is not None:
                arithmetic.output_size(n, k, s, d, padding, self._names)
            elif s > MOST_RESIDUES:
                raise ValueError(
                    f"strides must be <= {MOST_RESIDUES} for {self.data_name} of dynamic shape; "
                    f"give {self.data_name} a shape; {validation.received(strides=strides)}"
                )
        return {"kernel_size": kernel_size, "strides": strides, "padding": padding, "dilation": dilation}

    @property
    def _names(self) -> dict:
        """Keras's names of the arguments of `mxsame.padding`."""
        return {"dilation": "dilation_rate", **({"kernel_size": "pool_size"} if len(self.names) == 1 else {})}

    @property
    def _order(self) -> str:
        return "(batch, *size, channels)" if self.channels_last else "(batch, channels, *size)"

    # ---- the output shape of a transposed convolution

    def _output_lengths(self, output_shape: Any, channels: int) -> Sequence[Optional[int]]:
        """(batch, \\*size) of an output shape in the order of the data format; None for what it leaves open."""
        given = output_shape.asnumpy() if isinstance(output_shape, mx.nd.NDArray) else output_shape
        if not validation.is_sequence(given) or isinstance(output_shape, mx.sym.Symbol):
            raise TypeError(
                f"output_shape must be a sequence of integers or None; {validation.received(output_shape=given)}"
            )
        if len(given) != self.rank + 2:
            raise ValueError(
                f"output_shape must have {self.rank + 2} entries, {self._order}; "
                f"{validation.received(output_shape=given)}"
            )
        entries = [
            None if entry is None else validation.integer(f"output_shape[{axis}]", entry, 1)
            for axis, entry in enumerate(given)
        ]
        validation.agree("output_shape[0]", entries[0], f"the batch of {self.data_name}", self.batch)
        wanted = entries.pop(self.channel_axis)
        validation.agree(f"output_shape[{self.channel_axis}]", wanted, "the output channels of kernel", channels)
        return entries

    def _crops(self, output_shape: Any, channels: int, windows: Sequence, padding: Any) -> tuple[tuple, tuple]:
        """(pads, output padding) for this shape of the output.

        A transposed convolution is the gradient of the convolution that turns the output's size into the data's: the
        pads of that convolution are cropped, and what is missing is added at the end.
        """
        batch, *lengths = self._output_lengths(output_shape, channels)
        padding = self.padding_to(lengths, windows, padding)
        sizes: list = [None] * self.rank  # of the data, as far as they follow from the output's
        crops = []
        for axis, (n, length, window) in enumerate(zip(self.size, lengths, windows)):
            if length is None:
                crops.append(arithmetic.transposed_cuts(*window, padding))
                continue
            with contextlib.suppress(ValueError):  # shorter than the kernel
                sizes[axis], crop = arithmetic.transposed_cuts_to(length, *window, padding)
                crops.append(crop)
            if sizes[axis] is None or n not in (None, sizes[axis]):
                possible = (
                    "" if n is None else f", {n}, such as {arithmetic.transposed_output_size(n, *window, padding)}"
                )
                raise ValueError(
                    f"output_shape[{axis + (1 if self.channels_last else 2)}] must be a length that the convolution "
                    f"with this kernel, strides and padding turns into the length of {self.data_name}{possible}; "
                    f"{validation.received(output_shape=output_shape)}"
                )
        self._require(batch, sizes)
        return arithmetic.split_cuts(crops)

    def _require(self, batch: Optional[int], sizes: Sequence[Optional[int]]) -> None:
        """Where the data's shape is dynamic, the graph refuses any but the one that the output shape asks for."""
        missing = [None if n is not None else wanted for n, wanted in zip((self.batch, *self.size), (batch, *sizes))]
        if any(n is not None for n in missing):
            missing.insert(self.channel_axis, None)
            self.data = tensors.fixed(self.data, missing)


def _word(name: str, value: Any, allowed: Sequence[str]) -> str:
    """One of the `allowed` words; in any case, and nothing but a word."""
    if not isinstance(value, str):
        words = ", ".join(f'"{entry}"' for entry in allowed)
        raise TypeError(f"{name} must be one of {words}; {validation.received(**{name: value})}")
    return validation.mode(name, value, allowed)


def _refuse_unknown(name: str, shape: Optional[tuple]) -> NoReturn:
    raise ValueError(
        f"{name} must have a static shape, given to the variable as mx.sym.var(..., shape=...); received {name} of the "
        f"shape {'unknown' if shape is None else shape}"
    )
