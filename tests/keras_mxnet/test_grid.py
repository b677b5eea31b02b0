"""Every layer on a grid: outputs in both learning phases and gradients, compared with the NumPy reference."""

import pytest
from grid import FORMATS, LAYERS, grid, mistakes
from running import of_the_day

from mxsame.keras import plugin

DAYS = 11  # a prime, so that every size, kernel, stride and padding is met on each of them


@pytest.mark.parametrize("dynamic_shape", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("name", LAYERS)
def test_the_grid_is_right(name, data_format, dynamic_shape):
    with plugin.installed():
        chosen = of_the_day(list(grid(name)), DAYS)
        mistaken = {case.name: mistakes(name, case, data_format, dynamic_shape=dynamic_shape) for case in chosen}
    assert {case: words for case, words in mistaken.items() if words} == {}
