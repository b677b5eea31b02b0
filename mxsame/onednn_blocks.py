"""The blocks of channels in which oneDNN keeps data on the CPU: every fact about them is here, once.

oneDNN's convolutions keep data in blocks of 8 or 16 channels, forward and backward. If an operator does not support the
blocks, MXNet copies the data to the plain layout before it, and the next convolution copies it back.
"""

from __future__ import annotations

from typing import Optional, Sequence

MAX_BLOCK, MIN_BLOCK = 16, 8  # channels of a block

# Operators that keep the layout of their data in a traced graph; Dropout only at inference.
KEEP_AS_TRACED = {
    *("Activation", "LeakyReLU", "relu", "sigmoid", "tanh", "softsign", "_copy", "BlockGrad", "Dropout", "Pooling"),
    *("elemwise_add", "broadcast_add", "add_n"),
}
# The same in a deployed graph, which has one form of each activation, and where oneDNN fuses a clip with a convolution.
KEEP_DEPLOYED = {"Activation", "LeakyReLU", "Pooling", "clip"}
# Kinds of operators that keep it in the backward pass, too.
KEEP_IN_TRAINING = {"Activation", "LeakyReLU", "Dropout", "identity", "add", "maximum_scalar", "minimum_scalar"}


def size_for(channels: Sequence[int]) -> int:
    """Returns the largest block size that divides all these numbers of channels; 0 if none does.

    >>> size_for([32, 24]), size_for([12])
    (8, 0)
    """
    sizes = (size for size in (MAX_BLOCK, MIN_BLOCK) if all(count > 0 and not count % size for count in channels))
    return next(sizes, 0)


def slice_divides_blocks(first: Optional[int], end: Optional[int], channels: int = 0) -> bool:
    """Returns whether the channel slice [first, end) may start or end within a block; `channels` is 0 if unknown.

    >>> slice_divides_blocks(8, None), slice_divides_blocks(8, None, 24), slice_divides_blocks(None, -4, 24)
    (True, False, True)
    """
    return any((bound or 0) % (size_for([channels]) or MAX_BLOCK) for bound in (first, end))
