"""The model of benchmarks/distributed.py: its formulas, and how near it comes to what is measured."""

from __future__ import annotations

import pickle

import pytest
from benchmarks import distributed, results
from benchmarks.distributed import Costs, Held

import clusters

COSTS = Costs(message_at_worker=2e-5, message_at_server=5e-5, byte_at_worker=1e-9, byte_at_server=3e-10)


def rows(costs, exchanges=distributed.EXCHANGES):
    return [
        {
            "name": "",
            "mode": "exchange",
            "keys": keys,
            "bytes": 4 * elements,
            "figures": {
                f"{workers} workers": {"median": costs.seconds(workers, [Held(keys, elements)])} for workers in (1, 2)
            },
        }
        for keys, elements in exchanges
    ]


def test_the_fit_finds_the_costs_that_were_put_in():
    for costs in (COSTS, Costs(0.0, 0.0, 1e-9, 3e-10)):
        assert vars(distributed.fitted(rows(costs))) == pytest.approx(vars(costs), rel=1e-6, abs=1e-15)


def test_the_seconds_of_an_exchange():
    one = [Held(10, 250_000)]
    assert COSTS.seconds(3, one) == pytest.approx(2e-4 + 1e-3 + 3 * (5e-4 + 3e-4))
    two = [Held(7, 150_000), Held(3, 100_000)]
    assert COSTS.seconds(3, two) == pytest.approx(2e-4 + 1e-3 + 3 * (3.5e-4 + 1.8e-4)), "the busier one"
    assert distributed.wire_seconds(8, one, bytes_per_second=1e9) == pytest.approx(9e-3)
    assert distributed.wire_seconds(8, [Held(1, 31_250)] * 8, bytes_per_second=1e9) == pytest.approx(2e-3)


def test_an_array_that_is_not_divided_is_one_servers():
    assert max(each.elements for each in distributed.placed([100] * 4, 64)) == 100
    assert distributed.placed([100] * 4, 64, bound=100) == [Held(4, 400 / 64)] * 64


def test_servers_have_what_mxnet_gives_them(tmp_path):
    """The states of Adam, two for each weight, tell where servers have which."""
    settings = ("--epochs", 1, "--optimizer", "adam", "--patience", 60)
    options = ("--workers", "1", "--servers", "3")
    program, bound = clusters.EXAMPLES / "train.py", 1000
    clusters.finished(program, "--out", tmp_path, *settings, options=options, MXNET_KVSTORE_BIGARRAY_BOUND=str(bound))
    import training
    from mxnet import name

    with name.NameManager():  # names, which give the order of keys, as in a new process
        net = training.stripes_network()
    net(training.nd.zeros((1, 3, 31, 31)))
    sizes = distributed.exchanged(net.collect_params())
    assert min(filter(None, sizes)) < bound < max(sizes)
    found = []
    for server in range(3):
        path = tmp_path / "checkpoints" / "step-00000016" / f"states-of-server-{server}"
        states, _ = pickle.loads(path.read_bytes())
        found.append((len(states), sum(mean.size for mean, _ in states.values())))
    for (messages, elements), held in zip(found, distributed.placed(sizes, 3, bound)):
        assert messages == held.messages
        assert abs(elements - held.elements) < messages, "parts are whole elements"
    assert sum(elements for _, elements in found) == sum(sizes)


def test_exchanges_are_measured_and_fitted(monkeypatch):
    """Only the largest is compared, and loosely, since other programs may run."""
    monkeypatch.setattr(distributed, "EXCHANGES", ((2, 2**14), (64, 2**18), (4, 2**21), (16, 2**22)))
    measured = distributed.measure_exchanges(rounds=1)
    costs = distributed.fitted(measured)
    assert 1e-11 < costs.byte_at_worker + costs.byte_at_server < 1e-7
    ratios = [each["model"] / each["measured"] for each in distributed.compared(costs, measured)]
    assert len(ratios) == 8
    assert 1 / 4 < min(ratios[-2:]) <= max(ratios[-2:]) < 4


def test_the_recorded_figures_are_those_of_the_model():
    path = results.FOLDER / "distributed.json"
    if not path.exists():
        pytest.skip("no figures are recorded: python -m benchmarks distributed")
    recorded = results.load(path)
    for each in distributed.compared(Costs(**recorded["costs"]), recorded["rows"]):
        assert each["model"] == pytest.approx(each["measured"], rel=0.5), each


def test_the_command_measures_a_network(monkeypatch):
    (row,) = distributed.measure_training("mobilenetv2", 0.1, 32, 2, rounds=1)
    assert list(row["figures"]) == ["1 process", "1 worker", "2 workers"]
    assert row["keys"] > 50
    (one, two) = distributed.compared(COSTS, [row])
    own, held = row["figures"]["1 process"]["median"], [Held(row["keys"], row["bytes"] / 4)]
    assert one["model"] == pytest.approx(own + COSTS.seconds(1, held))
    assert two["model"] == pytest.approx(own + COSTS.seconds(2, held))
