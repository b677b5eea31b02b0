"""`mxsame.keras.ops` and `backend` against the NumPy oracle, and `ops` against recorded outputs of Keras 3."""

import dataclasses
import textwrap

import pytest
from golden import make, make_keras3
from keras_cases import DATA_FORMATS, OPS, backend_call, backend_can, data_ordered, ops_call, ops_can, ordered, table
from keras_running import KINDS, check, expected, run, signature
from running import assert_equal, by_name, expected as expected_in_mxnet, fits_one_graph, run_python

from mxsame._mxnet import mx
from mxsame.keras import backend, ops

nd = mx.nd
TABLE = table(ops_can)
GOLDEN = make.load(make_keras3.PATH)


def test_signatures_are_those_of_keras():
    """Of keras.ops in Keras 3.11.3."""
    recorded = {name: "".join(map(chr, GOLDEN[f"signature/{name}"])) for name in make_keras3.FUNCTIONS}
    assert {name: f"({signature(getattr(ops, name))})" for name in ops.__all__} == recorded


# ---- the NumPy oracle ------------------------------------------------------------------------------------------------


BACKEND, OPERATORS = (backend, backend_call), (ops, ops_call)
EVERY = [*((BACKEND, case) for case in table(backend_can)), *((OPERATORS, case) for case in TABLE)]


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize(("room", "case"), EVERY, ids=[f"{room[0].__name__}-{case.name}" for room, case in EVERY])
def test_every_case(room, case, data_format):
    """NDArrays and graphs of dynamic shape, of `backend` mx.np arrays and static graphs too; forward and gradients."""
    for kind in KINDS if room is BACKEND else KINDS[::3]:
        check(*room, case, data_format, kind)


UNGROUPED = [case for case in TABLE if case.groups == 1]
SOME = [*((BACKEND, case) for case in table(backend_can)[::17]), *((OPERATORS, case) for case in UNGROUPED[::13])]


@pytest.mark.parametrize(("room", "case"), SOME, ids=[f"{room[0].__name__}-{case.name}" for room, case in SOME])
def test_graph_at_other_sizes(room, case):
    """One graph, built without a size."""
    module, call = room
    case = dataclasses.replace(case, name="", output_padding=None if module is backend else case.output_padding)
    name, arguments = call(case, "channels_last")
    if "output_shape" in arguments:
        arguments["output_shape"] = None
    arrays = expected(case, "channels_last")[0]
    variables = {name: mx.sym.var(name, shape=array.shape) for name, array in arrays.items()}
    variables["data"] = mx.sym.var("data", shape=(*(0,) * (case.rank + 1), case.in_channels))
    symbol = getattr(module, name)(*variables.values(), **arguments)
    for size in filter(lambda size: fits_one_graph(case, size), case.sizes):
        arrays, out, _, _ = expected(dataclasses.replace(case, size=size, name=""), "channels_last")
        given = {name: nd.array(array) for name, array in arrays.items()}
        assert_equal(symbol.bind(mx.cpu(), given).forward()[0], out, what=f"size {size}")


def test_input_channels_of_a_kernel_may_follow_from_the_data():
    """As those of a Gluon parameter whose initialization is deferred."""
    data = mx.sym.var("data")
    for function, kernel in ((ops.conv, (3, 2, 0, 4)), (ops.conv_transpose, (3, 2, 4, 0))):
        symbol = function(data, mx.sym.var("kernel", shape=kernel), 2, "same")
        whole = tuple(length or 5 for length in kernel)
        assert symbol.infer_shape(data=(2, 9, 8, 5))[0] == [(2, 9, 8, 5), whole]


def test_np_mode():
    """`npx.set_np()` is for a whole process: some cases in one of their own, as arrays and as graphs."""
    code = """
        import keras_cases, keras_running
        from mxsame._mxnet import mx
        from mxsame.keras import backend, ops
        from running import assert_equal

        mx.npx.set_np()
        rows = [(backend, keras_cases.backend_call, case) for case in keras_cases.table(keras_cases.backend_can)[::9]]
        rows += [(ops, keras_cases.ops_call, case) for case in keras_cases.table(keras_cases.ops_can)[::9]]
        for module, call, case in rows:
            keras_running.check(module, call, case, "channels_last", "np")
            arrays, out, _, _ = keras_running.expected(case, "channels_first")
            name, arguments = call(case, "channels_first")
            variables = [mx.sym.var(key, shape=array.shape).as_np_ndarray() for key, array in arrays.items()]
            symbol = getattr(module, name)(*variables, **arguments)
            given = {key: mx.np.array(array, dtype="float32") for key, array in arrays.items()}
            assert_equal(symbol.bind(mx.cpu(), given).forward()[0], out)
        print(len(rows))
        """
    assert int(run_python(textwrap.dedent(code))) > 20


# ---- Keras 3 ---------------------------------------------------------------------------------------------------------


def test_everything_but_what_keras_refuses_is_recorded():
    chosen = make_keras3.chosen()
    assert {key.split("/")[0] for key in GOLDEN if "/" in key} - {"signature"} == {case.name for case in chosen}
    assert {(case.op, case.rank) for case in chosen} >= {(op, rank) for op in OPS for rank in (1, 2)}
    assert len(chosen) > 60
    assert sum(key.endswith("gradient/data") for key in GOLDEN) > 0.9 * len(chosen)


@by_name(make_keras3.chosen())
def test_recorded_keras(case):
    arrays, _, out_grad, _ = expected_in_mxnet(case)
    assert make.checksum(case, out_grad.shape) == GOLDEN[f"{case.name}/checksum"], "other inputs were recorded"
    shape = tuple(GOLDEN[f"{case.name}/shape"])
    wanted = GOLDEN[f"{case.name}/forward"].reshape(shape)
    arrays = ordered(case, arrays, "channels_last")
    got, gradients = run(ops, ops_call, case, "channels_last", "nd", arrays, data_ordered(out_grad, "channels_last"))
    assert_equal(got, wanted)
    for name, gradient in gradients.items():
        recorded = GOLDEN.get(f"{case.name}/gradient/{name}")
        if recorded is not None:
            terms = 1 if name == "data" else got.size // case.out_channels
            assert_equal({name: gradient}, {name: recorded.reshape(gradient.shape)}, terms=terms)
