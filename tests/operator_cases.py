"""A table of small blocks that need each row of the writers of other formats."""

import operator

import numpy as np
import pytest
from running import Own

from mxsame._mxnet import mx

SHAPE = (2, 6, 5, 7)
SQUARE = (2, 4, 8, 8)


def norm(op, count=6, **more):
    return Own(lambda F, x, gamma, beta: getattr(F, op)(x, gamma, beta, **more), gamma=(count,), beta=(count,))


def batch_norm(shape, op=lambda F: F.BatchNorm, **more):
    def run(F, x, gamma, beta, mean, variance):
        return op(F)(x, gamma, beta, mean, variance, use_global_stats=True, **more)

    return Own(run, gamma=shape, beta=shape, mean=shape, variance=shape)


def prelu(shape):
    return Own(lambda F, x, slopes: F.LeakyReLU(x, slopes, act_type="prelu"), slopes=shape)


def dense(flatten, bias=True):
    if not bias:
        return Own(lambda F, x, w: F.FullyConnected(x, w, num_hidden=3, flatten=flatten, no_bias=True), w=(3, 7))
    width = 6 * 5 * 7 if flatten else 7
    return Own(lambda F, x, w, b: F.FullyConnected(x, w, b, num_hidden=3, flatten=flatten), w=(3, width), b=(3,))


def dense_of_both(F, x, y, w):
    """One weight for images and for vectors: with channels last its rows have two orders."""
    images = F.Pooling(x, kernel=(1, 1))
    of_images, of_vectors = (F.FullyConnected(each, w, num_hidden=3, no_bias=True) for each in (images, y))
    return of_images * of_vectors


def both(function):
    """Of two arrays, one of which broadcasts."""
    return lambda F, x, y: function(F, x, F.slice_axis(y, axis=2, begin=0, end=1))


def numpy(function):
    """Of arrays as NumPy's operators take them."""
    return lambda F, *xs: function(F.np, *(x.as_np_ndarray() for x in xs)).as_nd_ndarray()


def constants(F, *numbers):
    return F.concat(*(F.full((1,), number) for number in numbers), dim=0)


def unrolled(layout, cell):
    """A cell, whose steps are operators; its states are zeros of any batch."""
    return Own(lambda F, x, cell: cell.unroll(5, x, layout=layout, merge_outputs=True)[0], cell)


def recurrent(mode, layers, directions, count, states=1):
    """An operator for 3 channels with a state of 4 elements, which is given; `count` is how many parameters it has."""
    more = {"mode": mode, "num_layers": layers, "bidirectional": directions == 2, "state_size": 4}
    block = Own(lambda F, x, *states, p: F.RNN(x, p, *states, state_outputs=True, **more), p=(count,))
    return [(5, 2, 3), *[(layers * directions, 2, 4)] * states], block


