"""Translates calls of Keras's functions to `mxsame.ops`, for any number of spatial axes.

A Keras function creates a :class:`KerasCall` from its arrays and calls one of its methods. These rename arguments,
refuse values that Keras refuses, and convert kernels from Keras's order of axes; `mxsame.ops` checks everything else.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, get_args

from mxsame import ops, padding as arithmetic, tensors, validation
from mxsame._mxnet import mx
from mxsame.keras import layouts
from mxsame.ops._inputs import Arrays
from mxsame.padding.same import span
from mxsame.tensors import operands, probing
from mxsame.types import DataFormat, KerasPadding, KernelKind

DATA_FORMATS = get_args(DataFormat)
SAME_OR_VALID = ("same", "valid")
SAME_VALID_OR_CAUSAL = (*SAME_OR_VALID, "causal")
LAST_AXES = {  # the last two axes of Keras's kernels, and the index of the one whose length a Symbol may leave unknown
    "conv": ("input channels / groups", "output channels", -2),
    "depthwise": ("input channels", "depth multiplier", None),
    "pointwise": ("input channels * depth multiplier", "output channels", -2),
    "conv_transpose": ("output channels", "input channels", -1),
}

_image_data_format: DataFormat = "channels_last"  # for the whole process, as in Keras


def image_data_format() -> DataFormat:
    """Return the default data format: "channels_last" until it is set, as in Keras.

    Examples
    --------
    >>> import mxsame.keras
    >>> mxsame.keras.backend.image_data_format()
    'channels_last'
    """
    return _image_data_format


@validation.check_arguments
def set_image_data_format(data_format: DataFormat) -> None:
    """Set the default data format, which :func:`image_data_format` returns, for all of `mxsame.keras`.

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
    _image_data_format = validation.one_of("data_format", data_format, DATA_FORMATS)


