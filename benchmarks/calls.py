"""What a call costs: operators and networks of one layer on 16 elements, whose arithmetic takes next to no time."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple

import mxsame
from benchmarks import results
from benchmarks.timing import FLAGS, measure
from mxsame._mxnet import mx

SHAPE = (1, 1, 4, 4)


def pairs() -> Iterator[Tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """A name, what MXNet has, and what mxsame has: functions of the data."""
    weight, bias, nd = mx.nd.ones((1, 1, 3, 3)), mx.nd.zeros((1,)), mx.nd
    same = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 1}
    yield "conv", lambda x: nd.Convolution(x, weight, bias, **same), lambda x: mxsame.ops.conv(x, weight, bias)
    full = {"kernel": (2, 2), "stride": (2, 2), "pooling_convention": "full"}
    yield "max_pool", lambda x: nd.Pooling(x, **full), lambda x: mxsame.ops.max_pool(x, 2)
    yield "Conv2D", _symmetric(), _ready(mxsame.nn.Conv2D(1, 3))
    gluons, ours = _symmetric(), _ready(mxsame.nn.Conv2D(1, 3))
    gluons.hybridize(**FLAGS)
    yield "Conv2D, deployed", gluons, mxsame.deploy(ours, SHAPE)
    yield "Conv2D, hybridized", gluons, mxsame.hybridize(ours, **FLAGS)


def _symmetric() -> Any:
    return _ready(mx.gluon.nn.Conv2D(1, 3, padding=1))


def _ready(net: Any) -> Any:
    net.initialize()
    net(mx.nd.ones(SHAPE))
    return net


def rows(rounds: int) -> List[dict]:
    """One row for each pair."""
    data, made = mx.nd.ones(SHAPE), []
    for name, symmetric, ours in pairs():
        calls: Dict[str, Callable[[], object]] = {
            "symmetric": lambda call=symmetric: call(data),
            "mxsame": lambda call=ours: call(data),
        }
        made.append(results.row(name, "call", measure(calls, rounds), "symmetric"))
    return made
