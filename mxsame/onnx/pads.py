"""Windows as attributes of ONNX's convolutions and pooling operators.

ONNX's operators have a pad for each end of each axis, so a window of a static size needs only `pads`. A dynamic size
needs pads that are the same for every size, or the rule of SAME, which is `auto_pad`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Optional, Sequence, Tuple

from mxsame import padding as arithmetic
from mxsame.plan import TransposedWindow, Window
from mxsame.plan.windows import AnyWindow, check_dynamic

AUTO_PAD = {"same": "SAME_UPPER", arithmetic.KERAS_MXNET: "SAME_LOWER"}  # where the extra padding element goes


def pads(windows: Sequence[AnyWindow], pool: bool = False) -> Optional[Dict[str, Any]]:
    """The attributes for windows, some of dynamic size; None if no attributes are right for every size.

    Raises `ValueError` if a partial window of a pooling operator would be empty for some size.

    >>> pads([Window(224, 3, 2), Window(225, 3, 2)])
    {'pads': [0, 1, 1, 1]}
    >>> pads([Window(None, 3, 2), Window(None, 3, 2)])
    {'auto_pad': 'SAME_UPPER'}
    >>> pads([TransposedWindow(None, 3, 2, crop=(0, 1))]), pads([TransposedWindow(None, 2, 3, crop=(0, -1))])
    ({'pads': [0, 1]}, {'pads': [0, 0], 'output_padding': [1]})
    """
    if isinstance(windows[0], TransposedWindow):
        crops: list = [window.crop for window in windows]
        added = [max(-end, 0) for _, end in crops]
        attrs = {"pads": [start for start, _ in crops] + [max(end, 0) for _, end in crops]}
        return {**attrs, "output_padding": added} if any(added) else attrs
    check_dynamic(tuple(windows), pool)
    pairs = [_for_every_size(window) for window in windows]
    if None not in pairs:
        return {"pads": [low for low, _ in pairs] + [high for _, high in pairs]}
    if all(window.ceil_mode and not window.follows_size for window in windows):
        ends = [replace(window, ceil_mode=False).pads(1) for window in windows]
        return {"pads": [low for low, _ in ends] + [high for _, high in ends], "ceil_mode": 1}
    rules = {window.padding for window in windows}
    if len(rules) == 1 and rules <= AUTO_PAD.keys() and all(map(_suits_auto_pad, windows)):
        return {"auto_pad": AUTO_PAD[rules.pop()]}
    return None


def _suits_auto_pad(window: Window) -> bool:
    """Whether runtimes compute `auto_pad` correctly: ONNX Runtime computes negative pads for a kernel shorter than its
    stride, and refuses or ignores `auto_pad` with a dilation."""
    return window.dilation == 1 and window.kernel_size >= window.stride


def _for_every_size(window: Window) -> Optional[Tuple[int, int]]:
    """The (low, high) that give exactly the right windows for every size of the window; None if there are none."""
    pairs = [window.pads(size) for size in window.sizes]
    low, high = pairs[0][0], max(high for _, high in pairs)
    span = low + high - window.effective_kernel_size
    exact = all((size + span) // window.stride + 1 == window.outputs(size) for size in window.sizes)
    return (low, high) if exact and all(pair[0] == low for pair in pairs) else None
