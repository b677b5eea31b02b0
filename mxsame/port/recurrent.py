"""Keras's recurrent layers as Gluon blocks: SimpleRNN, LSTM, GRU and ConvLSTM in one direction, and both directions.

They run on MXNet's fused RNN operator if it computes Keras's formulas. Otherwise they run step by step: unrolled if the
number of steps is static, and by MXNet's `foreach` if it is dynamic.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.keras_format.description import as_list
from mxsame.plan.arrays import copy_to_plain
from mxsame.port.activations import ACTIVATIONS, arguments_of
from mxsame.rewriting.graph import FORMULAS, NO_BIAS, RecurrentFormulas
from mxsame.scope import FORMAT, deferred_in_trace, scope, target_of

Activation = Tuple[Callable, Dict[str, Any]]  # a function of (F, x, arguments), and the arguments
State = List[Any]


class Kind(NamedTuple):
    """The states and gates of a recurrent layer."""

    states: int  # their number
    gates: Tuple[int, ...]  # the position in Keras of each of MXNet's gates


# LSTM: input, forget, cell, output in both. GRU: update, reset, new in Keras; reset, update, new in MXNet.
KINDS = {"SimpleRNN": Kind(1, (0,)), "LSTM": Kind(2, (0, 1, 2, 3)), "GRU": Kind(1, (1, 0, 2))}
CANDIDATE = 2  # the gate that `activation` is applied to
MAX_STEPS, MAX_DEPLOYED_STEPS = 512, 1024  # the most steps that are unrolled in a graph, and in a deployed one
# activations that other formats have for recurrent layers, too, and the defaults of their arguments
EXPORTABLE = {
    **{name: arguments_of(ACTIVATIONS[name]) for name in ("elu", "hard_sigmoid", "leaky_relu")},
    **{name: {} for name in ("identity", "relu", "sigmoid", "softsign", "tanh")},
}


def gates_to_mxnet(array: np.ndarray, kind: str) -> np.ndarray:
    """Returns an array whose gates, along the last axis, have MXNet's order instead of Keras's, and vice versa.

    >>> gates_to_mxnet(np.array([1, 2, 3, 4, 5, 6]), "GRU").tolist()
    [3, 4, 1, 2, 5, 6]
    """
    parts = np.split(array, len(KINDS[kind].gates), axis=-1)
    return np.concatenate([parts[gate] for gate in KINDS[kind].gates], axis=-1)


class Options(NamedTuple):
    """The options of a recurrent layer, as in Keras."""

    steps: Optional[int] = None  # T; None if it is dynamic
    activation: Activation = (ACTIVATIONS["tanh"], {})
    recurrent_activation: Activation = (ACTIVATIONS["sigmoid"], {})  # the activation of the gates
    return_sequences: bool = False
    return_state: bool = False
    go_backwards: bool = False
    takes_mask: bool = False
    zero_output_for_mask: bool = False


class RecurrentBase(mx.gluon.HybridBlock):
    """The base of recurrent layers: data (N, T, ..) -> sequences (N, T, ..), or the output (N, ..) of the last step.

    Its arguments are the data, the initial states, which are optional, and with `takes_mask` a mask (N, T): where that
    is 0, the output and states of the step before are kept. With `return_state`, it also returns the last states.
    """

    ndim, kind = 3, "LSTM"
    units: int  # elements, or channels, of each state

    def __init__(self, options: Options, **kwargs: Any):
        super().__init__(**kwargs)
        self.options = options

    def hybrid_forward(self, F: Any, x: Any, *more: Any, **parameters: Any) -> Any:
        options, states, axes = self.options, list(more), (1, 0, *range(2, self.ndim))
        x, mask = F.transpose(x, axes=axes), F.transpose(states.pop()) if options.takes_mask else None
        if options.go_backwards:
            x, mask = F.reverse(x, axis=0), None if mask is None else F.reverse(mask, axis=0)
        sequence, states = self.sequence(F, x, states, mask, **parameters)
        if options.return_sequences:
            output = F.transpose(sequence, axes=axes)
        else:
            output = F.squeeze(F.slice_axis(sequence, axis=0, begin=-1, end=None), axis=0)
        return [output, *states] if options.return_state else output

    def activations(self, F: Any) -> List[Callable]:
        """Returns the activations of output and gates. The hard sigmoid of gates is a clip: see `fold_hard_sigmoid`."""
        given = (self.options.activation, self.options.recurrent_activation)
        activation, gate = (partial(function, F, **arguments) for function, arguments in given)
        return [activation, partial(F.clip, a_min=0, a_max=1) if self._has_hard_gates() else gate]

    def _has_hard_gates(self) -> bool:
        return self.options.recurrent_activation[0] is ACTIVATIONS["hard_sigmoid"]

    def fold_hard_sigmoid(self, F: Any, array: Any, offset: float = 0.0) -> Any:
        """Returns the rows of a parameter for all gates. Since a hard sigmoid is clip(slope * x + 1/2, 0, 1), the rows
        of such gates are multiplied by the slope, and those of a bias get the offset 1/2."""
        if not self._has_hard_gates():
            return array
        slope = self.options.recurrent_activation[1]["slope"]
        parts = self.split_gates(F, array, len(KINDS[self.kind].gates), axis=0)
        return F.concat(*(part if n == CANDIDATE else part * slope + offset for n, part in enumerate(parts)), dim=0)

    def split_gates(self, F: Any, gates: Any, count: int, axis: int = 1) -> List[Any]:
        """Returns the parts of the gates. MXNet's `split` takes ten times as long as slices."""
        ends = [(n * self.units, (n + 1) * self.units) for n in range(count)]
        if self.ndim == RecurrentBase.ndim:
            return [F.slice_axis(gates, axis=axis, begin=begin, end=end) for begin, end in ends]
        before = (None,) * axis  # `slice_axis` would copy all of a convolution's output first, for each part
        return [F.slice(gates, begin=(*before, begin), end=(*before, end)) for begin, end in ends]

    def zeros(self, F: Any, x: Any) -> State:
        """Returns the initial states (N, units, ..), for data (T, N, channels, ..)."""
        entries = F.slice_axis(F.slice_axis(x, axis=0, begin=0, end=1), axis=2, begin=0, end=1)
        entries = F.squeeze(F.zeros_like(entries), axis=0)
        # one for each state: `foreach` refuses the same Symbol twice
        return [F.broadcast_axis(entries, axis=1, size=self.units) for _ in range(KINDS[self.kind].states)]

    def run_steps(self, F: Any, step: Callable, x: Any, states: State, mask: Any) -> Tuple[Any, State]:
        """Runs all steps of data (T, N, ..), and returns the outputs (T, N, ..) and the last states.

        `step(x, states)` returns the next states, the first of which is the output. Where the mask (T, N) is 0, the
        output and the states of the step before are kept; the output before the first step is 0.
        """

        def masked(entry: Any, carried: State) -> Tuple[Any, State]:
            """Runs a step with a mask: `entry` is the data and the mask, `carried` the last output and the states."""
            x, keep = entry
            output, *states = carried
            new = step(x, states)
            keep = F.broadcast_like(F.reshape(keep, shape=(-1, *(1,) * (self.ndim - 2))), new[0])
            states = [F.where(keep, after, before) for after, before in zip(new, states)]
            output = F.where(keep, new[0], F.zeros_like(output) if self.options.zero_output_for_mask else output)
            return output, [output, *states]

        def plain(entry: Any, carried: State) -> Tuple[Any, State]:
            states = step(entry[0], carried)
            return states[0], states

        body, data, carried, steps, most = plain, [x], list(states), self.options.steps, MAX_STEPS
        if target_of(x).purpose == "deployment":
            steps, most = steps or (tensors.known_shape(x) or [None])[0], MAX_DEPLOYED_STEPS
        if mask is not None:
            body, data, carried = masked, [x, mask], [F.zeros_like(states[0]), *states]
        if steps is None or steps > most:
            outputs, carried = F.contrib.foreach(body, data, carried)
        else:
            rows = []
            for entry in zip(*(_split(F, each, steps) for each in data)):
                output, carried = body(entry, carried)
                rows.append(output)
            outputs = F.stack(*rows, axis=0)
        return outputs, carried[1:] if mask is not None else carried


