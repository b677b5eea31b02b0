"""Records the networks of `keras_networks` as files of a Keras, tf.keras 2.13 or Keras 3, and what it gives for them.

    python tests/golden/keras_recording.py            # writes models/keras2.*, or keras3.*, by what is installed
    python tests/golden/keras_recording.py --check    # loads the recorded files, compares, and writes nothing

Python 3.11 with tensorflow-cpu 2.13.1, or the environment of make_keras3.py: Keras 3 and the TensorFlow it needs do not
live with MXNet.
"""

import os
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import keras_networks  # noqa: E402
import make  # noqa: E402

FOLDER = HERE / "models"
WHOLE, WEIGHTS = (".h5", ".keras"), (".legacy.h5", ".weights.h5")  # endings of files
ALL_FORMATS = {  # networks that are recorded in each
    "keras2": ("sequential", "unet", "nested_twice", "siamese", "normalizations", "operators"),
    "keras3": ("sequential", "nested_twice", "siamese", "operators"),
}


def formats(keras, network):
    """The endings of the files of a network: whole models, or an architecture with weights in one of two formats."""
    if network not in ALL_FORMATS[keras]:
        return (".h5",) if keras == "keras2" else (".keras",)
    if keras == "keras2":
        return (*WHOLE, ".json", *WEIGHTS)
    # Keras 3 writes operators between layers into an .h5 that it cannot read.
    return (".keras", *[".h5"] * (network != "operators"), ".json", ".weights.h5")


def whole_models():
    """(Keras, network) of each that is in a file of a whole model."""
    return [(keras, network) for keras in ALL_FORMATS for network in names() if {*WHOLE} & {*formats(keras, network)}]


def names():
    """Every recorded name: a network, or a network with channels first."""
    return [*keras_networks.NETWORKS, *(f"{name}_channels_first" for name in keras_networks.FIRST)]


def built(keras, name):
    """(model, the same with channels last): TensorFlow has no CPU kernels for channels first."""
    network, first = name.replace("_channels_first", ""), name.endswith("_channels_first")
    models = []
    for data_format in dict.fromkeys(["channels_first" if first else "channels_last", "channels_last"]):
        keras.backend.clear_session()
        keras.backend.set_image_data_format(data_format)
        models.append(keras_networks.NETWORKS[network](keras, data_format == "channels_first"))
        keras.backend.set_image_data_format("channels_last")
    arrays = keras_networks.weights(models[-1])
    for model in models:
        model.set_weights(arrays)
        finalize(model)
    return models[0], models[-1]


