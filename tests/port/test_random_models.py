"""Random Keras models, live against tf.keras; `python tests/port/random_models.py 0 5000` draws more of them."""

import pytest
from random_models import check

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("seed", range(200))
def test_a_random_model_gives_what_keras_gives(seed):
    check(seed, with_gradients=seed % 8 == 0)
