"""Where contestants run: on a device, and there as MXNet runs them or by cuDNN and cuBLAS alone.

A GPU that MXNet holds no machine code for (compute capability 9.0 and newer) can do nothing but call libraries. Nets
for it stay on the CPU, and what `mxsame.deploy(.., cudnn_only=True)` makes of them runs there. The CPU runs the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, Sequence, Tuple

import numpy as np

import mxsame
from benchmarks import results
from mxsame import bench
from mxsame._mxnet import mx
from mxsame.bench import CannotRun
from mxsame.deploy import lacks_machine_code

Device = Tuple[str, int]
BY_LIBRARIES = "cuDNN alone"
# Of the largest output. TF32 rounds factors to 10 bits, and a deep network adds that up: wrong padding may hide in it.
TOLERANCES = {"cpu": 1e-4, "gpu": 1e-3, "TF32": 5e-2, "float16": 5e-2}


class Disagreement(RuntimeError):
    """Contestants that should compute the same do not; timing them would mean nothing."""


@dataclass(frozen=True)
class Place:
    """A device, and whether only libraries run there."""

    device: Device = ("cpu", 0)
    libraries_only: bool = False

    @property
    def context(self) -> Any:
        return mx.Context(*self.device)

    @property
    def home(self) -> Any:
        """Where nets and their data are made: as a `with` statement's context it holds for all that is made below."""
        return mx.cpu() if self.libraries_only else self.context

    def tolerance(self, dtype: str = "float32") -> float:
        """How far results may be apart that would be the same but for rounding."""
        if dtype == "float16":
            return TOLERANCES["float16"]
        has_tf32 = self.device[0] == "gpu" and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
        return TOLERANCES["TF32" if has_tf32 else self.device[0]]

    def mode(self, mode: str) -> str:
        """What rows call it."""
        return f"{mode}, {BY_LIBRARIES}" if self.libraries_only else mode

    def table(self, name: str, *options: str) -> str:
        """A table's name, which is its file's as well: `layers-train-nhwc-gpu`."""
        words = [name, *options]
        words += ["cudnn"] if self.libraries_only else []
        words += ["gpu"] if self.device[0] == "gpu" else []
        return "-".join(word.lower() for word in words)


HERE = Place()


def place(device: Device, cudnn_only: bool = False) -> Place:
    """The device, and what it can run; `CannotRun` where MXNet does not find it."""
    return Place(device, cudnn_only or lacks_machine_code(bench.context(device)))


def by_libraries(net: Any, shape: Sequence[int], context: Any) -> Any:
    """The net in calls of cuDNN and cuBLAS alone, as a function of an array: as a GPU runs it, on the CPU as well.

    `CannotRun` where it cannot be said so.
    """
    try:
        return mxsame.deploy(net, shape, ctx=context, cudnn_only=True)._executors
    except ValueError as error:
        if "MXNet says" in str(error) or "cuDNN" not in str(error):
            raise
        raise CannotRun(str(error)) from error


def difference(got: Any, want: Any) -> float:
    """The largest, as a part of the largest wanted value; infinite where shapes differ."""
    got, want = (_as_numpy(value) for value in (got, want))
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-12))


def _as_numpy(value: Any) -> np.ndarray:
    """Of an array, of the one output of executors, or of a number; in float32, where float16 would overflow."""
    value = value[0] if isinstance(value, list) else value
    array = np.asarray(value.asnumpy() if isinstance(value, mx.nd.NDArray) else value)
    return array.astype("float32") if array.dtype == np.float16 else array


def found(device: Sequence[Any]) -> Dict[str, Any]:
    """What a machine is, for a process that cannot ask itself: where and when, and whether the device can run all."""
    at = place((device[0], device[1]))
    return {"provenance": results.provenance(at.device), "libraries_only": at.libraries_only}
