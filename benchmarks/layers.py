"""Layers against MXNet's own operator with symmetric padding of the same kernel, which is the limit.

Contestants: those of `mxsame bench`, and what others do (see `benchmarks/recipes.py`). The planner against the best of
its plans has a table of its own, `benchmarks/planner.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import numpy as np

from benchmarks import recipes, results
from benchmarks.places import HERE, Disagreement, Place, by_libraries, difference
from mxsame._mxnet import mx
from mxsame._timing import measure as timed
from mxsame.bench.layers import FLAGS, Layer, alone, call, explicit, inputs, known, padded, symmetric, unknown

OURS = "mxsame, size known"
LAYERS = [
    Layer("stem k3 s2, batch 1", "conv", 3, (224, 224), 32, 3, 2, batch=1),
    Layer("stem k3 s2", "conv", 3, (224, 224), 32, 3, 2),
    Layer("stem k7 s2, batch 1", "conv", 3, (224, 224), 64, 7, 2, batch=1),
    Layer("stem k7 s2", "conv", 3, (224, 224), 64, 7, 2),
    Layer("conv 64-128 k3 s2", "conv", 64, (112, 112), 128, 3, 2),
    Layer("conv 128-128 k3 s2, batch 1", "conv", 128, (56, 56), 128, 3, 2, batch=1),
    Layer("conv 128-128 k3 s2", "conv", 128, (56, 56), 128, 3, 2),
    Layer("conv 256-256 k3 s2", "conv", 256, (28, 28), 256, 3, 2),
    Layer("conv 512-512 k3 s2", "conv", 512, (14, 14), 512, 3, 2),
    Layer("conv 64-64 k3 s1", "conv", 64, (56, 56), 64, 3, 1),
    Layer("conv 128-256 k1 s2", "conv", 128, (56, 56), 256, 1, 2),
    Layer("conv 192-192 k1x7 s1 (Inception)", "conv", 192, (17, 17), 192, (1, 7), 1),
    Layer("conv 64-64 k2 s1", "conv", 64, (56, 56), 64, 2, 1),
    Layer("conv 64-64 k4 s1", "conv", 64, (56, 56), 64, 4, 1),
    Layer("conv 16-8 k3 s2 (autoencoder)", "conv", 16, (28, 28), 8, 3, 2),
    Layer("depthwise 64 k3 s2", "depthwise", 64, (112, 112), 64, 3, 2),
    Layer("depthwise 64 k3 s2, batch 1", "depthwise", 64, (112, 112), 64, 3, 2, batch=1),
    Layer("depthwise 728 k3 s1 (Xception)", "depthwise", 728, (19, 19), 728, 3, 1),
    Layer("depthwise 144 k5 s2", "depthwise", 144, (56, 56), 144, 5, 2),
    Layer("depthwise 144 k3 s2", "depthwise", 144, (56, 56), 144, 3, 2),
    Layer("depthwise 480 k5 s2", "depthwise", 480, (14, 14), 480, 5, 2),
    Layer("max pool 64 k3 s2", "max", 64, (112, 112), 64, 3, 2),
    Layer("max pool 128 k3 s2", "max", 128, (73, 74), 128, 3, 2),
    Layer("max pool 64 k2 s2", "max", 64, (55, 55), 64, 2, 2),
    Layer("max pool 64 k2 s1", "max", 64, (56, 56), 64, 2, 1),
    Layer("max pool 192 k3 s1", "max", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 192 k3 s1", "avg", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 64 k2 s2", "avg", 64, (55, 55), 64, 2, 2),
    Layer("avg pool 64 k2 s1", "avg", 64, (56, 56), 64, 2, 1),
    Layer("audio conv 1-64 k10 s5", "conv", 1, (16000,), 64, 10, 5),
    Layer("audio conv 64-64 k8 s4", "conv", 64, (4000,), 64, 8, 4),
    Layer("video conv 3-32 k3 s2", "conv", 3, (16, 56, 56), 32, 3, 2, batch=2),
    Layer("transposed 64-32 k2 s2", "transposed", 64, (28, 28), 32, 2, 2),
    Layer("transposed 64-32 k3 s2", "transposed", 64, (28, 28), 32, 3, 2),
    Layer("transposed 64-32 k4 s2", "transposed", 64, (28, 28), 32, 4, 2),
]


def contestants(layer: Layer) -> Dict[str, Any]:
    """Nets by name, hybridized; "symmetric" is the limit."""
    ours = {OURS: known(layer), "mxsame, size unknown": unknown(layer)}
    return {"symmetric": symmetric(layer), **ours, **others(layer)}


def others(layer: Layer) -> Dict[str, Any]:
    """What others do, where it applies; MXNet's pad operator wants channels first."""
    if layer.kind == "transposed" or layer.layout is not None:
        return {}
    windows, is_max = layer.windows, layer.kind == "max"

    def make(pads: tuple) -> Any:
        return padded(layer, pads)

    found = {
        "k//2 and slice": recipes.half(windows, make),
        "keras-mxnet (inexact)": recipes.keras_mxnet(windows, make, is_max, beforehand=False),
        "keras-mxnet (inexact), padded": recipes.keras_mxnet(windows, make, is_max, beforehand=True),
    }
    found = {name: net for name, net in found.items() if net is not None}
    for net in found.values():
        net.hybridize(**FLAGS)
    return {"explicit pad": explicit(layer), **found}


