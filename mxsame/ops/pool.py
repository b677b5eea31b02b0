"""Pooling operators: maximum, average and Lp, of any rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from mxsame import operands, tensors, validation
from mxsame import padding as arithmetic
from mxsame._mxnet import mx
from mxsame.building import current
from mxsame.ops._geometry import Geometry, Planned, apply
from mxsame.ops._lowering import Lowering
from mxsame.plan import arrays, make_windows
from mxsame.planner import Work


def max_pool(
    data: Any,
    pool_size: Any,
    strides: Any = None,
    padding: Any = "same",
    layout: Optional[str] = None,
    input_size: Any = None,
    *,
    ceil_mode: bool = False,
) -> Any:
    """The maximum over windows of the data; padding never wins.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        (N, C, \\*size), or (N, \\*size, C) with a layout that ends in C; a floating type.
    pool_size : int or one int per axis
    strides : int or one int per axis; the pool size by default
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is the rule of keras-mxnet 2.2.4.3, not TensorFlow's, for networks trained in it: the extra
        padding element is at the start, and averages count padding. Refused with it: an even pool size of stride 1,
        which has n + 1 outputs there, except along the first of three axes (:func:`mxsame.padding.keras_mxnet_axes`).
        Explicit pads must be less than the pool size, so that every window holds an element of the data.
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol. Without it the graph is right for every size.
    ceil_mode : bool
        With "valid" and explicit pads, whether a partial window at the end counts: the number of outputs is then
        rounded up, not down.

    Returns
    -------
    Of the kind of `data`: (N, C, \\*out) or (N, \\*out, C); out = ceil(n/s) for "same".

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
    return _run("max", {}, data, pool_size, strides, padding, layout, input_size, ceil_mode)


def avg_pool(
    data: Any,
    pool_size: Any,
    strides: Any = None,
    padding: Any = "same",
    layout: Optional[str] = None,
    input_size: Any = None,
    count_include_pad: Optional[bool] = None,
    *,
    ceil_mode: bool = False,
) -> Any:
    """The mean over windows of the data; padding does not count, as in TensorFlow.

    Arguments are those of :func:`max_pool`, and:

    Parameters
    ----------
    count_include_pad : bool, optional
        Whether padding counts as zeros: False by default; always True with "keras-mxnet". With `ceil_mode`, the part of
        a partial window after the padding does not count, as in `gluon.nn`.

    Raises
    ------
    TypeError, ValueError
        As `max_pool`, and for `count_include_pad=False` with "keras-mxnet".

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.avg_pool(nd.array([[[1, 2, 3]]]), 2).asnumpy().tolist()
    [[[1.5, 3.0]]]
    >>> mxsame.ops.avg_pool(nd.array([[[1, 2, 3]]]), 2, count_include_pad=True).asnumpy().tolist()
    [[[1.5, 1.5]]]
    """
    count_include_pad = validation.count_include_pad(count_include_pad, padding)
    operator = "avg with padding" if count_include_pad else "avg"
    return _run(operator, {}, data, pool_size, strides, padding, layout, input_size, ceil_mode)


def lp_pool(
    data: Any,
    pool_size: Any,
    strides: Any = None,
    padding: Any = "same",
    layout: Optional[str] = None,
    input_size: Any = None,
    p_value: int = 2,
    *,
    ceil_mode: bool = False,
) -> Any:
    """The root of the sum of powers, (sum of x^p)^(1/p), over windows of the data; padding adds nothing.

    Powers are of signed values, as in MXNet's Pooling: the result is the Lp norm for p = 2, and for data that is not
    negative. The gradient is not defined for a window with only zeros.

    Arguments are those of :func:`max_pool`, and:

    Parameters
    ----------
    p_value : 1, 2 or 3
        The order p of the norm.

    Raises
    ------
    TypeError, ValueError
        As `max_pool`, and for another p.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.lp_pool(nd.array([[[3, 4, -5]]]), 2).asnumpy().tolist()
    [[[5.0, 5.0]]]
    """
    p_value = validation.integer("p_value", p_value, 1, 3)
    return _run("lp", {"p_value": p_value}, data, pool_size, strides, padding, layout, input_size, ceil_mode)


def _run(operator: str, more: dict, data: Any, *arguments: Any) -> Any:
    """One of `mxsame.plan.POOLS` on data; `more` is what MXNet's Pooling is told in addition."""
    return apply(_plan_pool, operands.classic(data=data), operator, *more.items(), *arguments)


def _plan_pool(args: operands.Operands, operator: str, *arguments: Any) -> Planned:
    *more, pool_size, strides, padding, layout, input_size, ceil_mode = arguments
    ceil_mode = validation.flag("ceil_mode", ceil_mode)
    geometry = Geometry.of(args, layout, "pool_size", pool_size, input_size)
    rank = geometry.rank
    pool_size = validation.per_axis("pool_size", pool_size, rank, 1)
    strides = pool_size if strides is None else validation.per_axis("strides", strides, rank, 1)
    padding = validation.pooling_padding(padding, pool_size)
    pool = _Pool(operator, dict(more), pool_size, strides, ceil_mode)
    if operator == "avg with padding" and ceil_mode and padding not in arithmetic.SIZE_DEPENDENT:
        return pool.of_padded(geometry, ((0, 0),) * rank if isinstance(padding, str) else padding)
    return pool.planned(geometry, padding)


