"""`mxsame convert`: files, tables, JSON, exit codes. Files are recorded; the live model is compared where it can be."""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import types
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from configurations import entry, model_of
from mxnet import gluon, nd

import mxsame
from mxsame.cli import _child, _keras, convert as command, main
from mxsame.port import convert

pytest.importorskip("h5py", reason='h5py is not installed (pip install "mxsame[keras]")')


@pytest.fixture
def folder(recorded):
    return recorded["keras2"][0]


def run(*arguments):
    """The command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "run_in_child", lambda function, files, asked: function(asked))
        return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_conversion_runs_in_a_child_process(folder, tmp_path):
    path = os.pathsep.join([str(Path(mxsame.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    for file, code, stdout, stderr in (
        (folder / "sequential.h5", 0, f"written: {tmp_path / 'net'}-symbol.json", ""),
        (folder / "unet.json", 2, "", "Error: --weights must be given"),
    ):
        arguments = [sys.executable, "-m", "mxsame", "convert", file, "-o", tmp_path / "net"]
        done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == code and stdout in done.stdout and stderr in done.stderr, done


def _has_many_threads_and_is_killed(_, limits):
    with limits():
        nd.array(np.ones(2**21)).wait_to_read()
    os.kill(os.getpid(), signal.SIGKILL)


def test_threads_need_no_memory_of_the_file(tmp_path, monkeypatch):
    """Each reserves some for its stack; and a process that is killed has an end with a name."""
    monkeypatch.setenv("OMP_NUM_THREADS", "200")
    (tmp_path / "file").touch()
    with pytest.raises(click.ClickException, match="ended with SIGKILL"):
        _child.run_in_child(_has_many_threads_and_is_killed, [str(tmp_path / "file")], None)


def test_files_are_written_and_give_what_the_net_gives(folder, tmp_path):
    result = run(folder / "sequential.h5", "-o", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["written"] == [str(tmp_path / f"sequential{end}") for end in ("-symbol.json", "-0000.params")]
    assert report["check"] is None
    assert [layer["class_name"] for layer in report["layers"]][:2] == ["Conv2D", "BatchNormalization"]
    net = mxsame.from_keras(folder / "sequential.h5")
    shape = tuple(1 if n is None else n for n in net.inputs[0].shape)
    data = nd.array(np.random.default_rng(0).normal(size=shape))
    loaded = gluon.SymbolBlock.imports(report["written"][0], ["data"], report["written"][1])
    np.testing.assert_allclose(loaded(data).asnumpy(), net(data).asnumpy(), rtol=0, atol=1e-6)


def test_an_onnx_file(folder, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed: pip install '.[onnx]'")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    path, source = tmp_path / "net.onnx", tmp_path / "unet.json"
    config = json.loads((folder / "unet.json").read_text())
    config["config"]["layers"][0]["config"]["batch_input_shape"] = [None, None, None, 3]
    source.write_text(json.dumps(config))
    given = (source, "--weights", folder / "unet.weights.h5")
    result = run(*given, "-o", path, "--shape", "1,16,24,3", "--dynamic-size", "--opset", "17", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["written"] == [str(path)]
    data = np.random.default_rng(0).normal(size=(2, 32, 16, 3)).astype("float32")
    session, name = runtime.InferenceSession(str(path)), config["config"]["layers"][0]["config"]["name"]
    (got,) = session.run(None, {name: data})
    want = mxsame.from_keras(source, given[2])(nd.array(data)).asnumpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_an_onnx_file_that_is_not_compared_gets_a_warning(folder, tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="onnx is not installed: pip install '.[onnx]'")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = run(folder / "sequential.h5", "-o", tmp_path / "net.onnx", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output[result.output.index("{") :])["written"] == [str(tmp_path / "net.onnx")]
    assert "Warning: the file is checked by onnx, but not compared with the net: onnxruntime is" in result.output


def test_the_files_of_several_inputs(folder, tmp_path):
    """For the model's own size, and of that given; a name with points."""
    file = tmp_path / "of.two.h5"
    file.write_bytes((folder / "two_inputs_two_outputs.h5").read_bytes())
    net = mxsame.from_keras(file)
    shapes = [(2, *value.shape[1:]) for value in net.inputs]
    given = [part for shape in shapes for part in ("--shape", ",".join(map(str, shape)))]
    data = [nd.array(np.random.default_rng(0).normal(size=shape)) for shape in shapes]
    for name, arguments in (("own", []), ("given", given)):
        (tmp_path / name).mkdir()
        result = run(file, "-o", tmp_path / name, *arguments)
        assert result.exit_code == 0, result.output
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["of.two-0000.params", "of.two-symbol.json"]
        prefix = tmp_path / name / "of.two"
        loaded = gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data0", "data1"], f"{prefix}-0000.params")
        for got, want in zip(loaded(*data), net(*data)):
            np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=0, atol=1e-6)


