"""Plans, without MXNet: what every output of a plan reads, element by element, compared with the window.

`reads` carries out an `AxisPlan` on a list of numbers, step by step as its documentation says. For an unknown size one
plan has to be right for every size.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools

import oracle
import pytest
from cases import Case

from mxsame import plan as planning
from mxsame.padding import by_axis
from mxsame.plan import OPERATORS, POOLS, Window, first_plan, force, strategies_for

SIZES, KERNELS, STRIDES, DILATIONS = range(1, 10), range(1, 6), range(1, 5), range(1, 4)
EVERY_SIZE = range(1, 18)
PADDINGS = ("same", "valid", "causal", "keras-mxnet", (1, 1), (0, 2), (3, 1), (5, 4))


# ---- what is wanted, and what a plan gives ---------------------------------------------------------------------------


def case_of(window, n, pool):
    """The oracle's case for one size."""
    padding = window.padding if isinstance(window.padding, str) else (window.padding,)
    op = "max_pool" if pool else "conv"
    rest = {"ceil_mode": window.ceil_mode} if pool else {}
    return Case(op, (n,), (window.kernel_size,), (window.stride,), padding, (window.dilation,), name="-", **rest)


def wanted(window, n, pool):
    """For every output the elements that it reads, one for each of the kernel, None for padding."""
    case = case_of(window, n, pool)
    (out,), ((low, _),) = oracle.output_size(case), oracle.pads(case)
    k, s, d = window.kernel_size, window.stride, window.dilation
    rows = [[output * s - low + element * d for element in range(k)] for output in range(out)]
    return [[element if 0 <= element < n else None for element in row] for row in rows]


