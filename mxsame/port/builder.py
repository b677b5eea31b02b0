"""Builds the steps of a `Model`: the converters of its layers run in the order of the calls, and refusals are
collected."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from mxsame import progress
from mxsame._mxnet import mx
from mxsame.keras_format import dtypes
from mxsame.keras_format.description import Layer, LayerCall, Model, NotReplaceable, TensorId, leaves, map_leaves
from mxsame.keras_format.topology import Call, Path, layers_of, sorted_calls, with_layers
from mxsame.port.call_context import CallContext, LayerState
from mxsame.port.steps import Steps, needed_steps
from mxsame.port.tensors import Tensor, with_mask
from mxsame.validation import Refused, RuleError, check, received


def unsupported_model(reasons: Sequence[str]) -> Refused:
    """Returns the error for a model that cannot be imported; each reason starts with the name of its layer."""
    count = len(set(reasons))
    return Refused(reasons, f"the model cannot be imported for {count} reasons:\n" if count > 1 else "")


@contextlib.contextmanager
def naming_layer(layer: Layer, path: Sequence[str], is_replaceable: bool = True) -> Iterator[None]:
    """Raises any error as `Refused` with the name of the layer, except errors for which :func:`is_final` is true."""
    try:
        yield
    except Exception as error:
        if is_final(error):
            raise
        raise unsupported_model([reason(layer, path, error, is_replaceable=is_replaceable)]) from error


def is_final(error: Exception) -> bool:
    """Returns whether an error is raised as it is: it names its layer, is a warning, or is in the user's code."""
    return isinstance(error, (Refused, Warning)) or getattr(error, "is_custom", False)


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Marks errors in the user's code (`is_custom`), which are raised as they are."""
    try:
        yield
    except Exception as error:
        error.is_custom = True  # type: ignore[attr-defined]
        raise


