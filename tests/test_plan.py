"""Plans, without MXNet: what every output of a plan reads, cell by cell, against what the window wants.

`reads` carries out an `AxisPlan` on a list of cell numbers, step by step as its documentation says. For an unknown size
one plan has to be right for every size.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading

import oracle
import pytest
from cases import Case

from mxsame.padding import by_axis
from mxsame.plan import (
    OPERATORS,
    STRATEGIES,
    AxisPlan,
    Plan,
    TransposedWindow,
    Window,
    exact_plans,
    first_plan,
    force,
    forced,
    make_transposed_windows,
    make_windows,
    strategies_for,
)

SIZES, KERNELS, STRIDES, DILATIONS = range(1, 13), range(1, 6), range(1, 5), range(1, 4)
EVERY_SIZE = range(1, 25)
WORDS = ("same", "valid", "causal", "keras-mxnet")
SIZE_DEPENDENT = ("same", "keras-mxnet")
PAIRS = ((1, 1), (0, 2), (3, 1), (5, 4))
KINDS = {"conv": "conv", "max_pool": "max", "avg_pool": "avg"}
PER_AXIS = tuple(name for name in STRATEGIES if not STRATEGIES[name].together)
PADDINGS = pytest.mark.parametrize("padding", [*WORDS, *PAIRS], ids=str)


# ---- what is wanted, and what a plan gives ---------------------------------------------------------------------------


def case_of(window, n, pool):
    """The oracle's case for one size."""
    padding = window.padding if isinstance(window.padding, str) else (window.padding,)
    op = "max_pool" if pool else "conv"
    rest = {"ceil_mode": window.ceil_mode} if pool else {}
    return Case(op, (n,), (window.kernel_size,), (window.stride,), padding, (window.dilation,), name="-", **rest)


def is_legal(window, n, pool):
    return oracle.is_legal(case_of(window, n, pool))


def wanted(window, n, pool=False):
    """For every output the cells that it reads, tap by tap, None for a cell of padding."""
    case = case_of(window, n, pool)
    (out,), ((low, _),) = oracle.output_size(case), oracle.pads(case)
    k, s, d = window.kernel_size, window.stride, window.dilation
    taps = [[output * s - low + tap * d for tap in range(k)] for output in range(out)]
    return [[cell if 0 <= cell < n else None for cell in row] for row in taps]