class KerasCall:
    """One call of a Keras function: its checked arrays, and their shapes.

    Parameters
    ----------
    arrays : mapping of str to array
        The data, then the kernels, by the names of the function's arguments.
    data_format : "channels_first", "channels_last" or None
    rank : int, optional
        The number of spatial axes if it is in the function's name. Otherwise it follows from the arrays and
        `pool_size`.
    """

    def __init__(
        self, arrays: Mapping[str, Any], data_format: Any, rank: Optional[int] = None, *, pool_size: Any = None
    ) -> None:
        data_format = image_data_format() if data_format is None else data_format
        self.channels_last = validation.one_of("data_format", data_format, DATA_FORMATS) == "channels_last"
        self.inputs, self.names = self.read_arrays(arrays), tuple(arrays)
        self.data, shape = self.inputs.data, self.inputs.shapes[0]
        length = len(pool_size) if validation.is_sequence(pool_size) else None
        self.rank = rank = self.inputs.rank({"num_spatial_dims": rank, "len(pool_size)": length})
        if len(self.names) > 1:
            operands.check_convolvable(self.names[0], self.data)
        # If MXNet cannot run channels last, data and kernels are transposed here: `mxsame.ops` would transpose the
        # kernel again.
        runs_channels_last = self.channels_last and tensors.runs_channels_last(rank, self.inputs.target.device)
        self.transposes = self.channels_last and not runs_channels_last
        self.layout = validation.LAYOUTS[rank][runs_channels_last]
        shape = shape or (None,) * (rank + 2)
        self.size: Sequence[Any]
        self.batch, self.channels, *self.size = tensors.shape_channels_first(shape) if self.channels_last else shape

    # ---- operators

    def conv(self, strides: Any, padding: Any, dilation_rate: Any, paddings: Sequence[str] = SAME_OR_VALID) -> Any:
        """Returns a convolution; the number of groups is the data's channels divided by the kernel's input channels."""
        weight, kernel_size, channels_per_group, channels = self._weight(1, "conv", None, None)
        in_channels, groups = self.channels, 1
        if channels_per_group and in_channels is None:  # the graph may determine them
            in_channels = probing.probe_channels(self.data, self.rank, self.channels_last)
        if channels_per_group and in_channels:
            groups = in_channels // channels_per_group
            are_groups_equal = in_channels % channels_per_group == 0 and channels % groups == 0
            rule = (
                f"{self.names[0]} must have the kernel's {channels_per_group} input channels, or groups times as many "
                f"if groups divides its {channels} output channels"
            )
            shapes = {f"{name}.shape": tuple(shape) for name, shape in zip(self.names, self.inputs.shapes) if shape}
            received: Any = {**shapes, "data_format": DATA_FORMATS[self.channels_last]}
            validation.check(are_groups_equal, rule, **received)
        window = self._window(strides, padding, dilation_rate, paddings)
        return self._run(ops.conv, weight, channels=channels, kernel_size=kernel_size, groups=groups, **window)

    def depthwise_conv(self, strides: Any, padding: Any, dilation_rate: Any) -> Any:
        """Returns a depthwise convolution; if a third array is the pointwise kernel, a separable convolution."""
        weight, kernel_size, in_channels, multiplier = self._weight(1, "depthwise", self.channels, None)
        arguments = self._window(strides, padding, dilation_rate)
        arguments.update(kernel_size=kernel_size, in_channels=in_channels, depth_multiplier=multiplier)
        if len(self.names) == 2:
            return self._run(ops.depthwise_conv, weight, **arguments)
        pointwise, _, _, channels = self._weight(2, "pointwise", in_channels * multiplier, None, kernel_length=1)
        return self._run(ops.separable_conv, weight, pointwise, channels=channels, **arguments)

    def conv_transpose(
        self, strides: Any, padding: Any, dilation_rate: Any = 1, output_padding: Any = None, output_shape: Any = None
    ) -> Any:
        """Returns a transposed convolution. Keras 3 and layers pass `output_padding`, Keras 2 passes `output_shape`."""
        weight, kernel_size, channels, _ = self._weight(1, "conv_transpose", None, self.channels)
        window = {"kernel_size": kernel_size, **self._window(strides, padding, dilation_rate)}
        if output_shape is not None:
            window["padding"], output_padding = self._crops(output_shape, channels, **window)
        return self._run(ops.conv_transpose, weight, channels=channels, output_padding=output_padding, **window)

    def pool(self, pool_size: Any, strides: Any, padding: Any, pool_mode: Any) -> Any:
        """Returns the maximum or the mean over windows; `pool_mode` is "max" or "avg"."""
        function = {"max": ops.max_pool, "avg": ops.avg_pool}[validation.one_of("pool_mode", pool_mode, ("max", "avg"))]
        padding = _padding(padding, SAME_OR_VALID)
        return self._run(function, pool_size=pool_size, strides=strides, padding=padding)

    def _run(self, function: Any, *weights: Any, **arguments: Any) -> Any:
        F, data, ndim = self.inputs.F, self.data, self.rank + 2
        if self.transposes:
            data = tensors.channels_first(F, data, ndim)
        out = function(data, *weights, layout=self.layout, **arguments)
        return self.inputs.restore(tensors.channels_last(F, out, ndim) if self.transposes else out)

    def _window(self, strides: Any, padding: Any, dilation_rate: Any, paddings: Sequence[str] = SAME_OR_VALID) -> dict:
        """Returns the strides, padding and dilation, as arguments of `mxsame.ops`."""
        return {
            "strides": validation.per_axis("strides", strides, self.rank, 1),
            "padding": _padding(padding, paddings),
            "dilation": validation.per_axis("dilation_rate", dilation_rate, self.rank, 1),
        }

    # ---- overridden for keras-mxnet

    def read_arrays(self, arrays: Mapping[str, Any]) -> Arrays:
        """Returns the arrays and their shapes, as the inputs of an operator."""
        return Arrays.of(**arrays)

    def stored_axes(self, kind: str) -> Sequence[int]:
        """Returns the axis of the stored kernel for each axis of Keras's kernel."""
        return range(self.rank + 2)

    def weight(self, kernel: Any, kind: KernelKind, shape: tuple) -> Any:
        """Returns a kernel, stored with this shape, as a weight for `mxsame.ops`."""
        return layouts.to_mxnet(kernel, kind, self.layout)

    # ---- arrays and shapes

    def _weight(
        self, position: int, kind: KernelKind, *expected: Optional[int], kernel_length: Optional[int] = None
    ) -> tuple[Any, tuple, Any, Any]:
        """Returns (weight, kernel_size, length, length), with the lengths of the two axes in `LAST_AXES[kind]`.

        These two must be `expected`, and each length in the kernel size `kernel_length`; None stands for any length.
        """
        name, shape = self.names[position], self.inputs.shapes[position] or (None,) * (self.rank + 2)
        *axes, open_axis = LAST_AXES[kind]
        stored = self.stored_axes(kind)
        meanings, lengths = (*("kernel size",) * self.rank, *axes), (*(kernel_length,) * self.rank, *expected)
        _, meanings, lengths = zip(*sorted(zip(stored, meanings, lengths)))
        validation.check_shape(name, shape, lengths, f"({', '.join(meanings)})")
        *kernel_size, first, second = actual = [shape[axis] for axis in stored]
        is_static = all(length is not None or axis - len(actual) == open_axis for axis, length in enumerate(actual))
        rule = f"{name} must have a static shape, given to the variable as mx.sym.var(..., shape=...)"
        validation.check(is_static, rule, **{f"{name}.shape": shape})
        return self.weight(self.inputs.arrays[position], kind, shape), tuple(kernel_size), first, second

    def _output_lengths(self, output_shape: Any, channels: int) -> Sequence[Optional[int]]:
        """Returns `(batch, *size)` of an output shape in the order of the data format; None for unspecified lengths."""
        shape = output_shape.asnumpy() if isinstance(output_shape, mx.nd.NDArray) else output_shape
        is_sequence, count = validation.is_sequence(shape), self.rank + 2
        validation.check_type(is_sequence, "output_shape must be a sequence of integers or None", output_shape=shape)
        validation.check(len(shape) == count, f"output_shape must have {count} entries", output_shape=shape)
        entries = [
            None if entry is None else validation.integer(f"output_shape[{axis}]", entry, 1)
            for axis, entry in enumerate(shape)
        ]
        validation.check_equal("output_shape[0]", entries[0], f"the batch of {self.names[0]}", self.batch)
        axis = self.rank + 1 if self.channels_last else 1
        validation.check_equal(f"output_shape[{axis}]", entries.pop(axis), "the output channels of kernel", channels)
        return entries

    def _crops(
        self,
        output_shape: Any,
        channels: int,
        kernel_size: tuple,
        strides: tuple,
        padding: KerasPadding,
        dilation: tuple,
    ) -> tuple[tuple, tuple]:
        """Returns (pads, output padding) for this shape of the output.

        A transposed convolution is the gradient of the convolution that maps the output's size to the data's: the pads
        of that convolution are cropped, and missing elements are appended. If the data's shape is dynamic, the graph
        refuses data of any other size.
        """
        batch, *lengths = self._output_lengths(output_shape, channels)
        crops, data_shape = [], [None if self.batch else batch, None]
        for axis, (n, length, k, s, d) in enumerate(zip(self.size, lengths, kernel_size, strides, dilation)):
            size, crop = n, arithmetic.transposed_crops(k, s, d, padding)
            if length is not None:
                try:
                    size, crop = arithmetic.transposed_crops_for_length(length, k, s, d, padding)
                except ValueError:  # shorter than the kernel
                    size = 0
            crops.append(crop)
            name = f"output_shape[{axis + (1 if self.channels_last else 2)}]"
            minimum = span(n or 1, 1 if padding == "same" else arithmetic.effective_kernel_size(k, d), s)
            possible = (
                f"{minimum} or more" if n is None else f"{minimum} to {minimum + s - 1}" if s > 1 else f"{minimum}"
            )
            rule = f"{possible}: the convolution of that length with this kernel, strides and padding has the length of"
            is_possible = size != 0 and n in (None, size)
            validation.check(is_possible, f"{name} must be {rule} {self.names[0]}", output_shape=output_shape)
            data_shape.append(None if n else size)
        if self.channels_last:
            data_shape.append(data_shape.pop(1))
        self.data = tensors.fix_lengths(self.data, data_shape)
        return arithmetic.split_crops(crops)


def _padding(padding: Any, modes: Sequence[str]) -> Any:
    """Returns the padding mode in lower case; refuses explicit pads, as Keras does."""
    rule = f"must be one of {', '.join(modes)}, as in Keras, which accepts no explicit pads: pad the array first"
    validation.check_type(not validation.is_sequence(padding), f"padding {rule}", padding=padding)
    return validation.one_of("padding", padding, modes)
