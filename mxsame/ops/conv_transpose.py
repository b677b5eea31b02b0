"""Transposed convolutions: the gradient of a convolution's data, as an operator of its own."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from mxsame import padding as arithmetic
from mxsame import plan as planning
from mxsame import validation
from mxsame._mxnet import mx
from mxsame.ops import _arguments, _arrays, _run
from mxsame.ops.conv import convolution


def conv_transpose(
    data: Any,
    weight: Any,
    bias: Any = None,
    *,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    strides: Any = 1,
    padding: Any = "same",
    output_padding: Any = None,
    dilation: Any = 1,
    groups: int = 1,
    layout: Optional[str] = None,
) -> Any:
    """Transposed convolution in 1, 2 or 3 dimensions, with TensorFlow's SAME by default.

    Per axis, the full extent is (n-1)s + ke. "same" gives n*s outputs and "valid" (n-1)s + max(ke, s); with
    `output_padding` it is (n-1)s + ke - 2(ke//2) + output_padding and (n-1)s + ke + output_padding. Where cells are
    cut, half of them, rounded down, come from the head; see :func:`mxsame.padding.transposed_cuts` for the source.
    Explicit pads are what is cut: (n-1)s + ke - low - high + output_padding.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        (N, I, \\*size), or (N, \\*size, I) with a layout that ends in C. float32 or float64 on the CPU.
    weight : same kind as data
        (I, channels/groups, \\*k) with channels first, (I, \\*k, channels/groups) with channels last.
    bias : same kind as data, optional
        (channels,).
    channels, kernel_size : int, int or sequence of ints; optional where the weight's shape is known
    strides, dilation : int or one int per axis
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is not TensorFlow's rule but that of keras-mxnet 2.2.4.3, for networks trained in it: as many
        cells are cut as with "same", half of them, rounded up, from the head.
    output_padding : int or one int per axis, optional
        Less than the stride. None is not 0: it asks for the sizes above.
    groups : int
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default

    Returns
    -------
    Of the kind of `data`: (N, channels, \\*out) or (N, \\*out, channels).

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, shapes that do not fit together, and pads that leave nothing of the output.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> out = mxsame.ops.conv_transpose(nd.array([[[1, 10]]]), nd.array([[[1, 2, 3]]]), strides=2)
    >>> out.asnumpy().ravel().tolist()
    [1.0, 2.0, 13.0, 20.0]
    """
    groups = validation.integer("groups", groups, 1)
    args = _arrays.classic(data=data, weight=weight, bias=bias)
    _arrays.forbid_float16_on_cpu(args.arrays[0], "convolution")
    geometry = _arguments.geometry(args, layout, "kernel_size", kernel_size)
    rank, in_channels = geometry.num_spatial_dims, geometry.data_shape[1]
    kernel = _arguments.kernel(
        args,
        1,
        "weight",
        geometry,
        kernel_size,
        (in_channels, None),
        "(data channels, channels / groups, *kernel_size)"
        if not geometry.channels_last
        else "(data channels, *kernel_size, channels / groups)",
    )
    if in_channels is None:
        in_channels = kernel.shape[0] or (_arguments.graph_channels(geometry) if groups > 1 else None)
    if in_channels is not None:
        validation.divisible("data channels", in_channels, "groups", groups)
    found = None if kernel.shape[1] is None else kernel.shape[1] * groups
    channels = _arguments.count("channels", channels, "the weight's second length times groups", found)
    if channels is None:
        raise ValueError("channels must be given where the weight's shape is unknown; received channels=None")
    validation.divisible("channels", channels, "groups", groups)
    _arguments.check_bias(args, 2, channels)
    strides = validation.per_axis("strides", strides, rank, 1)
    dilation = validation.per_axis("dilation", dilation, rank, 1)
    padding = arithmetic.by_axis(validation.padding(padding, rank), "transposed", kernel.size, strides, dilation)
    if output_padding is None:
        output_padding = (None,) * rank
    else:
        output_padding = validation.per_axis("output_padding", output_padding, rank, 0)
    cuts, lengths = [], []
    for axis in range(rank):
        rule = (kernel.size[axis], strides[axis], dilation[axis], padding[axis], output_padding[axis])
        cuts.append(arithmetic.transposed_cuts(*rule))
        size = geometry.size[axis]
        lengths.append(None if size is None else arithmetic.transposed_output_size(size, *rule))
    validation.elements("the output", (geometry.data_shape[0], channels, *lengths))

    F, (_, weight, bias) = args.F, args.arrays
    strategy = _strategy(geometry, weight, strides, dilation)
    if groups > 1 or strategy == "stuff":
        geometry = geometry._replace(knows_last=False)
    data, weight = geometry.inward(F, geometry.data), geometry.inward(F, weight)
    if strategy == "stuff":
        out = _stuffed(F, data, weight, bias, kernel.size, strides, dilation, cuts, channels, groups, in_channels)
    else:
        axes = [
            planning.plan_transposed(arithmetic.effective_kernel_size(k, d), s, cut, strategy, d)
            for k, d, s, cut in zip(kernel.size, dilation, strides, cuts)
        ]
        out = _deconvolution(F, data, weight, bias, kernel.size, strides, dilation, axes, channels, groups, geometry)
    return args.restore(geometry.outward(F, out))


def _strategy(geometry: _arguments.Geometry, weight: Any, strides: Sequence[int], dilation: Sequence[int]) -> str:
    """How it is run: the strategy in force, or the fastest that is exact on the device.

    MXNet's own Deconvolution is wrong where stride and dilation meet, and has no dilation in 3-D. oneDNN's, on the CPU,
    cannot hand on the gradient of a computed weight, and has nothing but float32 in 3-D.
    """
    rank, forced = geometry.num_spatial_dims, planning.forced()
    purpose, device = _arrays.purpose_and_device(geometry.data)
    on_gpu = _arrays.is_on_gpu(geometry.data)
    unsafe = max(dilation) > 1 and (max(strides) > 1 or rank == 3)
    if not on_gpu:
        unsafe = unsafe or geometry.channels_last or _is_computed(weight) or (rank == 3 and not _is_float32(weight))
    if device == "cudnn" and not unsafe:
        return "extend"
    if forced not in planning.TRANSPOSED_STRATEGIES:
        return "stuff" if unsafe else "cut"
    computes = forced == "extend" and not on_gpu and purpose != "deployment"  # a weight with a gradient, maybe
    if (unsafe and forced != "stuff") or computes:
        raise ValueError(f"the strategy {forced!r} is not exact here; {validation.received(strategy=forced)}")
    return forced


def _is_computed(weight: Any) -> bool:
    """Whether a gradient would flow through the weight to something behind it."""
    if isinstance(weight, mx.sym.Symbol):
        return weight.get_children() is not None
    if not mx.autograd.is_recording() or weight.grad is not None:
        return False
    try:
        return mx.autograd.get_symbol(weight).get_children() is not None
    except mx.base.MXNetError:  # never recorded: a constant
        return False


def _is_float32(weight: Any) -> bool:
    """Whether the weight is known to be; a Symbol without a type may be fed with any."""
    if isinstance(weight, mx.sym.Symbol):
        return weight.attr("__dtype__") == _arrays.dtype_attribute(np.float32)
    return weight.dtype == np.float32


def _deconvolution(
    F: Any,
    data: Any,
    weight: Any,
    bias: Any,
    kernel_size: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    axes: Sequence[planning.TransposedAxis],
    channels: int,
    groups: int,
    geometry: _arguments.Geometry,
) -> Any:
    """MXNet's Deconvolution, and a crop for what its own pad and adj cannot say."""
    weight = _run.with_taps(F, weight, [axis.taps for axis in axes], geometry.first)
    out = F.Deconvolution(
        *([data, weight] + ([] if bias is None else [bias])),
        kernel=tuple(k + sum(axis.taps) for k, axis in zip(kernel_size, axes)),
        stride=tuple(strides),
        pad=tuple(axis.pad for axis in axes),
        adj=tuple(axis.adj for axis in axes),
        num_filter=channels,
        num_group=groups,
        no_bias=bias is None,
        **({} if set(dilation) == {1} else {"dilate": tuple(dilation)}),
        **geometry.operator_layout,
    )
    return _run.cropped(F, out, [axis.crop for axis in axes], geometry.first)


def _stuffed(
    F: Any,
    data: Any,
    weight: Any,
    bias: Any,
    kernel_size: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    cuts: Sequence[tuple[int, int]],
    channels: int,
    groups: int,
    in_channels: Optional[int],
) -> Any:
    """A stride-1 convolution of the data with s-1 zeros between its cells, with the flipped kernel.

    s^N times the multiplications, but every gradient works, and so does dilation in 3-D.
    """
    effective = [arithmetic.effective_kernel_size(k, d) for k, d in zip(kernel_size, dilation)]
    pads = [(ke - 1 - head, ke - 1 - tail) for ke, (head, tail) in zip(effective, cuts)]
    windows = [
        planning.Window(None, k, 1, d, (max(low, 0), max(high, 0)))
        for k, d, (low, high) in zip(kernel_size, dilation, pads)
    ]
    plan = planning.Plan(tuple(planning.AxisPlan(w.kernel_size, spread=w.padding) for w in windows))  # type: ignore[arg-type]
    for axis, stride in enumerate(strides, _run.SPATIAL):
        data = _with_zeros_between(F, data, axis, stride)
    flipped = _flipped(F, weight, groups, channels, in_channels, len(kernel_size))
    out = convolution(F, _run.prepare(F, data, windows, plan, "zero"), flipped, bias, windows, plan, channels, groups)
    return _run.cropped(F, out, [(max(-low, 0), max(-high, 0)) for low, high in pads])


def _with_zeros_between(F: Any, data: Any, axis: int, stride: int) -> Any:
    """n cells -> (n-1)*stride + 1, the new ones zero."""
    if stride == 1:
        return data
    cells = F.expand_dims(data, axis=axis + 1)
    cells = F.concat(cells, F.repeat(F.zeros_like(cells), repeats=stride - 1, axis=axis + 1), dim=axis + 1)
    merged = F.reshape(cells, shape=(0,) * axis + (-3,) + (-2,))
    return F.slice_axis(merged, axis=axis, begin=0, end=1 - stride)


def _flipped(F: Any, weight: Any, groups: int, channels: int, in_channels: Optional[int], rank: int) -> Any:
    """(I, O/g, *k) -> (O, I/g, *k), every kernel turned around."""
    weight = F.reverse(F.identity(weight), axis=tuple(range(2, 2 + rank)))  # a copy, as in `extended_kernel`
    swap = (1, 0, *range(2, 2 + rank))
    if groups == 1:
        return F.transpose(weight, axes=swap)
    if in_channels is None:
        raise ValueError(
            "the data's channels must be known to build the graph of this grouped transposed convolution: give "
            "in_channels to the layer, or a shape to the weight; "
            f"{validation.received(groups=groups)}"
        )
    share = in_channels // groups
    parts = [F.slice_axis(weight, axis=0, begin=group * share, end=(group + 1) * share) for group in range(groups)]
    return F.concat(*[F.transpose(part, axes=swap) for part in parts], dim=0)
