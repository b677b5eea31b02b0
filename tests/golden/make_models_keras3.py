"""Records small model files of Keras 3 and what it gives for them, into tests/golden/models/keras3.*.

    python tests/golden/make_models_keras3.py          # writes keras3.zip and keras3.npz
    python tests/golden/make_models_keras3.py --check    # loads the recorded files, compares, and writes nothing

In the environment of make_keras3.py: Keras 3 and the TensorFlow it needs do not live with MXNet.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import keras_recording as recording  # noqa: E402
import make  # noqa: E402

ALL_FORMATS = ("sequential", "nested_twice", "siamese", "operators")


def formats(network):
    """The endings of the files of a network: whole models, or an architecture with its weights.

    Keras 3 writes operators between layers into an .h5 that it cannot read.
    """
    if network not in ALL_FORMATS:
        return (".keras",)
    return (".keras", ".json", ".weights.h5") if network == "operators" else (".keras", ".h5", ".json", ".weights.h5")


def main():
    """Write or check the files."""
    check = make.wants_check(__doc__)
    os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import keras

    if check:
        return recording.check(keras, "keras3", formats)
    return recording.write(keras, "keras3", formats, {})


if __name__ == "__main__":
    sys.exit(main())
