"""Makes keras-digits.npz for 04-keras-weights.ipynb: a small Keras network, trained by TensorFlow 2.13.1 on digits.

    python notebooks/make_keras_digits.py

Needs tensorflow-cpu==2.13.1 and scikit-learn 1.3, for Python 3.11; shares no code with mxsame. Takes a minute. The same
machine gives the same values again; another one may differ in the last bits.

Keys are `layer/kernel`, `layer/bias` and so on in float32, as tf.keras stores them; `logits` is what the network says
of the test images, every fourth image of scikit-learn's digits.
"""

import os
from pathlib import Path

os.environ["TF_DETERMINISTIC_OPS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

FILE = Path(__file__).resolve().with_name("keras-digits.npz")


def network():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.DepthwiseConv2D(3, strides=2, padding="same", name="depthwise"),
            layers.Conv2D(32, 1, activation="relu", name="pointwise"),
            layers.Flatten(),
            layers.Dense(10, name="dense"),
        ]
    )


def main():
    tf.keras.utils.set_random_seed(3)
    digits = load_digits()
    images, labels = (digits.images / 16).astype(np.float32)[..., None], digits.target
    test = np.arange(len(images)) % 4 == 0
    model = network()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.legacy.Adam(3e-3), loss, ["accuracy"])
    model.fit(images[~test], labels[~test], batch_size=32, epochs=40, verbose=0)
    logits = model(images[test], training=False).numpy()
    print(f"accuracy {np.mean(logits.argmax(1) == labels[test]):.4f}, {model.count_params()} parameters")
    saved = {
        f"{layer.name}/{weight.name.split('/')[-1].split(':')[0]}": weight.numpy()
        for layer in model.layers
        for weight in layer.weights
    }
    np.savez_compressed(FILE, logits=logits, recorded_with=f"TensorFlow {tf.__version__}", **saved)
    print(f"{FILE.name}: {FILE.stat().st_size} bytes; {', '.join(saved)}")


if __name__ == "__main__":
    main()
