"""Makes digits.h5, the Keras model of README.md: a small network that recognizes handwritten digits.

    python examples/make_digits.py            # trains the model, writes digits.h5 and prints its accuracy
    python examples/make_digits.py --check    # loads digits.h5, prints the same, and writes nothing

The accuracy is that of the model, and of the same weights with symmetric padding.

Needs tensorflow-cpu==2.13.1, scikit-learn 1.3 and NumPy 1.23, for Python 3.11. Takes half a minute. Another machine may
give weights that differ in the last bits.

The data are the 8x8 digits that scikit-learn ships: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI
Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0. No copy of them is here.
"""

import os
import sys
from pathlib import Path

os.environ["TF_DETERMINISTIC_OPS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from sklearn.datasets import load_digits

MODEL = Path(__file__).resolve().parents[1] / "mxsame" / "data" / "digits.h5"


def data():
    """Images (N, 8, 8, 1) from 0 to 1, and their labels: every fourth is for testing."""
    digits = load_digits()
    images = (digits.images / 16).astype("float32")[..., None]
    test = [number % 4 == 0 for number in range(len(images))]
    train = [not each for each in test]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def trained(images, labels):
    """Two convolutions with stride 2 on even sizes: SAME pads only the end, (0, 1)."""
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(images, labels, batch_size=32, epochs=40, verbose=0)
    return tf.keras.Sequential.from_config(model.get_config()), model.get_weights()


def symmetric(model):
    """The model with the same padding at both ends, as MXNet's own operators have it."""
    layers = tf.keras.layers
    changed = tf.keras.Sequential([layers.Input((8, 8, 1))])
    for layer in model.layers:
        if isinstance(layer, layers.Conv2D):
            changed.add(layers.ZeroPadding2D(1))
            layer = layers.Conv2D.from_config({**layer.get_config(), "padding": "valid"})
        changed.add(layer)
    changed.set_weights(model.get_weights())
    return changed


def accuracy(model, images, labels):
    return (model.predict(images, verbose=0).argmax(axis=1) == labels).mean()


def main():
    train, (images, labels) = data()
    if "--check" not in sys.argv[1:]:
        model, weights = trained(*train)
        model.set_weights(weights)  # without the optimizer
        model.save(MODEL, save_format="h5")
    model = tf.keras.models.load_model(MODEL, compile=False)
    right, shifted = (accuracy(each, images, labels) for each in (model, symmetric(model)))
    print(
        f"{MODEL.stat().st_size} bytes; of {len(labels)} digits {right:.1%} right, {shifted:.1%} with symmetric padding"
    )


if __name__ == "__main__":
    main()
