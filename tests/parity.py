"""The table of parity: `python tests/parity.py [--tensorflow] [--record]`.

Outputs and gradients of every case, in every way. With --record the figures go to tests/results, of which the tables of
the documentation are made.

A comparison is one output or one gradient of one array, held against the NumPy reference in float64, or, with
--tensorflow, against TensorFlow where it is right by its own rules. It is a mismatch from 1e-4 on (1e-10 in float64
against the reference), in units of the largest wanted value where that is above 1.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import functools
import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import running

import mxsame
from mxsame._mxnet import mx

import cases  # isort: skip
import oracle  # isort: skip

Comparison = collections.namedtuple("Comparison", "way op mismatches comparisons")
RESULTS = Path(__file__).parent / "results"


def references(live: bool):
    """(forward, gradients), each of which may give None where it cannot judge."""
    if not live:
        return oracle.forward, oracle.gradients
    import tf_oracle

    def judged(function, gradients):
        def run(case, arrays, *more):
            size = arrays["data"].shape[2:]
            if tf_oracle.known_wrong(case, "float32", gradients, size):
                return None
            return function(case, arrays, *more, dtype="float32")

        return run

    return judged(tf_oracle.forward, False), judged(tf_oracle.gradients, True)


def by_operator(dtype="float32", strategy=None):
    def run(case, size):
        arrays = running.as_nd(cases.arrays(case, size=size), dtype)
        with mxsame.plan.force(strategy), mx.autograd.record():
            out = running.operate(case, arrays)
        return out, lambda: {name: array.grad for name, array in arrays.items()}

    return run


def by_layer(hybridize, dtype="float32", strategy=None):
    nets = {}

    def run(case, size):
        if case.name not in nets:
            nets.clear()
            layer, parent = running.layer(case), mx.gluon.nn.HybridSequential()
            parent.add(layer)
            running.set_parameters(layer, cases.arrays(case), dtype)
            hybridize(parent)
            nets[case.name] = layer, parent
        layer, parent = nets[case.name]
        data = mx.nd.array(cases.arrays(case, size=size)["data"], dtype=dtype)
        data.attach_grad()
        with mxsame.plan.force(strategy), mx.autograd.record():
            out = parent(data)
        names = [name for name in running.PARAMETERS if getattr(layer, name, None) is not None]
        return out, lambda: {"data": data.grad, **{name: getattr(layer, name).grad() for name in names}}

    return run


def by_deploying(case, size):
    layer, parent = running.layer(case), mx.gluon.nn.HybridSequential()
    parent.add(layer)
    arrays = cases.arrays(case, size=size)
    running.set_parameters(layer, arrays)
    data = mx.nd.array(arrays["data"])
    return mxsame.deploy(parent, data.shape)(data), None


def first(case):
    return [case.size]


def every(case):
    return case.sizes


def fitting_sizes(case):
    return [size for size in case.sizes if running.fits_one_graph(case, size)]


WAYS = {  # and the sizes of a case that are run
    "operator, float32": (by_operator(), first),
    "operator, float64": (by_operator("float64"), first),
    "layer, not hybridized": (by_layer(lambda net: None), first),
    "net.hybridize(), dynamic shape": (by_layer(running.in_one_graph), fitting_sizes),
    "the same, static": (
        by_layer(functools.partial(running.in_one_graph, static_alloc=True, static_shape=True)),
        fitting_sizes,
    ),
    "mxsame.hybridize(net)": (by_layer(mxsame.hybridize), every),
    "mxsame.deploy(net, shape)": (by_deploying, every),
    **{f"strategy {name!r}": (by_operator(strategy=name), first) for name in mxsame.plan.STRATEGIES},
    **{
        f"strategy {name!r}, dynamic shape": (by_layer(running.in_one_graph, strategy=name), fitting_sizes)
        for name in mxsame.plan.STRATEGIES
    },
}
STRATEGIES = {op: mxsame.plan.strategies_for(kind) for op, kind in running.OPERATORS.items()}


def compare(way: str, op: str, forward, gradients, table) -> Comparison:
    run, sizes = WAYS[way]
    dtype = "float64" if "float64" in way else "float32"
    comparisons = mismatches = 0
    for case in table:
        if case.op != op or (way.startswith("strategy") and way.split("'")[1] not in STRATEGIES[op]):
            continue
        for size in sizes(case):
            arrays = cases.arrays(case, size=size)
            want = forward(case, arrays)
            try:
                out, found = run(case, size)
            except ValueError as error:
                if "is not exact" in str(error):  # a forced strategy that does not go here
                    continue
                raise
            if want is None:
                continue
            pairs = [(out, want)]
            out_grad = cases.output_gradient(case, want.shape)
            wanted = gradients(case, arrays, out_grad) if found is not None else None
            if wanted is not None:
                out.backward(mx.nd.array(out_grad, dtype=dtype))
                got = found()
                pairs += [(got[name], gradient) for name, gradient in wanted.items()]
            comparisons += len(pairs)
            limit = 1e-4 if forward is not oracle.forward else running.TOLERANCE[dtype]
            mismatches += sum(not running.difference(got.asnumpy(), want) < limit for got, want in pairs)
    return Comparison(way, op, mismatches, comparisons)


def record(rows: list, live: bool) -> Path:
    """The figures, with when and with what they were found."""
    versions = {"mxsame": mxsame.__version__, "mxnet": mx.__version__, "numpy": np.__version__}
    if live:
        versions["tensorflow"] = metadata.version("tensorflow-cpu")
    result = {
        "reference": "TensorFlow" if live else "NumPy",
        "date": datetime.date.today().isoformat(),
        "versions": versions,
        "cases": len(cases.CASES),
        "rows": [entry._asdict() for entry in rows],
    }
    path = RESULTS / ("parity-tensorflow.json" if live else "parity.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow", action="store_true", help="compare with TensorFlow instead of the reference")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/results")
    options = parser.parse_args()
    mxsame.graphs.hybridize.Specialised.PATIENCE = 1  # a graph for a size at its first call
    forward, gradients = references(options.tensorflow)
    print("mismatches / comparisons".ljust(34), *(op.rjust(15) for op in cases.OPS))
    rows = []
    for way in WAYS:
        row = [compare(way, op, forward, gradients, cases.CASES) for op in cases.OPS]
        cells = (f"{entry.mismatches}/{entry.comparisons}".rjust(15) for entry in row)
        print(way.ljust(34), *cells, flush=True)
        rows += row
    bad, total = sum(entry.mismatches for entry in rows), sum(entry.comparisons for entry in rows)
    print(f"{bad} mismatches in {total} comparisons")
    if options.record:
        print(f"recorded in {record(rows, options.tensorflow)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
