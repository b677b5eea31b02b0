"""Rows of products of matrices."""

from __future__ import annotations

import math

import numpy as np

from mxsame import validation
from mxsame.port import blocks, einsum as sums
from mxsame.port.description import Weight, leaves
from mxsame.port.parameters import TRANSPOSED, Conversion
from mxsame.port.rows._shared import BIAS, KERNEL, activated, to_order
from mxsame.port.table import KERAS, PASSES, SETTLED, Operand, Site, Value, layer, operator
from mxsame.port.types import CAST


@layer("Dense", order=SETTLED, weights=(KERNEL, BIAS), masks=PASSES, types=CAST)
def _dense(site: Site, x: Value) -> Value:
    units = site.integer("units")
    validation.check(x.rank >= 2, "data must have 2 axes or more", shape=x.shape)
    x = site.keras(x) if x.rank > 5 else x
    shapes = {"weight": (units, x.shape[-1] or 0), "bias": (units,)}
    ones = (1,) * (x.rank - 2) if x.transposed else ()
    out = site.weighted(blocks.dense, x, shapes=shapes, conversions={"kernel": TRANSPOSED}, units=units, ones=ones)
    return activated(site, out)


@layer("EinsumDense", order=KERAS, weights=(KERNEL, Weight("bias", "bias", "bias_axes")), types=CAST,
       unread="output_shape")  # fmt: skip
def _einsum_dense(site: Site, x: Value) -> Value:
    shape, bias_axes, equation = site.layer.weights[0].shape, site.config.get("bias_axes"), site.config["equation"]
    einsum = sums.parse(str(equation), x.rank, len(shape))
    validation.check(not einsum.shared, "equation must have no axis of all arrays", equation=equation)
    lengths = dict(zip(einsum.second, shape))
    known = {**dict(zip(einsum.first, x.shape)), **lengths}
    bias = sums.bias_axes_shape(einsum, bias_axes, [known[letter] for letter in einsum.output]) if bias_axes else None
    kernel = Conversion(
        lambda array: sums.weight_to_mxnet(array, einsum), lambda array: sums.weight_to_keras(array, einsum, lengths)
    )
    made = tuple(lengths[letter] for letter in einsum.free(1))
    weight = (math.prod(made), math.prod(lengths[letter] for letter in einsum.contracted))
    shapes = {"weight": weight, "bias": bias}
    out = site.weighted(sums.einsum_dense, x, shapes=shapes, conversions={"kernel": kernel}, einsum=einsum, made=made)
    return activated(site, out)


@layer("Dot", order=KERAS)
def _dot(site: Site, x: Value, y: Value) -> Value:
    axes = site.config["axes"]
    axes = [axes, axes] if isinstance(axes, int) else list(axes)
    axes, normalize = [axes[0] % x.rank, axes[1] % y.rank], bool(site.config.get("normalize", False))
    fits = {x.rank, y.rank} <= {2, 3} and 0 not in axes
    validation.check(fits, "inputs must be vectors or matrices", shapes=[x.shape, y.shape])
    epsilon = (1e-12 if site.version == 2 else 1e-14) if normalize else None  # of the square of a length
    return site.function(blocks.dot, x, y, axes=(*axes, x.rank, y.rank), epsilon=epsilon)


@operator("matmul", order=KERAS, names={"b": "y", "x2": "y"})
def _matmul(site: Site, x: Value, y: Operand, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """For each entry of the batch, and of axes after it; by one constant matrix for all."""
    if not isinstance(y, Value):
        matrix = np.asarray(y, "float32")
        fits = matrix.ndim == 2 and not transpose_a and x.shape[-1] == matrix.shape[bool(transpose_b)]
        validation.check(fits, "a constant must be a matrix of a row for each element", shape=matrix.shape)
        weight = matrix if transpose_b else matrix.T
        return site.constant(blocks.dense, x, {"weight": weight}, units=len(weight))
    fits = x.rank == y.rank >= 3
    validation.check(fits, "tensors must be matrices of a batch", shapes=[x.shape, y.shape])
    if x.rank == 3:
        return site.function("batch_dot", x, y, transpose_a=bool(transpose_a), transpose_b=bool(transpose_b))
    first, second = "ji" if transpose_a else "ij", "kj" if transpose_b else "jk"
    return _einsum(site, x, y, subscripts=f"...{first},...{second}->...ik")


@operator("einsum", order=KERAS)
def _einsum(site: Site, *operands: Operand, subscripts: str = "") -> Value:
    """Of two tensors, as a product of matrices for each entry of the axes that both and the output have; of one, in
    another order of axes."""
    arrays = leaves(list(operands), Value)
    few = len(arrays) == len(operands) <= 2  # Keras 2 writes nothing but the equation
    validation.check(few, f"einsum must be of an equation and one or two tensors; received {len(arrays)}")
    if len(arrays) == 1:
        return to_order(site, arrays[0], sums.order(subscripts, arrays[0].rank))
    x, y = arrays
    einsum = sums.parse(subscripts, x.rank, y.rank)
    pairs = [*zip(einsum.first, x.shape), *zip(einsum.second, y.shape)]
    lengths = {letter: length for letter, length in pairs if letter != einsum.first[0]}
    fits = einsum.shared[:1] == einsum.first[0] == einsum.output[0] and None not in lengths.values()
    fits = fits and all(lengths.get(letter, length) == length for letter, length in pairs)
    validation.check(fits, "axes must be that of the batch, then static and alike", shapes=[x.shape, y.shape])
    return site.function(sums.einsum_product, x, y, einsum=einsum, lengths=lengths)
