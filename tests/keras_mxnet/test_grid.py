"""Every layer on a grid: outputs in both learning phases and gradients, compared with the NumPy reference."""

import pytest
from grid import FORMATS, LAYERS, grid, mistakes

from mxsame.keras import plugin

SAMPLE = 37  # a prime, so that every size, kernel, stride and padding is met


@pytest.mark.parametrize("every", [SAMPLE, pytest.param(1, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("dynamic_shape", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("name", LAYERS)
def test_the_grid_is_right(name, data_format, dynamic_shape, every):
    with plugin.installed():
        chosen = list(grid(name))[5 * dynamic_shape * (every > 1) :: every]
        found = {case.name: mistakes(name, case, data_format, dynamic_shape=dynamic_shape) for case in chosen}
    assert {case: words for case, words in found.items() if words} == {}


WRONG_WITHOUT = {  # of the sample, without the plugin: what is refused and what is silently wrong
    "SeparableConv1D": "NotImplementedError",
    "Conv3DTranspose": "NotImplementedError",
    "DepthwiseConv2D": "depth multiplier",
    "SeparableConv2D": "depth multiplier",
    "Conv2DTranspose": "MXNetError",
    "Conv1D": "predict",
    "Conv2D": "predict",
    "Conv3D": "predict",
    "MaxPooling1D": "predict",
    "MaxPooling2D": "predict",
    "MaxPooling3D": "predict",
    "AveragePooling1D": "predict",
    "AveragePooling2D": "predict",
    "AveragePooling3D": "predict",
}


@pytest.mark.parametrize("name", WRONG_WITHOUT)
def test_without_the_plugin_it_is_wrong(name):
    """So that the tests above are known to see it."""
    found = [words for case in list(grid(name))[::11] for words in mistakes(name, case, "channels_first", False)]
    assert any(WRONG_WITHOUT[name] in words for words in found), found
