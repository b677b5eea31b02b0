"""The C program of `examples/c`, built by the commands of its README."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

import mxsame

FOLDER = Path(__file__).parent.parent / "examples" / "c"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: apt-get install gcc")
def test_a_c_program_computes_what_the_net_does(tmp_path):
    shutil.copy(FOLDER / "predict.c", tmp_path)
    (block,) = re.findall("^```sh\n(.*?)^```", (FOLDER / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.M)
    script = block.replace("python -c", f"{sys.executable} -c").replace("gcc", "gcc -Wall -Wextra -Werror")
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(Path(mxsame.__file__).parents[1])}}
    printed = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, **options)
    assert printed.returncode == 0 and len(printed.stdout.splitlines()) == 6, printed  # four numbers a line
    net = mxsame.from_keras(mxsame.sample("digits"))
    data = np.random.default_rng(0).uniform(size=(3, 8, 8, 1)).astype("float32")

    def predict(*arguments):
        command = [tmp_path / "predict", *arguments]
        return subprocess.run(command, cwd=tmp_path, input=data.tobytes(), capture_output=True)

    got = np.frombuffer(predict("digits", "3,8,8,1").stdout, "float32").reshape(3, 10)
    np.testing.assert_allclose(got, net(mx.nd.array(data)).asnumpy(), rtol=0, atol=1e-6)
    for arguments, message in (
        (("nothing", "3,8,8,1"), b"nothing-symbol.json"),
        (("digits", "3,8,x"), b"a shape is integers with commas between"),
        (("digits", "3,8,9,1"), b"data_must_be_N_8_8_1"),
        (("digits", "4,8,8,1"), b"the input must have as many numbers as the shape"),
        ((), b"usage: predict"),
    ):
        refused = predict(*arguments)
        assert refused.returncode == 1 and message in refused.stderr
