"""Pooling operators: maximum, average and Lp, of any rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from mxsame import processor, tensors, validation
from mxsame.ops._call import apply, choose_plan, recipe_of
from mxsame.ops._inputs import Inputs, Spec
from mxsame.plan import arrays
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.recipe import Recipe
from mxsame.plan.strategies import AVG_WITH_PADDING
from mxsame.plan.windows import Window, Windows, make_pool_windows
from mxsame.scope import scope, with_windows
from mxsame.tensors import operands
from mxsame.types import Ints, Layout, Padding
from mxsame.validation import PartialShape

if TYPE_CHECKING:
    from mxsame._mxnet import Array


@validation.check_arguments
def max_pool(
    data: Array,
    pool_size: Ints,
    strides: Optional[Ints] = None,
    padding: Padding = "same",
    layout: Optional[Layout] = None,
    input_size: Optional[Ints] = None,
    *,
    ceil_mode: bool = False,
) -> Array:
    """Compute the maximum over windows of the data; padding is never the maximum.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` if `layout` has channels last; a floating type.
    pool_size : int or one int per axis
    strides : int or one int per axis; the pool size by default
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is the rule of keras-mxnet 2.2.4.3, not TensorFlow's, for networks trained in it: the extra
        padding element is at the start, and averages count padding. An even pool size with stride 1, for which
        keras-mxnet has n + 1 outputs, is accepted only along the first axis of 3-D data.
        Explicit pads must be less than the pool size, so that every window holds an element of the data.
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol of unknown shape. Without it, the graph supports every size.
    ceil_mode : bool
        With "valid" and explicit pads, whether a partial window at the end counts: the number of outputs is then
        rounded up, not down.

    Returns
    -------
    Same kind as `data`: `(N, C, *out)` or `(N, *out, C)`; out = ceil(n/s) for "same".

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, and if a window would hold no element of the data.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.max_pool(nd.array([[[-3, -1, -2]]]), 2).asnumpy().tolist()
    [[[-1.0, -2.0]]]
    """
    return apply(PoolSpec("max", pool_size, strides, padding, layout, input_size, ceil_mode), data=data)


@validation.check_arguments
def avg_pool(
    data: Array,
    pool_size: Ints,
    strides: Optional[Ints] = None,
    padding: Padding = "same",
    layout: Optional[Layout] = None,
    input_size: Optional[Ints] = None,
    count_include_pad: Optional[bool] = None,
    *,
    ceil_mode: bool = False,
) -> Array:
    """Compute the mean over windows of the data; padding does not count, as in TensorFlow.

    Parameters
    ----------
    data, pool_size, strides, padding, layout, input_size, ceil_mode
        As for :func:`max_pool`.
    count_include_pad : bool, optional
        Whether padding counts as zeros: False by default; always True with "keras-mxnet". With `ceil_mode`, the part of
        a partial window after the padding does not count, as in `gluon.nn`.

    Returns
    -------
    Same kind as `data`: `(N, C, *out)` or `(N, *out, C)`; out = ceil(n/s) for "same".

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, including `count_include_pad=False` with "keras-mxnet", and if a window would hold no
        element of the data.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.avg_pool(nd.array([[[1, 2, 3]]]), 2).asnumpy().tolist()
    [[[1.5, 3.0]]]
    >>> mxsame.ops.avg_pool(nd.array([[[1, 2, 3]]]), 2, count_include_pad=True).asnumpy().tolist()
    [[[1.5, 1.5]]]
    """
    arguments = pool_size, strides, padding, layout, input_size, ceil_mode
    return apply(PoolSpec("avg", *arguments, count_include_pad=count_include_pad), data=data)


@validation.check_arguments
def lp_pool(
    data: Array,
    pool_size: Ints,
    strides: Optional[Ints] = None,
    padding: Padding = "same",
    layout: Optional[Layout] = None,
    input_size: Optional[Ints] = None,
    p_value: int = 2,
    *,
    ceil_mode: bool = False,
) -> Array:
    """Compute the root of the sum of powers, (sum of x^p)^(1/p), over windows of the data; padding adds nothing.

    Signed values are raised to the power, as in MXNet's Pooling: the result is the Lp norm if p is 2, or if no element
    is negative. The gradient of a window of zeros is undefined.

    Parameters
    ----------
    data, pool_size, strides, padding, layout, input_size, ceil_mode
        As for :func:`max_pool`.
    p_value : 1, 2 or 3
        The order p of the norm.

    Returns
    -------
    Same kind as `data`: `(N, C, *out)` or `(N, *out, C)`; out = ceil(n/s) for "same".

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, including any other `p_value`, and if a window would hold no element of the data.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.lp_pool(nd.array([[[3, 4, -5]]]), 2).asnumpy().tolist()
    [[[5.0, 5.0]]]
    """
    return apply(PoolSpec("lp", pool_size, strides, padding, layout, input_size, ceil_mode, p_value), data=data)


@dataclass
class PoolSpec(Spec):
    """The arguments of a pooling operator. Only averages use `count_include_pad`."""

    pool_type: str
    pool_size: Any
    strides: Any = None
    padding: Any = "same"
    layout: Any = None
    input_size: Any = None
    ceil_mode: Any = False
    p_value: Any = 2
    count_include_pad: Any = None

    @property
    def operator(self) -> str:
        """The operator that is planned, one of `mxsame.plan.POOLS`."""
        return AVG_WITH_PADDING if self.count_include_pad else self.pool_type

    def checked(self, rank: int) -> PoolSpec:
        """Returns the spec with its arguments in canonical form, for this number of axes."""
        spec = super().checked(rank)
        padding = validation.pooling_padding(spec.padding, spec.pool_size)
        counts = self.pool_type == "avg" and validation.count_include_pad(spec.count_include_pad, padding)
        return replace(spec, strides=spec.strides or spec.pool_size, padding=padding, count_include_pad=counts)

    def windows(self, size: PartialShape) -> Windows:
        """Returns the windows of a checked spec, for data of this size."""
        return self.windows_and_pads(size)[0]

    def windows_and_pads(self, size: PartialShape) -> Tuple[Windows, Any]:
        """Returns the windows of a checked spec, and the pads that are added to the data first."""
        return make_pool_windows(
            size, self.pool_size, self.strides, self.padding, self.ceil_mode, self.count_include_pad
        )

    def lower(self, inputs: Inputs) -> Pooling:
        """Returns the recipe of MXNet's Pooling for a checked spec and its inputs."""
        target, (windows, pads) = inputs.target, self.windows_and_pads(inputs.size)
        operator = self.pool_type if pads else self.operator  # once the pads are data, there is no padding to count
        if pads:  # padded with MXNet's pad operator, which requires channels first
            shape = inputs.shape[:2] + tuple(window.size for window in windows)
            inputs = replace(inputs, shape=shape, runs_channels_last=False)
        # At inference oneDNN's max pooling keeps nothing for a backward pass, but one may follow.
        in_float64 = operator == "max" and target.infers_with_gradients and tensors.known_type(inputs.data) == "float32"
        inputs.check_output(windows, operator, inputs.shape[1])
        work = inputs.workload(operator, **_layout_options(inputs, operator, in_float64))
        plan = choose_plan(inputs, windows, work, _excluded(inputs, windows))
        given: Dict[str, Any] = {"pool_type": self.pool_type, "pooling_convention": plan.convention}
        if operator == "lp":
            given["p_value"] = self.p_value
        if self.pool_type == "avg":
            given["count_include_pad"] = operator == AVG_WITH_PADDING
        fields = {"fill": _fill(operator, windows), "copies_pairs": target.has_gradients, "in_float64": in_float64}
        pooling = recipe_of(Pooling, "Pooling", inputs, windows, work, plan, given, pads=pads, **fields)
        if operator != "avg" or pooling.fill != "zero" or not plan.pads_data or target.purpose == "format":
            return pooling
        work, plan = replace(work, in_channels=1), replace(plan, pairs_channels=False)
        divisor = recipe_of(Pooling, "Pooling", inputs, windows, work, plan, given, **fields)
        return replace(pooling, divisor=replace(divisor, transposes=False))


def _fill(operator: str, windows: Windows) -> str:
    """Returns the fill value of padding that is added to the data: the edge if that changes no output. If the padding
    in a window of two is a copy of the other element, their mean is that element."""
    averages_two = operator == "avg" and all(window.kernel_size <= 2 for window in windows)
    return "edge" if operator == "max" or averages_two else "zero"


def _layout_options(inputs: Inputs, operator: str, in_float64: bool) -> Dict[str, Any]:
    """Returns the layout fields of the `Workload` for 1-D and 3-D pooling; 1-D pooling has fast code for
    pairs of channels. Whether an NDArray is in oneDNN's blocks is not known."""
    if in_float64 or operator == "lp" or inputs.target.device_or_current != "cpu" or not tensors.has_onednn():
        return {}
    pairs = len(inputs.size) == 1 and processor.has("AVX512_CORE")
    if not pairs and len(inputs.size) != 3:
        return {}
    in_blocks = not inputs.channels_last and tensors.is_in_blocks(inputs.data, inputs.target.purpose)
    return {"in_channels": inputs.infer_in_channels(), "in_blocks": in_blocks, "pairs_channels": pairs}


def _excluded(inputs: Inputs, windows: Windows) -> Tuple[str, ...]:
    """Returns the strategies that are inexact or slow here. "full" is excluded if a net has a single graph for every
    size, since that must accept an axis of length 1, which "full" does not for windows of two."""
    is_for_any_size = None in inputs.size
    excluded = () if _has_fast_depthwise(inputs, is_for_any_size) else ("pick",)
    pads_depend_on_size = any(isinstance(window, Window) and window.pads_depend_on_size for window in windows)
    is_only_graph = inputs.in_graph and scope().is_only_graph
    return (*excluded, "full") if is_for_any_size and pads_depend_on_size and is_only_graph else excluded


def _has_fast_depthwise(inputs: Inputs, if_type_unknown: bool) -> bool:
    """Returns whether the data can be copied by a fast depthwise convolution; on the CPU that means oneDNN and float32.
    `mxnet.contrib.amp` would round what it copies. `if_type_unknown` is returned for a graph that does not show the
    type."""
    if operands.amp_type() is not None:
        return False
    if inputs.target.device_or_current == "gpu":
        return True
    dtype = tensors.known_type(inputs.data)
    return tensors.has_onednn() and (if_type_unknown if dtype is None else dtype == "float32")


@dataclass(frozen=True)
class Pooling(Recipe):
    """MXNet's Pooling.

    Parameters
    ----------
    copies_pairs : bool
        Whether the data is copied when its channels are paired, which gradients need.
    in_float64 : bool
        Whether it runs in float64, by MXNet's own code, which needs no workspace.
    pads
        Zeros added to the data before pooling.
    divisor : Pooling, optional
        The same pooling of ones: the part of each window that is data, by which averages are divided.
    """

    copies_pairs: bool = False
    in_float64: bool = False
    pads: Tuple[validation.Pair, ...] = ()
    divisor: Optional[Pooling] = None

    def __call__(self, F: Any, data: Any) -> Any:
        ndim = self.spatial_axes.stop
        if self.transposes:
            data = tensors.channels_first(F, data, ndim)
        data = arrays.pad(F, data, self.pads)
        with with_windows(None if self.attributes_suffice else self.windows):
            out = self._pooled(F, F.cast(data, dtype="float64") if self.in_float64 else data)
            if self.in_float64:
                out = F.cast(out, dtype="float32")
            if self.divisor is not None:
                thin = arrays.take_first(F, data, (0, 1 if self.spatial_axis == SPATIAL else ndim - 1))
                ones = F.BlockGrad(F.ones_like(thin))  # for one batch entry and one channel
                out = F.broadcast_div(out, self.divisor(F, ones))
        return tensors.channels_last(F, out, ndim) if self.transposes else out

    def _pooled(self, F: Any, data: Any) -> Any:
        plan, prepared = self.plan, self.prepare_data(F, data)
        if plan.pairs_channels:
            prepared = arrays.pair_channels(F, prepared, self.copies_pairs)
        out = F.Pooling(prepared, **self.attributes)
        if plan.pairs_channels:
            out = arrays.unpair_channels(F, out)
        return self.finish(F, out, data)
