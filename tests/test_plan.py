"""Plans, without MXNet: how many windows of a grid each strategy serves, and what is chosen first.

That a plan gives what its window gives is in test_ops.py, where every strategy runs the table of cases.
"""

import collections
import concurrent.futures
import itertools

import numpy as np
import oracle
import pytest
from cases import Case

from mxsame import plan as planning
from mxsame.padding import keeps_extra_output
from mxsame.plan import OPERATORS, POOLS, Window, first_plan, simulation, strategies_for, use_strategy
from mxsame.plan.axis_plan import AddedElements, OneHotKernel

SIZES, KERNELS, STRIDES, DILATIONS = range(1, 10), range(1, 6), range(1, 5), range(1, 4)
EVERY_SIZE = range(1, 18)
PADDINGS = ("same", "valid", "causal", "keras-mxnet", (1, 1), (0, 2), (3, 1), (5, 4))


def case_of(window, n, pool):
    """The oracle's case for one size."""
    padding = window.padding if isinstance(window.padding, str) else (window.padding,)
    op = "max_pool" if pool else "conv"
    rest = {"ceil_mode": window.ceil_mode} if pool else {}
    return Case(op, (n,), (window.kernel_size,), (window.stride,), padding, (window.dilation,), name="-", **rest)


def windows_of(operator, padding, ceil_mode, sizes):
    """The windows of the whole grid as mxsame makes them."""
    pool = operator in POOLS
    for k, s, d in itertools.product(KERNELS, STRIDES, (1,) if pool else DILATIONS):
        pads = {"valid": (0, 0), "causal": ((k - 1) * d, 0)}.get(padding, padding)
        if padding == "keras-mxnet":
            if keeps_extra_output("pool" if pool else "conv", 1, 0, k, s, d):
                pads = (k // 2, k // 2)
            if sizes == [None] and s > (k - 1) * d + 2:
                continue  # keras-mxnet has no pads for some sizes, so there is no graph for all
        if not pool or isinstance(pads, str) or max(pads) < k:
            yield from (Window(n, k, s, d, pads, ceil_mode) for n in sizes)


SERVED = {  # how many windows of the grid each of `strategies_for` the operator serves, static or not
    ("conv", True): (2125, 3685, 3685, 3685, 3685, 2125, 3075, 2340),
    ("conv", False): (174, 293, 439, 361, 416, 245, 251, 245),
    ("max", True): (1158, 1334, 1404, 1502, 1502, 1252, 1252),
    ("max", False): (75, 132, 96, 152, 152, 121, 121),
    ("avg", True): (1158, 1334, 1404, 1502, 1502, 1252, 1469, 1252),
    ("avg", False): (75, 132, 96, 152, 152, 121, 97, 121),
}
TRANSPOSED = (1575, 6615, 6615, 6615)


@pytest.mark.parametrize("sizes", [SIZES, [None]], ids=["static", "dynamic"])
@pytest.mark.parametrize("operator", ["conv", "max", "avg"])
def test_every_strategy_on_the_whole_grid(operator, sizes):
    """No strategy serves fewer windows than it can, or more: those for which the arithmetic of its plan is exact."""
    pool, served = operator in POOLS, collections.Counter()
    for padding, ceil_mode in itertools.product(PADDINGS, (False, True) if pool else (False,)):
        if padding == "causal" and pool:
            continue
        for window in windows_of(operator, padding, ceil_mode, sizes):
            stands_for = EVERY_SIZE if window.size is None else [window.size]
            if not any(oracle.is_legal(case_of(window, n, pool)) for n in stands_for):
                continue
            assert first_plan([window], operator), f"no graph for {window}"
            for strategy in strategies_for(operator):
                try:
                    with use_strategy(strategy):
                        plan = first_plan([window], operator)
                except ValueError as error:
                    assert "must be a strategy that is exact for this layer (" in str(error)
                    continue
                served[strategy] += 1
                (step,) = plan.axes
                assert not pool or (step.pad < step.kernel_size and step.kernel_zeros == (0, 0))
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


ANY, EVEN, ODD = Window(None, 3, 2), Window(8, 3, 2), Window(7, 3, 2)
UPWARD = planning.TransposedWindow(None, 3, 2, 1, (0, 1))


@pytest.mark.parametrize(
    ("window", "right", "wrong"),
    [
        (ODD, {"pad": 1}, {"concat": (2, 0)}),  # as many outputs as SAME, of other windows
        (EVEN, {"pad": 2, "crop": (1, 0)}, {"pad": 1}),
        (EVEN, {"concat": (0, 1)}, {"pad_operator": (1, 0)}),
        (EVEN, {"pad_operator": (0, 1)}, {"pad_operator": (0, 1), "crop": (0, 1)}),
        (
            EVEN,
            {"kernel_size": 4, "kernel_zeros": (1, 0), "pad": 1},
            {"kernel_size": 4, "kernel_zeros": (0, 1), "pad": 1},
        ),
        (ANY, {"flip": True, "pad": 1}, {"pad": 1}),
        (Window(None, 5, 2), {"kernel_size": 5, "added": (0, 2)}, {"kernel_size": 5, "added": (1, 2)}),
        (ANY, {"shift": OneHotKernel(0, 2, 2)}, {"shift": OneHotKernel(1, 2, 1), "pad": 1}),  # an element is lost
        (
            ANY,
            {"pick": OneHotKernel(0, 2, 1), "pad": 1},
            {"pick": OneHotKernel(0, 2, 2), "pad": 0},
        ),  # a zero is picked
        (ANY, {"gather": True}, {"gather": True, "pad": 1}),
        (UPWARD, {"crop": (0, 1)}, {"crop": (1, 0)}),
        (UPWARD, {"dilate": 2, "pad_operator": (1, 0), "pad": 1}, {"dilate": 2, "pad_operator": (0, 1), "pad": 1}),
        (ODD, {"pad": 1}, {"kernel_zeros": (0, 1), "pad": 1}),  # one element of the kernel is lost
        (UPWARD, {"crop": (0, 1)}, {"adj": -1}),  # MXNet takes no such numbers
        (UPWARD, {"pad": 0, "crop": (0, 1)}, {"adj": 2, "crop": (0, 3)}),
    ],
)
def test_a_plan_that_reads_other_elements_is_refused(window, right, wrong):
    def exact(kernel_size=3, added=None, **numbers):
        numbers = {"crop": (0, None), "dynamic_concat": added and AddedElements(*added), **numbers}
        return simulation.prove(planning.AxisPlan(kernel_size, **numbers), window)

    if isinstance(window, planning.TransposedWindow):  # its ends are given
        right, wrong = {"crop": (0, 0), **right}, {"crop": (0, 0), **wrong}
    assert exact(**right) and not exact(**wrong)


def test_what_has_no_exact_graph_is_refused():
    with pytest.raises(
        ValueError,
        match=r"no exact plan for an input of dynamic shape.*; received input_size=\(None,\), .*padding=\('same',\)",
    ):
        first_plan([Window(None, 3, 2)], "conv", ("native", "slice"))
    with pytest.raises(ValueError, match=r"strides must be <= 4096 .*; received strides=\(4097,\)"):
        planning.exact_plans((Window(None, 3, 4097),), "conv")


# ---- transposed ------------------------------------------------------------------------------------------------------


def test_transposed_convolutions_on_the_whole_grid():
    served = collections.Counter()
    for k, s, d, start in itertools.product(range(1, 8), range(1, 6), DILATIONS, range(0, 7)):
        for end, strategy in itertools.product(range(-s + 1 if s > 1 else 0, 7), strategies_for("transposed")):
            window = planning.TransposedWindow(None, k, s, d, (start, end))
            step = planning.STRATEGIES[strategy].plan(window, "transposed")
            if step is None:
                continue
            served[strategy] += 1
            if strategy == "kernel" and d == 1 and step.pad < k + sum(step.kernel_zeros) - 1:  # no pad is longer
                assert step.crop == (0, 0)
    assert tuple(served[strategy] for strategy in strategies_for("transposed")) == TRANSPOSED


# ---- use_strategy ----------------------------------------------------------------------------------------------------


def test_a_strategy_is_used_within_a_block_and_a_thread():
    with use_strategy("concat"):
        with pytest.raises(ZeroDivisionError), use_strategy("slice"):
            assert planning.current_strategy() == "slice"
            raise ZeroDivisionError
        assert planning.current_strategy() == "concat"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(planning.current_strategy).result() is None
    assert planning.current_strategy() is None


def test_a_padding_has_one_form():
    """In any case, and of NumPy: SAME of 8 by 3/2 pads (0, 1), whoever writes it."""
    same = planning.make_windows((8,), (3,), (2,), (1,), "same")
    assert same[0].pads(8) == (0, 1)
    assert (
        planning.make_windows(np.array([8]), [3], np.array([2]), (1,), "SAME") == same == (Window(8, 3, 2, 1, "SAME"),)
    )
    assert Window(None, 3, 2, 2, "Causal").padding == (4, 0) == Window(None, 3, 2, 1, [4, np.int64(0)]).padding
    assert Window(8, 3, 2, 1, "Valid") == Window(8, 3, 2, 1, 0) != Window(8, 3, 2, 1, "Keras-MXNet")


def test_a_strategy_in_use_leaves_alone_what_it_does_not_serve_and_what_needs_nothing():
    for strategy, operator in (("dilate", "conv"), ("kernel", "max"), ("shift", "avg"), ("flip", "max")):
        plain = first_plan([Window(8, 3, 2)], operator)
        with use_strategy(strategy) as planned:
            assert first_plan([Window(8, 3, 2)], operator) == plain
            assert first_plan([Window(9, 3, 2)], "conv").axes == (planning.AxisPlan(3, pad=1),)
        first = next(iter(planning.exact_plans([Window(8, 3, 2)], operator)))
        assert planned == [(operator, first), ("conv", "native")]