def reads(step, window, n, convention="valid", fill="zero"):
    """The same by the plan; cells of padding that a maximum reads are copies of the nearest cell ("edge")."""
    cells = list(range(n))
    if step.flip:
        cells.reverse()
    for low, high in (step.concat, step.pad_operator):
        first, last = (None, None) if fill == "zero" else (cells[0], cells[-1])
        cells = [first] * low + cells + [last] * high
    s, d, k = window.stride, window.dilation, step.kernel_size
    outputs = -(-n // s)
    both = max((outputs - 1) * s + window.effective_kernel_size - n, 0)  # what a graph works out
    low = both - both // 2 if window.padding == "keras-mxnet" else both // 2
    if step.shift:
        least, reach = step.shift
        assert 0 <= least <= low <= reach
        taps = reach - least + 1
        padded = [None] * (taps - 1) + cells + [None] * (taps - 1)
        cells = padded[reach - low : len(padded) - taps + 1 + reach - low]  # what one tap of the depthwise kernel reads
    if step.gather:
        sources = [number - low for number in range(outputs * s + max(window.effective_kernel_size - s, 0))]
        if fill == "edge":
            cells = [cells[min(max(source, 0), n - 1)] for source in sources]
        else:
            cells = [cells[source] if 0 <= source < n else None for source in sources]
    span = len(cells) + 2 * step.pad - ((k - 1) * d + 1)
    assert span >= 0, f"MXNet refuses a kernel longer than the padded data: {step}, n {n}"
    stride = 1 if step.pick else s
    count = (-(-span // stride) if convention == "full" else span // stride) + 1
    before = step.zeros[0]
    if step.offset:
        assert step.offset[0] <= low <= step.offset[1]
        before = step.pad - low
    rows = []
    for output in range(step.crop[0], count):
        places = [output * stride + tap * d - step.pad for tap in range(k)]
        row = [cells[place] if 0 <= place < len(cells) else None for place in places]
        rows.append(row[before : before + window.kernel_size])
    if step.pick:
        least, reach, zeros = step.pick
        assert least <= low <= reach
        padded = [[]] * zeros + rows + [[]] * zeros
        rows = [padded[tap + reach - low] for tap in range(0, len(padded) - (reach - least), s)]
    if step.crop[1] is None:
        assert len(rows) >= outputs
        rows = rows[:outputs]
    elif step.crop[1]:
        assert step.crop[1] <= len(rows)
        rows = rows[: -step.crop[1]]
    return [row[::-1] for row in reversed(rows)] if step.flip else rows


def is_exact(step, window, n, op, convention="valid"):
    """Whether every output reads what it should: a convolution tap by tap, a pooling the same set of cells."""
    pool = op.endswith("pool")
    try:
        got = reads(step, window, n, convention, "edge" if op == "max_pool" else "zero")
    except AssertionError:
        return False
    want = wanted(window, n, pool)
    if not pool:
        return got == want
    if any(all(cell is None for cell in row) for row in got):
        return False
    want = [[cell for cell in row if cell is not None] for row in want]
    got = [[cell for cell in row if cell is not None] for row in got]
    if op == "max_pool":  # the first cell of a window must stay the first: it gets the gradient of a tie
        return [sorted(set(row)) for row in got] == want and all(row == sorted(row) for row in got)
    return [sorted(row) for row in got] == want


def windows_of(padding, ceil_mode=False, dilations=DILATIONS, sizes=SIZES, operator="conv"):
    """The windows of the whole grid as mxsame makes them."""
    for k, s, d in itertools.product(KERNELS, STRIDES, dilations):
        pads = {"valid": (0, 0), "causal": ((k - 1) * d, 0)}.get(padding, padding)
        if padding == "keras-mxnet":
            (pads,) = by_axis(padding, operator, (k,), (s,), (d,))
            if sizes == [None] and s > (k - 1) * d + 2:
                continue  # keras-mxnet has no pads for some sizes, so there is no graph for all
        for n in sizes:
            yield Window(n, k, s, d, pads, ceil_mode)


def sizes_of(window, pool):
    return [n for n in EVERY_SIZE if is_legal(window, n, pool)]


def make(window, op, strategy=None):
    """The plan, forced or not; None where it is refused."""
    try:
        if strategy is None:
            return first_plan([window], KINDS[op])
        with force(strategy):
            return first_plan([window], KINDS[op])
    except ValueError as error:
        message = "is not exact for" if strategy else "has no exact graph"
        assert message in str(error)
        return None


def strategies_of(op):
    return [None, *strategies_for(KINDS[op])]


# ---- known sizes -----------------------------------------------------------------------------------------------------


@PADDINGS
@pytest.mark.parametrize("op", ["conv"])
def test_convolutions_of_known_size(op, padding):
    made = dict.fromkeys(strategies_of(op), 0)
    for window in windows_of(padding):
        if not is_legal(window, window.size, False):
            continue
        for strategy in made:
            plan = make(window, op, strategy)
            if plan is None:
                assert may_refuse(strategy, window, [window.size], op), f"{strategy} refused {window}"
                continue
            assert plan.convention == "valid"
            assert is_exact(plan.axes[0], window, window.size, op), f"{strategy}: {plan}, {window}"
            made[strategy] += 1
    static = max(made.values())
    assert made[None] == made["slice"] == made["kernel"] == made["concat"] == made["pad"] == static > 300
    assert made["native"] > 100 and made["flip"] > 100
    if padding in SIZE_DEPENDENT:
        assert made["gather"] == static and made["offset"] > static // 4


@PADDINGS
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_poolings_of_known_size(op, padding, ceil_mode):
    if padding == "causal":
        pytest.skip("poolings have no causal padding")
    made = dict.fromkeys(strategies_of(op), 0)
    for window in windows_of(padding, ceil_mode, (1,), operator="pool"):
        too_much = not isinstance(window.padding, str) and max(window.padding) >= window.kernel_size
        if too_much or not is_legal(window, window.size, True):
            continue
        for strategy in made:
            plan = make(window, op, strategy)
            if plan is None:
                assert may_refuse(strategy, window, [window.size], op), f"{strategy} refused {window}"
                continue
            (step,) = plan.axes
            assert step.pad < step.kernel_size and step.zeros == (0, 0)
            assert (
                step.kernel_size <= window.size + sum(step.concat) + sum(step.pad_operator) + 2 * step.pad
                or step.gather
            )
            view = dataclasses.replace(window, kernel_size=step.kernel_size)  # clipped, maybe
            clipped = window if step.kernel_size == window.kernel_size else view
            assert is_exact_pool(step, window, clipped, op, plan.convention), f"{strategy}: {plan}, {window}"
            made[strategy] += 1
    if padding == (5, 4):
        assert not made[None]
        return
    assert made[None] == made["pad"] == made["concat"] and made["full"] and made["slice"]
    assert made["native"] or padding == (0, 2)


def is_exact_pool(step, window, clipped, op, convention):
    """A clipped kernel reads fewer cells of padding, and the same cells of the data."""
    n = window.size
    got = reads(step, dataclasses.replace(clipped, padding=window.padding), n, convention, fill_of(op))
    want = [[cell for cell in row if cell is not None] for row in wanted(window, n, True)]
    got = [[cell for cell in row if cell is not None] for row in got]
    return [sorted(set(row) if op == "max_pool" else row) for row in got] == want


def fill_of(op):
    return "edge" if op == "max_pool" else "zero"


# ---- unknown sizes ---------------------------------------------------------------------------------------------------


@PADDINGS
@pytest.mark.parametrize("op", ["conv"])
def test_convolutions_of_unknown_size(op, padding):
    made = dict.fromkeys(strategies_of(op), 0)
    for window in windows_of(padding, sizes=[None]):
        sizes = sizes_of(window, False)
        for strategy in made:
            plan = make(window, op, strategy)
            if plan is None:
                assert strategy is not None, f"no graph for {window}"
                assert may_refuse(strategy, window, sizes, op), f"{strategy} refused {window}"
                continue
            for n in sizes:
                assert is_exact(plan.axes[0], window, n, op), f"{strategy}: {plan}, {window}, n {n}"
            made[strategy] += 1
    assert made[None] == (53 if padding == "keras-mxnet" else 60)
    assert made["gather"] == (made[None] if padding in SIZE_DEPENDENT else made["native"])


@PADDINGS
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_poolings_of_unknown_size(op, padding, ceil_mode):
    if padding == "causal":
        pytest.skip("poolings have no causal padding")
    for window in windows_of(padding, ceil_mode, (1,), [None], operator="pool"):
        if not isinstance(window.padding, str) and max(window.padding) >= window.kernel_size:
            continue
        sizes = sizes_of(window, True)
        for strategy in strategies_of(op):
            plan = make(window, op, strategy)
            if plan is None:
                assert strategy is not None, f"no graph for {window}"
                assert may_refuse(strategy, window, sizes, op), f"{strategy} refused {window}"
                continue
            (step,) = plan.axes
            assert step.pad < step.kernel_size
            if plan.convention == "full":
                shortest = 2 if window.kernel_size == 2 and window.padding in SIZE_DEPENDENT else 1
                assert step.kernel_size <= shortest + 2 * step.pad, "MXNet would refuse it"
                sizes = [n for n in sizes if n >= shortest]
                assert step.kernel_size == window.kernel_size, "clipped, it would be wrong for longer data"
            for n in sizes:
                assert is_exact(step, window, n, op, plan.convention), f"{strategy}: {plan}, {window}, n {n}"


def test_unknown_sizes_stand_for_every_remainder():
    for k, s, d in itertools.product(KERNELS, STRIDES, DILATIONS):
        sizes = Window(None, k, s, d).sizes
        assert sorted(n % s for n in sizes) == list(range(s)) and min(sizes) >= (k - 1) * d + 1
    assert tuple(Window(7, 3, 2).sizes) == (7,)


# ---- what a forced strategy may refuse -------------------------------------------------------------------------------


def may_refuse(strategy, window, sizes, op):
    """Whether the strategy has a reason to be refused, by the pads that the window has for these sizes."""
    pads = [ends(window, n, op.endswith("pool")) for n in sizes]
    lows, highs = {low for low, _ in pads}, {high for _, high in pads}
    same = window.padding in SIZE_DEPENDENT
    if strategy == "shift":
        return not same or window.size is not None
    if strategy in ("gather", "pick", "offset"):
        return not same or (strategy != "gather" and window.dilation > 1)
    if strategy == "full":
        return True  # it needs more: see below
    if strategy == "flip":  # counted from the end, windows must end there
        return (
            op == "avg_pool" or len(highs) > 1 or any(reach(window, n) != n + sum(pad) for n, pad in zip(sizes, pads))
        )
    if len(lows) > 1:
        return True
    if strategy == "native":
        return any(low != high for low, high in pads) or len(sizes) > 1
    if strategy == "slice" and op.endswith("pool"):
        return True  # the pad may come to the kernel
    if window.ceil_mode and len(sizes) > 1:
        return not same
    if strategy in ("slice", "kernel") and len(sizes) > 1:
        return not same
    return False


def ends(window, n, pool):
    """(low, high), with what a last, partial window adds."""
    case = case_of(window, n, pool)
    ((low, high),) = oracle.pads(case)
    return low, max(high, reach(window, n) - low - n) if window.ceil_mode and pool else high


def reach(window, n):
    """How far the last window comes, counted from the first cell of padding."""
    (out,) = oracle.output_size(case_of(window, n, window.ceil_mode))
    return (out - 1) * window.stride + (window.kernel_size - 1) * window.dilation + 1


# ---- more axes than one ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_the_least_size_has_the_plans_of_the_sizes_that_it_stands_for(op):
    """Plans are made for `Window.least()` alone: each is exact for the window's own size as well."""
    count = 0
    for k, s in itertools.product(range(1, 5), range(1, 7)):
        for low, high, n in itertools.product(range(k), range(k), range(k, 40, 3)):
            window = Window(n, k, s, 1, (low, high))
            if window.least() == window or not is_legal(window, n, True):
                continue
            for plan in exact_plans((window,), KINDS[op]).values():
                view = dataclasses.replace(window, kernel_size=plan.axes[0].kernel_size)
                assert is_exact_pool(plan.axes[0], window, view, op, plan.convention), f"{plan}, {window}"
                count += 1
    assert count > 1000


def test_full_serves_all_axes_or_none():
    """One convention for every axis: where "full" is chosen each of them is exact with it."""
    stream = random.Random(3)
    chosen = 0
    for _ in range(1500):
        rank = stream.choice((2, 3))
        unknown = stream.random() < 0.3
        sizes = [stream.choice(SIZES) for _ in range(rank)]
        rows = [
            Window(None if unknown else n, stream.choice(KERNELS), stream.choice(STRIDES), 1, "same") for n in sizes
        ]
        op = stream.choice(("max_pool", "avg_pool"))
        plan = first_plan(rows, KINDS[op])
        chosen += plan.convention == "full"
        for step, window, n in zip(plan.axes, rows, sizes):
            gives_one_up = plan.convention == "full" and window.kernel_size == 2
            for size in EVERY_SIZE[gives_one_up:] if unknown else (n,):
                known = dataclasses.replace(window, size=size)
                clipped = dataclasses.replace(known, kernel_size=step.kernel_size)
                assert is_exact_pool(step, known, clipped, op, plan.convention), f"{plan}, {rows}, n {size}"
                if not step.gather:
                    assert step.kernel_size <= size + sum(step.concat) + sum(step.pad_operator) + 2 * step.pad
    assert chosen > 200


def test_axes_are_planned_each_for_itself():
    windows = [Window(9, 3, 2), Window(8, 3, 2), Window(None, 3, 3)]
    with force("slice"), pytest.raises(ValueError, match=r"'slice' is not exact for Window.*received strategy='slice'"):
        first_plan(windows, "conv")
    native, sliced = first_plan(windows[:2], "conv", ("native", "slice")).axes
    assert native == AxisPlan(3, pad=1) and sliced == AxisPlan(3, pad=2, crop=(1, 0))


# ---- what is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", list(KINDS))
def test_native_is_free_of_steps_and_comes_first(op):
    """Symmetric SAME costs nothing: not a copy, not a crop."""
    for k in (1, 3, 5):
        for size in (None, 7, 12):
            plan = first_plan([Window(size, k, 1)], KINDS[op])
            assert plan == Plan((AxisPlan(k, pad=k // 2),))
    assert all(strategies_for(operator)[0] == "native" for operator in OPERATORS)


def test_full_costs_poolings_nothing():
    for op in ("max_pool", "avg_pool"):
        assert first_plan([Window(7, 2, 2)], KINDS[op]) == Plan((AxisPlan(2),), "full")
        # A kernel longer than the data is clipped to what the data can fill.
        assert first_plan([Window(2, 5, 3)], KINDS[op]) == Plan((AxisPlan(2),))


def test_maxima_are_never_flipped():
    """A flipped tie would send its gradient to the last element."""
    assert "flip" not in strategies_for("max") and "flip" in strategies_for("avg")
    assert all("kernel" not in strategies_for(name) for name, operator in OPERATORS.items() if operator.pool)


def test_fills():
    assert Plan((AxisPlan(3), AxisPlan(3, concat=(0, 1)))).fills and Plan((AxisPlan(3, gather=True),)).fills
    assert Plan((AxisPlan(3, pad_operator=(1, 0)),)).fills and not Plan((AxisPlan(3, pad=1, crop=(1, 0)),)).fills


def test_the_tables_are_whole():
    """Every strategy serves an operator, and every operator has one that is exact for every window."""
    for name, strategy in STRATEGIES.items():
        assert strategy.name == name and any(map(strategy.serves, OPERATORS.values()))
        assert (strategy.axis is not None) == bool(strategy.operators)
    for name in OPERATORS:
        window = TransposedWindow(8, 3, 2, 1, (0, 1)) if name == "transposed" else Window(8, 3, 2)
        plans = exact_plans((window,), name)
        assert plans and set(plans) <= set(strategies_for(name))


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


@pytest.mark.parametrize("strategy", strategies_for("transposed"))
@pytest.mark.parametrize("d", [1, 2, 3])
def test_transposed(strategy, d):
    made = 0
    for k, s, start in itertools.product(range(1, 8), range(1, 6), range(0, 7)):
        for end in range(-s + 1 if s > 1 else 0, 7):
            window = TransposedWindow(None, k, s, d, (start, end))
            step = STRATEGIES[strategy].plan(window, ())
            if step is None:
                assert strategy in ("native", "kernel") and not (strategy == "kernel" and k > 1 and end < 0)
                continue
            made += 1
            n = max((start + end - window.effective_kernel_size) // s + 3, 1)
            got = transposed_reads(step, window, n)
            want = [start + output for output in range(window.outputs(n))]
            assert got == want, f"{step}, {window}, n {n}"
            if strategy == "crop":
                assert step.pad == 0
            if strategy == "native":
                assert step == AxisPlan(k, pad=step.pad, adj=step.adj)
            if strategy == "kernel" and d == 1 and step.pad < k + sum(step.zeros) - 1:  # no pad is longer
                assert step.crop == (0, 0)
    assert made > (300 if strategy == "native" else 1000)


def test_transposed_same_needs_no_crop_if_mxnet_has_the_arguments():
    def plan(strategy, k, s, crop):
        return STRATEGIES[strategy].plan(TransposedWindow(None, k, s, 1, crop), ())

    assert plan("slice", 3, 2, (0, 1)) == AxisPlan(3, crop=(0, 1)) and plan("native", 3, 2, (0, 1)) is None
    assert plan("native", 4, 2, (1, 1)) == plan("slice", 4, 2, (1, 1)) == AxisPlan(4, pad=1)
    assert plan("native", 3, 2, (1, 0)) == AxisPlan(3, pad=1, adj=1)
    assert plan("kernel", 3, 2, (0, 1)) == AxisPlan(4, zeros=(1, 0), pad=1)
    assert plan("dilate", 3, 2, (0, 1)) == AxisPlan(3, dilate=2, pad_operator=(1, 0), pad=1)


def test_transposed_windows_are_made_by_the_rule():
    assert make_transposed_windows((4, None), (3, 2), (2, 3), (1, 1), "same", None) == (
        TransposedWindow(4, 3, 2, 1, (0, 1)),
        TransposedWindow(None, 2, 3, 1, (0, -1)),
    )
    with pytest.raises(ValueError, match="must not crop the whole output"):
        make_transposed_windows((1,), (3,), (1,), (1,), ((2, 2),), None)


# ---- what is wanted --------------------------------------------------------------------------------------------------


def test_the_rule_of_keras_mxnet_is_resolved_where_windows_are_made():
    """Pooling layers crop along the first of three axes only; elsewhere an even kernel of stride 1 is refused."""
    windows = make_windows((6, 6, 6), (2, 3, 2), (1, 1, 2), (1, 1, 1), "keras-mxnet", pool=True)
    assert [(window.padding, window.outputs(6)) for window in windows] == [("keras-mxnet", n) for n in (6, 6, 3)]
    assert [window.outputs(6) for window in make_windows((6,) * 2, (2,) * 2, (1,) * 2, (1,) * 2, "keras-mxnet")] == [
        6,
        6,
    ]
    with pytest.raises(ValueError, match="keras-mxnet has one more"):
        make_windows((6, 6), (2, 2), (1, 2), (1, 1), "keras-mxnet", pool=True)


# ---- frozen ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [Window(7, 3, 2), AxisPlan(3), Plan((AxisPlan(3),)), TransposedWindow(7, 3, 2)], ids=repr
)
def test_frozen_and_hashable(value):
    twin = dataclasses.replace(value)
    assert twin == value and twin is not value and hash(twin) == hash(value) and len({twin, value}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)


# ---- force -----------------------------------------------------------------------------------------------------------


def test_force_holds_inside_the_block_only():
    assert forced() is None
    with force("slice"):
        assert forced() == "slice"
        with force("pad"):
            assert forced() == "pad"
        assert forced() == "slice"
    assert forced() is None


def test_force_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), force("slice"):
        raise ZeroDivisionError
    assert forced() is None
    with force("pad"):
        with pytest.raises(ZeroDivisionError), force("slice"):
            raise ZeroDivisionError
        assert forced() == "pad"
    with force("offset"), pytest.raises(ValueError, match="is not exact"):
        first_plan([Window(8, 3, 2, 2)], "conv")
    assert forced() is None


def test_force_is_a_matter_of_one_thread():
    seen, barrier = {}, threading.Barrier(3)

    def work(name, strategy):
        if strategy is None:
            barrier.wait()
            seen[name] = forced()
            barrier.wait()
            return
        with force(strategy):
            barrier.wait()
            seen[name] = forced()
            barrier.wait()

    threads = [threading.Thread(target=work, args=pair) for pair in [("a", "slice"), ("b", "pad"), ("c", None)]]
    with force("concat"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert forced() == "concat"
    assert seen == {"a": "slice", "b": "pad", "c": None}


def test_force_leaves_operators_alone_that_do_not_know_the_strategy():
    for strategy, operator in (("crop", "conv"), ("dilate", "conv"), ("kernel", "max"), ("shift", "avg")):
        plain = first_plan([Window(8, 3, 2)], operator)
        with force(strategy):
            assert first_plan([Window(8, 3, 2)], operator) == plain


def test_an_axis_that_needs_nothing_runs_natively_whatever_is_forced():
    for strategy in PER_AXIS:
        with force(strategy):
            assert first_plan([Window(9, 3, 2)], "conv").axes == (AxisPlan(3, pad=1),)


@pytest.mark.parametrize("strategy", ["", "SLICE", "same", "none"])
def test_force_refuses_what_is_no_strategy(strategy):
    message = f"strategy must be one of native, full, slice, .*, dilate; received strategy='{strategy}'"
    with pytest.raises(ValueError, match=message), force(strategy):
        raise AssertionError("not reached")
    assert forced() is None


def test_what_has_no_exact_graph_is_refused():
    with pytest.raises(ValueError, match=r"give input_size, .*; received padding='same', stride=2, ceil_mode=False"):
        first_plan([Window(None, 3, 2)], "conv", ("native", "slice"))
