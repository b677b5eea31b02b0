"""Records small model files of tf.keras 2.13 and what it gives for them, into tests/golden/models/keras2.*.

    python tests/golden/make_models_keras2.py          # writes keras2.zip and keras2.npz
    python tests/golden/make_models_keras2.py --check    # loads the recorded files, compares, and writes nothing

Python 3.11 with tensorflow-cpu 2.13.1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import keras_networks  # noqa: E402
import keras_recording as recording  # noqa: E402
import make  # noqa: E402

ALL_FORMATS = ("sequential", "unet", "nested_twice", "siamese", "normalizations", "operators")


def formats(network):
    """The endings of the files of a network: whole models, or an architecture with weights in one of two formats."""
    return (".h5", ".keras", ".json", ".legacy.h5", ".weights.h5") if network in ALL_FORMATS else (".h5",)


def main():
    """Write or check the files."""
    check = make.wants_check(__doc__)
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import tensorflow as tf

    if check:
        own = {"SpectralNormalization": tf.keras.layers.SpectralNormalization}  # which 2.13 does not find for an .h5
        return recording.check(tf.keras, "keras2", formats, own)
    more = {}
    for name in keras_networks.TRAINED:
        more.update(recording.gradients(tf.keras, tf, name, lambda model, path: model.save_weights(path)))
    return recording.write(tf.keras, "keras2", formats, more)


if __name__ == "__main__":
    sys.exit(main())
