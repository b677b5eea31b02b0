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
        mistaken = {case.name: mistakes(name, case, data_format, dynamic_shape=dynamic_shape) for case in chosen}
    assert {case: words for case, words in mistaken.items() if words} == {}
