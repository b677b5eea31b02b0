"""The benchmarks measure what they say: contestants compute what is claimed of them; files, pictures and targets."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mxsame._mxnet import mx

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the folder benchmarks is not part of a source distribution", allow_module_level=True)
sys.path.append(str(ROOT))

from click.testing import CliRunner  # noqa: E402

from benchmarks import networks  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.architectures import NETWORKS  # noqa: E402

by_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)


def small(network, batch=2):
    return networks.case(network, batch, size=40, width=0.125)


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


# -- networks


@by_network
def test_styles_of_a_network_agree_in_values_and_symmetric_padding_only_in_shape(network):
    case = small(network)
    calls = networks.inference_calls(case, tensorflow=False)
    networks.check(calls, networks.TOLERANCE, tensorflow=False)
    want, symmetric = calls["explicit pad"](), calls["symmetric"]()
    assert symmetric.shape == want.shape
    assert networks.difference(symmetric, want) > 50 * networks.TOLERANCE


def test_a_training_step_lowers_the_same_loss_in_every_style():
    case = small(NETWORKS[-1])
    steps = networks.training_calls(case, tensorflow=False)
    networks.check(steps, networks.LOSS_TOLERANCE, tensorflow=False, calls_each=2)
    first, *_, last = [steps["mxsame"]() for _ in range(5)]
    assert last < first


@pytest.mark.oracle
@by_network
def test_a_network_is_tensorflows(network):
    case = small(network, batch=1)
    made = networks.kits(case, ["mxsame"])["mxsame"]
    data = networks.images(case)
    want = networks._tensorflow_model(case, made)(np.moveaxis(data.asnumpy(), 1, -1)).numpy()
    want = np.moveaxis(want, -1, 1) if want.ndim > 2 else want
    assert networks.difference(made.net(data), want) < networks.TOLERANCE


def test_networks_that_differ_are_not_timed():
    calls = {"explicit pad": lambda: mx.nd.ones(3), "mxsame": lambda: mx.nd.ones(3) * 1.01}
    with pytest.raises(networks.Disagreement, match="mxsame and explicit pad differ"):
        networks.check(calls, networks.TOLERANCE, tensorflow=False)
    calls["symmetric"] = calls.pop("mxsame")
    networks.check(calls, networks.TOLERANCE, tensorflow=False)