def finalize(model):
    """Normalization layers compute what they use from their weights."""
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def listed(values):
    """One array or several, as a list."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def called(model, given):
    """The outputs of a model in inference."""
    return [np.asarray(out) for out in listed(model(given if len(given) > 1 else given[0], training=False))]


def recorded(keras, name):
    """(model, key -> array): `<name>/input/0`, .. and `<name>/output/0`, .. in inference."""
    model, runs = built(keras, name)
    given = keras_networks.inputs(runs)
    got = called(runs, given)
    if model is not runs:
        given, got = (list(map(keras_networks.channels_first, arrays)) for arrays in (given, got))
    arrays = {f"{name}/input/{position}": array for position, array in enumerate(given)}
    return model, {**arrays, **{f"{name}/output/{position}": array for position, array in enumerate(got)}}


def gradients(keras, name):
    """`<name>/gradient/<dataset>`, as in an h5 file of weights, and `<name>/trained/0`, ..: the outputs in training and
    the gradients of sum(output * head gradient)."""
    import h5py
    import tensorflow

    _, model = built(keras, name)
    given = keras_networks.inputs(model)
    with tensorflow.GradientTape() as tape:
        outputs = listed(model(given if len(given) > 1 else given[0], training=True))
        heads = [head_gradient(name, position, out.shape) for position, out in enumerate(outputs)]
        loss = sum(tensorflow.reduce_sum(out * head) for out, head in zip(outputs, heads))
    of_weights = dict(zip((id(v) for v in model.trainable_weights), tape.gradient(loss, model.trainable_weights)))
    model.set_weights([np.asarray(of_weights.get(id(v), tensorflow.zeros(v.shape))) for v in model.weights])
    result = {f"{name}/trained/{position}": np.asarray(out) for position, out in enumerate(outputs)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gradients.h5"
        model.save_weights(str(path))
        with h5py.File(path) as file:

            def visit(where, entry):
                if isinstance(entry, h5py.Dataset) and "/moving_" not in where:
                    result[f"{name}/gradient/{where}"] = entry[()]

            file.visititems(visit)
    return result


def head_gradient(name, position, shape):
    """What comes back from above to an output: the test makes it again."""
    random = keras_networks.seeded(f"head gradient {position} of {name}")
    return random.normal(0, 1, tuple(shape)).astype("float32")


def loaded(keras, model, path, own):
    """The model of a file; if it holds only weights, they go into the given model."""
    if not path.endswith(WEIGHTS):
        return keras.models.load_model(path, own, compile=False)
    model.set_weights([array * 0 for array in model.get_weights()])
    model.load_weights(path)
    return model


def write(keras, name):
    """Writes `models/<name>.zip`, every network in its formats, and `models/<name>.npz`."""
    result = {}
    for network in keras_networks.TRAINED if name == "keras2" else ():
        result.update(gradients(keras, network))
    with tempfile.TemporaryDirectory() as folder:
        for network in names():
            model, arrays = recorded(keras, network)
            result.update(arrays)
            for ending in formats(name, network):
                if ending == ".json":
                    Path(folder, f"{network}.json").write_text(model.to_json(), encoding="utf-8")
                else:
                    save = model.save_weights if ending in WEIGHTS else model.save
                    save(str(Path(folder, f"{network}{ending}")))
        files = sorted(Path(folder).iterdir())
        with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in files:
                archive.write(path, path.name)
    print(f"{len(files)} files, {(FOLDER / f'{name}.zip').stat().st_size / 1e6:.2f} MB")
    return make.settle({**result, "versions": np.array(versions())}, FOLDER / f"{name}.npz", check=False)


def check(keras, name):
    """Loads every recorded file in this Keras, and compares what it gives with the recording; the exit status."""
    old, wrong = make.load(FOLDER / f"{name}.npz"), []
    own = {"SpectralNormalization": keras.layers.SpectralNormalization}  # which 2.13 does not find for an .h5
    with tempfile.TemporaryDirectory() as folder:
        unpack(name, folder)
        for network in names():
            model, arrays = recorded(keras, network)
            weights = model.get_weights()
            wrong += [key for key, array in arrays.items() if not make.close(old[key], array)]
            for ending in formats(name, network):
                if ending == ".json":
                    continue
                again = loaded(keras, model, str(Path(folder, f"{network}{ending}")), own)
                equal = len(again.weights) == len(weights) and all(map(np.array_equal, again.get_weights(), weights))
                if equal and network in keras_networks.NETWORKS:  # channels last, which runs on the CPU
                    got = called(again, keras_networks.inputs(again))
                    equal = all(make.close(old[f"{network}/output/{number}"], out) for number, out in enumerate(got))
                wrong += [] if equal else [f"{network}{ending}"]
    print(f"{len(old)} arrays recorded; different: {wrong}")
    return 1 if wrong else 0


def unpack(name, folder):
    """Puts the recorded files of a Keras into a folder."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder)


def unpacked(folder):
    """Keras -> (folder of its recorded files, key -> array), of both, below a folder."""
    for keras in ALL_FORMATS:
        unpack(keras, folder / keras)
    return {keras: (folder / keras, make.load(FOLDER / f"{keras}.npz")) for keras in ALL_FORMATS}


def numbered(arrays, prefix):
    """The arrays `<prefix>/0`, `<prefix>/1`, .."""
    return [arrays[key] for key in (f"{prefix}/{number}" for number in range(len(arrays))) if key in arrays]


def versions():
    """What made the recording."""
    packages = {name: version(name) for name in ("keras", "tensorflow-cpu", "numpy")}
    return ", ".join(f"{name} {number}" for name, number in {**packages, "python": sys.version.split()[0]}.items())


def main():
    """Write or check the files."""
    is_check = make.wants_check(__doc__)
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import tensorflow as tf

    name = "keras3" if keras_networks.is_keras_3(tf.keras) else "keras2"
    return check(tf.keras, name) if is_check else write(tf.keras, name)


if __name__ == "__main__":
    sys.exit(main())
