"""Makes text-lines.keras and .npz for 06-text-lines.ipynb: a network that reads lines of handwritten digits.

    python notebooks/make_text_lines.py            # trains the model and writes both files
    python notebooks/make_text_lines.py --check    # loads the files, compares outputs, and writes nothing

Needs tensorflow-cpu==2.13.1 and scikit-learn 1.3, for Python 3.11; shares no code with mxsame. Takes some minutes.
The same machine gives the same values again; another one may differ in the last bits.

Convolutions with SAME, a bidirectional LSTM over the columns, and Dense give the probabilities of ten digits and of the
blank of connectionist temporal classification (Graves et al. 2006), with which it is trained. Lines are six of
scikit-learn's digits with random gaps. Weights are rounded to bfloat16 *before* anything is recorded. The .npz holds
the outputs for 100 lines of digits that the training did not see, and the lines as they were drawn.
"""

import os
import sys
from pathlib import Path

os.environ["TF_DETERMINISTIC_OPS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

MODEL = Path(__file__).resolve().with_name("text-lines.keras")
OUTPUTS = MODEL.with_suffix(".npz")
HEIGHT, WIDTH, DIGITS, LARGEST_GAP = 16, 124, 6, 5
BLANK = 10
STEPS, BATCH = 1500, 32


def lines(test, count, rng):
    """Lines (count, 16, 124, 1) from 0 to 1, and their digits (count, 6); every fourth digit is for testing."""
    digits = load_digits()
    chosen = np.flatnonzero((np.arange(len(digits.target)) % 4 == 0) == test)
    which = rng.choice(chosen, (count, DIGITS))
    pictures = np.zeros((count, HEIGHT, WIDTH, 1), "float32")
    for line, row in zip(pictures, which):
        start = 0
        for index in row:
            start += rng.integers(LARGEST_GAP)
            line[:, start : start + HEIGHT, 0] = digits.images[index].repeat(2, axis=0).repeat(2, axis=1) / 16
            start += HEIGHT
    return pictures, digits.target[which].astype("int32")


def network():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((HEIGHT, WIDTH, 1), name="line"),
            layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            layers.Permute((2, 1, 3)),
            layers.Reshape((WIDTH // 4, HEIGHT // 4 * 16)),
            layers.Bidirectional(layers.LSTM(32, return_sequences=True)),
            layers.Dense(BLANK + 1, activation="softmax"),
        ]
    )


def trained(rng):
    """A new model with the rounded weights of a trained one: without its optimizer."""
    model = network()
    rate = tf.keras.optimizers.schedules.CosineDecay(3e-3, STEPS)

    def loss(labels, scores):
        frames = tf.fill([BATCH, 1], WIDTH // 4)
        return tf.keras.backend.ctc_batch_cost(labels, scores, frames, tf.fill([BATCH, 1], DIGITS))

    model.compile(tf.keras.optimizers.Adam(rate, clipnorm=1.0), loss)
    pictures, labels = lines(False, STEPS // 5 * BATCH, rng)
    model.fit(pictures, labels, BATCH, epochs=5, verbose=2)
    rounded = network()
    rounded.set_weights([tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy() for x in model.get_weights()])
    return rounded


def read(scores):
    """The most probable digit of each column, without repetitions and blanks."""
    best = scores.argmax(axis=-1)
    return [[now for now, last in zip(row, (BLANK, *row)) if now != last and now != BLANK] for row in best]


def main():
    tf.keras.utils.set_random_seed(3)
    if "--check" in sys.argv[1:]:
        with np.load(OUTPUTS) as file:
            scores = tf.keras.models.load_model(MODEL, compile=False)(file["lines"] / np.float32(16)).numpy()
            difference = np.abs(scores - file["scores"]).max()
        print(f"largest difference {difference:.1e}")
        return int(not difference < 1e-4)
    rng = np.random.default_rng(0)
    model = trained(rng)
    pictures, labels = lines(True, 100, rng)
    scores = model(pictures, training=False).numpy()
    right = np.mean([found == [*wanted] for found, wanted in zip(read(scores), labels)])
    print(f"{right:.1%} of the lines are right, {model.count_params():,} parameters")
    model.save(MODEL)
    drawn = (pictures * 16).astype("uint8")
    recorded_with = f"TensorFlow {tf.__version__}"
    np.savez_compressed(OUTPUTS, lines=drawn, digits=labels, scores=scores, recorded_with=recorded_with)
    print(f"{MODEL.name}: {MODEL.stat().st_size:,} bytes; {OUTPUTS.name}: {OUTPUTS.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