def chosen(layers: List[Layer], layout: str = "NCHW", dtype: str = "float32") -> List[Layer]:
    """The layers in a layout, which only those have whose rank it is, and of a type."""
    if layout != "NCHW":
        layers = [replace(layer, layout=layout) for layer in layers if layer.rank == len(layout) - 2]
    return [replace(layer, dtype=dtype) for layer in layers]


def measure(layer: Layer, train: bool = False, place: Place = HERE, **timing: Any) -> dict:
    """One row: every contestant against the limit. On a GPU, and by libraries alone, mxsame has to give what it gives
    on the CPU before anything is timed."""
    more: Dict[str, Any] = {"odd": layer.odd, "batch": layer.batch}
    with place.home:
        if place.libraries_only:
            ours, data = alone(layer), inputs(layer, False)
            want = on_cpu(layer, ours, data)
            data = data.copyto(place.context)
            nets = {"symmetric": symmetric(layer), OURS: ours}
            nets = {name: by_libraries(net, layer.shape, place.context) for name, net in nets.items()}
            more["difference"] = agreed(place, layer, nets[OURS](data), want)
        else:
            nets, data = contestants(layer), inputs(layer, train)
            if place != HERE:
                more["difference"] = agreed(place, layer, nets[OURS](data), on_cpu(layer, nets[OURS], data))
        figures = timed({name: call(net, data, train) for name, net in nets.items()}, **timing)
    mode = place.mode("forward and backward" if train else "forward")
    return results.row(layer.name, mode, figures, "symmetric", **more)


def on_cpu(layer: Layer, net: Any, data: Any) -> np.ndarray:
    """What a net of mxsame's layer has to give: the layer on the CPU, in float32 and with channels first."""

    def first(array: Any) -> np.ndarray:
        values = array.asnumpy().astype("float32")
        return np.moveaxis(values, -1, 1) if layer.layout is not None and values.ndim > 2 else values

    with mx.cpu():
        same = alone(replace(layer, layout=None, dtype="float32"))
        for source, parameter in zip(net.collect_params().values(), same.collect_params().values()):
            parameter.set_data(mx.nd.array(first(source.data())))
        out = same(mx.nd.array(first(data))).asnumpy()
    return out if layer.layout is None else np.moveaxis(out, 1, -1)


def agreed(place: Place, layer: Layer, got: Any, want: np.ndarray) -> float:
    """How far the one is from the other; `Disagreement` where that is more than rounding."""
    wrong = difference(got, want)
    if wrong > place.tolerance(layer.dtype):
        raise Disagreement(f"on the device and on the CPU it differs by {wrong:.2g} of the largest output")
    return wrong
