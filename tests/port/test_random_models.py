"""Random Keras models, live against tf.keras; `python tests/port/random_models.py 0 5000` draws more of them."""

import pytest
from random_models import check

pytestmark = pytest.mark.oracle


CRASHES = {158}  # TensorFlow 2.13.1 itself ends the process


@pytest.mark.parametrize("seed", sorted({*range(201)} - CRASHES))
def test_a_random_model_gives_what_keras_gives(seed):
    check(seed, with_gradients=seed % 8 == 0)
