"""Some models of tf.keras.applications; `applications.py` checks all of them."""

from __future__ import annotations

import applications
import pytest

pytestmark = [  # Keras 2.13's own warnings
    pytest.mark.filterwarnings("ignore:non-integer arguments to randrange:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning"),
]

SMALL = ["MobileNet", "MobileNetV2", "MobileNetV3Small"]


@pytest.mark.oracle
@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_of_an_odd_size(name):
    found = applications.check(name, "live", (65, 83))
    assert applications.is_right(found), found


@pytest.mark.heavy
@pytest.mark.oracle
@pytest.mark.parametrize("through", applications.THROUGH)
@pytest.mark.parametrize("name", SMALL)
def test_a_model_at_its_default_size(name, through):
    found = applications.check(name, through)
    assert applications.is_right(found), found


@pytest.mark.heavy
@pytest.mark.oracle
@pytest.mark.parametrize("name", SMALL)
def test_a_model_at_an_odd_size(name):
    found = applications.check(name, "h5", applications.ODD_SIZE)
    assert applications.is_right(found), found


@pytest.mark.oracle
def test_all_names_are_applications():
    import tensorflow as tf

    assert [name for name in applications.NAMES if not callable(getattr(tf.keras.applications, name, None))] == []
    classes = {name for name in vars(tf.keras.applications) if name[0].isupper()}
    assert classes == set(applications.NAMES)