class Recurrent(RecurrentBase):
    """A SimpleRNN, LSTM or GRU, by `kind`, in one direction: (N, T, in_units) -> (N, T, units), or (N, units).

    With `reset_after`, the reset gate of a GRU is applied after the matrix product, and it has two biases.
    """

    def __init__(self, kind: str, units: int, in_units: int, options: Options, use_bias: bool = True,
                 reset_after: bool = False, **kwargs: Any):  # fmt: skip
        super().__init__(options, **kwargs)
        self.kind, self.units, self._reset_after = kind, units, reset_after
        self._rows = rows = units * len(KINDS[kind].gates)
        with self.name_scope():
            self.i2h_weight = self.params.get("i2h_weight", shape=(rows, in_units), allow_deferred_init=True)
            self.h2h_weight = self.params.get("h2h_weight", shape=(rows, units))
            if use_bias:
                self.bias = self.params.get("bias", shape=(2, rows) if reset_after else (rows,), init="zeros")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.i2h_weight.shape[1]} -> {self.units}, {self.kind})"

    def hybrid_forward(self, F: Any, x: Any, *more: Any, **parameters: Any) -> Any:
        if more or self.options.return_state:
            return super().hybrid_forward(F, x, *more, **parameters)
        return self._of_data(F, x, **parameters)

    @deferred_in_trace
    def _of_data(self, F: Any, x: Any, **parameters: Any) -> Any:
        """Returns the output for data without states and mask. A deployed graph has a static number of steps, which are
        unrolled."""
        return super().hybrid_forward(F, x, **parameters)

    def sequence(self, F: Any, x: Any, states: State, mask: Any, i2h_weight: Any, h2h_weight: Any,
                 bias: Any = None) -> Tuple[Any, State]:  # fmt: skip
        """Runs the fused operator if its formulas are Keras's and there is no mask, or else step by step."""
        states, mode, formulas = states or self.zeros(F, x), self._mode(), None
        if mode is None and scope().target == FORMAT:
            mode, formulas = self._mode_with_formulas()
        if mode is not None and mask is None:
            return self._fused(F, mode, formulas, x, states, i2h_weight, h2h_weight, bias)
        input_bias, recurrent_bias = self._biases(F, bias, h2h_weight)
        weights = [self.fold_hard_sigmoid(F, weight) for weight in (i2h_weight, h2h_weight)]
        bias = self.fold_hard_sigmoid(F, input_bias, 0.5)
        x = F.FullyConnected(x, weights[0], bias, num_hidden=self._rows, flatten=False)
        return self.run_steps(F, self._step(F, weights[1], self.fold_hard_sigmoid(F, recurrent_bias)), x, states, mask)

    def _biases(self, F: Any, bias: Any, weight: Any) -> Tuple[Any, Any]:
        """Returns the biases of the products of data and of states; zeros without a bias."""
        if bias is None:
            return (_zero_bias(F, weight),) * 2
        if not self._reset_after:
            return bias, F.zeros_like(bias)
        return tuple(F.reshape(F.slice_axis(bias, axis=0, begin=n, end=n + 1), shape=(-1,)) for n in range(2))

    # -- MXNet's fused operator

    def _mode(self) -> Optional[str]:
        """Returns the mode in which MXNet's operator has the layer's formulas; None if there is none."""
        activation, gate = self._activation_names()
        if self.kind == "SimpleRNN":
            return {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(activation[0] if not activation[1] else "")
        fits = (activation, gate) == (("tanh", {}), ("sigmoid", {})) and (self.kind == "LSTM" or self._reset_after)
        return self.kind.lower() if fits else None

    def _activation_names(self) -> List[Tuple[str, Dict[str, Any]]]:
        """Returns the names of the two activations, and their arguments."""
        both = (self.options.activation, self.options.recurrent_activation)
        return [(function.__name__, arguments) for function, arguments in both]

    def _mode_with_formulas(self) -> Tuple[Optional[str], Optional[RecurrentFormulas]]:
        """Returns a mode of MXNet's operator for this kind, and the layer's own formulas, for files of other formats;
        None for activations that are not `EXPORTABLE`."""
        names = self._activation_names()
        activations = [(name, {**EXPORTABLE.get(name, {}), **arguments}) for name, arguments in names]
        if any(name not in EXPORTABLE or "max_value" in arguments for name, arguments in activations):
            return None, None
        mode = {"SimpleRNN": "rnn_tanh", "LSTM": "lstm", "GRU": "gru"}[self.kind]
        return mode, RecurrentFormulas(activations, self._reset_after)

    def _fused(self, F: Any, mode: str, formulas: Optional[RecurrentFormulas], x: Any, states: State, i2h_weight: Any,
               h2h_weight: Any, bias: Any) -> Tuple[Any, State]:  # fmt: skip
        biases = self._biases(F, bias, h2h_weight)
        weights = (F.reshape(weight, shape=(-1,)) for weight in (i2h_weight, h2h_weight))
        arrays = x, F.concat(*weights, *biases, dim=0), *(F.expand_dims(state, axis=0) for state in states)
        attributes = {} if bias is not None else {NO_BIAS: "True"}
        if formulas is not None:
            attributes[FORMULAS] = json.dumps(formulas._asdict())
        with mx.AttrScope(**attributes):
            sequence, *states = F.RNN(*arrays, state_size=self.units, num_layers=1, mode=mode, state_outputs=True)
        return sequence, [F.squeeze(state, axis=0) for state in states]

    # -- step by step

    def _step(self, F: Any, weight: Any, bias: Any) -> Callable[[Any, State], State]:
        """Returns the function of one step, from the data's part of the gates and the states to the next states. It
        uses `broadcast_add`, which takes half of the time of `+` for small arrays."""
        activation, gate = self.activations(F)
        units, reset_after, split_gates = self.units, self._reset_after, partial(self.split_gates, F)

        def product(state: Any, weight: Any, rows: int, bias: Any = None) -> Any:
            return F.FullyConnected(state, weight, bias, num_hidden=rows, no_bias=bias is None)

        def simple(x: Any, states: State) -> State:
            return [activation(F.broadcast_add(x, product(states[0], weight, units)))]

        def lstm(x: Any, states: State) -> State:
            gates = split_gates(F.broadcast_add(x, product(states[0], weight, 4 * units)), 4)
            return _lstm(F, gates, states[1], activation, gate)

        def gru(x: Any, states: State) -> State:
            (state,) = states
            parts = split_gates(x, 3)
            if reset_after:
                recurrent = split_gates(product(state, weight, 3 * units, bias), 3)
            else:
                of_gates = F.slice_axis(weight, axis=0, begin=0, end=2 * units)
                recurrent = split_gates(product(state, of_gates, 2 * units), 2)
            reset, update = (gate(F.broadcast_add(*each)) for each in zip(parts[:2], recurrent))
            if reset_after:
                new = reset * recurrent[2]
            else:
                new = product(reset * state, F.slice_axis(weight, axis=0, begin=2 * units, end=None), units)
            new = activation(F.broadcast_add(parts[2], new))
            return [F.broadcast_add(update * state, (1 - update) * new)]

        return {"SimpleRNN": simple, "LSTM": lstm, "GRU": gru}[self.kind]


def _lstm(F: Any, parts: Sequence[Any], cell: Any, activation: Callable, gate: Callable) -> State:
    cell = F.broadcast_add(gate(parts[1]) * cell, gate(parts[0]) * activation(parts[2]))
    return [gate(parts[3]) * activation(cell), cell]


def _zero_bias(F: Any, weight: Any) -> Any:
    """Returns a bias of zeros for a weight."""
    rows = F.slice_axis(F.reshape(weight, shape=(0, -1)), axis=1, begin=0, end=1)
    return F.zeros_like(F.reshape(rows, shape=(-1,)))


def _split(F: Any, x: Any, count: int) -> List[Any]:
    """Returns the entries along the first axis."""
    if count == 1:
        return [F.squeeze(x, axis=0)]
    return list(F.split(x, num_outputs=count, axis=0, squeeze_axis=True))


MERGED: Dict[Optional[str], Callable] = {  # the outputs of both directions, by Keras's `merge_mode`
    None: lambda F, first, second: [first, second],
    "concat": lambda F, first, second: [F.concat(first, second, dim=-1)],
    "sum": lambda F, first, second: [first + second],
    "mul": lambda F, first, second: [first * second],
    "ave": lambda F, first, second: [(first + second) / 2],
}


class Bidirectional(mx.gluon.HybridBlock):
    """Two recurrent layers on the same data, one of them backwards, and their outputs merged (Schuster and Paliwal
    1997). `forwards` and `backwards` are functions that make them.

    Its arguments are the data, the initial states of both, which are optional, and the mask. Returns the output, or two
    outputs if `merge_mode` is None, and the last states if the layers return theirs.
    """

    def __init__(self, forwards: Callable, backwards: Callable, merge_mode: Optional[str], **kwargs: Any):
        super().__init__(**kwargs)
        self._merge_mode = merge_mode
        with self.name_scope():
            self.forwards, self.backwards = forwards(prefix="forward_"), backwards(prefix="backward_")

    def hybrid_forward(self, F: Any, x: Any, *more: Any) -> Any:
        options, states = self.forwards.options, list(more)
        mask = [states.pop()] if options.takes_mask else []
        count = KINDS[self.forwards.kind].states
        first = as_list(self.forwards(x, *states[:count], *mask))
        second = as_list(self.backwards(x, *states[count:], *mask))
        outputs = [first.pop(0), second.pop(0)]
        if options.return_sequences:
            outputs[1] = F.reverse(outputs[1], axis=1)
        merged = MERGED[self._merge_mode](F, *outputs)
        return merged[0] if len(merged) == 1 and not first else [*merged, *first, *second]


class ConvLSTM(RecurrentBase):
    """An LSTM whose products are convolutions (Shi et al. 2015, without peepholes): `(N, T, C, *size)` ->
    `(N, T, filters, *out)`, or `(N, filters, *out)`.

    `i2h` and `h2h` make layers of `mxsame.nn` that convolve data and states to the 4 * filters gates; those of states
    with SAME and stride 1, as in Keras."""

    def __init__(self, i2h: Callable, h2h: Callable, options: Options, **kwargs: Any):
        super().__init__(options, **kwargs)
        with self.name_scope():
            self.i2h, self.h2h = i2h(prefix="i2h_"), h2h(prefix="h2h_")
        self.ndim, self.units = self.i2h.num_spatial_dims + 3, self.h2h.weight.shape[1]

    def sequence(self, F: Any, x: Any, states: State, mask: Any) -> Tuple[Any, State]:
        """Runs all steps. If both layers have the same windows, one convolution has data and states at each step;
        otherwise that of the data has all steps as one batch."""
        weights = [self.fold_hard_sigmoid(F, _array(F, layer.weight, x)) for layer in (self.i2h, self.h2h)]
        bias = _zero_bias(F, weights[0]) if self.i2h.bias is None else _array(F, self.i2h.bias, x)
        bias, (activation, gate) = self.fold_hard_sigmoid(F, bias, 0.5), self.activations(F)
        same_windows = self.i2h._spec == self.h2h._spec
        if same_windows:
            weight = F.concat(*weights, dim=1)
        else:
            gates = self.i2h._operator_output(F.reshape(x, shape=(-3, -2)), weight=weights[0], bias=bias)
            x = F.reshape_like(copy_to_plain(F, gates), x, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)

        def plain(array: Any) -> Any:
            """Returns an array without oneDNN's blocks: with these, gradients of `squeeze` and `slice` end the process,
            and so do slices that divide a block."""
            target = target_of(array)
            copies = target.device != "gpu" and (self.units % 4 or target.has_gradients)
            return copy_to_plain(F, array) if copies else array

        def step(x: Any, states: State) -> State:
            if same_windows:
                gates = self.h2h._operator_output(plain(F.concat(x, states[0], dim=1)), weight=weight, bias=bias)
            else:
                gates = x + self.h2h._operator_output(states[0], weight=weights[1])
            return _lstm(F, self.split_gates(F, plain(gates), 4), states[1], activation, gate)

        return self.run_steps(F, step, x, states or self.zeros(F, x), mask)


def _array(F: Any, parameter: Any, x: Any) -> Any:
    """Returns a parameter as a Symbol, or on the device of the data."""
    return parameter.var() if F is mx.sym else parameter.data(x.ctx)
