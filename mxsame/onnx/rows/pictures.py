"""Pictures made larger and smaller."""

from __future__ import annotations

from mxsame import validation
from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import must
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output


@writes("depth_to_space", "space_to_depth")
def space_and_depth(w: Writer, node: Node, x: str) -> str:
    op = {"depth_to_space": "DepthToSpace", "space_to_depth": "SpaceToDepth"}[node.kind]
    return w.add(op, x, blocksize=int(node.attr("block_size")), name=node.name)


@writes("UpSampling")
def up_sampling(w: Writer, node: Node, x: str, *more: str) -> str:
    must(node, "sample_type", "nearest")
    if more:
        raise ValueError(f"data must be one array; {validation.received(inputs=1 + len(more))}")
    scale = float(node.attr("scale"))
    return w.resized(x, node.name, scales=[1.0, 1.0, scale, scale])


@writes("_contrib_BilinearResize2D")
def bilinear_resize(w: Writer, node: Node, x: str, *_: str) -> str:
    """To the size that MXNet infers, by a scale if that is exact or the size is dynamic."""
    must(node, "mode", "size")
    aligned = bool(node.attr("align_corners", True))
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners" if aligned else "half_pixel"}
    source, target = w.shape(node.inputs[0])[2:], w.shape(Output(node))[2:]
    if not aligned and any(after == (1, 1) != before for before, after in zip(source, target)):
        raise ValueError(
            "align_corners must be True for a length of 1, which MXNet gives the first element; received "
            "align_corners=False"
        )
    given = [node.attr(name) for name in ("scale_height", "scale_width")]
    if all(length.is_static for length in (*source, *target)):
        exact = [after.traced / before.traced for before, after in zip(source, target)]
        if all(scale.is_integer() for scale in exact):
            return w.resized(x, node.name, scales=[1.0, 1.0, *exact], **attrs)
    elif None not in given and (aligned or all(float(scale).is_integer() for scale in given)):
        return w.resized(x, node.name, scales=[1.0, 1.0, *map(float, given)], **attrs)
    if not all(length.is_static for length in target):
        raise ValueError(
            "data of dynamic size must be resized to a static size, or by a scale, which must be an integer unless "
            f"align_corners is True; {validation.received(scales=given, align_corners=aligned)}"
        )
    batch = w.sliced(w.add("Shape", x), 0, 0, 2)
    sizes = w.add("Concat", batch, w.integers([length.traced for length in target]), axis=0)
    return w.resized(x, node.name, sizes=sizes, **attrs)
