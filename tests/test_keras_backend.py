"""What is special to `mxsame.keras.backend`, whose cases test_keras_ops.py runs."""

import itertools

import numpy as np
import oracle
import pytest
from cases import Case
from keras_cases import DATA_FORMATS, backend_call, backend_can, shape_ordered, table
from keras_running import expected, signature
from running import assert_equal

import mxsame.keras
from mxsame._mxnet import mx
from mxsame.keras import backend

nd = mx.nd
TABLE = table(backend_can)


def test_every_function_has_cases():
    called = {backend_call(case, "channels_last")[0] for case in TABLE}
    assert called == {name for name in backend.__all__ if "image" not in name}


def test_arguments_by_position_and_by_default():
    """As Keras's code calls them; the default is "valid", strides of 1 and channels last."""
    x, kernel = nd.random.normal(shape=(2, 9, 8, 3)), nd.random.normal(shape=(3, 2, 3, 4))
    plain = backend.conv2d(x, kernel)
    assert plain.shape == (2, 7, 7, 4)
    assert_equal(backend.conv2d(x, kernel, (1, 1), "valid", "channels_last", (1, 1)), plain.asnumpy())
    assert_equal(backend.conv2d(x, kernel, 1, "VALID", dilation_rate=[1, 1]), plain.asnumpy())
    assert backend.conv2d(x, kernel, (2, 1), "same", None, (1, 2)).shape == (2, 5, 8, 4)
    assert backend.pool2d(x, (2, 2)).shape == (2, 8, 7, 3)
    assert backend.pool2d(x, (2, 2), (2, 2), "same", "channels_last", "avg").shape == (2, 5, 4, 3)


def test_image_data_format():
    x = nd.ones((1, 4, 6, 5))
    assert backend.image_data_format() == "channels_last"
    try:
        mxsame.keras.backend.set_image_data_format("channels_first")
        assert backend.image_data_format() == "channels_first"
        assert backend.conv2d(x, nd.ones((3, 3, 4, 7))).shape == (1, 7, 4, 3)
        assert backend.pool2d(x, (2, 2)).shape == (1, 4, 5, 4)
        assert mxsame.keras.ops.max_pool(x, 2).shape == (1, 4, 3, 2)
        assert backend.pool2d(x, (2, 2), data_format="channels_last").shape == (1, 3, 5, 5)
    finally:
        backend.set_image_data_format("channels_last")


def test_a_kernel_with_fewer_input_channels_makes_groups_in_a_graph_too():
    """The channels may be fixed by nothing but the graph."""
    case = next(case for case in TABLE if case.op == "conv" and case.groups > 1 and case.rank == 2)
    arrays, out, _, _ = expected(case, "channels_first")
    data, kernel = mx.sym.var("data"), mx.sym.var("weight", shape=arrays["weight"].shape)
    eye = mx.sym.var("eye", shape=(case.in_channels, case.in_channels, 1, 1))
    same = mx.sym.Convolution(data, eye, kernel=(1, 1), num_filter=case.in_channels, no_bias=True)
    symbol = backend.conv2d(same, kernel, case.strides, case.padding, "channels_first", case.dilation)
    identity = np.eye(case.in_channels).reshape(*[case.in_channels] * 2, 1, 1)
    given = {name: nd.array(array) for name, array in {**arrays, "eye": identity}.items()}
    assert_equal(symbol.bind(mx.cpu(), given).forward()[0], out)


# ---- output_shape ----------------------------------------------------------------------------------------------------


