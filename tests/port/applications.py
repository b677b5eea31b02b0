"""Every convolutional model of Keras's applications as a Gluon network and as an ONNX file, compared with Keras.

    python tests/port/applications.py                       # tf.keras 2.13 and .h5 files, and ONNX
    python tests/port/applications.py --keras PYTHON        # that interpreter's Keras 3, and .keras files
    python tests/port/applications.py --only MobileNetV2 ResNet50 --again

Weights are random, statistics of batch norms too; nothing is downloaded. Each model has its top at its default size,
and none at an odd, non-square one. Keras writes the file and its outputs in one process, and another one reads them,
without Keras; with tf.keras it also exports the network to ONNX, and runs that file in ONNX Runtime. All of them take
an hour or two, and up to 10 GB of memory: results are written after every model, and models that have all of theirs
are skipped, unless `--again` is given. `docs/tables.py` makes the tables of the docs from tests/results. Exit status 1
if one of the chosen models is off by more than 1e-4 of its largest output.

Python 3.11 with tensorflow-cpu 2.13.1, onnx and onnxruntime; PYTHON is one of the environment of
`tests/golden/make_keras3.py`.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "results"
TOLERANCE = 1e-4
ODD_SIZE = (161, 143)
SIZES = (None, ODD_SIZE)  # with the top at the default size, and without it
MOVING = {"Pad": "ZeroPadding2D", "Slice": "Cropping2D"}  # ONNX's operators, and the layers of Keras that explain them
KEPT = ("size", "seconds", "difference", "variation", "onnx", "error")  # of a check
NAMES = """
    MobileNetV3Small RegNetX002 RegNetY002 MobileNetV2 MobileNet RegNetY004 RegNetX004 EfficientNetB0 NASNetMobile
    MobileNetV3Large RegNetX006 RegNetY006 RegNetY008 EfficientNetV2B0 RegNetX008 EfficientNetB1 DenseNet121
    EfficientNetV2B1 RegNetX016 EfficientNetB2 EfficientNetV2B2 RegNetY016 EfficientNetB3 DenseNet169 EfficientNetV2B3
    RegNetX032 RegNetY032 EfficientNetB4 DenseNet201 RegNetY040 EfficientNetV2S RegNetX040 Xception InceptionV3
    ResNet50V2 ResNet50 RegNetX064 ConvNeXtTiny EfficientNetB5 RegNetY064 ResNetRS50 RegNetY080 RegNetX080
    EfficientNetB6 ResNet101V2 ResNet101 RegNetX120 ConvNeXtSmall RegNetY120 RegNetX160 EfficientNetV2M
    InceptionResNetV2 ResNet152V2 ResNet152 ResNetRS101 EfficientNetB7 RegNetY160 ResNetRS152 ConvNeXtBase NASNetLarge
    ResNetRS200 RegNetX320 EfficientNetV2L ResNetRS270 VGG16 VGG19 RegNetY320 ResNetRS350 ResNetRS420 ConvNeXtLarge
    ConvNeXtXLarge
""".split()  # noqa: SIM905 - from small to large
NAMES_3 = [name for name in NAMES if not name.startswith(("RegNet", "ResNetRS"))]  # those of Keras 3


# -- with Keras


def built(keras, name, size=None):
    """A model with random weights: with its top, which gives no probabilities, or without it for a size (h, w)."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    make = getattr(keras.applications, name)
    top = {"classifier_activation": None} if size is None else {"include_top": False, "input_shape": (*size, 3)}
    model = make(weights=None, **top)
    randomize(keras, model)
    return model


def randomize(keras, model):
    """Weights that keep signals of their size, and for every batch norm what it could have been trained to.

    Its statistics are those of the pictures, and then others: with any statistics at all, deep networks give the same
    for every picture.
    """
    generator = np.random.RandomState(5)
    for variable in model.weights:
        kind, shape = variable.name.split("/")[-1].split(":")[0], variable.shape
        if kind == "gamma":
            variable.assign(generator.uniform(0.5, 1.5, shape).astype("float32"))
        elif kind in ("beta", "bias"):
            variable.assign(generator.normal(0, 0.1, shape).astype("float32"))
        elif "kernel" in kind:
            fan_in = np.prod(shape[: 2 if kind == "depthwise_kernel" else -1])
            variable.assign(generator.standard_normal(shape).astype("float32") * np.float32((2 / fan_in) ** 0.5))
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


def record(name, size, folder, ending):
    """Writes model.h5 or model.keras, arrays.npz with "inputs" and "outputs", and about.json into a folder."""
    import tensorflow as tf

    model = built(tf.keras, name, size)
    model.save(os.path.join(folder, f"model{ending}"))
    pictures = inputs(model)
    np.savez(os.path.join(folder, "arrays.npz"), inputs=pictures, outputs=np.asarray(model(pictures, training=False)))
    about = {"parameters": model.count_params(), "layers": len(model.layers)}
    classes = [type(layer).__name__ for layer in model._flatten_layers(include_self=False, recursive=True)]
    about["padding"] = {kind: classes.count(kind) for kind in MOVING.values()}
    about["versions"] = {"keras": importlib.metadata.version("keras"), "tensorflow": tf.__version__}
    Path(folder, "about.json").write_text(json.dumps(about), encoding="utf-8")


# -- with MXNet