def reads(step, window, n, convention, fill):
    """The same by the plan; padding that a maximum reads is a copy of the nearest element ("edge")."""
    data = list(range(n))
    if step.flip:
        data.reverse()
    s, d, k = window.stride, window.dilation, step.kernel_size
    outputs = -(-n // s)
    both = max((outputs - 1) * s + window.effective_kernel_size - n, 0)  # what a graph computes
    low = both - both // 2 if window.padding == "keras-mxnet" else both // 2
    more, after = step.lengthen or (-low, 0)
    assert low + more > 0 or not step.lengthen, "MXNet has no empty arrays"
    for start, end in (step.concat, (low + more, after), step.pad_operator):
        first, last = (None, None) if fill == "zero" else (data[0], data[-1])
        data = [first] * start + data + [last] * end
    if step.shift:
        least, reach = step.shift
        assert 0 <= least <= low <= reach
        ones = reach - least + 1
        padded = [None] * (ones - 1) + data + [None] * (ones - 1)
        data = padded[reach - low : len(padded) - ones + 1 + reach - low]  # what a single one of the kernel reads
    if step.gather:
        sources = [number - low for number in range(outputs * s + max(window.effective_kernel_size - s, 0))]
        nearest = [data[min(max(source, 0), n - 1)] for source in sources]
        data = [near if fill == "edge" or 0 <= at < n else None for at, near in zip(sources, nearest)]
    span = len(data) + 2 * step.pad - ((k - 1) * d + 1)
    assert span >= 0, "MXNet refuses a kernel longer than the padded data"
    stride = 1 if step.pick else s
    before = step.zeros[0]
    rows = []
    for output in range(step.crop[0], (-(-span // stride) if convention == "full" else span // stride) + 1):
        positions = [output * stride + element * d - step.pad for element in range(k)]
        row = [data[position] if 0 <= position < len(data) else None for position in positions]
        rows.append(row[before : before + window.kernel_size])
    if step.pick:
        least, reach, zeros = step.pick
        assert least <= low <= reach
        padded = [[]] * zeros + rows + [[]] * zeros
        rows = [padded[start + reach - low] for start in range(0, len(padded) - (reach - least), s)]
    kept = outputs if step.crop[1] is None else len(rows) - step.crop[1]
    assert 0 <= kept <= len(rows)
    return [row[::-1] for row in reversed(rows[:kept])] if step.flip else rows[:kept]


def is_exact(step, window, n, operator, convention="valid"):
    """Whether every output reads what it should: a convolution one by one, a pooling operator the same elements, which
    one with a shorter kernel may do."""
    view = dataclasses.replace(window, kernel_size=step.kernel_size) if operator in POOLS else window
    try:
        got = reads(step, view, n, convention, "edge" if operator == "max" else "zero")
    except AssertionError:
        return False
    want = wanted(window, n, operator in POOLS)
    if operator == "conv":
        return got == want
    got, want = ([[element for element in row if element is not None] for row in rows] for rows in (got, want))
    if operator == "max":  # the first element of a window must stay the first: it gets the gradient of a tie
        return [sorted(set(row)) for row in got] == want and all(row == sorted(row) for row in got)
    return [sorted(row) for row in got] == want


def windows_of(operator, padding, ceil_mode, sizes):
    """The windows of the whole grid as mxsame makes them."""
    pool = operator in POOLS
    for k, s, d in itertools.product(KERNELS, STRIDES, (1,) if pool else DILATIONS):
        pads = {"valid": (0, 0), "causal": ((k - 1) * d, 0)}.get(padding, padding)
        if padding == "keras-mxnet":
            (pads,) = by_axis(padding, "pool" if pool else "conv", (k,), (s,), (d,))
            if sizes == [None] and s > (k - 1) * d + 2:
                continue  # keras-mxnet has no pads for some sizes, so there is no graph for all
        if not pool or isinstance(pads, str) or max(pads) < k:
            yield from (Window(n, k, s, d, pads, ceil_mode) for n in sizes)


SERVED = {  # how many windows of the grid each of `strategies_for` the operator serves, static or not
    ("conv", True): (2125, 3685, 3685, 3685, 3685, 2125, 3075, 2340),
    ("conv", False): (174, 293, 439, 361, 416, 245, 251, 245),
    ("max", True): (1158, 1334, 1404, 1502, 1502, 1252, 1252),
    ("max", False): (75, 114, 96, 152, 152, 121, 121),
    ("avg", True): (1158, 1334, 1404, 1502, 1502, 1252, 1469, 1252),
    ("avg", False): (75, 114, 96, 152, 152, 121, 97, 121),
}
TRANSPOSED = (1575, 6615, 6615, 6615)


@pytest.mark.parametrize("sizes", [SIZES, [None]], ids=["static", "dynamic"])
@pytest.mark.parametrize("operator", ["conv", "max", "avg"])
def test_every_strategy_on_the_whole_grid(operator, sizes):
    """A plan is exact for every size of its window; and no strategy serves fewer windows than it can."""
    pool, served = operator in POOLS, collections.Counter()
    for padding, ceil_mode in itertools.product(PADDINGS, (False, True) if pool else (False,)):
        if padding == "causal" and pool:
            continue
        for window in windows_of(operator, padding, ceil_mode, sizes):
            stands_for = EVERY_SIZE if window.size is None else [window.size]
            legal = [n for n in stands_for if oracle.is_legal(case_of(window, n, pool))]
            if not legal:
                continue
            assert first_plan([window], operator), f"no graph for {window}"
            for strategy in strategies_for(operator):
                try:
                    with force(strategy):
                        plan = first_plan([window], operator)
                except ValueError as error:
                    assert "must be one that is exact for this layer (" in str(error)
                    continue
                served[strategy] += 1
                (step,) = plan.axes
                assert not pool or (step.pad < step.kernel_size and step.zeros == (0, 0))
                gives_one_up = plan.convention == "full" and window.size is None and window.kernel_size == 2
                for n in legal[gives_one_up and window.follows_size :]:
                    assert is_exact(step, window, n, operator, plan.convention), f"{strategy}: {plan}, {window}, {n}"
    assert tuple(served[strategy] for strategy in strategies_for(operator)) == SERVED[operator, len(sizes) > 1]


def test_what_is_chosen_first():
    """Symmetric SAME costs nothing, nor does a partial window at the end; a kernel longer than the data is clipped."""
    for operator, size, k in itertools.product(("conv", "max", "avg"), (None, 7, 12), (1, 3, 5)):
        assert first_plan([Window(size, k, 1)], operator) == planning.Plan((planning.AxisPlan(k, pad=k // 2),))
    assert first_plan([Window(7, 2, 2)], "max") == planning.Plan((planning.AxisPlan(2),), "full")
    assert first_plan([Window(2, 5, 3)], "avg") == planning.Plan((planning.AxisPlan(2),))
    native, sliced = first_plan([Window(9, 3, 2), Window(8, 3, 2)], "conv").axes
    assert native == planning.AxisPlan(3, pad=1) and sliced == planning.AxisPlan(3, pad=2, crop=(1, 0))
    assert all(strategies_for(operator)[0] == "native" for operator in OPERATORS)


def test_plans_that_are_remembered_are_not_changed():
    with pytest.raises(TypeError):
        planning.exact_plans((Window(8, 3, 2),), "conv")["native"] = None


def test_what_has_no_exact_graph_is_refused():
    with pytest.raises(ValueError, match=r"static shape, .*; received input_size=\(None,\), .*padding=\('same',\)"):
        first_plan([Window(None, 3, 2)], "conv", ("native", "slice"))
    with pytest.raises(ValueError, match=r"strides must be <= 4096 .*; received strides=\(4097,\)"):
        planning.exact_plans((Window(None, 3, 4097),), "conv")


# ---- transposed ------------------------------------------------------------------------------------------------------


def transposed_reads(step, window, n):
    """The position in the full extent, (n-1)s + ke elements, of every output of a plan; MXNet's Deconvolution gives
    (n-1)s + ke - 2 pad + adj outputs, and asks for pad < ke and adj < s."""
    d, extent = window.dilation, window.effective_kernel_size
    if step.dilate:
        assert step.dilate == window.stride and not any(step.zeros) and not step.adj
        length = (n - 1) * window.stride + 1
        low, high = (step.pad + count for count in step.pad_operator)
        positions = [start + extent - 1 for start in range(-low, length + high - extent + 1)]
    else:
        assert 0 <= step.adj < window.stride or step.adj == 0
        assert step.pad < extent + sum(step.zeros) * d
        front, back = (count * d for count in step.zeros)
        longer = range(-front, (n - 1) * window.stride + extent + back)
        positions = [*longer, *range(longer.stop, longer.stop + step.adj)]
        positions = positions[step.pad : len(longer) - step.pad + step.adj]
    start, end = step.crop
    assert min(step.pad, start, end) >= 0
    return positions[start : len(positions) - end]


def test_transposed_convolutions_on_the_whole_grid():
    served = collections.Counter()
    for k, s, d, start in itertools.product(range(1, 8), range(1, 6), DILATIONS, range(0, 7)):
        for end, strategy in itertools.product(range(-s + 1 if s > 1 else 0, 7), strategies_for("transposed")):
            window = planning.TransposedWindow(None, k, s, d, (start, end))
            step = planning.STRATEGIES[strategy].plan(window)
            if step is None:
                continue
            served[strategy] += 1
            n = max((start + end - window.effective_kernel_size) // s + 3, 1)
            want = [start + output for output in range(window.outputs(n))]
            assert transposed_reads(step, window, n) == want, f"{step}, {window}, n {n}"
            if strategy == "kernel" and d == 1 and step.pad < k + sum(step.zeros) - 1:  # no pad is longer
                assert step.crop == (0, 0)
    assert tuple(served[strategy] for strategy in strategies_for("transposed")) == TRANSPOSED


def test_a_draft_that_starts_at_another_element_is_refused():
    drafted = planning.Strategy("too early", transposed=lambda window: planning.AxisPlan(3, crop=(0, 1)))
    assert drafted.plan(planning.TransposedWindow(None, 3, 2, 1, (0, 1))) is not None
    assert drafted.plan(planning.TransposedWindow(None, 3, 2, 1, (1, 0))) is None


# ---- force -----------------------------------------------------------------------------------------------------------


def test_force_is_for_a_block_and_a_thread():
    with force("concat"):
        with pytest.raises(ZeroDivisionError), force("slice"):
            assert planning.forced() == "slice"
            raise ZeroDivisionError
        assert planning.forced() == "concat"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(planning.forced).result() is None
    assert planning.forced() is None


def test_force_leaves_alone_what_the_strategy_does_not_serve_or_what_needs_nothing():
    for strategy, operator in (("dilate", "conv"), ("kernel", "max"), ("shift", "avg"), ("flip", "max")):
        plain = first_plan([Window(8, 3, 2)], operator)
        with force(strategy):
            assert first_plan([Window(8, 3, 2)], operator) == plain
            assert first_plan([Window(9, 3, 2)], "conv").axes == (planning.AxisPlan(3, pad=1),)