def test_json_with_weights_and_a_size(folder, tmp_path):
    shape = mxsame.from_keras(folder / "unet.h5").inputs[0].shape
    given = ",".join(map(str, (2, shape[-1], *shape[1:-1])))
    arguments = ("--weights", folder / "unet.weights.h5", "--layout", "NCHW", "--shape", given, "-o", tmp_path / "net")
    result = run(folder / "unet.json", *arguments)
    assert result.exit_code == 0 and "transpositions between channels last and first" in result.output, result.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("unet.json",), 2, "Error: --weights must be given"),
        (("unet.h5", "-o", "missing/net"), 2, "does not exist"),
        (("unet.h5", "--shape", "1,2", "--shape", "3,4"), 2, "--shape must be given once for each input"),
        (("unet.h5", "--shape", "other=1,8,8,3"), 2, "received other."),
        (("unet.h5", "--layout", "NCW"), 2, "--layout must have as many axes as .*; received --layout='NCW'"),
        ((".",), 1, "received '.*', a folder"),
        (("unet.h5", "-o", "net", "--opset", "14"), 2, "are for an ONNX file"),
        (("sequential.h5", "-o", "net.onnx", "--dynamic-size"), 2, "None for its size, as Input((None, None, 3)) does"),
        (("unet.h5", "-o", "net.onnx", "--opset", "99"), 2, "--opset must be at most "),
        (("unet.h5", "-o", ""), 2, "'' must end in the name of a file."),
        (("unet.h5", "-o", "net.tflite"), 2, "an existing folder, or NAME.onnx; received net.tflite."),
        (("unet.h5", "--custom", "mxsame"), 2, "--custom must be MODULE:NAME, as in .*; received 'mxsame'."),
        (("unet.h5", "--custom", "mxsame:none"), 2, "--custom must name a dict of a module that Python finds: module"),
        (("unet.h5", "--custom", "json:loads"), 2, "--custom must name a dict; json:loads is a function."),
        (("unet.h5", "--shape", "1,3,8,12"), 2, "looks channels-first: use --layout NCHW, or the other order"),
        (("unet.h5", "--shape", "1,8,8"), 2, "as the model takes, (.*); received 1,8,8."),
        (("unet.h5", "--shape", "1,0,8,3"), 2, "'1,0,8,3' must be lengths of at least 1."),
        (("sequential.h5", "--shape", "1,99,98,3"), 2, "--shape must have .* received (1, 99, 98, 3)"),
        (("sequential.h5", "--check", "--padding", "keras-mxnet"), 2, "--check must not be given with --padding"),
    ],
)
def test_errors_and_exit_codes(folder, arguments, code, message):
    result = run(folder / arguments[0], *arguments[1:])
    assert result.exit_code == code
    assert re.search(re.escape(message).replace(re.escape(".*"), ".*"), result.output)


def test_layers_of_the_users_own(tmp_path, monkeypatch):
    """From a module in the current folder."""
    (tmp_path / "my_blocks.py").write_text(
        "from mxnet.gluon import nn\nmine = {'Twice': lambda config, weights: nn.HybridLambda(lambda F, x: 2 * x)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.json").write_text(json.dumps(model_of(entry("Twice", module="mine"), shapes=[(3,)])))
    refused = run(tmp_path / "model.json")
    assert refused.exit_code == 1 and "or be given by --custom MODULE:NAME, a dict {'Twice': " in refused.output
    result = run(tmp_path / "model.json", "--custom", "my_blocks:mine", "-o", tmp_path / "net")
    assert result.exit_code == 0, result.output
    block = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"])
    assert block(nd.ones((1, 3))).asnumpy().tolist() == [[2, 2, 2]]