def compare(source, pictures, want, onnx=False):
    """A network from `source`: {"size", "seconds", "difference", "variation"}, and with `onnx` {"onnx"} as well.

    `difference` is the largest one between the outputs, as a part of the largest output; `variation` the same between
    the outputs for two pictures: a network that gives the same for all of them would prove nothing.
    """
    import mxsame
    from mxsame._mxnet import mx

    began = time.perf_counter()
    net = mxsame.from_keras(source)
    seconds = time.perf_counter() - began
    figures = {
        "size": list(pictures.shape[1:3]),
        "seconds": seconds,
        "difference": difference(net(mx.nd.array(pictures)).asnumpy(), want),
        "variation": float(np.abs(want[0] - want[1]).max() / np.abs(want).max()),
    }
    return {**figures, "onnx": compare_onnx(net, pictures, want)} if onnx else figures


def difference(got, want):
    """The largest one, as a part of the largest output."""
    return float(np.abs(got - want).max() / np.abs(want).max()) if got.shape == want.shape else float("inf")


def compare_onnx(net, pictures, want):
    """The network's ONNX file in ONNX Runtime: {"difference", "nodes"}, or {"error"}; `nodes` are all, those that move
    data, and those that change the order of axes."""
    import onnx
    import onnxruntime

    import mxsame

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net.onnx")
        try:
            mxsame.export_onnx(net, file, (1, *pictures.shape[1:]))
        except ValueError as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        got = session.run(None, {session.get_inputs()[0].name: pictures})[0]
        kinds = [node.op_type for node in onnx.load(file, load_external_data=False).graph.node]
    nodes = {"all": len(kinds), **{kind: kinds.count(kind) for kind in (*MOVING, "Transpose")}}
    return {"difference": difference(got, want), "nodes": nodes}


def compare_recorded(folder, ending, onnx=False):
    """The same of what `record` wrote, with what it wrote about the model."""
    arrays = np.load(os.path.join(folder, "arrays.npz"))
    about = json.loads(Path(folder, "about.json").read_text(encoding="utf-8"))
    figures = compare(os.path.join(folder, f"model{ending}"), arrays["inputs"], arrays["outputs"], onnx)
    from mxsame._mxnet import mx

    packages = ("onnx", "onnxruntime") if onnx else ()
    about["versions"].update({package: importlib.metadata.version(package) for package in packages})
    about["versions"].update(mxnet=mx.__version__, numpy=np.__version__)
    return {**about, **figures}


def check(name, size=None, onnx=False):
    """One model of tf.keras at one size, live in this process."""
    import mxsame  # noqa: F401 - before TensorFlow

    import tensorflow as tf  # isort: skip

    model = built(tf.keras, name, size)
    pictures = inputs(model)
    return compare(model, pictures, model(pictures, training=False).numpy(), onnx)


def is_right(check):
    """Whether a check came to an end, and to a difference that is small, also compared with what another picture
    changes: deep networks with random weights give nearly the same for all pictures. So for the ONNX file, if there is
    one."""
    compared = [check, *([check["onnx"]] if "onnx" in check else [])]
    most = min(TOLERANCE, check.get("variation", 0) / 100)
    return all("error" not in each and each["difference"] < most for each in compared)


def is_complete(model, onnx):
    """Whether all checks of a model are there, and right."""
    return all(is_right(check) and ("onnx" in check or not onnx) for check in model["checks"])


# -- the command


def in_other_processes(name, size, python, ending, onnx):
    """`record` in Keras's process, and `compare_recorded` in one of this interpreter; or {"error"}."""
    with tempfile.TemporaryDirectory() as folder:
        error = _called(python, "record", name, size, folder, ending)
        error = error or _called(sys.executable, "write_comparison", folder, ending, onnx)
        if error:
            return {"error": error}
        return json.loads(Path(folder, "comparison.json").read_text(encoding="utf-8"))


def write_comparison(folder, ending, onnx):
    Path(folder, "comparison.json").write_text(json.dumps(compare_recorded(folder, ending, onnx)), encoding="utf-8")


def _called(python, function, *arguments):
    """Calls a function of this file in a process of its own; the last line of its output if it fails."""
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    code = f"import applications, json, sys; applications.{function}(*json.loads(sys.argv[1]))"
    command = [python, "-c", code, json.dumps(arguments)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = result.stderr.strip().splitlines()
    return None if not result.returncode else (lines[-1][:300] if lines else f"exit status {result.returncode}")


def main():
    """Check, and write the file after every model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keras", metavar="PYTHON", help="an interpreter that has Keras 3")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, help="models; all by default")
    parser.add_argument("--again", action="store_true", help="models whose results are there, too")
    parser.add_argument("--out", type=Path, help="the file of results; one in tests/results by default")
    given = parser.parse_args()
    chosen = given.only or (NAMES_3 if given.keras else NAMES)
    path = given.out or RESULTS / f"applications-{'keras3' if given.keras else 'keras2'}.json"
    ending, onnx = (".keras", False) if given.keras else (".h5", True)
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"ending": ending, "models": {}}
    models, failed = results["models"], []
    for number, name in enumerate(chosen, 1):
        if given.again or not (name in models and is_complete(models[name], onnx)):
            checks = [in_other_processes(name, size, given.keras or sys.executable, ending, onnx) for size in SIZES]
            about = next((check for check in checks if "error" not in check), {})
            results["versions"] = about.get("versions", results.get("versions"))
            models[name] = {
                **{key: about.get(key) for key in ("parameters", "layers", "padding")},
                "date": datetime.date.today().isoformat(),
                "checks": [{key: check[key] for key in KEPT if key in check} for check in checks],
            }
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        failed += [] if all(map(is_right, models[name]["checks"])) else [name]
        print(f"[{number}/{len(chosen)}] {name}: {models[name]['checks']}", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} models give what Keras gives; not: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
