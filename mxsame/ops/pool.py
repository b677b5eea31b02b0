"""Pooling operators: maximum, average and Lp, of any rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Tuple

from mxsame import padding as arithmetic
from mxsame import planner, tensors, validation
from mxsame._mxnet import mx
from mxsame.building import current
from mxsame.ops._call import Call
from mxsame.ops._lowering import Lowering, in_blocks, padded, paired, unpaired
from mxsame.plan import make_windows
from mxsame.planner import Work

LEAST_CHANNELS = 4  # for which oneDNN has fast code of pooling operators


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
        "keras-mxnet" is not TensorFlow's rule but that of keras-mxnet 2.2.4.3, for networks trained in it: the extra
        padding element is at the start, and averages count padding. An even pool size of stride 1, which gives n + 1
        outputs there, is refused, except along the first of three axes (:func:`mxsame.padding.keras_mxnet_axes`).
        Each pad must be less than the pool size, so that every window holds an element of the data.
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol. Without it the graph is right for every size.
    ceil_mode : bool
        With "valid" and explicit pads, whether a partial window at the end counts: out is rounded up, not down.

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
    return _Pool(data, pool_size, strides, padding, layout, input_size, ceil_mode).run("max")


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
    """The mean over windows of the data, of those elements that are inside it, as in TensorFlow.

    Arguments are those of :func:`max_pool`, and:

    Parameters
    ----------
    count_include_pad : bool, optional
        Whether padding counts as zeros: False by default, and True with "keras-mxnet", which has nothing else. With
        `ceil_mode`, what a partial window has after the padding does not count, as in `gluon.nn`.

    Raises
    ------
    TypeError, ValueError
        As `max_pool`, and if padding must count with "keras-mxnet" but `count_include_pad` is False.

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
    pool = _Pool(data, pool_size, strides, padding, layout, input_size, ceil_mode)
    return pool.run("avg with padding" if count_include_pad else "avg")


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

    As MXNet's Pooling has it, powers are of signed values: it is the Lp norm for p = 2, and for data that is not
    negative. The gradient is not defined for a window of zeros only.

    Arguments are those of :func:`max_pool`, and:

    Parameters
    ----------
    p_value : 1, 2 or 3
        The order p of the norm.

    Raises
    ------
    TypeError, ValueError
        As `max_pool`, and for another order.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.ops.lp_pool(nd.array([[[3, 4, -5]]]), 2).asnumpy().tolist()
    [[[5.0, 5.0]]]
    """
    p_value = validation.integer("p_value", p_value, 1, 3)
    return _Pool(data, pool_size, strides, padding, layout, input_size, ceil_mode).run("lp", p_value=p_value)


class _Pool:
    """A call of a pooling operator, with its checked arguments."""

    def __init__(
        self, data: Any, pool_size: Any, strides: Any, padding: Any, layout: Any, input_size: Any, ceil_mode: Any
    ):
        self.ceil_mode = validation.flag("ceil_mode", ceil_mode)
        self.call = Call.of(tensors.classic(data=data), layout, "pool_size", pool_size, input_size)
        self.outward, rank = self.call.outward, self.call.rank
        self.pool_size = validation.per_axis("pool_size", pool_size, rank, 1)
        self.strides = self.pool_size if strides is None else validation.per_axis("strides", strides, rank, 1)
        self.padding = validation.pooling_padding(padding, self.pool_size)

    def run(self, operator: str, **more: Any) -> Any:
        """The output of a key of `mxsame.plan.OPERATORS`."""
        if operator == "avg with padding" and self.ceil_mode and self.padding not in arithmetic.SIZE_DEPENDENT:
            self._pad_the_data()
            operator = "avg"
        call, dilation = self.call, (1,) * self.call.rank
        windows = make_windows(
            call.size, self.pool_size, self.strides, dilation, self.padding, pool=True, ceil_mode=self.ceil_mode
        )
        call.check_windows(operator, call.shape[1], windows)
        # The mean of two elements, one of them the nearest to the other instead of padding, is the mean of the one.
        pairs = operator == "avg" and all(window.kernel_size <= 2 for window in windows)
        fill = "edge" if operator == "max" or pairs else "zero"
        data, lowering = call.lowering(windows, Work(operator), (), fill, self._refused())
        keeps_workspace = operator != "max" or not tensors.needs_gradients_at_inference(data)
        out = self._pooled(lowering, data, operator, keeps_workspace, more)
        if operator == "avg" and fill == "zero" and lowering.plan.fills and not current().windows_noted:
            # What part of each window is data: the same pooling of ones.
            thin, ones = lowering.thin(data)
            ones = lowering.F.BlockGrad(lowering.F.ones_like(ones))
            out = lowering.F.broadcast_div(out, self._pooled(thin, ones, "avg", True, {}))
        return self.outward(out)

    def _refused(self) -> Tuple[str, ...]:
        """The strategies that are not exact, or slow: files for any size take a length of 1, which windows of two do
        not take with "full"."""
        is_for_any_size = None in self.call.size
        refused = () if self._convolves(unknown_type=is_for_any_size) else ("pick",)
        return (*refused, "full") if is_for_any_size and current().exported else refused

    def _pad_the_data(self) -> None:
        """With ceil_mode the padding counts, and what a partial window has after it does not: so the padding becomes
        data. MXNet's pad operator has channels first."""
        call = replace(self.call, native_last=False)
        pads = ((0, 0),) * call.rank if isinstance(self.padding, str) else self.padding
        data = padded(call.args.F, call.inward(call.data), pads)
        size = tuple(None if n is None else n + sum(pair) for n, pair in zip(call.size, pads))
        layout = validation.layout(None, call.rank)
        self.call = replace(call, data=data, layout=layout, shape=call.shape[:2] + size)
        self.outward, self.padding = call.outward, "valid"

    def _pooled(self, lowering: Lowering, data: Any, operator: str, keeps_workspace: bool, more: dict) -> Any:
        """MXNet's Pooling by a plan."""
        F, axes, call = lowering.F, lowering.plan.axes, self.call

        def pooling(prepared: Any) -> Any:
            pairs = keeps_workspace and self._runs_in_pairs(lowering, prepared, operator)
            first = 1 if pairs else 0  # an axis before those of the windows, along which nothing is pooled
            if pairs:
                prepared = paired(F, prepared, copies=tensors.may_take_gradients(prepared))
            blocks = keeps_workspace and (pairs or call.rank == 2) and self._runs_in_blocks(lowering, operator)
            if blocks:
                prepared = in_blocks(F, prepared, lowering.channels // (1 + first))
            out = F.Pooling(
                prepared,
                kernel=(1,) * first + tuple(step.kernel_size for step in axes),
                stride=(1,) * first + tuple(step.strides(window) for step, window in zip(axes, lowering.windows)),
                pad=(0,) * first + tuple(step.pad for step in axes),
                pool_type=operator.split()[0],
                pooling_convention=lowering.plan.convention,
                count_include_pad=operator == "avg with padding",
                **more,
                **call.operator_layout,
            )
            return unpaired(F, out, copies=blocks) if pairs else out

        if keeps_workspace:
            return lowering.run(data, pooling)
        # oneDNN keeps nothing for the backward pass of a maximum at inference; MXNet's own code, which runs in float64,
        # needs nothing.
        out = lowering.run(F.cast(data, dtype="float64"), pooling)
        return F.cast(out, dtype="float32")

    def _runs_in_pairs(self, lowering: Lowering, prepared: Any, operator: str) -> bool:
        """Whether 1-D data goes to the operator as pictures of two rows, each a channel.

        oneDNN's fast code for data that is not in blocks asks for two spatial axes, both longer than 1, and for four
        channels; the code for the rest takes 2 to 8 times as long. The values are the same.
        """
        if self.call.rank != 1 or operator == "lp" or current().windows_noted or not tensors.has_onednn():
            return False
        if tensors.purpose_and_device(prepared)[1] != "cpu" or tensors.is_in_blocks(prepared):
            return False
        channels = lowering.channels or self.call.graph_channels()
        return channels is not None and channels % 2 == 0 and channels >= 2 * LEAST_CHANNELS

    def _runs_in_blocks(self, lowering: Lowering, operator: str) -> bool:
        """Whether data that is plain goes to the operator in oneDNN's blocks. Of an NDArray nobody knows the layout."""
        data = self.call.data
        if current().windows_noted or isinstance(data, mx.nd.NDArray) or not self._convolves(unknown_type=False):
            return False
        device = tensors.purpose_and_device(data)[1]
        work = Work(operator, in_channels=lowering.channels, plain=lowering.plain, device=device)
        return planner.pools_in_blocks(lowering.plan, lowering.windows, work)

    def _convolves(self, unknown_type: bool) -> bool:
        """Whether there are fast depthwise convolutions of such data: on the CPU those of oneDNN, of float32. As given
        for a graph that does not tell the type."""
        data = self.call.data
        if tensors.purpose_and_device(data)[1] == "gpu":
            return True
        dtype = tensors.known_type(data)
        return tensors.has_onednn() and (unknown_type if dtype is None else dtype == "float32")
