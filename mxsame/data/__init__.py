"""Files that come with the package: a sample, and what `mxsame demo` shows."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
SAMPLES = {"digits": "digits.h5"}


def sample(name: str) -> str:
    """Return the path of a sample file.

    "digits" is a Keras model that recognizes handwritten digits: it computes 10 probabilities from images (N, 8, 8, 1)
    of 0..1.
    Raises `ValueError` for another name.

    >>> import mxsame
    >>> mxsame.from_keras(mxsame.sample("digits")).inputs[0].shape
    (None, 8, 8, 1)
    """
    if name not in SAMPLES:
        raise ValueError(f"name must be {' or '.join(map(repr, SAMPLES))}; received name={name!r}")
    return str(FOLDER / SAMPLES[name])