COMPARED = ("equal", "not_equal", "greater", "lesser", "greater_equal", "lesser_equal")
COMPARISONS = dict(zip(COMPARED, (operator.eq, operator.ne, operator.gt, operator.lt, operator.ge, operator.le)))
REVERSIBLE = (("subtract", operator.sub), ("divide", operator.truediv), ("power", operator.pow))
ONE = {  # operator of one array -> arguments that need its row
    "L2Normalization": [{"mode": mode} for mode in ("instance", "channel", "spatial")],
    "LRN": [{"nsize": 3, "alpha": 0.1, "beta": 0.6, "knorm": 1.5}],
    "Activation": [{"act_type": kind} for kind in ("relu", "sigmoid", "tanh", "softsign", "softrelu")],
    "hard_sigmoid": [{"alpha": 0.3, "beta": 0.4}],
    "clip": [{"a_min": -0.2, "a_max": 0.4}, {"a_min": -np.inf, "a_max": 0.4}, {"a_min": 0, "a_max": np.inf},
             {"a_min": 0, "a_max": 6}],
    "softmin": [{}, {"axis": 1, "temperature": 0.5}],
    "softmax": [{}, {"axis": 1}, {"temperature": 2.0}, {"dtype": "float64", "temperature": 0.3}],
    "log_softmax": [{}, {"axis": 1}, {"dtype": "float64"}],
    "SoftmaxActivation": [{"mode": "instance"}, {"mode": "channel"}],
    "topk": [
        *({}, {"k": 3, "axis": 1, "is_ascend": True, "dtype": "int32"}, {"k": 3, "axis": 2, "ret_typ": "value"}),
        *({"k": 2, "ret_typ": "both"}, {"k": 2, "axis": 1, "ret_typ": "mask"}, {"k": -1, "ret_typ": "value"}),
    ],
    "sort": [{"axis": -1}, {"axis": 1, "is_ascend": False}],
    "argsort": [{}, {"axis": 1, "is_ascend": False, "dtype": "int32"}],
    "norm": [{}, {"axis": 1}, {"ord": 1, "axis": (2, 3), "keepdims": True}],
    "argmax": [{"axis": 1}, {"axis": 1, "keepdims": True}],
    "argmin": [{"axis": 2}],
    "Reshape": [{"shape": shape} for shape in ((0, -1), (-3, -2), (0, -4, 2, 3, -2), (0, 0, 7, 5))],
    "Flatten": [{}],
    "transpose": [{"axes": (0, 2, 3, 1)}],
    "SwapAxis": [{"dim1": 1, "dim2": 3}],
    "expand_dims": [{"axis": 1}, {"axis": -1}],
    "SliceChannel": [{"num_outputs": 3, "axis": 1}, {"num_outputs": 5, "axis": 2, "squeeze_axis": True}],
    "slice": [
        {"begin": (None, 1, None), "end": (None, 4, -1)},
        {"begin": (None, 1), "end": (None, 4), "step": None},
        {"begin": (None,) * 3, "end": (None,) * 3, "step": (None, None, -1)},
        {"begin": (None, 5), "end": (None, 0), "step": (None, -2)},
    ],
    "slice_axis": [{"axis": -1, "begin": 1, "end": -2}, {"axis": 1, "begin": 2, "end": None}],
    "reverse": [{"axis": (2, 3)}],
    "repeat": [{"repeats": 3, "axis": 2}],
    "tile": [{"reps": (2, 1, 3)}, {"reps": (1, 1, 1, 1, 2)}],
    "Pad": [
        {"mode": mode, "pad_width": (0, 0, 0, 0, 1, 2, 0, 3), "constant_value": 1.5}
        for mode in ("constant", "edge", "reflect")
    ],
    "shape_array": [{}],
    "UpSampling": [{"scale": 3, "sample_type": "nearest"}],
    "smooth_l1": [{}, {"scalar": 1.7}, {"scalar": 0.7}],
    **{
        op: [{}, {"axis": (2, 3)}, {"axis": 1, "keepdims": True}, {"axis": (0, 1), "exclude": True}, {"keepdims": True},
             {"axis": (0, 1, 2, 3), "exclude": True}]
        for op in ("mean", "sum", "max", "min", "prod")
    },
    "Pooling": [
        *({"kernel": (3, 2), "stride": (2, 3), "pad": (1, 0), "pool_type": kind, "pooling_convention": convention}
          for kind in ("max", "avg") for convention in ("valid", "full")),
        {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "avg", "count_include_pad": False,
         "pooling_convention": "full"},
        *({"global_pool": True, "kernel": (1, 1), "pool_type": kind} for kind in ("max", "avg", "sum")),
        *({"kernel": (3, 3), "stride": (2, 2), "pool_type": "lp", "p_value": p} for p in (1, 2, 3)),
        *({"global_pool": True, "kernel": (1, 1), "pool_type": "lp", "p_value": p} for p in (1, 2, 3)),
        {"kernel": (2, 2), "pool_type": "sum"},
    ],
}  # fmt: skip
MORE = {  # of them, with other data
    "topk": [((2, 5), lambda F, x: F.topk(F.cast(x, dtype="float64"), k=2, ret_typ="both"))],
    "argmax": [lambda F, x: F.argmax(F.floor(x * 2) * 0, axis=3)],  # 0 and -0, which are equal
    "argmin": [lambda F, x: F.argmin(F.mean(x, axis=(0, 1, 2)), axis=0), lambda F, x: F.argmin(F.round(x * 2), axis=2)],
    "slice": [
        lambda F, x: F.clip(
            F.slice(F.log(F.relu(x)), begin=(None, None), end=(None, None), step=(None, 2)) * 0.5 + 3e38, -1, 1
        )
    ],  # -inf stays what it is
    "transpose": [lambda F, x: F.transpose(F.flatten(x))],
    "Pooling": [((2, 3, 9), lambda F, x: F.Pooling(x, kernel=(2,), global_pool=True, pool_type="sum"))],
}
CASES = {  # kind of node -> blocks or functions that need it; a tuple has the shape of the data, or shapes, first
    "Convolution": [
        Own(lambda F, x, w: F.Convolution(x, w, kernel=(3, 2), stride=(2, 1), pad=(1, 0), dilate=(1, 2), num_filter=4,
                                            num_group=2, no_bias=True), w=(4, 3, 3, 2)),
        ((2, 3, 9), Own(lambda F, x, w: F.Convolution(x, w, kernel=(3,), pad=(2,), num_filter=4, no_bias=True),
                          w=(4, 3, 3))),
    ],
    "Deconvolution": [
        Own(lambda F, x, w: F.Deconvolution(x, w, kernel=(3, 2), stride=(2, 3), pad=(1, 0), adj=(1, 2), num_filter=4,
                                              num_group=2), w=(6, 2, 3, 2)),
    ],
    "_contrib_AdaptiveAvgPooling2D": [
        lambda F, x: F.contrib.AdaptiveAvgPooling2D(x, output_size=1),
        (SQUARE, lambda F, x: F.contrib.AdaptiveAvgPooling2D(x, output_size=(4, 2))),
    ],
    "FullyConnected": [
        dense(True), dense(False), dense(False, bias=False), ((2, 7), dense(False)), ((2, 7), dense(False, False)),
        ((5,), Own(lambda F, x, w: F.FullyConnected(x, w, num_hidden=3, no_bias=True), w=(3, 1))),
        ([(2, 3, 2, 2), (2, 12)], Own(dense_of_both, w=(3, 12))),
    ],
    "batch_dot": [
        ([(2, 3, 4), (2, 4, 5)], lambda F, x, y: F.batch_dot(x, y)),
        ([(2, 4, 3), (2, 5, 4)], lambda F, x, y: F.batch_dot(x, y, transpose_a=True, transpose_b=True)),
        ([(2, 3, 4, 5), (2, 3, 6, 5)], lambda F, x, y: F.batch_dot(x, y, transpose_b=True)),
    ],
    "dot": [
        ((2, 7), Own(lambda F, x, w: F.dot(x, w), w=(7, 3))),
        ((7,), lambda F, x: F.dot(x, x)),
        ((2, 7), Own(lambda F, x, w: F.dot(F.sum(x, axis=0), w, transpose_a=True), w=(7, 3))),
    ],
    "_linalg_gemm2": [([(2, 3, 4), (2, 5, 4)], lambda F, x, y: F.linalg.gemm2(x, y, transpose_b=True, alpha=0.5))],
    "Embedding": [
        ((2, 5), Own(lambda F, x, w: F.Embedding(F.abs(x) * 4 - 1, w, input_dim=5, output_dim=3), w=(5, 3))),
        ((2, 5), Own(lambda F, x, w: F.Embedding(F.cast(x * 4, dtype="int32"), w, input_dim=3, output_dim=2),
                       w=(3, 2))),
        ((2, 5), Own(lambda F, x, w: F.Embedding(F.cast(x * 6000, dtype="float16"), w, input_dim=5000, output_dim=2),
                       w=(5000, 2))),
    ],
    "take": [
        lambda F, x: F.take(x, F.reshape(constants(F, 4, 0, 1, 1), shape=(2, 2)), axis=2),
        *(lambda F, x, mode=mode: F.take(x, F.concat(F.full((1,), -3), F.full((1,), 9), dim=0), axis=2, mode=mode)
          for mode in ("clip", "wrap")),
        *(([(2, 3), (2, 5)], lambda F, x, y, mode=mode: F.take(x, y * 9, axis=1, mode=mode))
          for mode in ("clip", "wrap")),
    ],
    "pick": [
        *(([(2, 4, 5), (2, 5)], lambda F, x, y, mode=mode: F.pick(x, y * 8, axis=1, mode=mode))
          for mode in ("clip", "wrap")),
        ([(2, 4, 5), (2, 4, 1)], lambda F, x, y: F.pick(x, F.abs(y) * 5, keepdims=True)),
        ([(2, 4, 5), (2, 4, 1)], lambda F, x, y: F.pick(x, F.cast(y * 5, dtype="int32"))),
        ((2, 5), lambda F, x: F.pick(F.sum(x, axis=0), F.full((1,), 2), axis=0)),
    ],
    "one_hot": [((2, 5), lambda F, x: F.one_hot(F.abs(x) * 4, depth=4, on_value=0.1, off_value=-0.7)),
                ((2, 5), lambda F, x: F.one_hot(x * 6, depth=4)),
                ((2, 5), lambda F, x: F.one_hot(F.cast(x * 6, dtype="int32"), depth=4, dtype="int32"))],
    "RNN": [
        recurrent("lstm", 1, 1, 16 * (3 + 4 + 2), states=2),
        recurrent("lstm", 2, 2, 2 * 16 * (3 + 4 + 2) + 2 * 16 * (8 + 4 + 2), states=2),
        recurrent("gru", 2, 2, 2 * 12 * (3 + 4 + 2) + 2 * 12 * (8 + 4 + 2)),
        recurrent("rnn_tanh", 2, 1, 4 * (3 + 4 + 2) + 4 * (4 + 4 + 2)),
        recurrent("rnn_relu", 1, 2, 2 * 4 * (3 + 4 + 2)),
    ],
    "_zeros": [lambda F, x: F.broadcast_add(x, F.zeros((1, 6, 1, 1))),
               ((2, 5, 3), unrolled("NTC", mx.gluon.rnn.LSTMCell(4, input_size=3))),
               ((5, 2, 3), unrolled("TNC", mx.gluon.rnn.GRUCell(4, input_size=3)))],
    "SequenceMask": [
        ([(2, 4, 3), (2,)], lambda F, x, n: F.SequenceMask(x, F.abs(n) * 3, True, value=-1, axis=1)),
        ([(4, 2), (2,)], lambda F, x, n: F.SequenceMask(x, F.abs(n) * 3, True)),
        ((2, 4, 3), lambda F, x: F.SequenceMask(x * 2)),
    ],
    "gather_nd": [((3, 5), lambda F, x: F.gather_nd(F.transpose(x), F.reshape(constants(F, 4, 0, 1), shape=(1, 3))))],
    "_eye": [((2, 4, 4), lambda F, x: F.broadcast_add(x, F.expand_dims(F.eye(4), axis=0)))],
    "_linspace": [((2, 4), lambda F, x: F.broadcast_add(x, F.expand_dims(F.linspace(0, 1, 4), axis=0)))],
    "_split_v2": [lambda F, x: list(F.split_v2(x, (1, 4), axis=1)),
                  lambda F, x: list(F.split_v2(x, 5, axis=2, squeeze_axis=True))],
    "logical_not": [lambda F, x: F.logical_not(x > 0.2)],
    **{f"logical_{name}": [([SHAPE, SHAPE], lambda F, x, y, name=name:
                            getattr(F, f"broadcast_logical_{name}")(x > 0, y > 0))] for name in ("and", "or", "xor")},
    **{f"logical_{name}_scalar": [lambda F, x, name=name, number=number:
                                  getattr(F._internal, f"_logical_{name}_scalar")(F.floor(x * 2), scalar=number)
                                  for number in (0, 3)] for name in ("and", "or", "xor")},
    "matmul": [([(2, 3, 4), (2, 4, 5)], numpy(lambda np, x, y: np.matmul(x, y))),
               Own(lambda F, x, w: numpy(lambda np, *xs: np.matmul(*xs))(F, x, w), w=(7, 3))],
    "_npi_concatenate": [([SHAPE, SHAPE], numpy(lambda np, x, y: np.concatenate([x, y], axis=-1)))],
    "_npi_where": [([SHAPE, SHAPE], numpy(lambda np, x, y: np.where(x > y, x, y))),
                   ([SHAPE, SHAPE], both(lambda F, x, y: numpy(lambda np, x, y: np.where(y > x, x, y))(F, x, y)))],
    "_npi_where_lscalar": [numpy(lambda np, x: np.where(x > 0.2, 0.5, x))],
    "_npi_where_rscalar": [numpy(lambda np, x: np.where(x > 0.2, x, 0.5))],
    "_rnn_param_concat": [
        ([SHAPE, (2, 3, 5, 7)], lambda F, x, y: F._internal._rnn_param_concat(x, y, dim=1, num_args=2)),
    ],
    "batch_norm": [
        batch_norm((6,), fix_gamma=False, eps=1e-3), batch_norm((6,), fix_gamma=True),
        batch_norm((5,), fix_gamma=False, axis=2), ((3, 6), batch_norm((6,), fix_gamma=False)),
    ],
    "_contrib_BatchNormWithReLU": [
        batch_norm((6,), lambda F: F.contrib.BatchNormWithReLU, fix_gamma=False, eps=1e-3),
        batch_norm((6,), lambda F: F.contrib.BatchNormWithReLU, fix_gamma=True),
    ],
    "LayerNorm": [
        norm("LayerNorm", 7, eps=1e-3),
        norm("LayerNorm", axis=1),
    ],
    "InstanceNorm": [norm("InstanceNorm", eps=1e-3)],
    "GroupNorm": [norm("GroupNorm", 3, num_groups=3, eps=1e-3)],
    "identity": [lambda F, x: [x, x + 1]],
    "LeakyReLU": [
        *(lambda F, x, kind=kind: F.LeakyReLU(x, act_type=kind, slope=0.3) for kind in
          ("leaky", "elu", "selu", "gelu")), lambda F, x: F.LeakyReLU(x, act_type="leaky", slope=-0.3),
        prelu((6,)), prelu((1,)), ((3, 6), prelu((6,))),
    ],
    "SoftmaxOutput": [
        ([(3, 5), (3,)], lambda F, x, label: F.SoftmaxOutput(x, label)),
        ([(3, 5, 2), (3, 5)], lambda F, x, label: F.SoftmaxOutput(x, label)),
        ([(3, 5, 2), (3, 5)], lambda F, x, label: F.SoftmaxOutput(x, label, preserve_shape=True)),
        ([(3, 5, 2), (3, 2)], lambda F, x, label: F.SoftmaxOutput(x, label, multi_output=True)),
    ],
    **{name: [([(3, 5), (3, 5)], lambda F, x, label, name=name: getattr(F, name)(x, label))] for name in
       ("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput")},
    **{name: [lambda F, x, name=name: getattr(F, name)(F.abs(x) + 1.1)] for name in
       ("sqrt", "rsqrt", "reciprocal", "log", "log1p", "log2", "log10", "rcbrt", "arccosh")},
    **{name: [lambda F, x, name=name: getattr(F, name)(x)] for name in
       ("abs", "square", "exp", "expm1", "erf", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
        "arcsinh", "arctanh", "floor", "ceil", "round", "rint", "fix", "trunc", "negative", "relu", "sigmoid",
        "tanh", "softsign", "cbrt")},
    "sign": [lambda F, x: F.sign(x), lambda F, x: F.sign(F.log(x))],  # of NaN it is 0
    "Cast": [lambda F, x: F.cast(F.cast(x * 10, dtype="int32"), dtype="float32")],
    "where": [lambda F, x: F.where(x > 0.1, x, F.zeros_like(x) + 3),
              ((5, 5), lambda F, x: F.where(F.sum(x, axis=1) > 0, x, -x)),
              ([(5,), (5, 4, 5)], lambda F, condition, x: F.where(condition > 0, x, -x))],
    **{name: [lambda F, x, name=name: x + getattr(F, name)(F.log(x))] for name in ("zeros_like", "ones_like")},
    "_ones": [lambda F, x: F.broadcast_add(x, F.ones((1, 6, 1, 1)))],
    "_full": [lambda F, x: F.broadcast_add(x, F.full((1, 6, 1, 1), 3.5))],
    "_arange": [lambda F, x: F.broadcast_add(x, F.arange(1, 8, step=1)),
                ((2, 5), lambda F, x: F.broadcast_mul(x, F.expand_dims(F.arange(1, 6), axis=0))),
                lambda F, x: F.broadcast_add(x, F.arange(7)),
                lambda F, x: F.broadcast_add(x, F.reshape(F.arange(2, 3.5, step=0.5, repeat=2), shape=(1, 6, 1, 1)))],
    "_contrib_arange_like": [lambda F, x: F.broadcast_add(x, F.contrib.arange_like(x, axis=3, start=2)),
                             lambda F, x: F.contrib.arange_like(x, axis=-2, start=1, step=0.5, repeat=2)],
    **{kind: [([SHAPE, SHAPE], lambda F, x, y, op=op: getattr(F, f"elemwise_{op}")(x, F.abs(y) + 1)),
              ([SHAPE, SHAPE], both(lambda F, x, y, op=op: getattr(F, f"broadcast_{op}")(x, F.abs(y) + 1)))]
       for kind, op in (("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"))},
    **{kind: [([SHAPE, SHAPE], both(lambda F, x, y, kind=kind: getattr(F, f"broadcast_{kind}")(F.abs(x), y)))]
       for kind in ("maximum", "minimum", "power")},
    **{f"{kind}_scalar": [lambda F, x, op=op: op(F.abs(x) + 1, 2.5)] for kind, op in
       (("add", operator.add), *REVERSIBLE, ("multiply", operator.mul))},
    **{f"r{kind}_scalar": [lambda F, x, op=op: op(2.5, F.abs(x) + 1)] for kind, op in REVERSIBLE},
    "maximum_scalar": [lambda F, x: F.maximum(x, 0.1)],
    "minimum_scalar": [lambda F, x: F.minimum(x, 0.1)],
    "modulo": [([SHAPE, SHAPE], both(lambda F, x, y: F.broadcast_mod(x * 5, F.floor(y * 3)))),
               ([SHAPE, SHAPE], lambda F, x, y: (x * 5) % y),
               ([SHAPE, SHAPE], lambda F, x, y: F.cast(x * 9, dtype="int32") % F.cast(y * 4, dtype="int32"))],
    "modulo_scalar": [lambda F, x: x % 0.3, lambda F, x: x % -0.3, lambda F, x: x % 0,
                      lambda F, x: F.cast(x * 9, dtype="int32") % 4],
    "rmodulo_scalar": [lambda F, x: 5 % x],
    **{f"{name}_scalar": [lambda F, x, compare=compare: compare(F.floor(x * 2), 0)]
       for name, compare in COMPARISONS.items()},
    **{name: [([SHAPE, SHAPE], lambda F, x, y, op=f"broadcast_{name}":
                              getattr(F, op)(F.floor(x * 2), F.floor(y * 2)))] for name in COMPARISONS},
    "add_n": [([SHAPE, SHAPE], lambda F, x, y: F.add_n(x, y, x))],
    "_np_cumsum": [lambda F, x: F.cumsum(x, axis=1), lambda F, x: F.cumsum(x),
                   lambda F, x: F.cumsum(F.cast(x * 9, dtype="int32"), axis=3, dtype="float32")],
    "reshape_like": [lambda F, x: F.reshape_like(F.reshape(x, shape=(0, 0, -1)), x)],
    "squeeze": [((2, 1, 5, 1), lambda F, x, axis=axis: F.squeeze(x, axis=axis)) for axis in (1, (1, 3))] + [
        lambda F, x: F.squeeze(F.mean(x, keepdims=True)),
    ],
    "Concat": [([SHAPE, (2, 3, 5, 7)], lambda F, x, y: F.concat(x, y, dim=1))],
    "stack": [([SHAPE, SHAPE], lambda F, x, y: F.stack(x, y, axis=1))],
    "slice_like": [([SHAPE, (2, 4, 3, 2)], lambda F, x, y: F.slice_like(x, y, axes=(2, 3))),
                   ([SHAPE, (2, 4, 3, 2, 9)], lambda F, x, y: F.slice_like(x, y, axes=(-3, 2)))],
    "broadcast_axis": [((2, 1, 5), lambda F, x: F.broadcast_axis(x, axis=1, size=4))],
    "broadcast_to": [((2, 1, 5), lambda F, x: F.broadcast_to(x, shape=(0, 4, 5)))],
    "broadcast_like": [([(2, 1, 5), (2, 4, 5)], lambda F, x, y: F.broadcast_like(x, y)),
                       lambda F, x: F.broadcast_like(F.mean(x, axis=0, keepdims=True), x)],
    "depth_to_space": [(SQUARE, lambda F, x: F.depth_to_space(x, block_size=2))],
    "space_to_depth": [(SQUARE, lambda F, x: F.space_to_depth(x, block_size=2))],
    "_contrib_BilinearResize2D": [
        lambda F, x: F.contrib.BilinearResize2D(x, height=10, width=14, align_corners=False),
        lambda F, x: F.contrib.BilinearResize2D(x, height=8, width=4, align_corners=False),
        lambda F, x: F.contrib.BilinearResize2D(x, height=9, width=11, align_corners=True),
        lambda F, x: F.contrib.BilinearResize2D(x, scale_height=2, scale_width=3, align_corners=False),
        ([SQUARE, (2, 4, 11, 5)], lambda F, x, y: F.contrib.BilinearResize2D(x, y * 2, mode="like") + y),
        lambda F, x: F.contrib.BilinearResize2D(x, mode="to_even_up", height=1, width=1),
    ],
    **{op: [*(lambda F, x, op=op, more=more: getattr(F, op)(x, **more) for more in each), *MORE.get(op, ())]
       for op, each in ONE.items()},
}  # fmt: skip


TABLE = [
    pytest.param(kind, *(case if isinstance(case, tuple) else (SHAPE, case)), id=f"{kind}-{number}")
    for kind, cases in CASES.items()
    for number, case in enumerate(cases)
]


def block_of(function):
    block = function if isinstance(function, Own) else Own(function)
    block.initialize(mx.init.Uniform(1), force_reinit=True)
    for name, parameter in block.params.items():
        if name.endswith("variance"):
            parameter.set_data(parameter.data().abs() + 0.5)
    return block


def inputs_of(shape, seed=0):
    shapes = shape if isinstance(shape, list) else [shape]
    random = np.random.default_rng(seed)
    return [random.uniform(-1, 1, each).astype("float32") for each in shapes]