class _Pool(NamedTuple):
    """A pooling operator, with its checked arguments."""

    operator: str
    more: dict
    pool_size: Tuple[int, ...]
    strides: Tuple[int, ...]
    ceil_mode: bool

    def of_padded(self, geometry: Geometry, pads: Sequence[Tuple[int, int]]) -> Planned:
        """With ceil_mode the padding counts, and what a partial window has after it does not: so the padding becomes
        data. MXNet's pad operator has channels first."""
        F, size = geometry.args.F, tuple(None if n is None else n + sum(pair) for n, pair in zip(geometry.size, pads))
        padded = replace(geometry, native_last=False, shape=geometry.shape[:2] + size)
        pooled = self._replace(operator="avg").planned(padded, "valid")
        return pooled._replace(run=lambda data: pooled.run(arrays.padded(F, data, pads)))

    def planned(self, geometry: Geometry, padding: Any) -> Planned:
        """The call with its plan."""
        operator, size, ones = self.operator, geometry.size, (1,) * geometry.rank
        windows = make_windows(size, self.pool_size, self.strides, ones, padding, pool=True, ceil_mode=self.ceil_mode)
        geometry.check_windows(operator, geometry.shape[1], windows)
        # The mean of two elements, one of them the nearest to the other instead of padding, is the mean of the one.
        pairs = operator == "avg" and all(window.kernel_size <= 2 for window in windows)
        fill = "edge" if operator == "max" or pairs else "zero"

        def pooled(lowering: Lowering, layout: dict) -> Callable:
            run = self._pooled(geometry, lowering, layout)
            if operator != "avg" or fill != "zero" or not lowering.plan.fills or current().windows_noted:
                return run
            plan = replace(lowering.plan, pairs=False, blocks=False)
            F, thin = lowering.F, self._pooled(geometry, replace(lowering, plan=plan, channels=1), layout)

            def divided(data: Any) -> Any:
                # What part of each window is data: the same pooling of ones.
                ones = F.BlockGrad(F.ones_like(lowering.thin(data)))
                return F.broadcast_div(run(data), thin(ones))

            return divided

        return geometry.planned(windows, _work(geometry, operator), pooled, fill=fill, refused=_refused(geometry))

    def _pooled(self, geometry: Geometry, lowering: Lowering, layout: dict) -> Callable:
        """MXNet's Pooling by a plan, as a function of data."""
        F, plan, operator = lowering.F, lowering.plan, self.operator
        along = 1 if plan.pairs else 0  # an axis before those of the windows, along which nothing is pooled
        arguments: Dict[str, Any] = {
            "kernel": (1,) * along + tuple(axis.kernel_size for axis in plan.axes),
            "stride": (1,) * along + tuple(axis.strides(window) for axis, window in zip(plan.axes, lowering.windows)),
            "pad": (0,) * along + tuple(axis.pad for axis in plan.axes),
            "pool_type": operator.split()[0],
            "pooling_convention": plan.convention,
            **self.more,
            **layout,
        }
        if operator.startswith("avg"):
            arguments["count_include_pad"] = operator == "avg with padding"
        pool = lowering.operator("Pooling", arguments)
        takes_gradients = tensors.use_of(geometry.data).gradients

        def pooling(prepared: Any) -> Any:
            if plan.pairs:
                prepared = arrays.paired(F, prepared, takes_gradients)
            if plan.blocks:
                prepared = arrays.in_blocks(F, prepared, lowering.channels // (1 + along))
            out = pool(prepared)
            return arrays.unpaired(F, out, copies=plan.blocks) if plan.pairs else out

        if not _loses_workspace(geometry, operator):
            return lambda data: lowering.run(data, pooling)
        # MXNet's own code, which runs in float64, needs none.
        return lambda data: F.cast(lowering.run(F.cast(data, dtype="float64"), pooling), dtype="float32")


def _loses_workspace(geometry: Geometry, operator: str) -> bool:
    """Whether oneDNN keeps nothing for a backward pass, which may follow: of a maximum at inference."""
    data = geometry.data
    return operator == "max" and tensors.use_of(data).has_saliency and tensors.known_type(data) == "float32"


def _work(geometry: Geometry, operator: str) -> Work:
    """The facts about the data: its layout, and the layouts that it can have. Whether an NDArray is in oneDNN's blocks
    is not known."""
    data, on_cpu = geometry.data, tensors.purpose_and_device(geometry.data)[1] == "cpu"
    onednn = tensors.has_onednn() and on_cpu and operator != "lp"
    if not onednn or geometry.rank == 3 or _loses_workspace(geometry, operator):
        return Work(operator)
    blocks = isinstance(data, mx.sym.Symbol) and _convolves(data, unknown_type=False)
    if geometry.rank == 2:
        return Work(operator, blocks=blocks)
    channels = geometry.graph_channels()
    in_blocks = not geometry.channels_last and tensors.is_in_blocks(data)
    return Work(operator, in_channels=channels, in_blocks=in_blocks, pairs=True, blocks=blocks)


def _refused(geometry: Geometry) -> Tuple[str, ...]:
    """The strategies that are not exact, or slow: files for any size take a length of 1, which windows of two do not
    take with "full"."""
    is_for_any_size = None in geometry.size
    refused = () if _convolves(geometry.data, unknown_type=is_for_any_size) else ("pick",)
    return (*refused, "full") if is_for_any_size and current().exported else refused


def _convolves(data: Any, unknown_type: bool) -> bool:
    """Whether there are fast depthwise convolutions of such data: on the CPU those of oneDNN, of float32. As given
    for a graph that does not tell the type."""
    if tensors.purpose_and_device(data)[1] == "gpu":
        return True
    dtype = tensors.known_type(data)
    return tensors.has_onednn() and (unknown_type if dtype is None else dtype == "float32")
