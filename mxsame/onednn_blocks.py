"""What oneDNN does on the CPU with the channels of data: every fact about its blocks is here, once.

oneDNN's convolutions keep data in blocks of 8 or 16 channels, forward and backward. If an operator does not support the
blocks, MXNet copies the data to the plain layout before it, and the next convolution copies it back.
"""

from __future__ import annotations

from typing import Optional, Sequence

MAX_BLOCK, MIN_BLOCK = 16, 8  # channels of a block

# Operators that keep the layout of their data, in a traced graph. Dropout does at inference only.
KEEP_AS_TRACED = {
    *("Activation", "LeakyReLU", "relu", "sigmoid", "tanh", "softsign", "_copy", "BlockGrad", "Dropout", "Pooling"),
    *("elemwise_add", "broadcast_add", "add_n"),
}
# The same in a graph that is deployed: it has one form of each activation, and oneDNN runs a clip with its convolution.
KEEP_DEPLOYED = {"Activation", "LeakyReLU", "Pooling", "clip"}
# Kinds of operators that do so backward, too. The last two may be in place.
KEEP_IN_TRAINING = {"Activation", "LeakyReLU", "Dropout", "identity", "add", "maximum_scalar", "minimum_scalar"}


def size_for(channels: Sequence[int]) -> int:
    """Returns the size of the largest blocks that divide all these numbers of channels, 0 if there is none.

    >>> size_for([32, 24]), size_for([12])
    (8, 0)
    """
    fitting = (size for size in (MAX_BLOCK, MIN_BLOCK) if all(count > 0 and not count % size for count in channels))
    return next(fitting, 0)


def slice_divides_blocks(first: Optional[int], end: Optional[int], channels: int = 0) -> bool:
    """Returns whether the channel slice [first, end) may start or end within a block; `channels` is 0 if unknown.

    >>> slice_divides_blocks(8, None), slice_divides_blocks(8, None, 24), slice_divides_blocks(None, -4, 24)
    (True, False, True)
    """
    return any((bound or 0) % (size_for([channels]) or MAX_BLOCK) for bound in (first, end))
