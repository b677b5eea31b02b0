"""The planner: every choice is exact, what was measured goes first, and the estimate ranks as the benchmarks do."""

import dataclasses
import itertools
import math
import random

import pytest

from mxsame.plan import TransposedWindow, Window, choice, cpu_costs, exact_plans, use_strategy
from mxsame.planner import PlannedOperator, Workload, candidates, estimate, fastest_plan

KINDS_OF_COPY = ("native", "slice", "concat", "kernel", "pad", "gather")
FAMILIES = ("conv", "max", "avg", "avg with padding", "lp")


@pytest.fixture(autouse=True)
def nothing_remembered():
    choice._estimated_fastest.cache_clear()
    yield
    choice._estimated_fastest.cache_clear()


def square(size, kernel_size, stride=1, rank=2):
    return (Window(size, kernel_size, stride),) * rank


def transposed(size, kernel_size, stride, crop, rank=2):
    return (TransposedWindow(size, kernel_size, stride, 1, crop),) * rank


def chosen(windows, work):
    """The strategy that the plan comes from."""
    plans = exact_plans(tuple(windows), work.operator)
    return next(strategy for strategy, plan in plans.items() if plan == fastest_plan(windows, work))


def works(operator):
    """Workload of every kind, and as much of it as is not known."""
    for batch, channels, purpose, device, plain in (
        (None, None, "inference", "cpu", False),
        (1, 3, "inference", "cpu", True),
        (8, 64, "training", "cpu", False),
        (8, 64, "deployment", "gpu", False),
        (256, 2048, "training", "gpu", True),
    ):
        groups = channels if operator == "conv" and channels == 64 else 1
        yield Workload(operator, batch, channels, channels, groups, plain, purpose, device)


@pytest.mark.parametrize("operator", FAMILIES)
def test_a_choice_is_exact_and_estimates_grow_with_the_batch(operator):
    for rank, size, kernel_size, stride in itertools.product((1, 2, 3), (None, 7, 8), (1, 2, 3, 5), (1, 2, 3)):
        windows = square(size, kernel_size, stride, rank)
        plans = exact_plans(windows, operator).values()
        for work in works(operator):
            plan = fastest_plan(windows, work)
            if rank == 3 and sum(plan.axes[0].pad_operator) and work.device == "cpu":  # shallow data
                own = dataclasses.replace(plan.axes[0], pad=plan.axes[0].pad_operator[0], pad_operator=(0, 0))
                plan = dataclasses.replace(plan, axes=(own, *plan.axes[1:]))
            assert plan in plans
            for plan in plans if work.batch else ():
                costs = [estimate(plan, windows, dataclasses.replace(work, batch=batch)) for batch in (1, 2)]
                assert 0 < costs[0] < costs[1] < math.inf


# What the tables of `python -m benchmarks planner` have as the fastest by far; (windows, work, strategies that may be)
FASTEST = [
    (square(224, 3, 2), Workload("conv", 8, 3, 32, plain=True), {"concat"}),
    (square(56, 3, 2, rank=3), Workload("conv", 2, 3, 32, plain=True), {"concat"}),
    (square(56, 3, 2), Workload("conv", 8, 128, 128), {"slice"}),
    (square(112, 3, 2), Workload("conv", 8, 64, 64, groups=64), {"kernel"}),
    (square(56, 5, 2), Workload("conv", 8, 144, 144, groups=144), {"kernel"}),
    (square(112, 3, 2), Workload("max", 8, 64, 64), {"full"}),
    (square(56, 2, 1), Workload("avg", 8, 64, plain=True), {"slice"}),
    (square(None, 3, 2), Workload("conv", 8, 128, 128), {"shift"}),
    (square(None, 3, 2), Workload("conv", 8, 64, 64, groups=64), {"shift"}),
    (square(None, 4, 2), Workload("conv", None, 192, 192), {"shift", "concat"}),  # and so is a slice
    (square(56, 3, 2), Workload("conv", 8, 128, 128, purpose="training"), {"concat"}),
    (square(60, 3, 2), Workload("conv", 8, 64, 64, groups=64, purpose="training"), {"concat"}),
    ((Window(92, 3, 2), Window(71, 3, 2)), Workload("conv", 8, 64, 64, groups=64, purpose="training"), {"kernel"}),
]


@pytest.mark.parametrize(("windows", "work", "strategies"), FASTEST)
def test_the_estimate_chooses_what_is_the_fastest_by_far(windows, work, strategies):
    assert chosen(windows, work) in strategies


def on_gpu(operator, in_channels, channels=None, last=False, batch=32, **more):
    return Workload(operator, batch, in_channels, channels or in_channels, device="gpu", channels_last=last, **more)