class Builder:
    """Builds the `steps` of a model and the `states` of its layers (by path); `total` is the number of calls, for
    progress.

    `converter_of` returns the converter of a layer; `custom` has the user's functions; `states` are those of an earlier
    build, whose blocks are reused.
    """

    def __init__(self, converter_of: Callable, total: int, custom: Mapping[str, Any],
                 states: Mapping[Path, LayerState]):  # fmt: skip
        self.converter_of, self.total, self.custom = converter_of, total, custom
        self.steps, self.call_numbers = Steps(), itertools.count(1)
        self.states: Dict[Path, LayerState] = {}
        self._earlier_states = states

    def build_model(self, model: Model, path: Path, inputs: List[Tensor], training: Optional[bool] = None,
                    is_only_call: bool = True) -> List[Tensor]:  # fmt: skip
        """Builds a model layer by layer, and returns its outputs.

        `training` is the argument of the call of an enclosing model. A refused layer has no outputs, unless it was
        built but has unknown config keys; layers that need missing outputs are skipped. The error at the end lists all
        reasons.
        """
        rule = f"model {model.name!r} must be called with {len(model.inputs)} inputs; received {len(inputs)}"
        check(len(inputs) == len(model.inputs), rule)
        declared = {layer.name: layer.config.get("dtype") for layer in model.layers if layer.class_name == "InputLayer"}
        inputs = [self._cast_to_declared(x, declared.get(tensor.layer)) for x, tensor in zip(inputs, model.inputs)]
        values: Dict[TensorId, Tensor] = dict(zip(model.inputs, inputs))
        check(len(values) == len(inputs), f"model {model.name!r} must have distinct inputs")
        refused: Dict[Call, List[str]] = {}  # reasons
        for layer, number, layer_call in sorted_calls(model):
            if TensorId(layer.name, number) in values:
                continue
            rule = f"input layer {layer.name!r} must be one of the inputs of model {model.name!r}"
            check(layer.class_name != "InputLayer", rule)
            if any((tensor.layer, tensor.call) in refused and tensor not in values for tensor in layer_call.tensors()):
                refused[layer.name, number] = []
                continue
            call, start = self._context(model, path, layer, layer_call, training, is_only_call), len(self.steps)
            try:
                outputs = self._outputs(call, values)
            except Refused as error:
                refused[layer.name, number] = error.reasons
                continue
            if call.refusals:
                refused[layer.name, number] = [reason(layer, call.path, error) for error in call.refusals]
            self._record(call, number, outputs, leaves([values[x] for x in layer_call.tensors()], Tensor), start)
            values.update({TensorId(layer.name, number, output): value for output, value in enumerate(outputs)})
        if refused:
            raise unsupported_model(list(itertools.chain(*refused.values())))
        for tensor in model.outputs:
            check(tensor in values, f"outputs of model {model.name!r} must be tensors of its layers; received {tensor}")
        return [values[tensor] for tensor in model.outputs]

    def _context(self, model: Model, path: Path, layer: Layer, layer_call: LayerCall, training: Optional[bool],
                 is_only_call: bool) -> CallContext:  # fmt: skip
        """Returns the context of a call of a layer. `training` and `is_only_call` are those of the model."""
        path = (*path, layer.name)
        if path not in self.states:
            before = self._earlier_states.get(path)
            self.states[path] = before.for_new_network() if before is not None else LayerState(layer)
        given = layer_call.kwargs.get("training")
        training = training if given is None else bool(given)
        is_only_call = is_only_call and len(layer.calls) == 1
        return CallContext(self.steps, layer, path, layer_call, self.states[path], model.version, training,
                           is_only_call, self.custom, self.build_model)  # fmt: skip

    def _record(self, call: CallContext, number: int, outputs: List[Any], inputs: List[Tensor], start: int) -> None:
        """Records a call that was built by the steps from `start` on."""
        state, layer = call.state, call.layer
        if number == 0 and isinstance(outputs[0], Tensor) and not state.outputs:
            state.training, state.inputs = call.training, inputs
        state.calls.setdefault(number, outputs)
        own = (step.block for step in self.steps[start:] if layer.model is not None or step.layer == call.name)
        state.blocks.update(dict.fromkeys(own))

    def loaded(self, model: Model) -> Model:
        """Returns the model with the layers whose weights have become parameters, and stores these in the states."""
        loaded = {path: state.loaded_layer for path, state in self.states.items() if state.layer.model is None}
        model = with_layers(model, loaded)
        layers = dict(layers_of(model))
        for path, state in self.states.items():
            state.layer = layers[path]
        return model

    def keep_only(self, outputs: Sequence[Tensor]) -> None:
        """Removes the steps that these outputs do not need, and the states of layers with no output left."""
        needed = {value.key for value in outputs}
        self.steps[:] = needed_steps(self.steps, needed)
        needed.update(key for step in self.steps for key in (*step.inputs, *step.outputs))
        kept = {path for path, state in self.states.items() if any(x.key in needed for x in state.outputs)}
        kept.update(path[:end] for path in list(kept) for end in range(1, len(path)))
        self.states = {path: state for path, state in self.states.items() if path in kept}

    def _cast_to_declared(self, x: Tensor, dtype: Any) -> Tensor:
        """Returns an input of a model, cast to the dtype that the model declares."""
        if not isinstance(dtype, str):
            dtype = "float32" if x.dtype == dtypes.UNCAST else x.dtype
        return self.steps.cast(x, dtypes.standardize_dtype(dtype))

    def _outputs(self, call: CallContext, values: Dict[TensorId, Tensor]) -> List[Tensor]:
        """Builds a call, and returns its outputs. Errors of its converter name the layer."""
        layer, state = call.layer, call.state
        try:
            arguments = [list(call.layer_call.args), call.layer_call.kwargs]
            args, kwargs = map_leaves(arguments, TensorId, lambda x: self._with_current_mask(values[x]))
            if layer.model is not None and layer.wrapped is None:
                given, _ = with_mask(args, kwargs, call.version)
                self.steps.unmasked.difference_update(x.keras_key for x in leaves(given, Tensor) if x.mask is not None)
                inner = _model_inputs(layer.model, given)
                return self.build_model(layer.model, call.path, inner, call.training, call.is_only_call)
            converter = state.converter or self.converter_of(layer)
            if converter is None:  # `CustomConverters.prepared` has listed it
                raise unsupported_model([])
            out = converter(call, args, kwargs)
            progress.report("building layers", next(self.call_numbers), self.total)
            return out if isinstance(out, list) else [out]
        except Exception as error:
            if is_final(error):
                raise
            inputs = leaves([values.get(tensor) for tensor in call.layer_call.tensors()], Tensor)
            is_replaceable, before = not (state.is_custom or state.is_reused), self._custom_shapes_upstream(inputs)
            raise unsupported_model([reason(layer, call.path, error, inputs, before, is_replaceable)]) from error

    def _with_current_mask(self, x: Any) -> Any:
        """Returns a tensor, without its mask if an earlier layer has removed the mask."""
        is_unmasked = isinstance(x, Tensor) and x.keras_key in self.steps.unmasked
        return x._replace(mask=None) if is_unmasked else x

    def _custom_shapes_upstream(self, values: List[Tensor]) -> str:
        """Returns, for an error, the shapes that the user's blocks on which these tensors depend return."""
        needed = needed_steps(self.steps, [x.key for x in values])
        users = {state.block: (path, state.output) for path, state in self.states.items() if state.is_custom}
        found = [users[block] for block in dict.fromkeys(step.block for step in reversed(needed)) if block in users]
        shapes = (("_".join(path), output and tuple(output.ordered(output.shape))) for path, output in found)
        return "".join(f"; the block given for {layer!r} returns {shape}" for layer, shape in shapes)


def _model_inputs(model: Model, given: List[Any]) -> List[Tensor]:
    """Returns the inputs of a nested model from the arguments of a call, which may be a dict."""
    if len(given) != 1 or not isinstance(given[0], dict):
        return leaves(given, Tensor)
    inputs = [given[0][key] for key in model.keys]
    fits = model.version == 2 or list(model.keys) == sorted(model.keys) or not any(x.mask for x in inputs)
    rule = "a dict of inputs with masks must have sorted keys, as Keras 3 passes it in sorted order"
    check(fits, rule, keys=list(model.keys))
    return inputs


def reason(layer: Layer, path: Sequence[str], error: Exception, inputs: Sequence[Tensor] = (), before: str = "",
           is_replaceable: bool = True) -> str:  # fmt: skip
    """Returns why a layer is refused, with its name, and advice to replace it if that would help."""
    is_refusal = isinstance(error, RuleError)
    if is_refusal:
        text = " ".join(str(error).split()) + before
    elif isinstance(error, KeyError):
        text = f"its configuration must have the key {error}, as Keras writes it"
    elif isinstance(error, mx.base.MXNetError):
        text = f"inputs must have shapes that fit the layer; {received(shapes=[x.shape for x in inputs])}{before}"
    else:
        shapes = [x.shape for x in inputs]
        rule = "its configuration must be as Keras writes it, be supported by from_keras, and fit its inputs"
        text = f"{rule}; {received(shapes=shapes)}{before}"
    if is_replaceable and is_refusal and not isinstance(error, NotReplaceable):
        replacing = f"custom={{{layer.name!r}: function of (config, weights) -> HybridBlock}}"
        text += f"; {replacing} replaces the layer"
    return f"layer {'/'.join(path)!r} ({layer.class_name}): {text}"
