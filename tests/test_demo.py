"""`mxsame demo`: layers give TensorFlow's recorded outputs, symmetric padding does not, and a wrong one is reported."""

import numpy as np
import pytest
from click.testing import CliRunner

from mxsame import demo
from mxsame.cli import main

WRONG_IF_SYMMETRIC = {
    "stem": ["conv", "pool"],
    "sequential": [],
    "autoencoder": ["code", "conv4", "up1", "conv5", "up2", "conv6", "up3", "conv7"],
}


@pytest.mark.parametrize(("network", "wrong"), WRONG_IF_SYMMETRIC.items())
def test_every_layer_is_tensorflows_and_symmetric_padding_has_only_its_shape(network, wrong):
    rows = list(demo.compare(network))
    for row in rows:
        np.testing.assert_allclose(row.mxsame, row.tensorflow, rtol=0, atol=2e-5 * max(1, np.abs(row.tensorflow).max()))
        assert row.is_right(row.mxsame) and row.symmetric.shape == row.tensorflow.shape
        assert row.is_right(row.symmetric) or row.difference(row.symmetric) > 0.25
    assert [row.layer.name for row in rows if not row.is_right(row.symmetric)] == wrong


def test_the_command_prints_a_table():
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    assert "24 of 24 layers match TensorFlow 2.13.1." in result.output and "14 of 24" in result.output
    rows = result.output[result.output.index("Stem") :]
    assert rows.count(" *\n") == rows.count("*") == 24 - 14, "wrong layers are marked"
    assert "(2, 3) (2, 3)" in result.output and max(map(len, result.output.splitlines()[:-1])) <= 80
    assert result.output.index("largest difference") < result.output.index("Stem"), "columns are explained first"


@pytest.mark.parametrize("wrong", ["a value", "not a number", "shape"])
def test_a_wrong_layer_gives_exit_code_1(monkeypatch, wrong):
    compare = demo.compare

    def broken(network):
        for row in compare(network):
            if row.layer.name == "conv5":
                output = row.mxsame[1:] if wrong == "shape" else row.mxsame.copy()
                output[3, 4, 5] += {"a value": 0.01, "not a number": np.nan, "shape": 0}[wrong]
                row = row._replace(mxsame=output)
            yield row

    monkeypatch.setattr(demo, "compare", broken)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "23 of 24" in result.output
