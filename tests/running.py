"""A case run by mxsame: as an operator, as a layer, with gradients. What the suites share."""

from __future__ import annotations

import numpy as np
from cases import Case

import mxsame
from mxsame._mxnet import mx

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}  # right results differ less, wrong ones by 0.09 and more
PARAMETERS = ("weight", "depthwise_weight", "pointwise_weight", "bias")


def arguments(case: Case) -> dict:
    """The case's keyword arguments, as both `mxsame.ops` and `mxsame.nn` spell them."""
    given: dict = {"strides": case.strides, "padding": case.padding}
    if case.op in ("max_pool", "avg_pool"):
        given["ceil_mode"] = case.ceil_mode
        if case.op == "avg_pool":
            given["count_include_pad"] = case.count_include_pad
        return given
    given["dilation"] = case.dilation
    if case.op in ("conv", "conv_transpose"):
        given["groups"] = case.groups
    if case.op == "conv_transpose":
        given["output_padding"] = case.output_padding
    return given


def operate(case: Case, arrays: dict, **more):
    """The operator of the case on NDArrays, Symbols or mx.np arrays."""
    operator = getattr(mxsame.ops, case.op)
    if case.op in ("max_pool", "avg_pool"):
        return operator(arrays["data"], case.kernel_size, **arguments(case), **more)
    return operator(**arrays, **arguments(case), **more)


def layer(case: Case, in_channels: bool = True, **more):
    """The layer of the case."""
    kind = {
        "conv": "Conv{}D",
        "depthwise_conv": "DepthwiseConv{}D",
        "separable_conv": "SeparableConv{}D",
        "conv_transpose": "Conv{}DTranspose",
        "max_pool": "MaxPool{}D",
        "avg_pool": "AvgPool{}D",
    }[case.op].format(case.rank)
    given = arguments(case)
    if case.op in ("max_pool", "avg_pool"):
        return getattr(mxsame.nn, kind)(case.kernel_size, **given, **more)
    given["use_bias"] = case.use_bias
    if in_channels:
        given["in_channels"] = case.in_channels
    if case.op in ("depthwise_conv", "separable_conv"):
        given["depth_multiplier"] = case.depth_multiplier
    if case.op == "depthwise_conv":
        return getattr(mxsame.nn, kind)(case.kernel_size, **given, **more)
    return getattr(mxsame.nn, kind)(case.channels, case.kernel_size, **given, **more)


def set_parameters(block, arrays: dict, dtype: str = "float32", ctx=None) -> None:
    """Give a layer the arrays of a case; they must be all of its parameters."""
    block.initialize(ctx=ctx)
    block.cast(dtype)
    parameters = {name: array for name, array in arrays.items() if name in PARAMETERS}
    assert {name.rsplit("_", 1)[-1] for name in parameters} == {name.rsplit("_", 1)[-1] for name in block.params}
    for name, array in parameters.items():
        parameter = getattr(block, name)
        parameter.shape = array.shape
        parameter.set_data(mx.nd.array(array, dtype=dtype))


def as_nd(arrays: dict, dtype: str = "float32", ctx=None) -> dict:
    """NumPy arrays as NDArrays that collect gradients."""
    converted = {name: mx.nd.array(array, dtype=dtype, ctx=ctx) for name, array in arrays.items()}
    for array in converted.values():
        array.attach_grad()
    return converted


def difference(got, want) -> float:
    """The largest difference, in units of the larger of 1 and the largest wanted value; infinite where shapes differ."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return float("inf")
    worst = float(np.abs(got.astype(np.float64) - want).max(initial=0.0))
    return float("inf") if np.isnan(worst) else worst / max(1.0, float(np.abs(want).max(initial=0.0)))
