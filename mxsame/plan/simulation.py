"""The proof that a plan is exact: what MXNet reads by it, in integers and along one axis, compared with what the window
asks for.

`simulate` goes through the steps of an `AxisPlan` as MXNet runs them, on positions in place of elements. Every step
takes equally spaced positions to equally spaced ones, so Python's ranges hold all of them: the outputs of an axis of
any length cost no more than one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Optional

from mxsame.plan.axis_plan import AxisPlan, OneHotKernel
from mxsame.plan.windows import AnyWindow, TransposedWindow, Window


class Reads(NamedTuple):
    """What an operator reads along an axis: for output i, element j of the kernel meets the element starts[i] +
    offsets[j] of the data. A position that is not an element of the data is padding. The first offset is 0.

    A transposed convolution reads its dilated data: element e is at the position e*s, and all others are padding.
    """

    starts: range
    offsets: range

    @classmethod
    def of(cls, starts: range, offsets: range) -> Reads:
        """Returns the reads for these starts and offsets, shifted so that the first offset is 0."""
        first = offsets[0]
        starts = range(starts.start + first, starts.stop + first, starts.step)
        return cls(starts, range(0, offsets.stop - first, offsets.step))

    def flipped(self) -> Reads:
        """Returns what is read by the reversed kernel, for the reversed outputs."""
        return Reads.of(self.starts[::-1], self.offsets[::-1])


def required(window: AnyWindow, size: int) -> Reads:
    """Returns what a window reads of data of this size, by its rule.

    >>> reads = required(Window(None, 3, 2), 6)  # SAME pads (0, 1)
    >>> [[start + offset for offset in reads.offsets] for start in reads.starts]
    [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    """
    outputs, stride, dilation = window.outputs(size), window.stride, window.dilation
    if isinstance(window, TransposedWindow):
        first = window.crop[0]
        return Reads(range(first, first + outputs), range(0, -window.kernel_size * dilation, -dilation))
    low, _ = window.pads(size)
    return Reads(range(-low, outputs * stride - low, stride), range(0, window.kernel_size * dilation, dilation))


def simulate(plan: AxisPlan, window: AnyWindow, size: int, convention: str = "valid") -> Optional[Reads]:
    """Returns what MXNet reads of data of this size by a plan; None if MXNet would read zeros where the data has
    elements.

    >>> plan = AxisPlan(3, pad=2, crop=(1, 0))  # for pads (0, 1) with stride 2: pad by 2, drop the first output
    >>> simulate(plan, Window(None, 3, 2), 6) == required(Window(None, 3, 2), 6)
    True
    """
    if isinstance(window, TransposedWindow):
        reads: Optional[Reads] = _transposed_reads(plan, window, size)
    else:
        reads = _conv_reads(plan, window, size, convention)
    if reads is None:
        return None
    (first, dropped), outputs = plan.crop, len(reads.starts)
    end = first + -(-size // window.stride) if dropped is None else outputs - dropped
    reads = reads._replace(starts=reads.starts[first : max(end, 0)])
    return reads.flipped() if plan.flip else reads


def _conv_reads(plan: AxisPlan, window: Window, size: int, convention: str) -> Optional[Reads]:
    """Returns what is read for all outputs of MXNet's operator, of flipped data by the flipped kernel."""
    low, dilation = window.pads(size)[0], window.dilation
    data = _extended(range(size)[::-1] if plan.flip else range(size), *plan.concat)
    if plan.dynamic_concat:
        data = _extended(data, low + plan.dynamic_concat.extra, plan.dynamic_concat.after)
    if plan.gather:
        overlap = max(window.effective_kernel_size - window.stride, 0)
        data = range(-low, -(-size // window.stride) * window.stride + overlap - low)
    if plan.shift:
        data = _selected(data, plan.shift, low)
        if data[0] > 0 or data[-1] < size - 1:
            return None
    data = _extended(_extended(data, *plan.pad_operator), plan.pad, plan.pad)
    span, stride, step = len(data) - 1 - (plan.kernel_size - 1) * dilation, plan.operator_stride(window), data.step
    outputs = (-(-span // stride) if convention == "full" else span // stride) + 1
    starts = range(data.start, data.start + outputs * stride * step, stride * step)
    if plan.pick:
        first = plan.pick.max_pad - plan.pick.pad - low
        if first < 0 or first + (window.outputs(size) - 1) * window.stride >= len(starts):
            return None
        starts = _selected(starts, plan.pick, low)[:: window.stride]
    front, back = plan.kernel_zeros
    dilation *= step
    return Reads.of(starts, range(front * dilation, (plan.kernel_size - back) * dilation, dilation))


def _transposed_reads(plan: AxisPlan, window: TransposedWindow, size: int) -> Reads:
    """Returns what is read for all outputs of MXNet's Deconvolution, or of its Convolution of the dilated data."""
    front, back = (count * window.dilation for count in plan.kernel_zeros)
    reach = (plan.kernel_size - 1) * window.dilation
    if plan.dilate:
        data = _extended(range((size - 1) * plan.dilate + 1), *plan.pad_operator)
        first, outputs = reach - plan.pad + data.start, len(data) + 2 * plan.pad - reach
    else:
        first, outputs = plan.pad, (size - 1) * window.stride + reach + 1 - 2 * plan.pad + plan.adj
    return Reads.of(range(first, first + outputs), range(-front, back - reach - 1, -window.dilation))


def _extended(positions: range, low: int, high: int) -> range:
    """Returns positions with so many more before and after them."""
    return range(positions.start - low * positions.step, positions.stop + high * positions.step, positions.step)


def _selected(positions: range, kernel: OneHotKernel, low: int) -> range:
    """Returns the positions that a one-hot kernel leaves, of these with zeros around them."""
    positions, first = _extended(positions, kernel.pad, kernel.pad), kernel.max_pad - low
    return positions[first : first + len(positions) - kernel.length + 1]


def prove(draft: AxisPlan, window: AnyWindow, convention: str = "valid") -> Optional[AxisPlan]:
    """Returns a plan if MXNet runs it, and it is exact for every size of the window; else None. An end of `crop` that
    is None becomes the number of outputs to drop, if that is the same for every size, as it must be with `flip`.

    >>> prove(AxisPlan(3, pad=2, crop=(1, None)), Window(8, 3, 2)).crop
    (1, 0)
    >>> prove(AxisPlan(3, pad=1), Window(8, 3, 2)) is None  # as many outputs, of other windows
    True
    """
    first, dropped = draft.crop
    if min(draft.pad, draft.adj, first, dropped or 0, *draft.concat, *draft.pad_operator) < 0:
        return None
    if draft.adj and draft.adj >= window.stride:
        return None
    extras, uncropped = set(), draft if dropped is not None else replace(draft, crop=(first, 0))
    for size in window.sizes:
        reads, expected = simulate(uncropped, window, size, convention), required(window, size)
        extra = len(reads.starts) - len(expected.starts) if reads else -1
        if reads is None or extra < 0:
            return None
        kept = reads.starts[extra:] if draft.flip else reads.starts[: len(expected.starts)]
        if (kept, reads.offsets) != expected:
            return None
        extras.add(extra)
    if dropped is not None:
        return draft if extras == {0} else None
    if len(extras) == 1:
        return replace(draft, crop=(first, extras.pop()))
    return draft if isinstance(window, Window) and window.pads_depend_on_size and not draft.flip else None


def accepts_short_data(plan: AxisPlan, window: AnyWindow) -> bool:
    """Returns whether MXNet runs a plan for every size on data that is shorter than the rule of explicit pads allows,
    n + low + high >= ke, as it may with ceil_mode."""
    if not isinstance(window, Window) or window.size is not None or window.pads_depend_on_size:
        return False
    longest = window.effective_kernel_size - sum(window.explicit_pads) - 1
    reads = _conv_reads(plan, window, longest, "valid") if longest >= 1 else None
    return reads is not None and len(reads.starts) > 0
