"""Explains why a net cannot run or be traced: errors with the rule, what was received, and the reason."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import traceback
from typing import Any, Iterator, Mapping

import numpy as np

from mxsame import tensors, validation
from mxsame._mxnet import NO_KERNEL, mx
from mxsame.graphs.nesting import flatten, regroup
from mxsame.rewriting.graph import Graph, Node, Output, is_complete

SHAPE_MESSAGES = (  # patterns for the expected and the actual shape, and a message with both
    (
        r"inferred shape=([\[(].*?[\])])",
        r"Provided = ([\[(].*?[\])])",
        "{0} has parameters of shape {2}, but this data requires {1}",
    ),
    (r"expected (\[.*?\])", r"got (\[.*?\])", "{} expects an input of shape {}, but receives {}"),
)
SHAPE_RULE = "net must run on data of this shape"
RESHAPES = ("Reshape", "reshape")
TYPE_MESSAGES = r"data type|dtype|in_type|floating point types|expected \w+, got \w"  # in errors about types


def reason(error: Exception) -> str:
    """Returns a one-line reason for an error of MXNet: the operator, with the expected and actual shapes if the message
    contains them. For any other error, returns its last line."""
    cause = error.__context__
    error = cause if type(error) is ValueError and isinstance(cause, mx.base.MXNetError) else error  # Gluon hides it
    text = str(error)
    fixed = re.search(rf"{tensors.FIXED_SIZE_PREFIX}(\w+)", text)
    if fixed:
        shape = ", ".join(re.sub("N|any", "None", fixed[1]).split("_"))
        return f"a layer accepts only data of shape ({shape})"
    axes = re.search(r"Error in operator (\w+):.* dsh\w+\.ndim\(\) .= \dU? \((\d) vs\. (\d)\)", text)
    if axes:
        return f"{axes[1]} expects data with {axes[3]} axes (batch first), but receives {axes[2]}"
    if not isinstance(error, mx.base.MXNetError):
        return (text.strip().splitlines() or ["nothing"])[-1].strip()[:200]
    names = re.findall(r"Error in operator ([^\s:]+):", text)
    for *patterns, sentence in SHAPE_MESSAGES:
        matches = [re.search(pattern, text) for pattern in patterns]
        if names and all(matches):
            shapes = (f"({', '.join(each[1][1:-1].split(','))})".replace("-1", "None") for each in matches if each)
            return sentence.format(names[-1], *shapes)
    failed = re.search(r"Check failed: .*: (\S[^\n]*)", text)
    detail = f": {failed[1][:200]}" if names and failed else ""
    return f"MXNet refuses the operator {names[-1]}{detail}" if names else "MXNet refuses it"


@contextlib.contextmanager
def explain_errors(**received: Any) -> Iterator[None]:
    """Turns MXNet's errors within the `with` block into a `ValueError` that shows the shapes or the types received. The
    error of a GPU without kernels is raised unchanged, since the data does not cause it. If `input_shape` is received,
    an error of a layer about its data becomes one about that argument."""
    try:
        yield
    except validation.InvalidValue as error:
        if "input_shape" in received and str(error).startswith("data must "):
            raise validation.InvalidValue(f"input_shape must fit the net: {error}") from None
        raise
    except mx.base.MXNetError as error:
        if NO_KERNEL in str(error):
            raise
        rule, arrays = SHAPE_RULE, [each for each in flatten([*received.values()]) if isinstance(each, mx.nd.NDArray)]
        if re.search(TYPE_MESSAGES, str(error)):
            rule = "net must be called with dtypes that its operators support"
            received = {"dtypes": [str(np.dtype(each.dtype)) for each in arrays]} if arrays else received
        elif arrays:
            received = {"shapes": [array.shape for array in arrays]}
        raise validation.InvalidValue(f"{rule}; {validation.received(**received)}; {reason(error)}") from None


class ShapeCheck:
    """Checks shapes that MXNet does not check when it runs a graph: its batch norm reads past the end of parameters
    that are too short, and its reshape past the end of an array with too few elements. The check repeats the shape
    inference that MXNet runs for each new shape, a millisecond for ResNet-50."""

    def __init__(self, symbol: Any, parameters: Mapping[str, Any]):
        graph, self._parameters = Graph.of(symbol, {}, {}), parameters
        self._reshapes = [node for node in graph.nodes() if node.kind in RESHAPES and not _takes_all_elements(node)]
        pairs = [output for node in self._reshapes for output in (node.inputs[0], Output(node))]
        self._symbol = graph.symbol([*graph.outputs, *pairs]) if pairs else symbol
        self._num_outputs = len(graph.outputs)
        self._names = (*self._symbol.list_arguments(), *self._symbol.list_auxiliary_states())

    def run(self, shapes: Mapping[str, tuple], /, **received: Any) -> None:
        """Raises a `ValueError`, which shows what was received, unless the net accepts these shapes of its inputs."""
        with explain_errors(**received):
            known = {name: shape for name, shape in shapes.items() if name in self._names}
            arguments, outputs, states = self._symbol.infer_shape_partial(**known)
        rule = f"{SHAPE_RULE}; {validation.received(**received)}"
        for name, required in zip(self._names, (*arguments, *states)):
            actual = self._parameters[name].shape if name in self._parameters else None
            may_match = actual == required or not (is_complete(actual) and is_complete(required))
            validation.check(may_match, f"{rule}; {name} has the shape {actual}, but this data requires {required}")
        pairs = iter(outputs[self._num_outputs :])
        for node, before, after in zip(self._reshapes, pairs, pairs):
            may_match = not (is_complete(before) and is_complete(after)) or math.prod(before) == math.prod(after)
            validation.check(may_match, f"{rule}; {node.name} reshapes {before} to {after}")


def _takes_all_elements(node: Node) -> bool:
    """Returns whether a reshape accepts data with any number of elements, as (0, -1) and (1, -1, 1) do."""
    return -1 in (shape := node.attr("shape", ())) and max(shape) <= 1


@contextlib.contextmanager
def explain_symbols(structure: Any) -> Iterator[None]:
    """Explains errors of a net that the `with` block calls with Symbols in this structure. An error that is due to
    Symbols becomes a `TypeError` with the line of the user's code, and one about an argument of an operator becomes a
    `ValueError` with the layer's name. All other errors are raised unchanged."""
    try:
        yield
    except Exception as error:
        frames = list(traceback.walk_tb(error.__traceback__))
        modules = [frame.f_globals.get("__name__", "mxnet.") for frame, _ in frames]
        refused = re.search(r", in operator (\w+\(.*\))", str(error), re.DOTALL)
        if refused and isinstance(error, mx.base.MXNetError):
            blocks = [block for frame, _ in frames if isinstance(block := frame.f_locals.get("self"), mx.gluon.Block)]
            layer = f" in layer {blocks[-1].name}" if blocks else ""
            rule = f"net must call its operators with arguments that they accept; received {refused[1][:200]}{layer}"
            raise validation.InvalidValue(rule) from error
        if not _is_due_to_symbols(error, modules[-1]):
            raise
        if isinstance(error, AssertionError) and any(isinstance(entry, (list, tuple)) for entry in structure):
            rule = "net must be called with its inputs nested in lists as its hybrid_forward expects"
            nested = regroup(structure, map("data{}".format, itertools.count()))
            raise validation.InvalidType(f"{rule}; {validation.received(inputs=nested)}") from error
        rule = "net must consist of HybridBlocks whose hybrid_forward runs on Symbols and reads no shapes or values"
        text, libraries = " ".join(str(error).split())[:200], ("mxnet.", "mxsame.", "contextlib")
        text = text or type(error).__name__
        user_frames = [each for each, name in zip(frames, modules) if not name.startswith(libraries)]
        for frame, line in user_frames[-1:]:
            text += f", in {frame.f_code.co_name} of {os.path.basename(frame.f_code.co_filename)}, line {line}"
        raise validation.InvalidType(f"{rule}; received {text}") from error


def _is_due_to_symbols(error: Exception, module: str) -> bool:
    """Returns whether an error that was raised in this module is due to Symbols, and not to a rule of this package or a
    mistake in the user's code."""
    if isinstance(error, (validation.RuleError, mx.base.MXNetError)):
        return isinstance(error, mx.base.NotImplementedForSymbol)
    mentions_symbol = module.startswith("mxnet.symbol") or "symbol" in str(error).lower()
    return mentions_symbol or isinstance(error, NotImplementedError)
