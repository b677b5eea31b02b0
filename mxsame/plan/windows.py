"""The geometry of an operator along each axis: a `Window` for each, made by `make_windows` from its arguments.

Here a padding becomes pads. Nothing after this file resolves the name of a padding rule again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from typing import Any, Optional, Sequence, Tuple, Union, cast

from mxsame import padding as arithmetic, validation
from mxsame.padding import same
from mxsame.padding.keras_mxnet import KERAS_MXNET, check_keras_mxnet, keras_mxnet_pads
from mxsame.types import AxisPadding

MAX_RESIDUES = 4096  # a dynamic window is checked for one size of each residue modulo the stride

Sizes = Tuple[Optional[int], ...]
Dims = Tuple[int, ...]  # one int for each axis


@dataclass(frozen=True)
class _Axis:
    """The checked, canonical geometry of an operator along one axis. `size` is None if it is dynamic."""

    size: Optional[int]
    kernel_size: int
    stride: int
    dilation: int = 1

    def __post_init__(self) -> None:
        for name in ("size", "kernel_size", "stride", "dilation"):
            value = getattr(self, name)
            if value is not None or name != "size":
                self._set(name, validation.integer(name, value, 1))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # the class is frozen

    @functools.cached_property
    def effective_kernel_size(self) -> int:
        """The effective kernel size ke = (k-1)d + 1."""
        return same.effective_kernel_size(self.kernel_size, self.dilation)


@dataclass(frozen=True)
class Window(_Axis):
    """The geometry along one axis of a convolution or pooling operator: output j reads the elements from j*s - low on.

    `padding` is "same", "keras-mxnet" or a (low, high) pair; any other padding of :func:`mxsame.padding.resolve_pads`
    is stored as a pair. A negative pad is a number of elements that no window reads; there is no plan for it.
    `ceil_mode` pads the end until a partial last window is whole (pooling with explicit pads).

    >>> window = Window(size=7, kernel_size=2, stride=2)
    >>> window.pads(7), window.outputs(7), Window(7, 2, 2, padding="Valid").padding
    ((0, 1), 4, (0, 0))
    """

    padding: AxisPadding = "same"
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.flag("ceil_mode", self.ceil_mode)
        if self.pads_depend_on_size:
            self._set("padding", cast(str, self.padding).lower())
        elif not _is_pair(self.padding):
            pads = arithmetic.resolve_pads(1, self.kernel_size, self.stride, self.dilation, self.padding)
            self._set("padding", pads)

    @property
    def _periodic_from(self) -> int:
        """The size from which on pads, outputs and crops depend on nothing but the remainder modulo the stride: a
        multiple of the stride, large enough that every kernel element reads data in at least one window."""
        return self.stride * (1 - (-2 * self.effective_kernel_size // self.stride))

    @property
    def sizes(self) -> Sequence[int]:
        """The sizes for which a plan is checked, to be exact for every size of the window. If the size is dynamic,
        there is one for each remainder modulo the stride."""
        return range(self._periodic_from, self._periodic_from + self.stride) if self.size is None else (self.size,)

    def representative(self) -> Window:
        """Returns the window of the shortest axis that has the same plans.

        >>> Window(224, 3, 2).representative().size, Window(225, 3, 2).representative().size
        (8, 9)
        """
        if self.size is None or self.size < self._periodic_from + self.stride:
            return self
        return replace(self, size=self._periodic_from + self.size % self.stride)

    @property
    def pads_depend_on_size(self) -> bool:
        """Whether the pads follow from the size, so that there are ceil(n/s) outputs."""
        return arithmetic.pads_depend_on_size(self.padding)

    @property
    def explicit_pads(self) -> Tuple[int, int]:
        """The (low, high) that does not follow from the size."""
        return (0, 0) if self.pads_depend_on_size else cast(Tuple[int, int], self.padding)

    @property
    def extra_at_start(self) -> bool:
        """Whether the extra padding element goes to the start, as in keras-mxnet, and not to the end."""
        return self.padding == KERAS_MXNET

    def pads(self, size: int) -> Tuple[int, int]:
        """Returns (low, high) for this size."""
        if self.extra_at_start:
            return keras_mxnet_pads(size, self.kernel_size, self.stride, self.dilation)
        if self.pads_depend_on_size:
            return same.same_pads(size, self.effective_kernel_size, self.stride)
        low, high = self.explicit_pads
        if self.ceil_mode:
            high += -(size + low + high - self.effective_kernel_size) % self.stride
        return low, high

    def outputs(self, size: int) -> int:
        """Returns how many windows fit into the padded size."""
        return same.count_windows(size + sum(self.pads(size)), self.effective_kernel_size, self.stride)

    def check_outputs(self, size: int, pool: bool, padding: Any = None) -> None:
        """Raises `ValueError`, with `padding` in its message, if an axis of this size has no output, a negative pad, or
        for a pooling operator a window that would read no element of data."""
        padding = self.padding if padding is None else padding
        pads = self.pads(size) if self.pads_depend_on_size else self.explicit_pads
        validation.check(min(pads) >= 0, "padding must not be negative", padding=padding)
        arithmetic.check_padded_length(size + sum(pads), self.effective_kernel_size, size=size, padding=padding)
        if pool or self.ceil_mode:
            _check_no_window_is_empty(self)

    def trimmed(self) -> Window:
        """Returns the window without the kernel elements at its start and end that read only padding, for a pooling
        operator that ignores padding: MXNet needs k <= n + 2*pad, and loops over every element."""
        if self.size is None:
            return self
        low, _ = self.pads(self.size)
        reach = (self.outputs(self.size) - 1) * self.stride  # from the first window's start to the last one's
        front, back = max(low - reach, 0), max(self.kernel_size - low - self.size, 0)
        if not front and not back:
            return self
        kernel_size, low = self.kernel_size - front - back, low - front
        high = max(reach + kernel_size - low - self.size, 0)
        return replace(self, kernel_size=kernel_size, padding=(low, high), ceil_mode=False)


@dataclass(frozen=True)
class TransposedWindow(_Axis):
    """The geometry along one axis of a transposed convolution: `crop` is the number of elements of its full extent
    (n-1)s + ke that are dropped at (start, end); for a negative end see :func:`mxsame.padding.transposed_crops`. The
    crop does not depend on the size.

    >>> TransposedWindow(size=4, kernel_size=3, stride=2, crop=(0, 1)).outputs(4)
    8
    """

    crop: Tuple[int, int] = (0, 0)
    explicit_pads = (0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = _is_pair(self.crop)
        validation.check_type(fits, "crop must be a pair (start, end) of integers", crop=self.crop)

    @property
    def sizes(self) -> Sequence[int]:
        """The size for which a plan is checked. If it is dynamic, it is one that leaves an output."""
        return (2 + max(sum(self.crop), 0) // self.stride if self.size is None else self.size,)

    def representative(self) -> TransposedWindow:
        """Returns the window of dynamic size, which has the same plans."""
        return self if self.size is None else replace(self, size=None)

    def pads(self, size: int) -> Tuple[int, int]:
        """Returns the crop, which MXNet calls the pads of a transposed convolution."""
        return self.crop

    def outputs(self, size: int) -> int:
        """Returns the length of the output for this size, (n-1)s + ke - start - end."""
        return same.span(size, self.effective_kernel_size, self.stride) - sum(self.crop)

    def check_outputs(self, size: int, pool: bool = False, **given: Any) -> None:
        """Raises `ValueError`, with what is given in its message, if an axis of this size has no output."""
        given = given or {"kernel_size": self.kernel_size, "stride": self.stride, "crop": self.crop}
        arithmetic.check_transposed_length(self.outputs(size), size=size, **given)


def _is_pair(value: Any) -> bool:
    """Returns whether a value is a tuple of two plain ints."""
    return type(value) is tuple and len(value) == 2 and type(value[0]) is type(value[1]) is int


AnyWindow = Union[Window, TransposedWindow]
Windows = Tuple[AnyWindow, ...]


@functools.lru_cache(maxsize=4096)
def make_windows(
    size: Sizes, kernel_size: Dims, strides: Dims, dilation: Dims, padding: Any, pool: bool = False, ceil: bool = False
) -> Tuple[Window, ...]:
    """Returns a checked `Window` for each axis, from arguments in canonical form.

    >>> make_windows((7, None), (2, 3), (2, 1), (1, 1), "same")
    (Window(size=7, kernel_size=2, ...), Window(size=None, kernel_size=3, ...))
    """
    check_keras_mxnet(padding, "pool" if pool else "conv", kernel_size, strides, dilation)
    windows = []
    for n, k, s, d, pads in zip(size, kernel_size, strides, dilation, _of_each_axis(padding, len(size))):
        same.effective_kernel_size(k, d)  # refuses what is too long for any size
        window = Window(n, k, s, d, pads, ceil)
        if window.size is not None:
            window.check_outputs(window.size, pool, pads)
        windows.append(window)
    return tuple(windows)


def _of_each_axis(padding: validation.CanonicalPadding, rank: int) -> Sequence[Any]:
    """Returns the padding of each axis."""
    return (padding,) * rank if isinstance(padding, str) else padding


def make_pool_windows(
    size: Sizes, pool_size: Dims, strides: Dims, padding: Any, ceil_mode: bool, counts_padding: bool
) -> Tuple[Tuple[Window, ...], Any]:
    """Returns the windows of a pooling operator, and the (low, high) pads to add to its data first.

    Only an average that counts padding, with `ceil_mode`, has such pads. It counts padding, but not what a partial
    window reads beyond it. So the padding is added as data, and the operator counts none.

    >>> make_pool_windows((5,), (2,), (2,), ((1, 0),), True, True)
    ((Window(size=6, kernel_size=2, stride=2, dilation=1, padding=(0, 0), ceil_mode=True),), ((1, 0),))
    """
    pads: Any = ()
    if counts_padding and ceil_mode and not arithmetic.pads_depend_on_size(padding):
        pads, padding = ((0, 0),) * len(size) if isinstance(padding, str) else padding, "valid"
        size = tuple(None if n is None else n + sum(ends) for n, ends in zip(size, pads))
    ones = (1,) * len(size)
    return make_windows(size, pool_size, strides, ones, padding, True, ceil_mode), pads


def describe_windows(windows: Sequence[AnyWindow], pool: bool = False) -> str:
    """Returns windows as text for a message, by the names of the arguments of a layer, or of a pooling layer.

    >>> describe_windows([TransposedWindow(8, 3, 2), TransposedWindow(9, 3, 2)])
    'input_size=(8, 9), kernel_size=(3, 3), strides=(2, 2), dilation=(1, 1), crop=((0, 0), (0, 0))'
    """
    names = {"size": "input_size", "stride": "strides", **({"kernel_size": "pool_size"} if pool else {})}
    values = {field.name: tuple(getattr(window, field.name) for window in windows) for field in fields(windows[0])}
    given = {name: value for name, value in values.items() if not (pool and name == "dilation")}
    return ", ".join(f"{names.get(name, name)}={value}" for name, value in given.items())


@functools.lru_cache(maxsize=4096)
def check_static(windows: Tuple[AnyWindow, ...], pool: bool) -> None:
    """Raises `ValueError` if an axis of static size has no output, or a window that would read no element of data."""
    for window in windows:
        if window.size is not None:
            window.check_outputs(window.size, pool)


@functools.lru_cache(maxsize=4096)
def check_dynamic(windows: Tuple[Window, ...], pool: bool) -> None:
    """Raises `ValueError` if there is no graph for every size of the axes that are dynamic."""
    for window in windows:
        if window.size is not None:
            continue
        if window.extra_at_start and window.stride > window.effective_kernel_size + 1:
            rule = "keras-mxnet cannot run every size if the stride exceeds ke + 1"
            raise validation.DynamicShapeError(f"{rule}; received {describe_windows(windows)}")
        check_residues(windows)
        if pool:
            _check_no_window_is_empty(window)


def check_residues(windows: Tuple[AnyWindow, ...]) -> None:
    """Raises `ValueError` if the stride of a dynamic axis is too long to check a size of each remainder."""
    dynamic = (each for each in windows if each.size is None and isinstance(each, Window))
    rule = f"strides must be <= {MAX_RESIDUES} for an input of dynamic shape"
    if any(each.stride > MAX_RESIDUES for each in dynamic):
        received = validation.received(strides=tuple(each.stride for each in windows))
        raise validation.DynamicShapeError(f"{rule}; {received}")


def _check_no_window_is_empty(window: Window) -> None:
    """Raises `ValueError` if a window starts after the data, as the last one may with ceil_mode."""
    starts = ((size, (window.outputs(size) - 1) * window.stride - window.pads(size)[0]) for size in window.sizes)
    if any(start >= size for size, start in starts):
        rule, given = "ceil_mode must leave each window an element of the data", describe_windows([window], True)
        if window.size is None:
            raise validation.DynamicShapeError(f"for every size, {rule}; received {given}")
        raise validation.InvalidValue(f"{rule}; received {given}")


@functools.lru_cache(maxsize=4096)
def make_transposed_windows(
    size: Sizes, kernel_size: Dims, strides: Dims, dilation: Dims, padding: Any, output_padding: Optional[Dims] = None
) -> Tuple[TransposedWindow, ...]:
    """Returns a checked `TransposedWindow` for each axis, from arguments in canonical form."""
    rank, windows = len(size), []
    check_keras_mxnet(padding, "transposed", kernel_size, strides, dilation)
    axes = zip(size, kernel_size, strides, dilation, _of_each_axis(padding, rank), output_padding or (None,) * rank)
    for n, k, s, d, pads, extra in axes:
        window = TransposedWindow(n, k, s, d, arithmetic.transposed_crops(k, s, d, pads, extra))
        if n is not None:
            window.check_outputs(n, kernel_size=k, stride=s, padding=pads, output_padding=extra)
        windows.append(window)
    return tuple(windows)


@functools.lru_cache(maxsize=4096)
def padded_and_output_size(windows: Tuple[AnyWindow, ...]) -> Tuple[Sizes, Sizes]:
    """Returns the size of the data with explicit pads, and that of the output, with None for dynamic axes.

    >>> padded_and_output_size(make_windows((7, None), (2, 3), (2, 1), (1, 1), ((0, 1), (1, 1))))
    ((8, None), (4, None))
    """
    padded = tuple(window.size and window.size + sum(window.explicit_pads) for window in windows)
    return padded, tuple(window.size and window.outputs(window.size) for window in windows)