def lengths(n, k, s, d, padding):
    """Every length that the convolution turns into n, found by trying."""
    for length in range(1, (n + 1) * s + (k - 1) * d + 2):
        try:
            if oracle.output_size(Case("conv", (length,), (k,), (s,), padding, (d,))) == (n,):
                yield length
        except ValueError:  # shorter than the kernel
            continue


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("s", [1, 2, 3])
@pytest.mark.parametrize("kind", ["nd", "any size"])
def test_every_possible_output_shape(padding, s, kind):
    """It is the gradient of the convolution of that length; every other length is refused."""
    rng = np.random.Generator(np.random.PCG64(7))
    for n, k, d in itertools.product((1, 2, 5), (1, 2, 3, 4), (1, 2)):
        possible = list(lengths(n, k, s, d, padding))
        x, kernel = rng.standard_normal((2, 3, n, 1)), rng.standard_normal((k, 1, 4, 3))
        given = {"x": nd.array(x), "kernel": nd.array(kernel)}
        rest = ((s, 1), padding, "channels_first", (d, 1))
        assert len(possible) == s
        for length in range(max(possible[0] - 2, 1), possible[-1] + 3):
            if length not in possible:
                if kind == "nd":
                    rule = f"{possible[0]} to {possible[-1]}" if s > 1 else possible[0]
                    with pytest.raises(ValueError, match=rf"output_shape\[2\] must be {rule}: "):
                        backend.conv2d_transpose(*given.values(), (2, 4, length, 1), *rest)
                continue
            forward = Case("conv", (length,), (k,), (s,), padding, (d,), in_channels=4, channels=3, use_bias=False)
            zeros = {"data": np.zeros((2, 4, length)), "weight": kernel[:, 0].transpose(2, 1, 0)}
            wanted = oracle.gradients(forward, zeros, x[..., 0])["data"][..., None]
            if kind == "nd":
                got = backend.conv2d_transpose(*given.values(), (2, 4, length, 1), *rest)
            else:
                symbols = mx.sym.var("x"), mx.sym.var("kernel", shape=kernel.shape)
                symbol = backend.conv2d_transpose(*symbols, (None, 4, length, None), *rest)
                got = symbol.bind(mx.cpu(), given).forward()[0]
            assert_equal(got, wanted, what=f"n {n}, k {k}, d {d}, output {length}")


@pytest.mark.parametrize("data_format", DATA_FORMATS)
def test_output_shape_may_be_left_open_and_be_of_many_types(data_format):
    x = nd.random.normal(shape=shape_ordered((2, 3, 4, 5), data_format))
    kernel = nd.random.normal(shape=(3, 4, 6, 3))
    whole = shape_ordered((2, 6, 8, 15), data_format)
    wanted = backend.conv2d_transpose(x, kernel, whole, (2, 3), "same", data_format)
    assert wanted.shape == whole
    equivalent = [
        *(None, [None] * 4, (None, *whole[1:]), (*whole[:2], None, whole[3])),
        *(list(whole), np.array(whole), tuple(np.int64(n) for n in whole)),
        *(nd.array(whole, dtype="int32"), mx.np.array(whole, dtype="int64")),
    ]
    for output_shape in equivalent:
        got = backend.conv2d_transpose(x, kernel, output_shape, (2, 3), "same", data_format)
        assert_equal(got, wanted.asnumpy(), what=str(output_shape))


def test_a_graph_refuses_data_that_the_output_shape_excludes():
    x, kernel = mx.sym.var("x"), mx.sym.var("kernel", shape=(3, 3, 2, 3))
    symbol = backend.conv2d_transpose(x, kernel, (2, 7, 8, 2), (2, 2), "same")
    for shape in ((2, 4, 4, 3), (2, 4, 5, 3), (2, 3, 4, 3), (1, 4, 4, 3)):
        given = {"x": nd.ones(shape), "kernel": nd.ones((3, 3, 2, 3))}
        if shape == (2, 4, 4, 3):
            assert symbol.bind(mx.cpu(), given).forward()[0].shape == (2, 7, 8, 2)
        else:
            with pytest.raises(mx.base.MXNetError, match="data_must_be_"):
                symbol.bind(mx.cpu(), given).forward()[0].wait_to_read()


@pytest.mark.oracle
def test_signatures_are_those_of_keras():
    from keras.src import backend as theirs

    ours, keras = ({name: signature(getattr(room, name)) for name in backend.__all__} for room in (backend, theirs))
    assert ours == keras
