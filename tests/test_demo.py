"""`mxsame demo`: recorded TensorFlow outputs are matched, symmetric padding is not, and a wrong layer is reported."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("rich")
pytest.importorskip("click")

from click.testing import CliRunner
from matplotlib.image import imread

from mxsame.cli import main
from mxsame.demo import compare, networks, picture, recording, symmetric
from mxsame.drawing import COLOURS

BY_NAME = {network.name: network for network in networks.NETWORKS}


@pytest.fixture(scope="module")
def pixels():
    return recording.photograph()


@pytest.fixture(scope="module")
def results(pixels):
    return {name: compare.compare(network, pixels) for name, network in BY_NAME.items()}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A copy of the shipped data that a test may spoil."""
    copy = tmp_path / "data"
    shutil.copytree(recording.DATA, copy)
    monkeypatch.setattr(recording, "DATA", copy)
    return copy


def change(path, **arrays):
    """Replaces arrays of a recording; None removes one."""
    with np.load(path) as file:
        everything = {**{key: file[key] for key in file.files}, **arrays}
    np.savez_compressed(path, **{key: value for key, value in everything.items() if value is not None})


def run_demo(*arguments):
    return CliRunner().invoke(main, ["demo", *map(str, arguments)])


# ---- right -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_every_layer_is_tensorflows(results, name):
    rows = results[name].layers
    assert [row.layer.name for row in rows] == list(recording.load(name).outputs)
    for row in rows:
        scale = max(1, np.abs(row.tensorflow).max())
        np.testing.assert_allclose(row.mxsame, row.tensorflow, rtol=0, atol=2e-5 * scale, err_msg=row.layer.name)
        assert row.ok


def test_images_are_means_over_squares(pixels):
    small = recording.image(pixels, 32, 3)
    assert small.shape == (32, 32, 3)
    assert small[5, 9, 1] == pytest.approx(pixels[35:42, 63:70, 1].mean() / 255, rel=1e-6)
    red, green, blue = pixels[8:16, 200:208].mean(axis=(0, 1)) / 255
    assert recording.image(pixels, 28, 1)[1, 25, 0] == pytest.approx(0.299 * red + 0.587 * green + 0.114 * blue)


# ---- what symmetric padding gets wrong -------------------------------------------------------------------------------


def test_symmetric_padding_has_the_right_shapes_and_the_wrong_values(results):
    wrong = {
        name: [row.layer.name for row in result.layers if not row.symmetric_ok] for name, result in results.items()
    }
    assert wrong == {
        "stem": ["conv", "pool"],
        "sequential": [],
        "autoencoder": ["code", "conv4", "up1", "conv5", "up2", "conv6", "up3", "conv7"],
    }
    for result in results.values():
        for row in result.layers:
            assert row.symmetric.shape == row.tensorflow.shape
            assert row.symmetric_ok or row.symmetric_difference > 0.25


