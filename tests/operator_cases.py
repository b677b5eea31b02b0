"""A table of small blocks that need each row of the writers of other formats: operators.txt, and cells."""

import re
from pathlib import Path

import numpy as np
import pytest
from running import Own

from mxsame._mxnet import mx

SHAPE = (2, 6, 5, 7)
STATES = {"state_size": 4, "state_outputs": True}


def row(y):
    """An array that broadcasts."""
    return y.slice_axis(axis=2, begin=0, end=1)


def numpy(function, *xs):
    """A function of arrays as NumPy's operators take them."""
    return function(*(x.as_np_ndarray() for x in xs)).as_nd_ndarray()


def constants(F, *numbers):
    return F.concat(*(F.full((1,), number) for number in numbers), dim=0)


def shapes_of(text):
    """The shapes of `2 3 & w 4 3`, by names, which are x, y and z by default."""
    found = re.findall(r"([a-z]*) ?(\d[\d ]*)", text)
    return {name or "xyz"[number]: tuple(map(int, lengths.split())) for number, (name, lengths) in enumerate(found)}


def lines_of(file):
    """(title, shapes, rest) of each line of a file in this folder: `title (shapes): rest`, with the lines below it that
    start with spaces."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8").replace("\n  ", " ")
    for line in text.splitlines():
        if line and line[0] != "#":
            yield re.fullmatch(r"(.+?)(?: \((.*?)\))?: (.*)", line).groups("")


def case_of(shapes, expression, names):
    """(shapes of the inputs, block) of what a line computes."""
    inputs, parameters = map(shapes_of, shapes.partition(";")[::2])
    inputs = inputs or {"x": SHAPE}
    function = eval(f"lambda F, {', '.join([*inputs, *parameters])}: {expression}", names)
    return list(inputs.values()), Own(function, **parameters)


def cell(layout, cell):
    """A cell, whose steps are operators; its states are zeros of any batch."""
    shape = (2, 5, 3) if layout == "NTC" else (5, 2, 3)
    return [shape], Own(lambda F, x, cell: cell.unroll(5, x, layout=layout, merge_outputs=True)[0], cell)


CASES = {}  # kind of node -> (shapes of the inputs, block) of those that need it
NAMES = {"np": np, "numpy": numpy, "row": row, "constants": constants, "STATES": STATES}
for kinds, shapes, expression in lines_of("operators.txt"):
    for kind in kinds.split():
        CASES.setdefault(kind, []).append(case_of(shapes, expression.replace("KIND", kind), NAMES))
CASES["_zeros"] += [
    cell("NTC", mx.gluon.rnn.LSTMCell(4, input_size=3)),
    cell("TNC", mx.gluon.rnn.GRUCell(4, input_size=3)),
]
TABLE = [
    pytest.param(kind, *case, id=f"{kind}-{number}")
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
