"""A case in Keras's terms: functions, arguments and orders of axes. It needs neither MXNet nor mxsame."""

from __future__ import annotations

import dataclasses

import cases
import numpy as np
import oracle
from cases import Case
from oracle import POOLS

OPS = ("conv", "depthwise_conv", "separable_conv", "conv_transpose", "max_pool", "avg_pool")
DATA_FORMATS = ("channels_last", "channels_first")


def in_keras(case: Case) -> Case | None:
    """The case without what no function of Keras supports; None if the case is about that."""
    if not isinstance(case.padding, str) or not case.in_tensorflow:
        return None
    case = dataclasses.replace(case, name="", use_bias=case.op in POOLS, ceil_mode=False, count_include_pad=False)
    if case.op == "conv_transpose" and case.groups > 1:
        return None
    return case if oracle.is_legal(case) else None


def table(allowed) -> list:
    """The cases of the common table, as far as they are `allowed`."""
    translated = {case.name: case for case in map(in_keras, cases.CASES) if case is not None and allowed(case)}
    return list(translated.values())


# ---- orders of axes --------------------------------------------------------------------------------------------------


def ordered(case: Case, arrays: dict, data_format: str) -> dict:
    """Arrays with MXNet's axes, channels first, by name -> with Keras's."""
    result = {}
    for name, array in arrays.items():
        if name == "data":
            array = data_ordered(array, data_format)
        elif "depthwise" in (case.op.split("_")[0], name.split("_")[0]):
            array = array.reshape(case.in_channels, case.depth_multiplier, *case.kernel_size)
            array = np.moveaxis(array, (0, 1), (-2, -1))
        else:
            array = np.moveaxis(array, (1, 0), (-2, -1))
        result[name] = np.ascontiguousarray(array)
    return result


def data_ordered(array, data_format: str):
    return np.moveaxis(array, 1, -1) if data_format == "channels_last" else array


def shape_ordered(shape, data_format: str) -> tuple:
    return (shape[0], *shape[2:], shape[1]) if data_format == "channels_last" else tuple(shape)


# ---- functions and arguments -----------------------------------------------------------------------------------------


def backend_can(case: Case) -> bool:
    """Whether Keras 2's backend has a function for it."""
    ranks = {"depthwise_conv": (2,), "separable_conv": (1, 2), "conv": (1, 2, 3)}.get(case.op, (2, 3))
    if case.op == "conv_transpose" and case.rank == 3 and set(case.dilation) != {1}:
        return False
    return case.rank in ranks and (case.padding != "causal" or case.op == "conv")


def backend_call(case: Case, data_format: str) -> tuple:
    """(name, arguments except the arrays) of Keras 2's backend function."""
    strides, dilation = case.strides, case.dilation
    if case.rank == 1:
        (strides,), (dilation,) = strides, dilation
    arguments = {"strides": strides, "padding": case.padding, "data_format": data_format}
    if case.op in POOLS:
        return f"pool{case.rank}d", {"pool_size": case.kernel_size, **arguments, "pool_mode": case.op.split("_")[0]}
    if case.op == "conv_transpose":
        shape = (case.batch, case.channels, *oracle.output_size(case))
        arguments["output_shape"] = shape_ordered(shape, data_format)
        if case.rank == 2:
            arguments["dilation_rate"] = case.dilation
        return f"conv{case.rank}d_transpose", arguments
    arguments["dilation_rate"] = dilation
    return f"{case.op}{case.rank}d", arguments


def ops_can(case: Case) -> bool:
    """Whether `mxsame.keras.ops` has a function for it."""
    return case.padding != "causal"


def ops_call(case: Case, data_format: str) -> tuple:
    """(name, arguments except the arrays) of Keras 3's function."""
    arguments = {"strides": case.strides, "padding": case.padding, "data_format": data_format}
    if case.op in POOLS:
        name = {"max_pool": "max_pool", "avg_pool": "average_pool"}[case.op]
        return name, {"pool_size": case.kernel_size, **arguments}
    if case.op == "conv_transpose":
        arguments["output_padding"] = case.output_padding
    return case.op, {**arguments, "dilation_rate": case.dilation}
