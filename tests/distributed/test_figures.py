"""The model of benchmarks/distributed.py: its formulas, and how near it comes to what is measured."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from benchmarks import distributed
from benchmarks.distributed import Costs

import clusters

COSTS = Costs(key_at_worker=2e-5, key_at_server=5e-5, byte_at_worker=1e-9, byte_at_server=3e-10)


def rows(costs, exchanges=distributed.EXCHANGES):
    return [
        {
            "name": "",
            "mode": "exchange",
            "keys": keys,
            "bytes": 4 * elements,
            "figures": {
                name: {"median": costs.seconds(int(name[0]), keys, 4 * elements)} for name in ("1 worker", "2 workers")
            },
        }
        for keys, elements in exchanges
    ]


def test_the_fit_finds_the_costs_that_were_put_in():
    for costs in (COSTS, Costs(0.0, 0.0, 1e-9, 3e-10)):
        assert vars(distributed.fitted(rows(costs))) == pytest.approx(vars(costs), rel=1e-6, abs=1e-15)


def test_the_seconds_of_an_exchange():
    assert COSTS.seconds(3, keys=10, size=1e6, share=0.5) == pytest.approx(2e-4 + 1e-3 + 3 * 0.5 * (5e-4 + 3e-4))
    assert distributed.wire_seconds(8, size=1e6, share=1 / 8, bytes_per_second=1e9) == pytest.approx(2e-3)
    assert distributed.wire_seconds(8, size=1e6, share=1, bytes_per_second=1e9) == pytest.approx(9e-3)


def test_a_share_does_not_shrink_where_arrays_are_not_divided():
    small = [100] * 4
    assert max(distributed.shares(small, 64, bound=10**6)) == 1 / 4
    assert max(distributed.shares(small, 64, bound=100)) == pytest.approx(1 / 64)


def test_shares_are_those_of_mxnet(tmp_path):
    """The states of Adam, two for each weight, tell where servers have which."""
    settings = ("--epochs", 1, "--optimizer", "adam", "--patience", 60)
    options = ("--workers", "1", "--servers", "3")
    program, bound = clusters.EXAMPLES / "train.py", 1000
    clusters.finished(program, "--out", tmp_path, *settings, options=options, MXNET_KVSTORE_BIGARRAY_BOUND=str(bound))
    import training

    net = training.stripes_network()
    net(training.nd.zeros((1, 3, 31, 31)))
    sizes = distributed.exchanged(net.collect_params())
    assert min(filter(None, sizes)) < bound < max(sizes)
    held = []
    for server in range(3):
        path = tmp_path / "checkpoints" / "step-00000016" / f"states-of-server-{server}"
        states, _ = pickle.loads(path.read_bytes())
        held.append(sum(mean.size for mean, _ in states.values()))
    assert sum(held) == sum(sizes)
    assert np.array(held) / sum(held) == pytest.approx(distributed.shares(sizes, 3, bound), abs=3 / sum(held))


def test_the_model_is_near_what_is_measured(monkeypatch):
    """Loose, since other programs may run; `python -m benchmarks distributed` prints how near it is."""
    monkeypatch.setattr(distributed, "EXCHANGES", ((2, 2**14), (64, 2**18), (4, 2**21), (16, 2**22)))
    measured = distributed.measure_exchanges(rounds=1)
    ratios = [each["model"] / each["measured"] for each in distributed.compared(distributed.fitted(measured), measured)]
    assert len(ratios) == 8
    assert 1 / 4 < min(ratios) < max(ratios) < 4
    without_bytes = [{**row, "bytes": 1} for row in measured]
    costs = distributed.fitted(without_bytes)
    wrong = [each["model"] / each["measured"] for each in distributed.compared(costs, without_bytes)]
    assert max(wrong) / min(wrong) > 2 * max(ratios) / min(ratios), "the comparison notices a model without bytes"


def test_the_command_measures_a_network(monkeypatch):
    (row,) = distributed.measure_training("mobilenetv2", 0.1, 32, 2, rounds=1)
    assert list(row["figures"]) == ["1 process", "1 worker", "2 workers"]
    assert row["keys"] > 50
    (one, two) = distributed.compared(COSTS, [row])
    own = row["figures"]["1 process"]["median"]
    assert one["model"] == pytest.approx(own + COSTS.seconds(1, row["keys"], row["bytes"]))
    assert two["model"] == pytest.approx(own + COSTS.seconds(2, row["keys"], row["bytes"]))
