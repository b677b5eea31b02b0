"""Every convolutional model of tf.keras.applications 2.13 as a Gluon network, compared with Keras.

    python tests/port/applications.py                      # all of them: hours, and up to 10 GB of memory
    python tests/port/applications.py --only MobileNetV2 ResNet50
    python tests/port/applications.py --through keras      # .keras files; h5 by default, live without a file

Weights are random, statistics of batch norms too; nothing is downloaded. Each model runs in a process of its own, with
its top at its default size and without it at an odd, non-square size. Writes applications.md and applications.json into
--out, after every model. Exit status 1 if one of them is off by more than 1e-4 of its largest output.

Python 3.11 with tensorflow-cpu 2.13.1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
ODD_SIZE = (161, 143)
THROUGH = ("h5", "keras", "live")
SEVERAL = {  # family -> names
    "VGG": "16 19",
    "ResNet": "50 101 152 50V2 101V2 152V2",
    "MobileNet": " V2 V3Small V3Large",
    "DenseNet": "121 169 201",
    "NASNet": "Mobile Large",
    "EfficientNet": "B0 B1 B2 B3 B4 B5 B6 B7 V2B0 V2B1 V2B2 V2B3 V2S V2M V2L",
    "ConvNeXt": "Tiny Small Base Large XLarge",
    "RegNetX": "002 004 006 008 016 032 040 064 080 120 160 320",
    "RegNetY": "002 004 006 008 016 032 040 064 080 120 160 320",
    "ResNetRS": "50 101 152 200 270 350 420",
}
NAMES = [
    *("InceptionV3", "InceptionResNetV2", "Xception"),
    *(family + ending for family, endings in SEVERAL.items() for ending in endings.split(" ")),
]


def built(keras, name, size=None):
    """A model with random weights: with its top, which gives no probabilities, or without it for a size (h, w)."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    make = getattr(keras.applications, name)
    if size is None:
        model = make(weights=None, classifier_activation=None)
    else:
        model = make(weights=None, include_top=False, input_shape=(*size, 3))
    randomize(keras, model)
    return model


def randomize(keras, model):
    """Weights that keep signals of their size, and for every batch norm what it could have been trained to.

    Its statistics are those of the pictures, and then others: with any statistics at all, deep networks give the same
    for every picture.
    """
    generator, values = np.random.RandomState(5), []
    for variable, value in zip(model.weights, model.get_weights()):
        kind = variable.name.split("/")[-1].split(":")[0]
        if kind == "gamma":
            value = generator.uniform(0.5, 1.5, value.shape)
        elif kind in ("beta", "bias"):
            value = generator.normal(0, 0.1, value.shape)
        elif "kernel" in kind:
            fan_in = np.prod(value.shape[: 2 if kind == "depthwise_kernel" else -1])
            value = generator.normal(0, (2 / fan_in) ** 0.5, value.shape)
        values.append(np.asarray(value, "float32"))
    model.set_weights(values)
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    if norms:
        model(inputs(model), training=True)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
        mean, variance = norm.moving_mean.numpy(), norm.moving_variance.numpy()
        norm.moving_mean.assign(mean + generator.normal(0, 0.2, mean.shape) * variance**0.5)
        # Channels that hardly vary stay small: scaled up, they would make rounding the largest part of the outputs.
        norm.moving_variance.assign((variance + 0.3 * variance.mean()) * generator.uniform(0.5, 1.5, mean.shape))


def inputs(model):
    """Two pictures: of numbers up to 255 where the model scales them itself, and about 1 where it does not."""
    shape = (2, *(length or 224 for length in model.input_shape[1:3]), 3)  # MobileNetV3 takes any size
    generator = np.random.RandomState(3)
    scales = any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in model.layers)
    return (generator.uniform(0, 255, shape) if scales else generator.normal(0, 1, shape)).astype("float32")


def check(name, through="h5", size=None):
    """One model at one size: {"parameters", "layers", "seconds", "difference", "variation", "size"}.

    `difference` is the largest one between the outputs, as a part of the largest output; `variation` the same between
    the outputs for two pictures: a network that gives the same for all of them would prove nothing.
    """
    import mxsame  # before TensorFlow
    from mxsame._mxnet import mx

    import tensorflow as tf  # isort: skip

    model = built(tf.keras, name, size)
    pictures = inputs(model)
    want = model(pictures, training=False).numpy()
    with tempfile.TemporaryDirectory() as folder:
        source = model
        if through != "live":
            source = os.path.join(folder, f"model.{through}")
            model.save(source)
        began = time.perf_counter()
        net = mxsame.from_keras(source)
        seconds = time.perf_counter() - began
    got = net(mx.nd.array(pictures)).asnumpy()
    largest = float(np.abs(want).max())
    return {
        "size": list(pictures.shape[1:3]),
        "parameters": model.count_params(),
        "layers": len(model.layers),
        "seconds": seconds,
        "difference": float(np.abs(got - want).max()) / largest if got.shape == want.shape else float("inf"),
        "variation": float(np.abs(want[0] - want[1]).max()) / largest,
    }


def in_another_process(name, through, size):
    """The same, with the most memory that it took in MB, or {"error"}."""
    code = (
        "import json, resource, sys; import applications; "
        "found = applications.check(*json.loads(sys.argv[1])); "
        "found['megabytes'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024; "
        "print(json.dumps(found))"
    )
    path = [str(Path(__file__).parent), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code, json.dumps([name, through, size])]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(result.stdout.strip().splitlines()[-1])
    lines = result.stderr.strip().splitlines()
    return {"error": lines[-1][:300] if lines else f"exit status {result.returncode}"}


def is_right(found):
    """Whether a check came to an end, and to a small difference between outputs that vary."""
    return "error" not in found and found["difference"] < TOLERANCE and found["variation"] > 10 * TOLERANCE


def table(results):
    """The results as Markdown."""
    lines = [
        "| model | parameters | layers | seconds | difference | size | difference | size |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for name, (default, odd) in results.items():
        first = default if "error" not in default else odd
        cells = [f"{first['parameters']:,}", str(first["layers"]), f"{first['seconds']:.1f}"]
        for found in (default, odd):
            right = "error" not in found
            cells += (
                [f"{found['difference']:.1e}", "x".join(map(str, found["size"]))] if right else [found["error"], ""]
            )
        lines.append(f"| {name} | {' | '.join(cells)} |" if "error" not in first else f"| {name} | {first['error']} |")
    return "\n".join(lines) + "\n"


def main():
    """Check, and write both files after every model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, default=NAMES)
    parser.add_argument("--through", choices=THROUGH, default="h5", help="what is read")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the table")
    given = parser.parse_args()
    results, failed = {}, []
    for number, name in enumerate(given.only, 1):
        results[name] = [in_another_process(name, given.through, size) for size in (None, ODD_SIZE)]
        failed += [] if all(map(is_right, results[name])) else [name]
        print(f"[{number}/{len(given.only)}] {name}: {results[name]}", flush=True)
        (given.out / "applications.md").write_text(table(results), encoding="utf-8")
        (given.out / "applications.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{len(given.only) - len(failed)} of {len(given.only)} models give what Keras gives; not: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
