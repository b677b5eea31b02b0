"""Poolings: maximum and average, of any rank."""

from __future__ import annotations

from typing import Any, Optional

from mxsame import padding as arithmetic
from mxsame import plan as planning
from mxsame import validation
from mxsame.ops import _arguments, _arrays, _run
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
    """The maximum over windows of the data; cells of padding never win.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        (N, C, \\*size), or (N, \\*size, C) with a layout that ends in C; a floating type.
    pool_size : int or one int per axis
    strides : int or one int per axis; the pool size by default
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is not TensorFlow's rule but that of keras-mxnet 2.2.4.3, for networks trained in it: the odd cell
        stands at the begin, averages count padding, and an even pool size of stride 1 gives n + 1 outputs (not along
        the first axis of a 3-D pooling); see :func:`mxsame.padding.by_axis`.
        Each pad must be less than the pool size, so that every window holds a cell of the data.
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol. Without it the graph serves every size.
    ceil_mode : bool
        With "valid" and explicit pads, whether a partial window at the end counts: out is rounded up, not down.

    Returns
    -------
    Of the kind of `data`: (N, C, \\*out) or (N, \\*out, C); out = ceil(n/s) for "same".

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, and where a window would hold no cell of the data.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.max_pool(nd.array([[[-3, -1, -2]]]), 2).asnumpy().tolist()
    [[[-1.0, -2.0]]]
    """
    return _pool("max", data, pool_size, strides, padding, layout, input_size, ceil_mode, False)


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
    """The mean over windows of the data, of those cells that are inside it, as TensorFlow does.

    Arguments are those of :func:`max_pool`, and:

    Parameters
    ----------
    count_include_pad : bool, optional
        Whether cells of padding count as zeros: False by default, but True with "keras-mxnet", which knows nothing
        else. With `ceil_mode`, what a partial window has beyond the padding does not count, as in `gluon.nn`.

    Raises
    ------
    TypeError, ValueError
        As `max_pool`, and where padding must count with "keras-mxnet" but `count_include_pad` is False.

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
    return _pool("avg", data, pool_size, strides, padding, layout, input_size, ceil_mode, count_include_pad)


def _pool(
    pool_type: str,
    data: Any,
    pool_size: Any,
    strides: Any,
    padding: Any,
    layout: Any,
    input_size: Any,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Any:
    ceil_mode = validation.flag("ceil_mode", ceil_mode)
    args = _arrays.classic(data=data)
    geometry = _arguments.geometry(args, layout, "pool_size", pool_size, input_size)
    rank = geometry.num_spatial_dims
    pool_size = validation.per_axis("pool_size", pool_size, rank, 1)
    strides = pool_size if strides is None else validation.per_axis("strides", strides, rank, 1)
    padding = validation.pooling_padding(padding, pool_size)

    becomes_data = count_include_pad and ceil_mode and padding not in arithmetic.SIZE_DEPENDENT
    if becomes_data:
        geometry = geometry._replace(knows_last=False)  # MXNet's pad operator has channels first
    F, x = args.F, geometry.inward(args.F, geometry.data)
    if becomes_data:
        # The padding counts, what lies beyond it does not: so the padding, if there is any, becomes data.
        if padding != "valid":
            x = _run.padded(F, x, padding)
            size = tuple(None if n is None else n + sum(pads) for n, pads in zip(geometry.size, padding))
            geometry = geometry._replace(data_shape=geometry.data_shape[:2] + size)
        padding, count_include_pad = "valid", False
    padding = arithmetic.by_axis(padding, "pool", pool_size, strides, (1,) * rank)
    windows = geometry.windows(geometry.data_shape[1], pool_size, strides, (1,) * rank, padding, ceil_mode)
    _check_windows(windows)
    # A count of k per window is the operator's own only where no window is clipped.
    allowed = planning.MAXIMUM if pool_type == "max" else planning.AVERAGE
    allowed = tuple(name for name in allowed if not (count_include_pad and name == "full"))
    rules = {"pads_below_kernel": True, "trim": not count_include_pad}
    plan = _arguments.decide(geometry, x, windows, allowed, Work(pool_type), **rules)
    # The mean of two cells, one of them the nearest to the other in place of padding, is the mean of the one.
    pairs = not count_include_pad and all(window.kernel_size <= 2 for window in windows)
    fill = "edge" if pool_type == "max" or pairs else "zero"
    out = _run.run_window(
        F,
        x,
        windows,
        plan,
        lambda y: pooling(F, y, windows, plan, pool_type, count_include_pad, **geometry.operator_layout),
        fill,
        geometry.data_shape[1],
        geometry.first,
    )
    if fill == "zero" and plan.fills and not count_include_pad:
        out = F.broadcast_div(out, _shares(F, x, windows, plan, geometry))
    return args.restore(geometry.outward(F, out))


def pooling(
    F: Any, data: Any, windows: Any, plan: planning.Plan, pool_type: str, count_include_pad: bool, **layout: str
) -> Any:
    """MXNet's Pooling as a plan wants it, on prepared data."""
    return F.Pooling(
        data,
        kernel=tuple(step.kernel_size for step in plan.axes),
        stride=tuple(window.stride for window in windows),
        pad=tuple(step.pad for step in plan.axes),
        pool_type=pool_type,
        pooling_convention=plan.convention,
        count_include_pad=count_include_pad,
        **layout,
    )


def _shares(F: Any, data: Any, windows: Any, plan: planning.Plan, geometry: _arguments.Geometry) -> Any:
    """What part of each averaged window is data: the same pooling of ones, one batch entry and one channel thin."""
    ones = F.BlockGrad(F.ones_like(_run.thin(F, data, _run.outer_axes(len(windows), geometry.first))))
    return _run.run_window(
        F,
        ones,
        windows,
        plan,
        lambda y: pooling(F, y, windows, plan, "avg", False, **geometry.operator_layout),
        "zero",
        first=geometry.first,
    )


def _check_windows(windows: Any) -> None:
    """With ceil_mode the last window may begin behind the data."""
    for window in windows:
        for size in window.sizes:
            if (window.outputs(size) - 1) * window.stride - window.pads(size)[0] >= size:
                raise ValueError(
                    "ceil_mode must leave no window without a cell of the data, for any size that is possible (give "
                    "input_size where it is known); "
                    f"{validation.received(input_size=window.size, pool_size=window.kernel_size)}, "
                    f"strides={window.stride}, padding={window.padding}"
                )
