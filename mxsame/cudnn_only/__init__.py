"""Nets for GPUs that MXNet 1.9.1 has no machine code for: `mxsame.deploy(.., cudnn_only=True)`.

A plug-in of `mxsame.graphs.deploy`, which names it in one place; nothing else depends on it. On such a GPU (compute
capability 9.0 and newer) none of MXNet's own kernels can start. cuDNN and cuBLAS can, so a net's graph is lowered to
what MXNet passes on to them.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Sequence

import numpy as np

from mxsame._mxnet import mx
from mxsame.cudnn_only._executors import Executors
from mxsame.cudnn_only._lower import check_for_cpu, lower, with_plain_adds
from mxsame.graphs.deploy import Deployed, Signature
from mxsame.installation import cuda, machine_code
from mxsame.rewriting import Graph, simplify

__all__ = ["CudnnOnly", "Executors", "is_needed", "lower"]


class CudnnOnly(Deployed):
    """A net for inference, of operators that cuDNN and cuBLAS run.

    On a GPU it runs in executors, which no parent's graph does: call it by itself.
    """

    BUILT_FOR: ClassVar = {"device": "gpu", "operator_only": True}
    DTYPE = np.dtype("float32")
    FUSES = False

    @classmethod
    def rewrite(cls, graph: Graph, signature: Signature, context: Any, fuses: bool) -> None:
        """Simplified, then lowered."""
        simplify(graph, context, fuses)
        lower(graph, signature.dtype)

    def __init__(self, graph: Graph, signature: Signature, contexts: Sequence[Any], fuses: bool):
        if any(context.device_type != "gpu" for context in contexts):
            check_for_cpu(graph, signature.dtype)
        self._plain = with_plain_adds(graph).symbol()
        super().__init__(graph, signature, contexts, fuses)
        self._executors = Executors(self.graph, self.collect_params(), self.used(signature.shapes))

    def plain(self) -> Any:
        """The Symbol with additions that a block can run."""
        return self._plain

    def outputs(self, inputs: Sequence[Any], fuses: bool = True) -> list:
        """By executors on a GPU."""
        if inputs[0].ctx.device_type != "gpu":
            return super().outputs(inputs, fuses)
        with self._TURN:
            return self._executors(*inputs)

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> tuple:
        """As every deployed net. These files are for executors (`symbol.bind`, the C API for prediction): a SymbolBlock
        takes them only if there is no addition in them. Set MXNET_USE_FUSION=0 in the environment on a GPU."""
        return super().export(path, epoch, remove_amp_cast)


def is_needed(context: Any) -> bool:
    """Whether the context is a GPU that this MXNet has no machine code for."""
    if context.device_type != "gpu":
        return False
    device = next((device for device in cuda.devices() if device.number == context.device_id), None)
    return device is not None and not machine_code.runs_on(device.capability, _machine_code())


@functools.lru_cache(maxsize=None)
def _machine_code() -> Any:
    """Of the MXNet that is imported: read from half a gigabyte, so once."""
    return machine_code.machine_code(mx.libinfo.find_lib_path()[0])
