"""Large files take little more memory than their weights, and are closed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mxsame
from mxsame._mxnet import mx

h5py = pytest.importorskip("h5py", reason='h5py is not installed (pip install "mxsame[keras]")')

ROOT = Path(__file__).resolve().parents[2]
WIDTH, DEPTH = 1024, 12  # 48 MiB
PEAK = """
import sys
from pathlib import Path
import mxsame

def mebibytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":"))

mxsame.from_keras(sys.argv[1] + "/small.json", sys.argv[1] + "/small.h5")
before = mebibytes("VmRSS")
net = mxsame.from_keras(sys.argv[1] + "/large.json", sys.argv[1] + "/large.h5")
parameters = [parameter.data() for parameter in net.collect_params().values()]
print((mebibytes("VmHWM") - before) / sum(array.size * 4 / 2**20 for array in parameters))
"""


def write_dense(folder, name, width, depth):
    """Layers of width x width, as a configuration and weights."""
    layers = [{"class_name": "InputLayer", "config": {"name": "input", "batch_input_shape": [None, width]}}]
    with h5py.File(folder / f"{name}.h5", "w") as file:
        names = [f"dense_{number}" for number in range(depth)]
        file.attrs["layer_names"] = [layer.encode() for layer in names]
        for layer in names:
            config = {"name": layer, "units": width, "activation": "linear", "use_bias": False}
            layers.append({"class_name": "Dense", "config": config})
            group = file.create_group(layer)
            group.attrs["weight_names"] = [f"{layer}/kernel:0".encode()]
            group.create_dataset(f"{layer}/kernel:0", data=np.ones((width, width), "float32"))
    config = {"class_name": "Sequential", "config": {"name": name, "layers": layers}, "keras_version": "2.13.1"}
    (folder / f"{name}.json").write_text(json.dumps(config))


@pytest.fixture
def folder(tmp_path):
    write_dense(tmp_path, "small", 4, 2)
    write_dense(tmp_path, "large", WIDTH, DEPTH)
    return tmp_path


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from Linux's /proc")
def test_peak_memory_is_little_more_than_the_weights(folder):
    command, environment = [sys.executable, "-c", PEAK, str(folder)], {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not result.returncode, result.stderr
    assert 0.9 < float(result.stdout) < 1.7


def test_a_file_is_closed_and_its_weights_are_in_the_parameters_only(folder):
    net = mxsame.from_keras(folder / "small.json", folder / "small.h5")
    (folder / "small.h5").rename(folder / "moved.h5")
    with h5py.File(folder / "moved.h5", "r+") as file:  # HDF5 refuses to write to a file that is open
        file.attrs["touched"] = 1
    assert [array for layer in net.description.walk() for array in layer.weights if not isinstance(array, tuple)] == []
    mxsame.to_keras_weights(net, folder / "again.h5")
    with h5py.File(folder / "again.h5", "r") as file:
        np.testing.assert_array_equal(file["dense_1/dense_1/kernel:0"][()], np.ones((4, 4)))


def test_a_file_with_custom_layers_is_closed(folder):
    def dense(config, weights):
        block = mx.gluon.nn.Dense(config["units"], in_units=4, use_bias=False)
        block.initialize()
        block.weight.set_data(mx.nd.array(weights[0].T))
        return block

    net = mxsame.from_keras(folder / "small.json", folder / "small.h5", custom={"Dense": dense})
    assert [tuple(array.shape) for layer in net.description.walk() for array in layer.weights] == [(4, 4)] * 2
    with h5py.File(folder / "small.h5", "r+") as file:
        file.attrs["touched"] = 1
