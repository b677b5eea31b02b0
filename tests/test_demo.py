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
from rich.console import Console

from mxsame import demo, padding
from mxsame.cli import main
from mxsame.demo import compare, networks, picture, recording, report

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


@pytest.mark.parametrize("name", BY_NAME)
def test_networks_run_hybridized_and_the_imperative_way_gives_the_same(results, pixels, name):
    network, recorded = BY_NAME[name], recording.load(name)
    image = recording.image(pixels, network.size, network.channels)
    net = networks.build(network, networks.with_mxsame, recorded.weights)
    networks.run(net, image)
    assert net._active and net._cached_op is not None
    net.hybridize(False)
    for row, output in zip(results[name].layers, networks.run(net, image)):
        np.testing.assert_allclose(output, row.mxsame, rtol=1e-5, atol=1e-5, err_msg=row.layer.name)


def test_shapes_parameters_and_pads_are_those_of_keras(results):
    sequential, autoencoder, stem = (results[name] for name in ("sequential", "autoencoder", "stem"))
    assert [sequential[name].parameters for name in ("conv1", "conv2", "conv3")] == [1_792, 36_928, 73_856]
    assert [sequential[name].mxsame.shape for name in ("conv1", "conv2", "pool", "conv3")] == [
        (30, 30, 64),
        (30, 30, 64),
        (15, 15, 64),
        (15, 15, 128),
    ]
    sizes = [autoencoder[name].mxsame.shape[0] for name in ("conv1", "pool1", "pool2", "code", "conv7")]
    assert sizes == [28, 14, 7, 4, 28]
    assert autoencoder["code"].mxsame.size == 128
    assert autoencoder["code"].pads == (0, 1)
    assert [(row.mxsame.shape[0], row.pads) for row in stem.layers] == [(112, (2, 3)), (56, (0, 1))]


def test_batch_norm_has_statistics_of_its_own():
    for name in ("norm1", "norm2"):
        weights = recording.load("sequential").weights[name]
        assert sorted(weights) == ["beta", "gamma", "moving_mean", "moving_variance"]
        assert all(value.std() > 0.01 for value in weights.values())


def test_the_autoencoder_is_trained(results):
    result = results["autoencoder"]
    error = result["conv7"].tensorflow - result.image
    assert np.sqrt(np.mean(error**2)) < 0.2 * result.image.std()


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
    monkeypatch.setattr(networks, "with_mxsame", networks.with_symmetric_padding)
    broken = compare.compare(BY_NAME[name], pixels)
    assert not broken.ok
    assert [row.difference for row in broken.layers] == [row.symmetric_difference for row in results[name].layers]
    assert "WRONG" in report.verdict(broken).plain


def test_symmetric_pads_are_the_smallest_with_the_shape_of_same():
    seen = 0
    for network in networks.NETWORKS:
        for layer, size, _ in network.steps():
            if layer.pads and layer.padding == "same":
                pad, wanted = networks.symmetric_pad(layer, size), -(-size // layer.stride)
                assert padding.output_size(size, layer.kernel_size, layer.stride, padding=(pad, pad)) == wanted
                assert pad == 0 or (size + 2 * pad - 2 - layer.kernel_size) // layer.stride + 1 != wanted
                seen += 1
    assert seen == 14


# ---- the picture and the data ----------------------------------------------------------------------------------------


def test_the_picture_shows_something_in_every_panel(tmp_path, results, pixels):
    path = tmp_path / "picture.png"
    picture.draw(pixels, results["stem"], results["autoencoder"], path)
    drawn = imread(path)[..., :3]
    height, width, _ = drawn.shape
    assert height > 1000 and width > 1000
    for top in (0.2, 0.5):
        for left in (0.1, 0.33, 0.57, 0.8):
            part = drawn[int(top * height) : int((top + 0.1) * height), int(left * width) : int((left + 0.1) * width)]
            assert part.std() > 0.03
    for colour in (picture.SAME_COLOUR, picture.SYMMETRIC_COLOUR):
        wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        part = drawn[int(0.7 * height) :, : int(0.4 * width)]  # the windows over cells
        assert (np.abs(part - wanted).max(axis=-1) < 0.02).sum() > 5000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # between matplotlib and Pillow, not ours
@pytest.mark.parametrize("ending", [".svg", ".pdf", ".jpg"])
def test_other_formats(tmp_path, results, pixels, ending):
    path = tmp_path / f"picture{ending}"
    picture.draw(pixels, results["stem"], results["autoencoder"], path)
    assert path.stat().st_size > 20_000


def test_the_data_state_their_licence_and_stay_small():
    assert "CC0 1.0 Universal" in (recording.DATA / "LICENSE-photograph.txt").read_text(encoding="utf-8")
    readme = (recording.DATA / "README.md").read_text(encoding="utf-8")
    assert "Stefan van der Walt" in readme and "CC0" in readme
    files = list(recording.DATA.iterdir())
    assert all(f"`{path.name}`" in readme for path in files if path.name != "README.md")
    assert sum(path.stat().st_size for path in files) < 3_000_000


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_three_summaries_and_writes_the_picture(tmp_path):
    path = tmp_path / "out.png"
    result = run_demo("--out", path)
    assert result.exit_code == 0, result.output
    assert result.output.count("EXACT") == 3
    assert "24 of 24 layers equal TensorFlow 2.13.1" in result.output
    assert "14 of 24" in result.output
    assert "36,928" in result.output and "(2, 3) (2, 3)" in result.output
    assert "\u2026" not in result.output, "nothing is cut off in 80 columns"
    assert path.stat().st_size > 100_000


def test_without_a_picture_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_demo("--no-picture").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_the_picture_is_written_here_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_demo().exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mxsame-demo.png"]


def test_progress_is_shown_in_a_terminal(tmp_path):
    with (tmp_path / "terminal").open("w+", encoding="utf-8") as file:
        assert demo.run(Console(file=file, force_terminal=True, width=100), None)
        file.seek(0)
        assert "autoencoder: MXNet compared with TensorFlow's recording" in file.read()


@pytest.mark.parametrize("value", [0.01, np.nan])
def test_one_wrong_cell_gives_exit_code_1(data, value):
    output = recording.load("autoencoder").outputs["conv5"]
    output[3, 4, 5] += value
    change(data / "autoencoder.npz", **{"conv5/output": output})
    result = run_demo("--no-picture")
    assert result.exit_code == 1
    assert "WRONG: conv5 differ" in result.output and "23 of 24" in result.output


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