def test_names_of_several_inputs_are_printed_and_accepted(folder):
    values = mxsame.from_keras(folder / "siamese.h5")
    names = [tensor.layer for tensor in values.description.inputs]
    shapes = {name: (2, *value.shape[1:]) for name, value in zip(names, values.inputs)}
    given = [f"--shape={name}={','.join(map(str, shapes[name]))}" for name in reversed(names)]
    printed = run(folder / "siamese.h5", *given).output
    assert f"inputs: data0 is {names[0]}, data1 is {names[1]}" in printed
    assert printed.endswith("nothing written: -o NAME writes MXNet's files, -o NAME.onnx an ONNX file\n")
    batches = run(folder / "siamese.h5", *given[:1], given[1].replace("=2,", "=3,"))
    assert batches.exit_code == 2 and "Error: --shape: inputs must have the same batch; received" in batches.output


def test_the_inputs_of_a_network_of_mxnet_have_names(folder, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    symbol, _ = mxsame.export(mxsame.from_keras(folder / "siamese.h5"), tmp_path / "net")
    shapes = [value.shape[1:] for value in mxsame.from_keras(folder / "siamese.h5").inputs]
    given = [f"--shape=data{number}={','.join(map(str, (1, *shape)))}" for number, shape in enumerate(shapes)]
    assert run(symbol, "-o", tmp_path / "net.onnx", *reversed(given)).exit_code == 0
    refused = run(symbol, "-o", tmp_path / "net.onnx", given[0].replace("data0=", ""))
    assert refused.exit_code == 2 and "names or with data0, data1; received (no name)." in refused.output


def test_stages_are_shown_in_a_terminal(tmp_path):
    """Each by its name, with how much of it is done; of the ONNX file, too."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    main, terminal = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(mxsame.__file__).parents[1]), "TERM": "xterm"}
    command = [sys.executable, "-m", "mxsame", "convert", "sample:digits", "-o", tmp_path / "net.onnx"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # which ends a terminal
        while part := os.read(main, 2**16):
            shown += part
    assert process.wait() == 0, shown
    for stage in (b"building layers", b"writing operators", b"comparing with ONNX Runtime"):
        assert stage in shown


def test_progress_of_functions(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    seen = []
    mxsame.from_keras(mxsame.sample("digits"), progress=print)
    assert capsys.readouterr().out.splitlines()[:2] == ["reading ..", "building layers 1 of 4"]
    net = mxsame.from_keras(mxsame.sample("digits"), progress=lambda *given: seen.append(given))
    assert seen == [("reading", 0, 1), *(("building layers", number, 4) for number in range(1, 5))]
    seen.clear()
    mxsame.export_onnx(net, tmp_path / "net.onnx", (1, 8, 8, 1), progress=lambda *given: seen.append(given))
    ends = [given for given in seen if given[1] == given[2]]
    stages = ["tracing", "writing operators", "checking with onnx", "running the net with MXNet"]
    assert list(dict.fromkeys(stage for stage, *_ in seen)) == [*stages, "comparing with ONNX Runtime"]
    assert [stage for stage, *_ in ends] == [stages[1], stages[3], "comparing with ONNX Runtime"] and ends[-1][1] == 2
    with pytest.raises(TypeError, match=r"progress must be .*, such as print; received progress=True"):
        mxsame.from_keras(mxsame.sample("digits"), progress=True)


def test_files_of_mxnet_become_an_onnx_file(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    net = mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3)
    net.initialize()
    symbol, _ = mxsame.export(net, tmp_path / "net")
    given = ("-o", tmp_path / "net.onnx", "--shape", "1,3,16,18")
    result = run(symbol, *given)
    counted = f"1 operator, 112 parameters, compared by ONNX Runtime {runtime.__version__}"
    assert result.exit_code == 0 and result.output == f"{counted}\nwritten: {tmp_path / 'net.onnx'}\n", result.output
    data = nd.random.normal(shape=(2, 3, 16, 18))
    (got,) = runtime.InferenceSession(str(tmp_path / "net.onnx")).run(None, {"data": data.asnumpy()})
    np.testing.assert_allclose(got, net(data).asnumpy(), rtol=0, atol=1e-5)
    refused = run(symbol, *given, "--layout", "NCHW")
    assert refused.exit_code == 2 and "--layout must not be given for an ONNX file" in refused.output


@pytest.mark.oracle
def test_check_shows_the_first_layer_that_differs(folder, tmp_path, monkeypatch):
    from tensorflow.keras import Input, Sequential, layers

    words, nested = tmp_path / "words.h5", tmp_path / "nested.h5"  # their data are indices
    with pytest.warns(UserWarning, match="legacy"):
        inner = Sequential([layers.Embedding(7, 4, input_length=20), layers.LSTM(3)])
        inner.save(words)
        Sequential([Input(20), layers.Reshape((20,)), inner]).save(nested)
    for path in (folder / "siamese.h5", words, nested):
        result = run(path, "--check")
        assert result.exit_code == 0, result.output
        assert "layers match; largest difference" in result.output

    def shifted(*arguments, **named):
        net = from_keras(*arguments, **named)
        bias = next(value for name, value in net.collect_params().items() if name.endswith("conv2d_1_bias"))
        bias.set_data(bias.data() + 1)
        return net

    from_keras = convert.from_keras
    monkeypatch.setattr(convert, "from_keras", shifted)
    result = run(folder / "sequential.h5", "--check", "-o", tmp_path / "net")
    assert result.exit_code == command.DIFFERS
    assert "First mismatch: conv2d_1 (Conv2D), difference " in result.output
    assert result.output.endswith("nothing written\n") and not list(tmp_path.glob("net*"))


@pytest.mark.oracle
def test_check_of_layers_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "my_layers.py").write_text(
        "from mxnet.gluon import nn\nfrom tensorflow import keras\nclass Twice(keras.layers.Layer):\n"
        "    def call(self, x):\n        return 2 * x\nobjects = {'Twice': Twice}\n"
        "blocks = {'Twice': lambda config, weights: nn.HybridLambda(lambda F, x: 2 * x)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    import my_layers

    keras = my_layers.keras
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), my_layers.Twice()]).save("model.keras")
    custom = ("--custom", "my_layers:blocks", "--check")
    assert "All 2 layers match" in run("model.keras", *custom, "--custom-objects", "my_layers:objects").output
    failed = run("model.keras", *custom).output
    assert "--check needs a file that Keras" in failed and ". Give Keras your own layers by --custom" in failed


def test_a_file_from_which_libhdf5_does_not_return(folder, tmp_path, monkeypatch):
    """A list of objects in its heap has no end: the free one after the last has no length."""
    content = bytearray((folder / "sequential.h5").read_bytes())
    heap = content.index(b"GCOL")
    at, end = heap + 16, heap + struct.unpack_from("<Q", content, heap + 8)[0]
    while struct.unpack_from("<H", content, at)[0]:
        at += 16 + (struct.unpack_from("<Q", content, at + 8)[0] + 7) // 8 * 8
    assert at < end
    struct.pack_into("<Q", content, at + 8, 0)
    (tmp_path / "model.h5").write_bytes(content)
    monkeypatch.setattr(_child, "SECONDS", 3)
    result = CliRunner().invoke(main, ["convert", str(tmp_path / "model.h5")])  # this process supervises
    assert result.exit_code == 1
    assert re.search("memory|reading it took more than 3 seconds|^$", result.output), result.output


def test_a_check_without_keras_writes_nothing(folder, tmp_path, monkeypatch):
    def broken(name):
        raise TypeError("another NumPy")

    monkeypatch.setattr(_keras.importlib, "import_module", broken)
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    result = run(folder / "sequential.h5", "--check", "-o", tmp_path)
    assert result.exit_code == 1
    assert "--check needs TensorFlow or Keras: tensorflow.keras cannot be imported (TypeError: another" in result.output
    assert "KERAS_BACKEND is numpy: without it, Keras needs TensorFlow only. Keras may change " in result.output
    assert re.search(r"(?m)^keras-env/bin/python -m pip install (tensorflow==|--upgrade keras )", result.output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("batch_shape" + 1000 * " of a layer", "use a separate environment. "),
        ("a `Lambda` ..; pass `safe_mode=False` ...", "'. In Python, load it with safe_mode=False"),
    ],
)
def test_a_check_of_what_keras_cannot_load_writes_nothing(folder, tmp_path, monkeypatch, error, advice):
    models = types.SimpleNamespace(load_model=lambda path, custom_objects, compile: {}[error])
    monkeypatch.setattr(command, "imported_keras", lambda: types.SimpleNamespace(__version__="1.0", models=models))
    result = run(folder / "sequential.h5", "--check", "-o", tmp_path)
    assert result.exit_code == 1 and "--check needs a file that Keras 1.0 can load: KeyError: " in result.output
    assert advice in result.output and len(result.output) < 1500
    assert not list(tmp_path.iterdir())
