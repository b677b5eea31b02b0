"""Runs MXNet's kernels on a GPU and compares what they compute with NumPy.

    python examples/hopper/check.py            # on mx.gpu(0)
    python examples/hopper/check.py cpu

Prints a line for each group of operators, and exits with the number of those that fail.
"""

import sys

import numpy as np

import mxsame  # prepares the import of MXNet, so it comes first

# isort: split
from mxnet import autograd, context, nd, random

RNG = np.random.default_rng(0)


def windows(data, kernel, stride):
    """(N, C, H', W', k, k): the windows of data that is padded."""
    view = np.lib.stride_tricks.sliding_window_view(data, (kernel, kernel), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def creation(device):
    drawn = random.uniform(2, 4, shape=(4000,), ctx=device).asnumpy()
    yield drawn.min() >= 2 and drawn.max() <= 4 and abs(drawn.mean() - 3) < 0.1, True
    yield nd.zeros((3, 4), ctx=device), np.zeros((3, 4))
    yield nd.arange(2, 9, ctx=device), np.arange(2, 9)


def arithmetic(device):
    a, b = RNG.normal(size=(2, 5, 7)), RNG.normal(size=(5, 1))
    x, y = nd.array(a, device), nd.array(b, device)
    yield x + 2 * y, a + 2 * b
    yield nd.relu(x) * nd.exp(y), np.maximum(a, 0) * np.exp(b)
    yield x.astype("float16").astype("float32"), a.astype("float16")
    yield nd.dot(x[0], x[1].T), a[0] @ a[1].T


def reductions(device):
    a = RNG.normal(size=(3, 5, 7))
    x = nd.array(a, device)
    yield x.sum(axis=1), a.sum(1)
    yield x.max(axis=2), a.max(2)
    yield x.argmax(axis=1), a.argmax(1)
    yield nd.softmax(x), np.exp(a) / np.exp(a).sum(-1, keepdims=True)


def positions(device):
    a = RNG.normal(size=(2, 3, 5, 7))
    x = nd.array(a, device)
    yield nd.pad(x, "constant", (0, 0, 0, 0, 1, 2, 0, 1)), np.pad(a, ((0, 0), (0, 0), (1, 2), (0, 1)))
    yield nd.concat(x[:, :, 1:], x[:, :, :2], dim=2), np.concatenate([a[:, :, 1:], a[:, :, :2]], 2)
    yield nd.take(x, nd.array([4, 0], device), axis=2), a[:, :, [4, 0]]
    yield nd.flip(x, axis=3).transpose((0, 2, 3, 1)), a[..., ::-1].transpose(0, 2, 3, 1)


def pooling(device):
    """Maximum pooling with SAME, 1-D and 2-D, and its gradient: the maxima of windows that do not overlap."""
    a = RNG.permutation(2 * 3 * 6 * 8).reshape(2, 3, 6, 8).astype("float32")
    x = nd.array(a, device)
    x.attach_grad()
    with autograd.record():
        out = mxsame.ops.max_pool(x, 2)
    out.backward()
    maxima = windows(a, 2, 2).max((4, 5))
    yield out, maxima
    yield x.grad, np.isin(a, maxima)
    padded = np.pad(a, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-1)
    yield mxsame.ops.max_pool(x, 3, strides=2), windows(padded, 3, 2).max((4, 5))
    yield mxsame.ops.max_pool(x[0], 2), a[0].reshape(3, 6, 4, 2).max(3)


def convolution(device):
    """A convolution with SAME, stride 2, whole numbers, and its gradients for a sum of the output."""
    a, w = (RNG.integers(-4, 5, size=shape).astype("float32") for shape in ((2, 3, 6, 8), (4, 3, 3, 3)))
    x, weight = nd.array(a, device), nd.array(w, device)
    for array in (x, weight):
        array.attach_grad()
    with autograd.record():
        out = mxsame.ops.conv(x, weight, strides=2)
    out.backward()
    seen = windows(np.pad(a, ((0, 0), (0, 0), (0, 1), (0, 1))), 3, 2)
    yield out, np.einsum("nchwij,ocij->nohw", seen, w)
    yield weight.grad, np.broadcast_to(np.einsum("nchwij->cij", seen), w.shape)
    expected = np.zeros((2, 3, 7, 9))
    for row, column in np.ndindex(3, 3):
        expected[:, :, row : row + 5 : 2, column : column + 7 : 2] += w.sum(0)[:, row, column][:, None, None]
    yield x.grad, expected[:, :, :6, :8]


def check(group, device):
    """What is wrong; None if nothing is."""
    try:
        for number, (got, expected) in enumerate(group(device)):
            got = got.asnumpy() if isinstance(got, nd.NDArray) else got
            if not np.allclose(got, expected, rtol=1e-3, atol=1e-3):
                return f"result {number} differs by {np.abs(got - expected).max():.3g}"
    except Exception as error:
        return str(error).strip().splitlines()[-1]
    return None


def main(name="gpu"):
    device, wrong = context.Context(name), 0
    for group in (creation, arithmetic, reductions, positions, pooling, convolution):
        problem = check(group, device)
        wrong += problem is not None
        print(f"{'FAIL' if problem else 'ok':4} {group.__name__}{f': {problem}' if problem else ''}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