TRAINED = {"purpose": "training"}
GPU = {  # by the rule without which another strategy is chosen
    "the pad operator is a faster copy than a crop": (square(112, 3, 2), on_gpu("conv", 64, 128), "pad"),
    "a crop of few outputs is faster than a pad": (square(56, 3, 2), on_gpu("conv", 144, groups=144), "slice"),
    "pooling pads and counts partial windows for nothing": (square(112, 3, 2), on_gpu("max", 64), "full"),
    "a maximum without partial windows is padded": (square(56, 2, 1), on_gpu("max", 64), "pad"),
    "two reversals are less than fifty small operators": (square(None, 3, 2), on_gpu("avg", 64), "flip"),
    "flip, any size": (square(None, 3, 2), on_gpu("conv", 64, 128), "flip"),
    "pad, any size": (square(None, 4, 2), on_gpu("conv", 64, 128), "pad"),
    "flip, three axes": (square(None, 3, 2, rank=3), on_gpu("conv", 16, 32), "flip"),
    "shift, one axis": (square(None, 8, 4, rank=1), on_gpu("conv", 64), "shift"),
    "the gradient of a pad costs more than its share": (square(112, 3, 2), on_gpu("conv", 64, 112, **TRAINED), "slice"),
    "forward it does not": (square(112, 3, 2), on_gpu("conv", 64, 112), "pad"),
    "the gradient of a picture's weight": (square(64, 7, 4), on_gpu("conv", 4, 8, **TRAINED), "pad"),
    "not a picture": (square(64, 7, 4), on_gpu("conv", 8, 16, **TRAINED), "slice"),
    "a transposed convolution with empty tiles": (((32, 5, 2, (1, 2)),), on_gpu("transposed", 64, 32), "dilate"),
    "a transposed convolution with full tiles": (((32, 5, 2, (1, 2)),), on_gpu("transposed", 64, 320), "slice"),
    "a pad copies pixels with channels last, too": (square(224, 7, 2), on_gpu("conv", 3, 64, last=True), "pad"),
    "a crop with channels last is slow": (square(112, 3, 2), on_gpu("conv", 64, 72, last=True), "pad"),
    "a crop with channels first is not": (square(112, 3, 2), on_gpu("conv", 64, 72), "slice"),
    "a layout that is not known": (square(224, 7, 2), on_gpu("conv", 3, 64, last=None), "concat"),
    "whose training was not measured": (square(224, 7, 2), on_gpu("conv", 3, 64, last=None, **TRAINED), "pad"),
    "a dynamic shape has channels first": (square(None, 2, 2), on_gpu("conv", 3, 64, last=None), "pad"),
    "groups have them": (square(224, 3, 2), on_gpu("conv", 144, groups=144, last=None), "slice"),
    "three axes have them": (square(28, 2, 1, rank=3), on_gpu("conv", 3, 64, last=None), "pad"),
    "a longer kernel is not for nothing": (square(28, 3, 2), on_gpu("conv", 8, batch=1, purpose="deployment"), "slice"),
}


@pytest.mark.parametrize("rule", GPU)
def test_on_a_gpu_the_estimate_chooses_by_what_was_measured_there(rule):
    windows, work, strategy = GPU[rule]
    windows = transposed(*windows[0]) if work.operator == "transposed" else windows
    assert chosen(windows, work) == strategy


def test_candidates_depend_on_the_device():
    windows, on_cpu = square(8, 3, 2), Workload("conv", 8, 16, 32)
    assert list(candidates(windows, on_cpu)) == ["slice", "concat", "kernel", "flip"]
    assert list(candidates(windows, on_gpu("conv", 16, 32))) == ["slice", "concat", "kernel", "pad", "flip"]
    assert list(candidates(windows, on_gpu("conv", 16, 32, last=True))) == ["slice", "concat", "kernel", "pad"]
    up, work = transposed(8, 5, 2, (1, 2)), Workload("transposed", 8, 16, 32)
    assert list(candidates(up, work)) == ["slice", "kernel"]
    assert list(candidates(up, on_gpu("transposed", 16, 32))) == ["slice", "kernel", "dilate"]


def test_a_maximum_is_picked_only_if_nothing_else_is_exact_or_nearly_as_fast():
    """Its windows are multiplied by zero and one: an infinity becomes NaN."""
    windows, work = (Window(132, 2, 3), Window(184, 2, 3)), Workload("max", 8, 16, 16, purpose="training")
    plans = exact_plans(windows, "max")
    picked, *others = (estimate(plans[name], windows, work) for name in ("pick", "concat", "pad"))
    assert picked < min(others)
    assert chosen(windows, work) == "concat"
    assert chosen(square(None, 3, 2), Workload("max", 8, 64, 64)) == "pick"
    windows, work = square(None, 2, 1), Workload("max", 8, 64)
    plans = exact_plans(windows, "max")
    picked, cropped = (estimate(plans[name], windows, work) for name in ("pick", "slice"))
    assert picked < cropped < 1.1 * picked and chosen(windows, work) == "slice", "a tenth is not enough"


