"""The table of operators: what each of MXNet's is in ONNX.

A row is a function of the writer, the node and the names of the node's inputs, in `mxsame.onnx.rows`; it returns the
name of the output, or a list of names. Keys are the kinds of `mxsame.rewriting.Node`. What an operator computes is from
MXNet 1.9's documentation, and from its source where that is silent; ONNX's operators are at
https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np

from mxsame.onnx.rows import axes, elements, indexing, normalization, pictures, products, reductions, windowed
from mxsame.onnx.rows._shared import Row

COMPARISONS: Dict[str, Tuple[str, bool]] = {  # MXNet's name -> ONNX's, and whether it is the opposite
    "equal": ("Equal", False),
    "not_equal": ("Equal", True),
    "greater": ("Greater", False),
    "lesser": ("Less", False),
    "greater_equal": ("GreaterOrEqual", False),
    "lesser_equal": ("LessOrEqual", False),
}

TRIGONOMETRIC = {
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "arcsinh": "Asinh",
    "arccosh": "Acosh",
    "arctanh": "Atanh",
}

ARITHMETIC = {  # what a node computes -> ONNX's operator
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}

OPERATORS: Dict[str, Row] = {
    "Convolution": windowed.convolution("Conv"),
    "Deconvolution": windowed.convolution("ConvTranspose"),
    "Pooling": windowed.pooling,
    "_contrib_AdaptiveAvgPooling2D": windowed.adaptive_average,
    "FullyConnected": products.dense,
    "batch_dot": products.matrix_product,
    "dot": products.matrix_product,
    "_linalg_gemm2": products.matrix_product,
    "Embedding": indexing.embedding,
    "take": indexing.take,
    "one_hot": indexing.one_hot,
    "pick": indexing.pick,
    "topk": indexing.topk,
    "sort": indexing.sort,
    "argsort": indexing.argsort,
    # normalization
    "batch_norm": normalization.batch_norm,
    "_contrib_BatchNormWithReLU": normalization.batch_norm_relu,
    "LayerNorm": normalization.layer_norm,
    "InstanceNorm": normalization.instance_norm,
    "GroupNorm": normalization.group_norm,
    "L2Normalization": normalization.l2_normalization,
    "LRN": normalization.lrn,
    # one array
    "identity": axes.identity,
    "Activation": elements.activation,
    "relu": elements.unary("Relu"),
    "sigmoid": elements.unary("Sigmoid"),
    "tanh": elements.unary("Tanh"),
    "softsign": elements.unary("Softsign"),
    "hard_sigmoid": elements.hard_sigmoid,
    "LeakyReLU": elements.leaky_relu,
    "clip": elements.clip,
    "softmax": elements.softmax("Softmax"),
    "log_softmax": elements.softmax("LogSoftmax"),
    "abs": elements.unary("Abs"),
    "negative": elements.unary("Neg"),
    "square": elements.square,
    "sqrt": elements.unary("Sqrt"),
    "rsqrt": elements.reciprocal_root,
    "reciprocal": elements.unary("Reciprocal"),
    "exp": elements.unary("Exp"),
    "expm1": elements.expm1,
    "log": elements.unary("Log"),
    "log1p": elements.log1p,
    "erf": elements.unary("Erf"),
    **{name: elements.unary(op) for name, op in TRIGONOMETRIC.items()},
    "floor": elements.unary("Floor"),
    "ceil": elements.unary("Ceil"),
    "sign": elements.unary("Sign"),
    "round": elements.round_half_away,
    "rint": elements.round_half_down,
    "fix": elements.truncate,
    "trunc": elements.truncate,
    "smooth_l1": elements.smooth_l1,
    "Cast": elements.cast,
    "where": elements.where,
    "zeros_like": elements.full_like(0),
    "ones_like": elements.full_like(1),
    "_zeros": elements.initial(lambda shape, node: np.zeros(shape)),
    "_ones": elements.initial(lambda shape, node: np.ones(shape)),
    "_full": elements.initial(lambda shape, node: np.full(shape, float(node.attr("value")))),
    "_arange": elements.initial(elements.arange),
    "_contrib_arange_like": elements.initial(elements.arange),
    # arithmetic, of two arrays and of one with a number
    **{kind: elements.binary(op) for kind, op in ARITHMETIC.items()},
    **{f"{kind}_scalar": elements.with_scalar(op) for kind, op in ARITHMETIC.items()},
    "rsubtract_scalar": elements.with_scalar("Sub", reflected=True),
    "rdivide_scalar": elements.with_scalar("Div", reflected=True),
    "rpower_scalar": elements.with_scalar("Pow", reflected=True),
    "modulo": elements.modulo(),
    "modulo_scalar": elements.modulo(),
    "rmodulo_scalar": elements.modulo(reflected=True),
    **{f"_{name}": elements.comparison(*row) for name, row in COMPARISONS.items()},
    **{f"_{name}_scalar": elements.comparison(*row) for name, row in COMPARISONS.items()},
    **{f"broadcast_{name}": elements.comparison(*row) for name, row in COMPARISONS.items()},
    "add_n": lambda w, node, *xs: w.add("Sum", *xs, name=node.name),
    # reductions
    "mean": reductions.reduction("ReduceMean"),
    "sum": reductions.reduction("ReduceSum"),
    "max": reductions.reduction("ReduceMax"),
    "min": reductions.reduction("ReduceMin"),
    "prod": reductions.reduction("ReduceProd"),
    "norm": reductions.norm,
    "_np_cumsum": reductions.cumulative_sum,
    "argmax": reductions.argument("ArgMax"),
    "argmin": reductions.argument("ArgMin"),
    # axes
    "Reshape": axes.reshape,
    "reshape_like": axes.reshape_like,
    "Flatten": axes.flatten,
    "transpose": axes.transpose,
    "SwapAxis": axes.swap_axes,
    "expand_dims": axes.expand_dims,
    "squeeze": axes.squeeze,
    "Concat": axes.concat,
    "stack": axes.stack,
    "SliceChannel": axes.split,
    "slice": axes.slice,
    "slice_axis": axes.slice_axis,
    "slice_like": axes.slice_like,
    "reverse": axes.reverse,
    "repeat": axes.repeat,
    "tile": axes.tile,
    "broadcast_axis": axes.broadcast_to,
    "broadcast_to": axes.broadcast_to,
    "broadcast_like": axes.broadcast_to,
    "Pad": axes.pad,
    "depth_to_space": pictures.space_and_depth("DepthToSpace"),
    "space_to_depth": pictures.space_and_depth("SpaceToDepth"),
    "shape_array": axes.shape_array,
    # pictures
    "UpSampling": pictures.up_sampling,
    "_contrib_BilinearResize2D": pictures.bilinear_resize,
}
