"""The ways in which mxsame runs a case: operators on arrays and in graphs, layers, hybridized and deployed networks.

`WAYS` is the table. A way makes of (case, arrays, dtype, layout) a function of (arrays, gradient from above) that
returns the output and the gradients by name, or None where there are none; it is called with several sizes.
"""

from __future__ import annotations

import functools
from typing import Callable, NamedTuple

import cases
import running
from cases import Case
from running import CHANNELS_LAST, apply, as_nd, as_np, assert_equal, evaluate, graph_arguments, imperative, operate

import mxsame
from mxsame import _gluon
from mxsame._mxnet import mx

STATIC = {"static_alloc": True, "static_shape": True}


def by_operator(convert: Callable) -> Callable:
    def make(case, arrays, dtype, **layout):
        operator = functools.partial(operate, case, **layout)
        return lambda arrays, out_grad: imperative(operator, convert(arrays, dtype), out_grad)

    return make


def by_symbol(symbol_of: Callable) -> Callable:
    def make(case, arrays, dtype, **layout):
        symbol = symbol_of(case, arrays, dtype, **layout)
        return lambda arrays, out_grad: evaluate(symbol, as_nd(arrays, dtype), out_grad)

    return make


def with_shapes(case, arrays, dtype, **layout):
    return operate(case, running.variables(arrays, dtype), **layout)


def with_input_size(case, arrays, dtype, **layout):
    given = running.variables(arrays, shaped=False)
    return operate(case, given, input_size=case.size, **graph_arguments(case), **layout)


def of_dynamic_shape(case, arrays, dtype, **layout):
    return operate(case, running.unshaped(case, **layout), **graph_arguments(case), **layout)


def by_layer(hybridize: Callable) -> Callable:
    def make(case, arrays, dtype, **layout):
        layer = running.layer(case, **layout)
        net = running.sequential(layer)
        running.set_parameters(layer, arrays, dtype)
        hybridize(net)
        return lambda arrays, out_grad: apply(layer, arrays, out_grad, dtype, net)

    return make


def at_once(net):
    """Each size has the graph of its signature at its first call, in place of its eighth."""
    mxsame.hybridize(net, **STATIC)
    _gluon.overridden_forward(net).make_cache().COMPILING_CALL = 1


def by_inference(case, arrays, dtype, **layout):
    """One static graph, without recording."""
    layer = running.layer(case, **layout)
    running.set_parameters(layer, arrays, dtype)
    running.in_one_graph(layer, **STATIC)
    return lambda arrays, out_grad: (layer(mx.nd.array(arrays["data"], dtype=dtype)).asnumpy(), None)


def by_deploying(case, arrays, dtype, **layout):
    """Deployed for each size."""
    layer = running.layer(case, **layout)
    net = running.sequential(layer)
    running.set_parameters(layer, arrays, dtype)
    deployed = functools.lru_cache(maxsize=None)(functools.partial(mxsame.deploy, net))

    def run(arrays, out_grad):
        data = mx.nd.array(arrays["data"], dtype=dtype)
        return deployed(data.shape)(data).asnumpy(), None

    return run


def first(case: Case) -> list:
    return [case.size]


def every(case: Case) -> list:
    return list(case.sizes)


def some(case: Case) -> list:
    """Three residues, and one smaller than the kernel: what a deployed graph is rewritten from is in every size's."""
    return list(case.sizes[:4])


def fitting(case: Case) -> list:
    return [size for size in case.sizes if running.fits_one_graph(case, size)]


class Way(NamedTuple):
    make: Callable
    sizes: Callable = first  # those of a case that one function is called with


WAYS = {
    "operator": Way(by_operator(as_nd)),
    "operator, mx.np": Way(by_operator(as_np)),
    "symbol, with_shapes": Way(by_symbol(with_shapes)),
    "symbol, input_size": Way(by_symbol(with_input_size)),
    "symbol, dynamic": Way(by_symbol(of_dynamic_shape), fitting),
    "layer": Way(by_layer(lambda net: None)),
    "net.hybridize()": Way(by_layer(running.in_one_graph), fitting),
    "net.hybridize(), static_alloc": Way(by_layer(functools.partial(running.in_one_graph, static_alloc=True)), fitting),
    "net.hybridize(), static": Way(by_layer(functools.partial(running.in_one_graph, **STATIC)), fitting),
    "net.hybridize(), inference": Way(by_inference, fitting),
    "mxsame.hybridize": Way(by_layer(mxsame.hybridize), every),
    "mxsame.hybridize, at once": Way(by_layer(at_once), every),
    "mxsame.deploy": Way(by_deploying, some),
}


def unchanged(arrays):
    return arrays


def check(
    case: Case,
    way: str,
    dtype: str = "float32",
    last: bool = False,
    strategy: str | None = None,
    expected: Callable = running.expected,
    calls: int = 1,
) -> int:
    """The case equals the oracle, in this way and layout, at each size that is possible; returns how many are.

    Of so many calls with a size the last is compared. The first size comes again at the end: the first call of a graph
    is not like the others.
    """
    turned, layout = unchanged, {}
    if last:
        turned, layout = running.channels_last, {"layout": CHANNELS_LAST[case.rank]}
    make, sizes = WAYS[way]
    sizes = sizes(case)
    with mxsame.plan.use_strategy(strategy):
        run = make(case, turned(cases.arrays(case)), dtype, **layout)
        for size in (*sizes, *sizes[:1]):
            arrays, out, out_grad, gradients = expected(case, size)
            for _ in range(calls):
                got, got_gradients = run(turned(arrays), turned(out_grad))
            what = f"{way}, size {size}, {strategy}"
            assert got.dtype == dtype, what
            assert_equal(got, turned(out), dtype, what)
            if got_gradients is not None:
                assert_equal(got_gradients, turned(gradients), dtype, what, terms=out.size // out.shape[1])
    return len(sizes)
