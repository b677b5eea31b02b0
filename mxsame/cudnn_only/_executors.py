"""A graph run by MXNet's executors, which let a convolution add its output to an array (see `_inplace_add`)."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from typing import Any, Iterator, Mapping, Sequence

from mxsame._mxnet import mx

# Without these an executor replaces operators by its own: compiled for a GPU, or fused by oneDNN.
PLAIN = {"gpu": {"MXNET_USE_FUSION": "0"}, "cpu": {"MXNET_SUBGRAPH_BACKEND": "NONE"}}


class Executors:
    """One executor for each device, type and batch."""

    MOST = 16  # the least recently used goes; each has memory for everything between input and output

    def __init__(self, symbol: Any, parameters: Any, names: Sequence[str]):
        self.symbol, self._parameters, self._names = symbol, parameters, names
        self.bound: OrderedDict[Any, Any] = OrderedDict()

    def __call__(self, *inputs: Any) -> list:
        """The outputs for inputs in the order of their names."""
        key = (inputs[0].ctx, *((array.shape, array.dtype) for array in inputs))
        if key not in self.bound:
            self.bound[key] = self._bind(inputs)
            if len(self.bound) > self.MOST:
                self.bound.popitem(last=False)
        self.bound.move_to_end(key)
        executor = self.bound[key]
        for name, array in zip(self._names, inputs):
            array.as_nd_ndarray().copyto(executor.arg_dict[name])
        found = [out.copyto(out.ctx) for out in executor.forward(is_train=False)]  # its own are overwritten
        return [out.as_np_ndarray() for out in found] if mx.util.is_np_array() else found

    def _bind(self, inputs: Sequence[Any]) -> Any:
        context = inputs[0].ctx
        arrays = {name: array.as_nd_ndarray().copyto(context) for name, array in zip(self._names, inputs)}
        arrays.update({name: self._parameters[name].data(context).as_nd_ndarray() for name in self._parameters})
        given = {name: arrays[name] for name in self.symbol.list_inputs()}
        with _environment(PLAIN["gpu" if context.device_type == "gpu" else "cpu"]):  # MXNet reads it when it binds
            return self.symbol.bind(context, given, grad_req="null")


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
