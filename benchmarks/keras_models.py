"""Keras models of kinds that published packages come with, as small as these; `layers` is `tf.keras.layers`."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple


def detector(layers: Any, x: Any) -> Any:
    """The last network of a face detector in cascade, with PReLU after each layer."""
    for channels, kernel_size, pool in ((32, 3, 3), (64, 3, 3), (64, 3, 2)):
        x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(channels, kernel_size)(x))
        x = layers.MaxPool2D(pool, 2, padding="same")(x)
    x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(128, 2)(x))
    return layers.Dense(16)(layers.PReLU()(layers.Dense(256)(layers.Flatten()(x))))


def lstm(layers: Any, x: Any) -> Any:
    """Two recurrent layers with Keras 1's activation of gates."""
    x = layers.LSTM(128, recurrent_activation="hard_sigmoid", return_sequences=True)(x)
    return layers.Dense(10)(layers.LSTM(128, recurrent_activation="hard_sigmoid")(x))


def word_cutter(layers: Any, x: Any) -> Any:
    """1-D convolutions with every kernel size up to 12 over the characters around a place."""
    windows = [layers.Conv1D(150, size, activation="relu")(x) for size in range(1, 13)]
    x = layers.Concatenate()([layers.GlobalMaxPooling1D()(each) for each in windows])
    return layers.Dense(2)(layers.Dense(100, activation="relu")(x))


def video(layers: Any, x: Any) -> Any:
    """A recurrent layer of convolutions."""
    x = layers.ConvLSTM2D(16, 3, padding="same")(x)
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


def text_reader(layers: Any, x: Any) -> Any:
    """Convolutions over a line of text, then recurrent layers in both directions."""
    for channels in (32, 64, 128):
        x = layers.MaxPool2D(2)(layers.Conv2D(channels, 3, padding="same", activation="relu")(x))
    x = layers.Reshape((x.shape[1], -1))(x)
    for _ in range(2):
        x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    return layers.Dense(40)(x)


def audio(layers: Any, x: Any) -> Any:
    """Residual blocks of dilated causal 1-D convolutions."""
    x = layers.Conv1D(64, 1)(x)
    for level in range(8):
        y = layers.Conv1D(64, 3, dilation_rate=2**level, padding="causal", activation="relu")(x)
        x = layers.Add()([x, layers.Conv1D(64, 1)(y)])
    return layers.Dense(10)(layers.GlobalAveragePooling1D()(x))


MODELS: Dict[str, Tuple[Callable[[Any, Any], Any], Tuple[int, ...]]] = {  # name -> (model, shape of its input)
    "face detector": (detector, (48, 48, 3)),
    "LSTM, hard_sigmoid": (lstm, (50, 64)),
    "12 x Conv1D": (word_cutter, (21, 64)),
    "ConvLSTM2D": (video, (8, 32, 32, 3)),
    "Conv2D, LSTM": (text_reader, (128, 32, 1)),
    "dilated Conv1D": (audio, (1000, 16)),
}
