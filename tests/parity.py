"""The table of parity: `python tests/parity.py [--tensorflow] [--record]`.

Outputs and gradients of every case, in every way. With --record the figures go to tests/results, of which the tables of
the documentation are made.

A comparison is one output or one gradient of one array, compared with the NumPy reference in float64, or, with
--tensorflow, with TensorFlow where it is right by its own rules. It is a mismatch if they differ by 1e-4 or more (1e-10
in float64), relative to the largest expected value if that is above 1.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import running
import ways

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


class Run(NamedTuple):
    """A way of `ways.WAYS`, and how it is run."""

    way: str
    dtype: str = "float32"
    strategy: str | None = None


WAYS = {
    "operator, float32": Run("operator"),
    "operator, float64": Run("operator", "float64"),
    "layer, not hybridized": Run("layer"),
    "net.hybridize(), dynamic shape": Run("net.hybridize()"),
    "the same, static": Run("net.hybridize(), static"),
    "mxsame.hybridize(net)": Run("mxsame.hybridize"),
    "mxsame.deploy(net, shape)": Run("mxsame.deploy"),
    **{f"strategy {name!r}": Run("operator", strategy=name) for name in mxsame.plan.STRATEGIES},
    **{f"strategy {name!r}, dynamic shape": Run("net.hybridize()", strategy=name) for name in mxsame.plan.STRATEGIES},
}
STRATEGIES = {op: mxsame.plan.strategies_for(kind) for op, kind in running.OPERATORS.items()}


def compare(way: str, op: str, forward, gradients, table) -> Comparison:
    name, dtype, strategy = WAYS[way]
    make, sizes = ways.WAYS[name]
    limit = 1e-4 if forward is not oracle.forward else running.TOLERANCE[dtype]
    comparisons = mismatches = 0
    for case in table:
        if case.op != op or strategy not in (None, *STRATEGIES[op]):
            continue
        try:
            with mxsame.plan.use_strategy(strategy):
                pairs = list(compared(make, case, sizes(case), dtype, forward, gradients))
        except ValueError as error:
            if "must be a strategy that is exact" in str(error):  # a forced strategy that is not possible here
                continue
            raise
        comparisons += len(pairs)
        mismatches += sum(not running.difference(got, want) < limit for got, want in pairs)
    return Comparison(way, op, mismatches, comparisons)


def compared(make, case, sizes, dtype, forward, gradients):
    """The outputs and gradients of the case at each size, and those of the reference, where it can judge."""
    run = make(case, cases.arrays(case), dtype)
    for size in sizes:
        arrays = cases.arrays(case, size=size)
        out_grad = cases.output_gradient(case, (case.batch, case.out_channels, *oracle.output_size(case, size)))
        out, got_gradients = run(arrays, out_grad)
        want, want_gradients = forward(case, arrays), gradients(case, arrays, out_grad) if got_gradients else None
        if want is not None:
            yield out, want
            yield from ((got_gradients[name], gradient) for name, gradient in (want_gradients or {}).items())


def record(rows: list, live: bool) -> Path:
    """The figures, with the date and the versions."""
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
    mxsame.graphs.hybridize.GraphCache.COMPILING_CALL = 1  # a graph for a size at its first call
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