@pytest.mark.parametrize("name", ["stem", "autoencoder"])
def test_symmetric_layers_in_place_of_mxsames_are_found(results, pixels, monkeypatch, name):
    built = networks.built
    monkeypatch.setattr(networks, "built", lambda *args: built(*args[:3], True))
    broken = compare.compare(BY_NAME[name], pixels)
    assert not broken.ok
    assert [row.difference for row in broken.layers] == [row.symmetric_difference for row in results[name].layers]


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("kernel_size", range(1, 6))
@pytest.mark.parametrize("stride", (1, 2, 3, 4))
def test_symmetric_padding_has_the_output_size_of_same(size, kernel_size, stride):
    pad, wanted = symmetric.pad(size, kernel_size, stride), -(-size // stride)
    given = (size + 2 * pad - kernel_size) // stride + 1
    assert given == wanted or all((size + 2 * p - kernel_size) // stride + 1 != wanted for p in range(kernel_size))
    assert pad == 0 or given != wanted or (size + 2 * (pad - 1) - kernel_size) // stride + 1 != wanted, "the smallest"
    pad, adj = symmetric.cut(kernel_size, stride)
    assert (size - 1) * stride + kernel_size - 2 * pad + adj == size * stride
    assert pad >= 0 and 0 <= adj < max(stride, 2)


# ---- the picture and the data ----------------------------------------------------------------------------------------


def test_the_picture_shows_something_in_every_panel(tmp_path, results):
    path = tmp_path / "picture.png"
    picture.draw(results["autoencoder"]).savefig(path, dpi=130)
    drawn = imread(path)[..., :3]
    height, width, _ = drawn.shape
    for top in (0.35, 0.7):
        for left in (0.6, 0.8):
            part = drawn[int(top * height) : int((top + 0.1) * height), int(left * width) : int((left + 0.1) * width)]
            assert part.std() > 0.03
    for colour in COLOURS:
        wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        assert (np.abs(drawn[:, : width // 2] - wanted).max(axis=-1) < 0.02).sum() > 5000  # the windows


def test_the_data_state_their_licence_and_stay_small():
    assert "CC0 1.0 Universal" in (recording.DATA / "LICENSE-photograph.txt").read_text(encoding="utf-8")
    readme = (recording.DATA / "README.md").read_text(encoding="utf-8")
    assert "Stefan van der Walt" in readme and "CC0" in readme
    files = list(recording.DATA.iterdir())
    assert all(f"`{path.name}`" in readme for path in files if path.name != "README.md")
    assert sum(path.stat().st_size for path in files) < 3_000_000


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_the_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_demo()
    assert result.exit_code == 0, result.output
    assert "24 of 24 layers equal TensorFlow 2.13.1" in result.output and "14 of 24" in result.output
    assert "(2, 3) (2, 3)" in result.output
    assert "\u2026" not in result.output, "nothing is cut off in 80 columns"
    (path,) = tmp_path.iterdir()
    assert path.name == "mxsame-demo.png" and path.stat().st_size > 50_000


@pytest.mark.parametrize("value", [0.01, np.nan])
def test_one_wrong_cell_gives_exit_code_1(data, value):
    output = recording.load("autoencoder").outputs["conv5"]
    output[3, 4, 5] += value
    change(data / "autoencoder.npz", **{"conv5/output": output})
    result = run_demo("--no-picture")
    assert result.exit_code == 1
    assert "WRONG: conv5" in result.output and "23 of 24" in result.output


def test_a_wrong_shape_gives_exit_code_1(data):
    change(data / "stem.npz", **{"pool/output": np.zeros((55, 55, 6), np.float32)})
    result = run_demo("--no-picture")
    assert result.exit_code == 1
    assert "WRONG: pool" in result.output


def test_a_wrong_weight_gives_exit_code_1(data):
    bias = recording.load("sequential").weights["conv2"]["bias"]
    bias[7] += 0.25
    change(data / "sequential.npz", **{"conv2/bias": bias})
    result = run_demo("--no-picture")
    assert result.exit_code == 1
    assert "WRONG: conv2" in result.output


def test_another_photograph_is_refused(data, pixels):
    other = pixels.copy()
    other[100, 100, 0] ^= 1
    from matplotlib.image import imsave

    imsave(data / "photograph.png", other)
    result = run_demo("--no-picture")
    assert result.exit_code == 1
    assert "the photograph must be the one TensorFlow was given" in result.output


def test_a_photograph_of_another_size_is_refused(data, pixels):
    from matplotlib.image import imsave

    imsave(data / "photograph.png", pixels[:200])
    with pytest.raises(ValueError, match=r"224x224 in three colours; received shape=\(200, 224, 3\)"):
        recording.photograph()


def test_a_missing_output_or_file_is_named(data):
    change(data / "stem.npz", **{"pool/output": None})
    result = run_demo("--no-picture")
    assert result.exit_code == 1 and "missing ['pool']" in result.output
    (data / "stem.npz").unlink()
    result = run_demo("--no-picture")
    assert result.exit_code == 1 and "stem.npz" in result.output and "Traceback" not in result.output