def test_deployment_gets_longer_weights_for_nothing():
    """A weight that takes long to lengthen, on little data."""
    windows = square(4, 3, 2)
    work = Workload("conv", 1, 512, 512, groups=512)
    deployed = dataclasses.replace(work, purpose="deployment")
    plan = exact_plans(windows, "conv")["kernel"]
    assert estimate(plan, windows, deployed) < 0.7 * estimate(plan, windows, work)
    assert chosen(windows, deployed) == "kernel"


def test_transposed_convolutions_are_planned_as_all_others():
    """Estimated and forced."""
    windows, work = transposed(14, 5, 2, (1, 2)), Workload("transposed", 8, 32, 16)
    plans = exact_plans(windows, "transposed")
    assert list(plans) == ["slice", "kernel", "dilate"]
    costs = {name: estimate(plan, windows, work) for name, plan in plans.items()}
    assert 0 < costs["slice"] < costs["dilate"] and chosen(windows, work) == "slice"
    with use_strategy("kernel"):
        assert chosen(windows, work) == "kernel"
    assert list(exact_plans(transposed(14, 4, 2, (1, 1)), "transposed")) == ["native"]


# ---- signatures of graphs --------------------------------------------------------------------------------------------


def decision(*window, operator="conv", **work):
    return PlannedOperator((Window(None, *window),) * 2, Workload(operator, **work), KINDS_OF_COPY, plan=None)


def test_plans_that_depend_on_the_size():
    assert decision(3, 2).depends_on_size and decision(2, 1, 1, (0, 1)).depends_on_size
    assert decision(1, 4, 1, "keras-mxnet").depends_on_size, "there is no graph for every size"
    assert decision(3, 400_000).depends_on_size, "at once, whatever the stride"
    assert not decision(3, 1).depends_on_size and not decision(5, 1, 2, (3, 3)).depends_on_size


SAME_FOR_ALL = [("same", 8), ("keras-mxnet", 8), ((0, 0), 10), ((1, 1), 10), ((0, 2), 0)]


@pytest.mark.parametrize("padding, expected", SAME_FOR_ALL, ids=str)
def test_a_plan_that_does_not_depend_on_the_size_is_the_same_for_all(padding, expected):
    """The convolutions with stride 1 whose two ends are alike."""
    independent = 0
    for kernel_size, dilation in itertools.product((1, 2, 3, 4, 5), (1, 2)):
        drawn, shortest = decision(kernel_size, 1, dilation, padding, channels=8), 1
        if drawn.depends_on_size:
            continue
        if not isinstance(padding, str):  # the padded data must hold the kernel
            shortest = max((kernel_size - 1) * dilation + 1 - sum(padding), 1)
        sizes = [(1, 8, shortest + added, shortest + 40 - added) for added in range(40)]
        assert len({str(drawn.plan_for(shape)[0]) for shape in sizes}) == 1, drawn
        independent += 1
    assert independent == expected


def test_an_output_of_a_transposed_convolution_depends_on_the_size():
    """MXNet does not refuse an empty one."""
    windows = (TransposedWindow(None, 4, 2, 1, (2, 2)),) * 2
    upward = PlannedOperator(windows, Workload("transposed"), ("native",), plan=None)
    assert upward.depends_on_size
    with pytest.raises(ValueError, match="padding must not crop the whole output"):
        upward.plan_for((1, 3, 1, 1))


# ---- the estimate's own arithmetic -----------------------------------------------------------------------------------


def test_elements_that_are_read_are_counted():
    """One by one, for all windows of plans of every kind."""
    stream, kinds = random.Random(0), set()
    for _ in range(3000):
        window = Window(stream.randint(1, 12), stream.randint(1, 5), stream.randint(1, 4), stream.randint(1, 2))
        n, s, d, outputs = window.size, window.stride, window.dilation, window.outputs(window.size)
        for strategy, plan in exact_plans((window,), "conv", KINDS_OF_COPY).items():
            (step,) = plan.axes
            elements = n + sum(step.concat) + sum(step.pad_operator)
            if step.gather:
                elements = outputs * s + max(window.effective_kernel_size - s, 0)
            count, kernel = outputs + sum(step.crop), range(step.kernel_size)
            read = sum(0 <= j * s - step.pad + i * d < elements for j in range(count) for i in kernel)
            computed = step.computed_outputs(n, outputs)
            assert cpu_costs._reads(step, window, n, outputs, computed) == max(read, 1), f"{strategy}: {step}, {window}"
            kinds.add(strategy)
    assert kinds == set(KINDS_OF_COPY)
