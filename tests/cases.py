"""One table of cases that drives every suite, and the arrays that belong to a case.

`CASES` is the table; `grid` yields exhaustive grids for heavy runs; `strategies.py` draws from the whole space.
Arrays come from NumPy's PCG64 stream, rounded to float32, so the same case has the same numbers on every machine.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import oracle

OPS = ("conv", "depthwise_conv", "separable_conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool")


@dataclass(frozen=True)
class Case:
    """One operator with its arguments; strides and dilation left out are ones, a name left out is made of the rest."""

    op: str
    size: tuple  # spatial size, one int per axis: the rank is its length
    kernel_size: tuple  # pool_size for pools
    strides: tuple = ()
    padding: object = "same"  # "same" | "valid" | "causal" | "keras-mxnet" | tuple of (low, high) pairs, one per axis
    dilation: tuple = ()
    groups: int = 1
    in_channels: int = 3
    channels: int = 4  # output channels of conv, conv_transpose and separable_conv
    depth_multiplier: int = 1
    use_bias: bool = True
    output_padding: tuple | None = None
    batch: int = 2
    count_include_pad: bool = False
    ceil_mode: bool = False
    p_value: int = 2
    values: str = "normal"  # data: "normal" | "negative" (all far below zero) | "ties" (few different integers)
    other_sizes: tuple = ()
    name: str = ""

    def __post_init__(self):
        ones = (1,) * len(self.size)
        object.__setattr__(self, "strides", self.strides or ones)
        object.__setattr__(self, "dilation", self.dilation or ones)
        object.__setattr__(self, "name", self.name or _describe(self))

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.size)

    @property
    def in_tensorflow(self) -> bool:
        """Whether TensorFlow has such a padding and operator, so that it can judge the case."""
        return self.padding != "keras-mxnet" and self.op != "lp_pool"

    @property
    def out_channels(self) -> int:
        """Channels of the output, whatever the operator."""
        if self.op in oracle.POOLS:
            return self.in_channels
        return self.in_channels * self.depth_multiplier if self.op == "depthwise_conv" else self.channels

    @property
    def sizes(self) -> tuple:
        """Six different sizes, the first being `size`: residues modulo the strides, some smaller than the kernel."""
        return (self.size, *(self.other_sizes or _other_sizes(self)))


def _describe(case):
    """A name with every argument that is not its default."""
    parts = [case.op, "x".join(map(str, case.size)), "k" + "x".join(map(str, case.kernel_size))]
    parts.append("s" + "x".join(map(str, case.strides)))
    if set(case.dilation) != {1}:
        parts.append("d" + "x".join(map(str, case.dilation)))
    if isinstance(case.padding, str):
        parts.append(case.padding)
    else:
        parts.append("p" + "x".join(f"{low}+{high}" for low, high in case.padding))
    if case.output_padding is not None:
        parts.append("op" + "x".join(map(str, case.output_padding)))
    short = {"groups": "g", "in_channels": "in", "channels": "out", "depth_multiplier": "m", "batch": "b"}
    for key, name in {**short, "p_value": "order", "values": ""}.items():
        value = getattr(case, key)
        parts += [f"{name}{value}"] if value != getattr(Case, key) else []
    flags = {"nobias": not case.use_bias, "countpad": case.count_include_pad, "ceil": case.ceil_mode}
    return "-".join(parts + [flag for flag, on in flags.items() if on])


def _other_sizes(case):
    """Five legal sizes: the next two, one or two smaller than the kernel, then neighbours until there are enough."""
    extents = [(k - 1) * d + 1 for k, d in zip(case.kernel_size, case.dilation)]
    steps = [tuple(n + j for n in case.size) for j in (1, 2)]
    tiny = [tuple(max(1, extent - 1 - axis) for axis, extent in enumerate(extents)), (1, 2, 3)[: case.rank]]
    mixed = [tuple(max(1, n + j * (-1) ** axis) for axis, n in enumerate(case.size)) for j in (-1, 3, -2, 4, 5, 6, 7)]
    grown = [tuple(n + j * s for n, s in zip(case.size, case.strides)) for j in range(1, 12)]  # legal as the first is
    chosen = []
    for size in steps + tiny + mixed + grown:
        if size != case.size and size not in chosen and oracle.is_legal(case, size):
            chosen.append(size)
    return tuple(chosen[:5])


def arrays(case: Case, size=None, seed: int = 0) -> dict:
    """Data, weights and bias of a case by name: float64 arrays whose values float32 holds exactly.

    Channels-first data (N, C, *size); weights as MXNet stores them: conv (O, I/groups, *k), depthwise (C*m, 1, *k) with
    output channel c*m + j, separable (C*m, 1, *k) and (O, C*m, 1, ...), transposed (I, O/groups, *k).
    """
    kernel, inner = case.kernel_size, case.in_channels * case.depth_multiplier
    shapes = {"data": (case.batch, case.in_channels, *(case.size if size is None else size))}
    if case.op == "conv":
        shapes["weight"] = (case.channels, case.in_channels // case.groups, *kernel)
    elif case.op == "depthwise_conv":
        shapes["weight"] = (inner, 1, *kernel)
    elif case.op == "separable_conv":
        shapes["depthwise_weight"] = (inner, 1, *kernel)
        shapes["pointwise_weight"] = (case.channels, inner, *[1] * case.rank)
    elif case.op == "conv_transpose":
        shapes["weight"] = (case.in_channels, case.channels // case.groups, *kernel)
    if case.use_bias and case.op not in oracle.POOLS:
        shapes["bias"] = (case.out_channels,)
    stream = np.random.Generator(np.random.PCG64([seed, zlib.crc32(case.name.encode())]))
    result = {}
    for name in reversed(list(shapes)):  # data last: the weights are the same for every size
        if name == "data" and case.values == "ties":
            result[name] = stream.integers(-2, 2, size=shapes[name]).astype(np.float64)
            continue
        values = stream.standard_normal(shapes[name])
        if name == "data" and case.values == "negative":
            values -= 10.0
        result[name] = values.astype(np.float32).astype(np.float64)
    return {name: result[name] for name in shapes}


def output_gradient(case: Case, shape, seed: int = 0) -> np.ndarray:
    """A gradient in the shape of the output; normal values that float32 holds exactly."""
    stream = np.random.Generator(np.random.PCG64([seed, zlib.crc32(case.name.encode()), 1]))
    return stream.standard_normal(shape).astype(np.float32).astype(np.float64)


# ---- the table -------------------------------------------------------------------------------------------------------


def _conv_table():
    case = _maker("conv")
    # 1-D: every residue of n modulo s; k < s, k = s, k > s; n < k; odd and even kernels
    for n, k, s in [(7, 3, 2), (8, 3, 2), (8, 2, 3), (11, 5, 3), (9, 4, 4), (10, 1, 2), (2, 5, 1)]:
        yield case((n,), (k,), (s,))
    yield case((9,), (4,), (1,))
    yield case((1,), (4,), (3,))
    yield case((11,), (4,), (2,), padding="valid")
    yield case((10,), (4,), (1,), dilation=(2,))
    yield case((13,), (4,), (3,), dilation=(3,))
    yield case((9,), (3,), (2,), padding="causal")
    yield case((11,), (2,), (3,), padding="causal", dilation=(2,))
    yield case((12,), (3,), (1,), padding="causal", dilation=(3,), groups=2, in_channels=4)
    yield case((8,), (4,), (3,), padding=((0, 3),))
    yield case((7,), (2,), (2,), padding=((5, 4),))
    yield case((9,), (4,), (2,), groups=2, in_channels=4, channels=6)
    # 2-D: a different size, kernel and stride on every axis
    yield case((7, 10), (3, 2), (2, 3))
    yield case((9, 6), (4, 3), (2, 4))
    yield case((2, 9), (6, 3), (3, 2))
    yield case((9, 8), (2, 4), (1, 1))
    yield case((7, 8), (1, 1), (3, 2))
    yield case((8, 7), (3, 2), (2, 3), batch=1, in_channels=1, channels=1)
    yield case((7, 10), (3, 4), (2, 3), padding="valid")
    yield case((10, 9), (3, 2), (1, 1), dilation=(2, 3))
    yield case((11, 10), (3, 4), (2, 3), dilation=(2, 3))
    yield case((12, 11), (2, 3), (2, 3), dilation=(3, 2), padding="valid")
    yield case((8, 9), (2, 5), (2, 3), groups=3, in_channels=6, channels=3)
    yield case((9, 10), (3, 2), (1, 1), dilation=(2, 3), groups=2, in_channels=2)
    yield case((8, 7), (3, 4), (2, 1), padding=((2, 1), (0, 3)))
    yield case((6, 5), (2, 3), (3, 2), padding=((3, 5), (4, 6)))
    yield case((10, 8), (3, 2), (2, 1), padding=((1, 3), (2, 0)), dilation=(2, 3))
    yield case((9, 8), (3, 2), (2, 3), padding=((0, 1), (4, 0)), groups=2, in_channels=4)
    # 3-D
    yield case((5, 6, 7), (3, 2, 4), (2, 3, 1))
    yield case((4, 5, 6), (3, 5, 2), (1, 1, 1))
    yield case((5, 7, 6), (2, 3, 4), (1, 2, 3), padding="valid")
    yield case((7, 6, 5), (3, 2, 2), (2, 3, 1), dilation=(2, 1, 3))
    yield case((4, 6, 5), (3, 2, 2), (2, 1, 3), padding=((2, 0), (0, 3), (1, 1)))
    yield case((5, 4, 6), (2, 3, 3), (2, 1, 2), groups=2, in_channels=4)


def _depthwise_table():
    case = _maker("depthwise_conv")
    yield case((9,), (4,), (2,))
    yield case((10,), (3,), (2,), padding="causal", dilation=(2,), depth_multiplier=2)
    yield case((7, 10), (3, 2), (2, 2))
    yield case((8, 9), (2, 5), (1, 1), depth_multiplier=3, in_channels=2)
    yield case((7, 11), (4, 3), (3, 2), depth_multiplier=2)
    yield case((2, 4), (5, 3), (1, 2), depth_multiplier=2)
    yield case((9, 11), (2, 3), (3, 2), dilation=(3, 2))
    yield case((8, 7), (3, 2), (2, 1), padding=((2, 0), (0, 3)), depth_multiplier=2)
    yield case((6, 7), (1, 1), (1, 2), in_channels=1, depth_multiplier=3)
    yield case((5, 6, 7), (3, 2, 4), (2, 3, 1), depth_multiplier=2)
    yield case((6, 5, 4), (2, 3, 2), (1, 1, 1), dilation=(1, 2, 3), use_bias=False)


def _separable_table():
    case = _maker("separable_conv")
    yield case((9,), (4,), (2,))
    yield case((11,), (3,), (1,), dilation=(2,), depth_multiplier=2)
    yield case((10,), (3,), (3,), padding="causal", depth_multiplier=2)
    yield case((7, 10), (3, 2), (2, 2), depth_multiplier=2)
    yield case((8, 11), (2, 3), (3, 2), use_bias=False)
    yield case((10, 9), (3, 2), (1, 1), dilation=(2, 3))
    yield case((9, 11), (2, 3), (2, 3), dilation=(3, 2), depth_multiplier=2)
    yield case((8, 7), (3, 2), (2, 1), padding=((2, 0), (0, 3)))
    yield case((5, 6, 7), (3, 2, 4), (2, 3, 1), depth_multiplier=2)
    yield case((6, 5, 4), (2, 3, 2), (1, 2, 3), dilation=(1, 2, 1))


def _transposed_table():
    case = _maker("conv_transpose")
    for n, k, s in [(5, 3, 2), (4, 4, 2), (6, 2, 2), (5, 2, 3), (4, 5, 3), (3, 1, 4), (7, 3, 1), (6, 4, 1), (1, 5, 2)]:
        yield case((n,), (k,), (s,))
    yield case((5,), (3,), (2,), output_padding=(0,))
    yield case((5,), (3,), (2,), output_padding=(1,))
    yield case((4,), (4,), (3,), output_padding=(2,))
    yield case((5,), (2,), (4,), padding="valid")
    yield case((6,), (3,), (1,), dilation=(2,))
    yield case((5,), (2,), (3,), dilation=(3,))
    yield case((4,), (5,), (3,), padding=((0, 3),), output_padding=(1,))
    yield case((5,), (3,), (2,), groups=2, in_channels=4)
    yield case((4, 5), (3, 2), (2, 3))
    yield case((3, 5), (2, 1), (3, 4))
    yield case((4, 3), (2, 3), (2, 3), use_bias=False)
    yield case((1, 2), (4, 7), (3, 2))
    yield case((4, 5), (5, 2), (2, 1), batch=1, in_channels=1, channels=1)
    yield case((5, 4), (3, 4), (2, 3), output_padding=(1, 2))
    yield case((4, 3), (2, 3), (3, 2), padding="valid", output_padding=(2, 0))
    yield case((3, 4), (2, 4), (3, 2), padding="valid")
    yield case((4, 5), (3, 2), (2, 3), dilation=(2, 3))
    yield case((5, 4), (4, 3), (2, 1), padding=((1, 2), (2, 0)))
    yield case((4, 5), (3, 4), (3, 2), padding=((3, 1), (0, 2)), output_padding=(2, 1))
    yield case((4, 5), (3, 2), (2, 3), groups=2, in_channels=4, channels=6)
    yield case((3, 4, 2), (3, 2, 4), (2, 3, 1))
    yield case((3, 2, 4), (4, 3, 2), (2, 1, 2), padding="valid")
    yield case((2, 3, 3), (3, 2, 4), (2, 1, 3), padding=((1, 0), (0, 1), (2, 3)))
    yield case((3, 2, 3), (2, 3, 2), (1, 1, 1), dilation=(2, 1, 3))
    yield case((2, 3, 2), (2, 3, 3), (2, 3, 1), groups=2, in_channels=4)


def _pool_table(op):
    case = _maker(op)
    for n, k, s in [(7, 2, 2), (10, 3, 2), (8, 3, 3), (9, 1, 2), (7, 4, 1), (3, 5, 1)]:
        yield case((n,), (k,), (s,))
    yield case((10,), (2,), (3,))
    yield case((11,), (3,), (2,), padding="valid")
    yield case((8,), (3,), (2,), padding=((0, 2),))
    yield case((10,), (3,), (2,), padding=((1, 1),), ceil_mode=True)
    # pairs of channels, which 1-D pooling operators take as pictures
    for n, k, s in [(9, 3, 2), (7, 2, 2), (8, 4, 1), (10, 5, 3), (10, 2, 3), (3, 5, 1), (1, 2, 2)]:
        yield case((n,), (k,), (s,), in_channels=10)
    yield case((8,), (3,), (2,), padding=((0, 2),), in_channels=8, values="negative")
    yield case((10,), (3,), (2,), padding=((1, 1),), ceil_mode=True, in_channels=8)
    yield case((7, 10), (2, 3), (2, 3))
    yield case((8, 9), (3, 2), (1, 2))
    yield case((9, 11), (4, 5), (3, 2), values="negative")
    yield case((2, 2), (5, 5), (1, 1))
    yield case((8, 7), (3, 2), (2, 3), padding="valid")
    yield case((8, 7), (3, 4), (2, 3), padding=((2, 0), (1, 3)), values="negative")
    yield case((8, 10), (3, 4), (2, 3), padding=((1, 1), (0, 0)), ceil_mode=True)
    yield case((8, 9), (3, 2), (2, 2), padding="valid", ceil_mode=True)
    yield case((5, 6, 7), (3, 2, 4), (2, 3, 1))
    yield case((3, 2, 4), (4, 3, 2), (1, 2, 3), values="negative")
    yield case((5, 4, 6), (3, 2, 3), (2, 1, 2), padding=((1, 2), (0, 1), (2, 0)))
    if op == "max_pool":
        yield case((9,), (4,), (2,), in_channels=8, values="ties")
        yield case((9, 8), (3, 2), (2, 3), values="ties")
        yield case((4, 5, 6), (2, 3, 2), (1, 2, 3), values="ties")
    elif op == "lp_pool":
        for p_value in (1, 3):
            yield case((10,), (3,), (2,), p_value=p_value)
            yield case((7, 10), (3, 2), (2, 3), p_value=p_value)
            yield case((5, 6, 4), (3, 2, 3), (2, 2, 1), p_value=p_value)
    else:
        yield case((8,), (3,), (2,), count_include_pad=True, in_channels=8)
        yield case((7, 10), (3, 2), (2, 3), count_include_pad=True)
        yield case((8, 7), (3, 4), (2, 3), padding=((2, 0), (1, 3)), count_include_pad=True)
        yield case((10, 8), (3, 4), (2, 3), padding=((1, 1), (2, 2)), count_include_pad=True, ceil_mode=True)
        yield case((5, 6, 4), (3, 2, 3), (2, 2, 1), count_include_pad=True)


def _concrete_table():
    """Uses that must keep working, by name; channels and batch are smaller than in the networks they come from."""
    conv, max_pool = _maker("conv"), _maker("max_pool")
    big = ((7, 8), (30, 33), (31, 29), (15, 2), (40, 6))
    yield conv((224, 224), (7, 7), (2, 2), batch=1, other_sizes=big, name="concrete-7x7-stride-2-on-224")
    yield conv((100, 20), (4, 1), (1, 1), in_channels=8, name="concrete-kernel-4x1-on-100x20")
    yield max_pool((30, 30), (2, 2), (2, 2), in_channels=4, name="concrete-sequential-pool-2x2-on-30")
    yield conv((16, 16), (3, 3), (2, 2), name="concrete-16-k3-s2-same")
    yield conv((16, 16), (3, 3), (2, 2), padding=((1, 1), (1, 1)), name="concrete-16-k3-s2-symmetric")
    yield conv((14, 14), (3, 3), (2, 2), dilation=(2, 2), name="concrete-stride-2-dilation-2")


def _old_model_table():
    """The padding of keras-mxnet, except for layers with n + 1 outputs."""

    def case(op, *geometry, **rest):
        rest = {"count_include_pad": True, **rest} if op == "avg_pool" else rest
        return Case(op, *geometry, padding="keras-mxnet", **rest)

    for n, k, s in [(8, 3, 2), (9, 4, 1), (9, 2, 3), (10, 4, 3), (2, 5, 1)]:
        yield case("conv", (n,), (k,), (s,))
    yield case("conv", (11,), (3,), (2,), dilation=(2,))
    yield case("conv", (7, 10), (3, 2), (2, 3))
    yield case("conv", (9, 8), (2, 4), (1, 1))
    yield case("conv", (8, 9), (3, 5), (1, 1), use_bias=False)
    yield case("conv", (11, 10), (3, 4), (2, 3), dilation=(2, 3))
    yield case("conv", (9, 7), (4, 3), (3, 2), groups=2, in_channels=4)
    yield case("conv", (5, 6, 7), (3, 2, 4), (2, 3, 2))
    yield case("conv", (4, 5, 6), (3, 4, 1), (1, 1, 1))
    yield case("depthwise_conv", (7, 10), (3, 2), (2, 2))
    yield case("depthwise_conv", (8, 9), (2, 5), (1, 1), depth_multiplier=2)
    yield case("depthwise_conv", (10, 9), (3, 2), (1, 1), dilation=(2, 3))
    yield case("depthwise_conv", (5, 6, 4), (3, 2, 2), (2, 3, 2))
    yield case("separable_conv", (11,), (2,), (3,))
    yield case("separable_conv", (8, 11), (2, 3), (3, 2))
    yield case("separable_conv", (5, 6, 7), (3, 2, 4), (2, 3, 2))
    for n, k, s in [(5, 3, 2), (4, 4, 2), (4, 5, 3), (7, 3, 1)]:
        yield case("conv_transpose", (n,), (k,), (s,))
    yield case("conv_transpose", (5,), (4,), (2,), output_padding=(0,))
    yield case("conv_transpose", (4, 5), (3, 4), (2, 3))
    yield case("conv_transpose", (4, 5), (3, 5), (2, 3), output_padding=(1, 2))
    yield case("conv_transpose", (5, 6), (3, 3), (1, 1), dilation=(2, 2))
    yield case("conv_transpose", (4, 5), (3, 4), (2, 3), groups=2, in_channels=4)
    yield case("conv_transpose", (3, 4, 2), (3, 4, 1), (2, 3, 1))
    for op in ("max_pool", "avg_pool"):
        for n, k, s in [(7, 2, 2), (10, 3, 2), (10, 4, 3), (3, 5, 1), (10, 2, 3)]:
            yield case(op, (n,), (k,), (s,))
        yield case(op, (7, 10), (2, 3), (2, 3))
        yield case(op, (8, 9), (3, 5), (1, 1), values="negative")
        yield case(op, (9, 11), (4, 5), (3, 2), ceil_mode=True)
        yield case(op, (5, 6, 7), (2, 3, 4), (1, 2, 2))
    yield case("max_pool", (7, 6), (3, 4), (1, 2), values="ties")


def _maker(op):
    def case(size, kernel_size, strides, **rest):
        return Case(op, size, kernel_size, strides, **rest)

    return case


def _table():
    table = [*_conv_table(), *_depthwise_table(), *_separable_table(), *_transposed_table()]
    table += [*_pool_table("max_pool"), *_pool_table("avg_pool"), *_pool_table("lp_pool"), *_concrete_table()]
    table += _old_model_table()
    names = [case.name for case in table]
    if len(set(names)) != len(names):
        raise ValueError(f"names twice in the table: {sorted(name for name in names if names.count(name) > 1)}")
    return tuple(table)


CASES = _table()
IN_TENSORFLOW = tuple(case for case in CASES if case.in_tensorflow)
