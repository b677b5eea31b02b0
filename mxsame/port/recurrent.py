"""Keras's recurrent layers as Gluon blocks: one direction of a SimpleRNN, LSTM or GRU, and of a ConvLSTM.

MXNet's fused operator runs them where its formulas are Keras's. Otherwise they run step by step: written out if the
number of steps is static, and by MXNet's `foreach` if it is dynamic.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.plan.arrays import copied
from mxsame.port.blocks import Weighted, run

Activation = Tuple[str, Dict[str, Any]]  # a function of `mxsame.port.blocks`, and its arguments
State = List[Any]


class Kind(NamedTuple):
    """How many gates and states a recurrent layer has, and the order of MXNet's gates among Keras's."""

    states: int
    gates: Tuple[int, ...]


# LSTM: input, forget, cell, output in both. GRU: update, reset, new in Keras; reset, update, new in MXNet.
KINDS = {"SimpleRNN": Kind(1, (0,)), "LSTM": Kind(2, (0, 1, 2, 3)), "GRU": Kind(1, (1, 0, 2))}
MOST_STEPS = 512  # that are written out in a graph

SIGMOID, TANH, RELU = ("sigmoid", {}), ("tanh", {}), ("relu", {})


def gates_to_mxnet(array: np.ndarray, kind: str) -> np.ndarray:
    """The gates along the last axis from Keras's order into MXNet's; the other way is the same.

    >>> gates_to_mxnet(np.array([1, 2, 3, 4, 5, 6]), "GRU").tolist()
    [3, 4, 1, 2, 5, 6]
    """
    parts = np.split(array, len(KINDS[kind].gates), axis=-1)
    return np.concatenate([parts[gate] for gate in KINDS[kind].gates], axis=-1)


class Recurrent(Weighted):
    """One direction of a recurrent layer: (N, T, in_units) -> (N, T, units), or (N, units) of the last step.

    Called with the data, then the initial states if `takes_states`, then the mask (N, T) if `takes_mask`: where that is
    0, output and states stay what they were a step before. Returns the output, and the last states if
    `return_state`.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    units, in_units : int
    steps : int, optional
        T; None if it is dynamic.
    activation, recurrent_activation : (str, dict)
        Functions of `mxsame.port.blocks`, or operators of MXNet; the second is that of the gates.
    use_bias : bool
    reset_after : bool
        Of a GRU: the reset gate is applied after the matrix product, and there is a second bias.
    return_sequences, return_state, go_backwards : bool
        As in Keras: backwards, the first output belongs to the last step.
    takes_states, takes_mask, zero_output_for_mask : bool
        With the last, the output is 0 where the mask is.
    """

    def __init__(
        self,
        kind: str,
        units: int,
        in_units: int,
        steps: Optional[int] = None,
        activation: Activation = TANH,
        recurrent_activation: Activation = SIGMOID,
        use_bias: bool = True,
        reset_after: bool = False,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        takes_states: bool = False,
        takes_mask: bool = False,
        zero_output_for_mask: bool = False,
        prefix: Optional[str] = None,
    ):
        rows = units * len(KINDS[kind].gates)
        shapes: Dict[str, Any] = {"i2h_weight": (rows, in_units), "h2h_weight": (rows, units)}
        if use_bias:
            shapes["bias"] = (2, rows) if reset_after else (rows,)
        super().__init__(prefix, **shapes)
        self._kind, self._units, self._steps = kind, units, steps
        self._activation, self._recurrent_activation = activation, recurrent_activation
        self._reset_after, self._go_backwards = reset_after, go_backwards
        self._return_sequences, self._return_state = return_sequences, return_state
        self._takes_states, self._takes_mask = takes_states, takes_mask
        self._zero_output_for_mask = zero_output_for_mask

    def hybrid_forward(self, F: Any, x: Any, *more: Any, i2h_weight: Any, h2h_weight: Any, bias: Any = None) -> Any:
        rest = list(more)
        x = F.transpose(x, axes=(1, 0, 2))
        mask = F.transpose(rest.pop()) if self._takes_mask else None
        states = rest if self._takes_states else self._zeros(F, x)
        if self._go_backwards:
            x, mask = F.reverse(x, axis=0), None if mask is None else F.reverse(mask, axis=0)
        mode = None if mask is not None else self._mode()
        if mode is None:
            step = self._step(F, h2h_weight, bias)
            biases = [] if bias is None else [self._biases(F, bias)[0]]
            x = F.FullyConnected(x, i2h_weight, *biases, num_hidden=self._rows, flatten=False, no_bias=bias is None)
            sequence, states = stepped(F, step, x, states, mask, self._steps, self._zero_output_for_mask)
        else:
            sequence, states = self._fused(F, mode, x, states, i2h_weight, h2h_weight, bias)
        if self._return_sequences:
            output = F.transpose(sequence, axes=(1, 0, 2))
        else:
            output = F.squeeze(F.slice_axis(sequence, axis=0, begin=-1, end=None), axis=0)
        return [output, *states] if self._return_state else output

    @property
    def _rows(self) -> int:
        return self._units * len(KINDS[self._kind].gates)

    def _zeros(self, F: Any, x: Any) -> State:
        """The initial states (N, units), for the batch of the data (T, N, in_units)."""
        entries = F.slice_axis(F.slice_axis(x, axis=0, begin=0, end=1), axis=2, begin=0, end=1)
        entries = F.squeeze(F.zeros_like(entries), axis=0)
        # one for each state: `foreach` refuses the same Symbol twice
        return [F.broadcast_axis(entries, axis=1, size=self._units) for _ in range(KINDS[self._kind].states)]

    def _biases(self, F: Any, bias: Any) -> Tuple[Any, Any]:
        """That of the data, and that of the states."""
        if not self._reset_after:
            return bias, F.zeros_like(bias)
        return tuple(F.reshape(F.slice_axis(bias, axis=0, begin=n, end=n + 1), shape=(-1,)) for n in range(2))

    # -- MXNet's fused operator

    def _mode(self) -> Optional[str]:
        """That of the operator with Keras's formulas, if it has one."""
        gated = self._activation == TANH and self._recurrent_activation == SIGMOID
        if self._kind == "SimpleRNN":
            return {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(self._activation[0] if not self._activation[1] else "")
        if self._kind == "GRU":
            return "gru" if gated and self._reset_after else None
        return "lstm" if gated else None

    def _fused(
        self, F: Any, mode: str, x: Any, states: State, i2h_weight: Any, h2h_weight: Any, bias: Any
    ) -> Tuple[Any, State]:
        if bias is None:
            first = F.reshape(F.slice_axis(h2h_weight, axis=1, begin=0, end=1), shape=(-1,))
            biases = (F.zeros_like(first),) * 2
        else:
            biases = self._biases(F, bias)
        weights = (F.reshape(weight, shape=(-1,)) for weight in (i2h_weight, h2h_weight))
        sequence, *states = F.RNN(
            x,
            F.concat(*weights, *biases, dim=0),
            *(F.expand_dims(state, axis=0) for state in states),
            state_size=self._units,
            num_layers=1,
            mode=mode,
            state_outputs=True,
        )
        return sequence, [F.squeeze(state, axis=0) for state in states]

    # -- step by step

    def _step(self, F: Any, weight: Any, bias: Any) -> Callable[[Any, State], State]:
        """From the data's part of the gates and the states to the next states, the first of which is the output."""
        activation, gate = (_function(F, each) for each in (self._activation, self._recurrent_activation))
        units, reset_after = self._units, self._reset_after
        recurrent_bias = [self._biases(F, bias)[1]] if reset_after and bias is not None else []

        def product(state: Any, weight: Any, rows: int, biases: Sequence[Any] = ()) -> Any:
            return F.FullyConnected(state, weight, *biases, num_hidden=rows, no_bias=not biases)

        def simple(x: Any, states: State) -> State:
            return [activation(x + product(states[0], weight, units))]

        def lstm(x: Any, states: State) -> State:
            parts = F.split(x + product(states[0], weight, 4 * units), num_outputs=4, axis=1)
            cell = gate(parts[1]) * states[1] + gate(parts[0]) * activation(parts[2])
            return [gate(parts[3]) * activation(cell), cell]

        def gru(x: Any, states: State) -> State:
            (state,) = states
            parts = F.split(x, num_outputs=3, axis=1)
            if reset_after:
                recurrent = F.split(product(state, weight, 3 * units, recurrent_bias), num_outputs=3, axis=1)
                reset, update = gate(parts[0] + recurrent[0]), gate(parts[1] + recurrent[1])
                new = activation(parts[2] + reset * recurrent[2])
            else:
                of_gates = F.slice_axis(weight, axis=0, begin=0, end=2 * units)
                of_new = F.slice_axis(weight, axis=0, begin=2 * units, end=None)
                recurrent = F.split(product(state, of_gates, 2 * units), num_outputs=2, axis=1)
                reset, update = gate(parts[0] + recurrent[0]), gate(parts[1] + recurrent[1])
                new = activation(parts[2] + product(reset * state, of_new, units))
            return [update * state + (1 - update) * new]

        return {"SimpleRNN": simple, "LSTM": lstm, "GRU": gru}[self._kind]


class Bidirectional(mx.gluon.HybridBlock):
    """Two recurrent layers on the same data, one of them backwards, whose outputs are merged (Schuster and Paliwal
    1997).

    Called with the data, then the initial states of both if `takes_states`, then the mask. Returns the output, or both
    with a `merge_mode` of None, and the last states of both if they return theirs.

    Parameters
    ----------
    forwards, backwards : dict
        The arguments of a :class:`Recurrent` each.
    merge_mode : "concat", "sum", "mul", "ave" or None
    """

    def __init__(
        self,
        forwards: Dict[str, Any],
        backwards: Dict[str, Any],
        merge_mode: Optional[str] = "concat",
        takes_states: bool = False,
        takes_mask: bool = False,
        prefix: Optional[str] = None,
    ):
        super().__init__(prefix=prefix)
        self._merge_mode, self._takes_mask = merge_mode, takes_mask
        self._return_sequences = forwards["return_sequences"]
        self._states = KINDS[forwards["kind"]].states if takes_states else 0  # of the first
        with self.name_scope():
            # In both directions, sequences are 0 where the mask is, as in Keras.
            zero = takes_mask and self._return_sequences
            takes = {"takes_states": takes_states, "takes_mask": takes_mask, "zero_output_for_mask": zero}
            self.forwards = Recurrent(**forwards, **takes, prefix="forward_")
            self.backwards = Recurrent(**backwards, **takes, prefix="backward_")

    def hybrid_forward(self, F: Any, x: Any, *more: Any) -> Any:
        mask = list(more[-1:]) if self._takes_mask else []
        states = more[:-1] if mask else more
        first = _listed(self.forwards(x, *states[: self._states], *mask))
        second = _listed(self.backwards(x, *states[self._states :], *mask))
        outputs = [first.pop(0), second.pop(0)]
        if self._return_sequences:
            outputs[1] = F.reverse(outputs[1], axis=1)
        merged = self._merged(F, *outputs)
        return merged[0] if len(merged) == 1 and not first else [*merged, *first, *second]

    def _merged(self, F: Any, first: Any, second: Any) -> List[Any]:
        if self._merge_mode is None:
            return [first, second]
        if self._merge_mode == "concat":
            return [F.concat(first, second, dim=2 if self._return_sequences else 1)]
        if self._merge_mode == "mul":
            return [first * second]
        return [(first + second) / 2 if self._merge_mode == "ave" else first + second]


def _listed(outputs: Any) -> List[Any]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


class ConvLSTM(mx.gluon.HybridBlock):
    """(N, T, C, \\*size) -> (N, T, filters, \\*out), or (N, filters, \\*out) of the last step: an LSTM whose products
    are convolutions (Shi et al. 2015, without peepholes). With `channels_last`, C and filters are the last axes.

    Called as :class:`Recurrent`, whose parameters it has; and `window`, the arguments of the layer of `mxsame.nn` that
    convolves the data. The states are convolved with SAME and stride 1, as in Keras.
    """

    def __init__(
        self,
        filters: int,
        in_channels: int,
        layer_class: Any,
        window: Dict[str, Any],
        steps: Optional[int] = None,
        activation: Activation = TANH,
        recurrent_activation: Activation = SIGMOID,
        use_bias: bool = True,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        takes_states: bool = False,
        takes_mask: bool = False,
        channels_last: bool = False,
        prefix: Optional[str] = None,
    ):
        super().__init__(prefix=prefix)
        self._channels_last = channels_last
        self._steps, self._rank = steps, layer_class.num_spatial_dims
        self._activation, self._recurrent_activation = activation, recurrent_activation
        self._return_sequences, self._return_state, self._go_backwards = return_sequences, return_state, go_backwards
        self._takes_states, self._takes_mask, self._filters = takes_states, takes_mask, filters
        with self.name_scope():
            self.i2h = layer_class(4 * filters, in_channels=in_channels, use_bias=use_bias, prefix="i2h_", **window)
            self.h2h = layer_class(
                4 * filters, window["kernel_size"], in_channels=filters, use_bias=False, prefix="h2h_"
            )

    def hybrid_forward(self, F: Any, x: Any, *more: Any) -> Any:
        rest = list(more)
        mask = F.transpose(rest.pop()) if self._takes_mask else None
        if self._channels_last:
            x, rest = self._channels_first(F, x, 2), [self._channels_first(F, state, 1) for state in rest]
        x = F.swapaxes(x, dim1=0, dim2=1)
        if self._go_backwards:
            x, mask = F.reverse(x, axis=0), None if mask is None else F.reverse(mask, axis=0)
        gates = copied(F, self.i2h(F.reshape(x, shape=(-3, -2))))
        gates = F.reshape_like(gates, x, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)
        states = rest if self._takes_states else self._zeros(F, gates)
        sequence, states = stepped(F, self._step(F), gates, states, mask, self._steps, ndim=self._rank + 3)
        if self._return_sequences:
            output = F.swapaxes(sequence, dim1=0, dim2=1)
        else:
            output = F.squeeze(F.slice_axis(sequence, axis=0, begin=-1, end=None), axis=0)
        outputs = [output, *states] if self._return_state else [output]
        if self._channels_last:
            before = [2 if self._return_sequences else 1, 1, 1]
            outputs = [self._as_given(F, each, axis) for each, axis in zip(outputs, before)]
        return outputs if self._return_state else outputs[0]

    def _channels_first(self, F: Any, array: Any, axis: int) -> Any:
        """From the last axis to this one."""
        last = axis + self._rank
        return F.transpose(array, axes=(*range(axis), last, *range(axis, last)))

    def _as_given(self, F: Any, array: Any, axis: int) -> Any:
        """From this axis to the last one."""
        return F.transpose(array, axes=(*range(axis), *range(axis + 1, axis + self._rank + 1), axis))

    def _zeros(self, F: Any, gates: Any) -> State:
        first = F.squeeze(F.slice_axis(gates, axis=0, begin=0, end=1), axis=0)
        return [F.zeros_like(F.slice_axis(first, axis=1, begin=0, end=self._filters)) for _ in range(2)]

    def _step(self, F: Any) -> Callable[[Any, State], State]:
        activation, gate = (_function(F, each) for each in (self._activation, self._recurrent_activation))

        def step(x: Any, states: State) -> State:
            parts = F.split(x + copied(F, self.h2h(states[0])), num_outputs=4, axis=1)
            cell = gate(parts[1]) * states[1] + gate(parts[0]) * activation(parts[2])
            return [gate(parts[3]) * activation(cell), cell]

        return step


def stepped(
    F: Any,
    step: Callable,
    x: Any,
    states: State,
    mask: Any,
    steps: Optional[int],
    zero_output_for_mask: bool = False,
    ndim: int = 3,
) -> Tuple[Any, State]:
    """All steps of data of `ndim` axes, one after the other: the outputs (T, N, ..), and the last states.

    `step` maps the data of one step and the states to the next states. Where the mask (T, N) is 0, the output and the
    states of the step before are kept; the output is 0 before the first step, and with `zero_output_for_mask`.
    """

    def masked(entry: Any, carried: State) -> Tuple[Any, State]:
        """`carried` is the output, then the states; `entry` is the data, then the mask."""
        x, keep = entry
        output, *states = carried
        new = step(x, states)
        keep = F.broadcast_like(F.reshape(keep, shape=(-1, *(1,) * (ndim - 2))), new[0])
        states = [F.where(keep, after, before) for after, before in zip(new, states)]
        output = F.where(keep, new[0], F.zeros_like(output) if zero_output_for_mask else output)
        return output, [output, *states]

    def plain(x: Any, states: State) -> Tuple[Any, State]:
        states = step(x, states)
        return states[0], states

    body, data, carried = plain, x, list(states)
    if mask is not None:
        body, data, carried = masked, [x, mask], [F.zeros_like(states[0]), *states]
    if steps is None or steps > MOST_STEPS:
        outputs, carried = F.contrib.foreach(body, data, carried)
    else:
        parts = [_split(F, each, steps) for each in (data if mask is not None else [data])]
        rows = []
        for entry in zip(*parts):
            output, carried = body(entry if mask is not None else entry[0], carried)
            rows.append(output)
        outputs = F.stack(*rows, axis=0)
    return outputs, carried[1:] if mask is not None else carried


def _split(F: Any, x: Any, count: int) -> List[Any]:
    """The entries along the first axis."""
    if count == 1:
        return [F.squeeze(x, axis=0)]
    return list(F.split(x, num_outputs=count, axis=0, squeeze_axis=True))


def _function(F: Any, activation: Activation) -> Callable:
    name, arguments = activation
    return lambda x: run(F, name, x, **arguments)
