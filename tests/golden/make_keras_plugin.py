"""Records what tf.keras 2.13.1 makes of the networks of tests/keras_mxnet/networks.py.

    python tests/golden/make_keras_plugin.py            # writes keras-plugin.npz next to this file
    python tests/golden/make_keras_plugin.py --check    # compares with the recorded file and writes nothing

Python 3.11 with tensorflow-cpu 2.13.1 and NumPy 1.23.5, as for make.py. Channels come last, everything is float32:

| key | value |
| --- | --- |
| `<network>/shapes` | those of `model.get_weights()`, one line each |
| `<network>/<index>/shape`, `/output` | of the layer at this index, flattened; of a long one `make.sample` |
| `<network>/losses` | of `train_on_batch`, before each of the steps of plain SGD |
| `<network>/trained/<index>` | the weights afterwards, in the order of `get_weights`, flattened |
| `versions` | of TensorFlow, NumPy and Python |
"""

import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "keras_mxnet")]

import make  # noqa: E402
import networks  # noqa: E402

FILE = HERE / "keras-plugin.npz"


def record():
    """Everything the file holds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    keras, result = tf.keras, {}
    for name, (build, _, loss) in networks.NETWORKS.items():
        model, data = build(keras, "channels_last"), networks.data(name)
        shapes = [array.shape for array in model.get_weights()]
        model.set_weights(networks.weights(name, shapes))
        result[f"{name}/shapes"] = np.array("\n".join(" ".join(map(str, shape)) for shape in shapes))
        layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
        outputs = keras.models.Model(model.inputs, [layer.output for layer in layers]).predict(data, verbose=0)
        for index, output in enumerate(outputs):
            result[f"{name}/{index}/shape"] = np.array(output.shape, np.int32)
            result[f"{name}/{index}/output"] = make.sample(output).astype(np.float32)
        model.compile(keras.optimizers.legacy.SGD(networks.LEARNING_RATE), loss)
        target = networks.target(name, outputs[-1].shape)
        losses = [model.train_on_batch(data, target) for _ in range(networks.STEPS)]
        result[f"{name}/losses"] = np.array(losses, np.float32)
        for index, array in enumerate(model.get_weights()):
            result[f"{name}/trained/{index}"] = array.ravel()
    versions = f"tensorflow {tf.__version__}, numpy {np.__version__}, python {sys.version.split()[0]}"
    result["versions"] = np.array(versions)
    return result


def main():
    """Write or check the file."""
    check = make.wants_check(__doc__)
    return make.settle(record(), FILE, check)


if __name__ == "__main__":
    sys.exit(main())
