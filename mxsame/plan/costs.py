"""What the cost estimates of all devices share: the workload of an operator, and typical values for what is unknown.
The estimates are in `mxsame.plan.cpu_costs` and `mxsame.plan.gpu_costs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence

from mxsame import validation
from mxsame.onednn_blocks import MIN_BLOCK
from mxsame.plan.windows import AnyWindow

# Numbers of operators
ONE_HOT_CALLS = 8  # to make a one-hot kernel
LOW_CALLS = 12  # to compute SAME's low pad for an axis of dynamic shape
AXIS_CALLS = 3  # in addition to these, for each axis
GATHER_CALLS = 30  # to gather the data along an axis

PURPOSES, DEVICES = ("inference", "training", "deployment"), ("cpu", "gpu")

TYPICAL_BATCH = 2
TYPICAL_CHANNELS = 64
TYPICAL_INPUT_SIZE = {1: 16000, 2: 224, 3: 48}  # rank -> size of a network's input
FULL_WIDTH_CHANNELS = {1: 32, 2: 128, 3: 128}  # rank -> channels up to which data has a quarter of the input size


@dataclass(frozen=True)
class Workload:
    """All that the cost of an operator depends on, apart from its windows; None means unknown.

    Parameters
    ----------
    operator : str
        One of `mxsame.plan.OPERATORS`: "conv", "transposed", "max", "avg", ..
    batch, in_channels, channels : int, optional
    groups : int
    plain : bool
        The data is an input of the graph, so it is not in oneDNN's blocks.
    purpose : "inference", "training" or "deployment"
        For deployment, everything that depends only on parameters is computed in advance.
    device : "cpu" or "gpu"
    in_blocks : bool
        The data of a 1-D or 3-D pooling operator is in oneDNN's blocks, like a convolution's output.
    pairs_channels : bool
        Whether a pooling operator can run on data with its channels in pairs.
    channels_last : bool, optional
        Whether MXNet's operator runs on data with channels last, as it can on a GPU. If this is unknown (None), one
        plan is chosen for both layouts.

    Examples
    --------
    >>> Workload("conv", batch=8, in_channels=3, channels=64, plain=True).groups
    1
    """

    operator: str
    batch: Optional[int] = None
    in_channels: Optional[int] = None
    channels: Optional[int] = None
    groups: int = 1
    plain: bool = False
    purpose: str = "inference"
    device: str = "cpu"
    in_blocks: bool = False
    pairs_channels: bool = False
    channels_last: Optional[bool] = None

    def __post_init__(self) -> None:
        if not isinstance(self.operator, str):
            raise TypeError(f"operator must be a string; {validation.received(operator=self.operator)}")
        for name, minimum in (("batch", 0), ("in_channels", 1), ("channels", 1), ("groups", 1)):
            if getattr(self, name) is not None or name == "groups":
                validation.integer(name, getattr(self, name), minimum)
        for name in ("plain", "in_blocks", "pairs_channels", "channels_last"):
            if getattr(self, name) is not None or name != "channels_last":
                validation.flag(name, getattr(self, name))
        for name, choices in (("purpose", PURPOSES), ("device", DEVICES)):
            value = getattr(self, name)
            is_choice = isinstance(value, str) and value in choices
            validation.check(is_choice, f"{name} must be one of {', '.join(choices)}", **{name: value})


class CostLayer:
    """The layer for which the cost of a plan is estimated: its windows and workload, with typical values for what is
    unknown."""

    def __init__(self, windows: Sequence[AnyWindow], work: Workload):
        self.windows, self.work, self.rank = windows, work, len(windows)
        self.in_channels: int = work.in_channels or work.channels or TYPICAL_CHANNELS
        self.channels: int = work.channels or self.in_channels
        self.batch: int = work.batch or TYPICAL_BATCH
        self.is_training: bool = work.purpose == "training"
        self.is_convolution = work.operator in ("conv", "transposed")
        self.size = [window.size or _typical_size(self.rank, self.in_channels) for window in windows]
        self.output_size = [window.outputs(length) for window, length in zip(windows, self.size)]
        self.input_elements: int = self.batch * self.in_channels * math.prod(self.size)
        self.output_elements: int = self.batch * self.channels * math.prod(self.output_size)
        kernel_elements = math.prod(window.kernel_size for window in windows)
        self.weight_elements: int = self.channels * self.in_channels // work.groups * kernel_elements
        keeps_blocks = not self.is_training  # in training, batch norms copy data to the plain layout
        is_plain_3d = self.rank == 3 and not self.is_convolution and not work.in_blocks  # after a batch norm
        self.input_in_blocks: bool = keeps_blocks and self.in_channels >= MIN_BLOCK and not (work.plain or is_plain_3d)
        self.output_in_blocks: bool = keeps_blocks and self.channels >= MIN_BLOCK and self.is_convolution


def _typical_size(rank: int, channels: int) -> int:
    """Returns the size of a network's input if there are few channels. If there are more, returns a quarter of it,
    halved each time that the channels double."""
    if channels < MIN_BLOCK:
        return TYPICAL_INPUT_SIZE[rank]
    quarter = TYPICAL_INPUT_SIZE[rank] // 4
    return min(quarter, max(7, quarter * FULL_WIDTH_CHANNELS[rank] // channels))
