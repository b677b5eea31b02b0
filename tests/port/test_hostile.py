"""Broken and hostile model files: a ValueError or TypeError that names the part, in seconds, in bounded memory.

Every case is a function that writes files into a folder and returns the arguments of `mxsame.from_keras`. They are read
in another process (`hostile.py`), which reports what was raised and whether anything was executed or written.
"""

import base64
import io
import json
import marshal
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from configurations import connected, entry, functional

import mxsame

h5py = pytest.importorskip("h5py", reason='h5py is not installed (pip install "mxsame[keras]")')

CASES = {}  # name -> (function of a folder with good files, pattern that the message must match, None for no error)


def cases(pattern, **variants):
    """Registers a case, or one for each variant, which the function takes after the folder; the message must match."""

    def register(function):
        if not variants:
            CASES[function.__name__] = function, pattern
        for name, value in variants.items():
            CASES[f"{function.__name__}[{name}]"] = (lambda folder, value=value: function(folder, value)), pattern
        return function

    return register


# ---- the good files, and how they are changed ------------------------------------------------------------------------


def good_h5(folder):
    """A Keras 2 model with the layers conv2d, batch_normalization, .., dense, to be changed."""
    return str(shutil.copy(folder / "keras2" / "sequential.h5", folder / "model.h5"))


def changed_h5(folder, change):
    """The model after `change(file)`."""
    path = good_h5(folder)
    with h5py.File(path, "r+") as file:
        change(file)
    return [path]


def changed_config(folder, change):
    """A Keras 2 model whose configuration, as JSON, was changed in place, or replaced by what `change` returns."""

    def apply(file):
        config = json.loads(file.attrs["model_config"])
        replaced = change(config)
        file.attrs["model_config"] = json.dumps(config if replaced is None else replaced)

    return changed_h5(folder, apply)


def keras_members(folder):
    """The members of a Keras 3 model: name -> bytes."""
    with zipfile.ZipFile(folder / "keras3" / "sequential.keras") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written_keras(folder, members, compression=zipfile.ZIP_STORED):
    """A .keras file of these members."""
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return [str(path)]


def changed_keras(folder, change):
    """A Keras 3 model whose configuration was changed in place."""
    members = keras_members(folder)
    config = json.loads(members["config.json"])
    change(config)
    return written_keras(folder, {**members, "config.json": json.dumps(config)})


def changed_keras_weights(folder, change):
    """A Keras 3 model whose weights were changed by `change(h5 file)`."""
    members = keras_members(folder)
    content = io.BytesIO(members["model.weights.h5"])
    with h5py.File(content, "r+") as file:
        change(file)
    return written_keras(folder, {**members, "model.weights.h5": content.getvalue()})


def layer(config, name):
    """The entry of a layer in the configuration of a model."""
    return next(entry for entry in config["config"]["layers"] if entry["config"]["name"] == name)


def json_model(folder, config):
    """An architecture on its own, or text that claims to be one."""
    path = folder / "model.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return [str(path)]


KERNEL = "model_weights/dense/dense/kernel:0"
KERNEL_3 = "layers/dense/vars/0"


def with_dataset(folder, create, path=KERNEL):
    """The model with another dataset in the place of one: `create(group, name)`."""

    def change(file):
        group, name = path.rsplit("/", 1)
        del file[path]
        create(file[group], name)

    return changed_h5(folder, change)


# ---- files that are something else, or half of one -------------------------------------------------------------------


@cases(
    r"model\.(h5|keras|json|txt)",
    empty=("model.h5", b""),
    picture=("model.keras", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40),
    half_a_text=("model.json", b'{"class_name": "Sequential", "config": {"layers": ['),
)
def foreign(folder, given):
    name, content = given
    (folder / name).write_bytes(content)
    return [str(folder / name)]


@cases(r"model\.(h5|keras)", h5="keras2/sequential.h5", keras="keras3/sequential.keras")
def truncated(folder, name):
    content = (folder / name).read_bytes()
    path = folder / f"model{Path(name).suffix}"
    path.write_bytes(content[: len(content) // 2])
    return [str(path)]


@cases(r"folder\.h5")
def folder_in_place_of_a_file(folder):
    (folder / "folder.h5").mkdir()
    return [str(folder / "folder.h5")]


@cases(r"must be a file: .* received .*pipe", h5="pipe.h5", keras="pipe.keras")
def pipe(folder, name):
    os.mkfifo(folder / name)
    return [str(folder / name)]


@cases("source", number=7, nothing=None, listed=[1, 2])
def not_a_file(folder, value):
    return [value]


# ---- h5 files --------------------------------------------------------------------------------------------------------


@cases("model_config|weights only")
def h5_of_weights_only(folder):
    return [str(shutil.copy(folder / "keras2" / "sequential.legacy.h5", folder / "model.h5"))]


@cases(
    "model_config|configuration|source must",
    numbers=np.arange(5),
    bytes=np.void(b"\xff\xfe\x00"),
    text="a network",
    list="[]",
    class_only='{"class_name": "Sequential"}',
)
def h5_config_is_not_one(folder, value):
    return changed_h5(folder, lambda file: file.attrs.__setitem__("model_config", value))


def with_entry(thing, name, entry):
    """One more name in a list."""
    thing.attrs[name] = [*(each if isinstance(each, bytes) else each.encode() for each in thing.attrs[name]), entry]


def renamed(file):
    names = [name.decode() if isinstance(name, bytes) else name for name in file["model_weights"].attrs["layer_names"]]
    file["model_weights"].move("dense", "thick")
    file["model_weights"].attrs["layer_names"] = [b"thick" if name == "dense" else name.encode() for name in names]


def with_surplus_layer(file):
    group = file["model_weights"].create_group("surplus")
    group["surplus/kernel:0"] = np.zeros((2, 2), "float32")
    group.attrs["weight_names"] = [b"surplus/kernel:0"]
    with_entry(file["model_weights"], "layer_names", b"surplus")


def with_surplus_weight(file):
    file["model_weights/dense/dense/more:0"] = np.zeros((2, 2), "float32")
    with_entry(file["model_weights/dense"], "weight_names", b"dense/more:0")


def in_a_circle(file):
    del file["model_weights/dense"]
    file["model_weights/dense"] = file["model_weights"]


cases(
    "dense|model_weights|layer_names|surplus",
    no_weights=lambda file: file.__delitem__("model_weights"),
    no_layer_names=lambda file: file["model_weights"].attrs.__delitem__("layer_names"),
    no_weight_names=lambda file: file["model_weights/dense"].attrs.__delitem__("weight_names"),
    no_weight=lambda file: file.__delitem__(KERNEL),
    renamed=renamed,
    surplus_layer=with_surplus_layer,
    surplus_weight=with_surplus_weight,
    circle=in_a_circle,
    name_upwards=lambda file: with_entry(file["model_weights/dense"], "weight_names", b"../../nowhere"),
)(changed_h5)


def dataset(shape, dtype, **more):
    return lambda group, name: group.create_dataset(name, shape, dtype, **more)


def link(target):
    return lambda group, name: group.__setitem__(name, target)


VIRTUAL = h5py.VirtualLayout((36, 5), "float32")
VIRTUAL[:] = h5py.VirtualSource("keras2/sequential.h5", KERNEL, (36, 5))

cases(
    "dense",
    transposed=dataset((5, 36), "float32"),
    none=dataset((0, 5), "float32"),
    strings=dataset((36, 5), h5py.string_dtype()),
    complex=dataset((36, 5), "c8"),
    external=dataset((36, 5), "float32", external=[(sys.executable, 0, h5py.h5f.UNLIMITED)]),
    virtual=lambda group, name: group.create_virtual_dataset(name, VIRTUAL),
    group=lambda group, name: group.create_group(name),
    file=link(h5py.ExternalLink("/etc/hostname", "/data")),
    right_array=link(h5py.ExternalLink("keras2/sequential.h5", f"/{KERNEL}")),
    nowhere=link(h5py.SoftLink("/nowhere")),
)(with_dataset)


@cases("dense", small_config=5, right_config=1 << 38)
def h5_terabytes_are_declared(folder, units):
    """Nothing of it is in the file, which is small; the configuration may say the same size."""

    def change(file):
        set_units(file, units)
        for name, shape in (("kernel:0", (36, 1 << 38)), ("bias:0", (1 << 38,))):
            where = f"model_weights/dense/dense/{name}"
            del file[where]
            file.create_dataset(where, shape, "float32", chunks=(*(1,) * (len(shape) - 1), 1 << 20))

    return changed_h5(folder, change)


def set_units(file, units):
    config = json.loads(file.attrs["model_config"])
    layer(config, "dense")["config"]["units"] = units
    file.attrs["model_config"] = json.dumps(config)


@cases("dense")
def h5_compressed_zeros(folder):
    """A gigabyte that takes a megabyte in the file."""
    units = (1 << 28) // 36

    def change(file):
        set_units(file, units)
        del file[KERNEL], file["model_weights/dense/dense/bias:0"]
        file["model_weights/dense/dense"].create_dataset("bias:0", (units,), "float32", compression=1)
        file.create_dataset(KERNEL, (36, units), "float32", chunks=(1, units), compression=1, fillvalue=1)
        file[KERNEL][0] = np.zeros(units, "float32")

    return changed_h5(folder, change)


# ---- zip files -------------------------------------------------------------------------------------------------------


@cases(r"config\.json|weights", config="config.json", weights="model.weights.h5")
def zip_member_is_missing(folder, name):
    members = keras_members(folder)
    del members[name]
    return written_keras(folder, members)


@cases(None, up="../evil.txt", root="/tmp/evil.txt", windows="..\\evil.txt", drive="C:\\evil.txt")
def zip_path_trick(folder, name):
    """Nobody unpacks it."""
    return written_keras(folder, {**keras_members(folder), name: b"evil"})


@cases(r"config\.json .*at most 16777216 bytes")
def zip_config_of_many_lists(folder):
    """A configuration of 20 MiB, every three bytes of which are an object in memory."""
    return written_keras(folder, {**keras_members(folder), "config.json": b"[" + b"[]," * (7 << 20) + b"[]]"})


@cases(r"config\.json|model\.weights\.h5", config="config.json", weights="model.weights.h5")
def zip_bomb(folder, name):
    """640 MiB of one letter, which is more memory than the process may take."""
    path = folder / "model.keras"
    members = keras_members(folder)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for other, content in members.items():
            if other != name:
                archive.writestr(other, content)
        with archive.open(name, "w") as file:
            for _ in range(640):
                file.write(b" " * (1 << 20))
    return [str(path)]


@cases(r"config\.json|model\.weights\.h5|model\.keras", config="config.json", weights="model.weights.h5")
def zip_bomb_that_lies_about_its_size(folder, name):
    """The directory says a hundred bytes; the stream unpacks to 640 MiB."""
    return patched(zip_bomb(folder, name), 22, struct.pack("<I", 100), name)


def patched(paths, at, value, member=""):
    """The file with another value at this position of the headers of its members, or of one: in its directory, where
    it is two bytes further, and before the data."""
    content = bytearray(Path(paths[0]).read_bytes())
    for signature, length, shift in ((b"PK\x03\x04", 30, 0), (b"PK\x01\x02", 46, 2)):
        start = -1
        while (start := content.find(signature, start + 1)) >= 0:
            if content.startswith(member.encode(), start + length):
                content[start + at + shift : start + at + shift + len(value)] = value
    Path(paths[0]).write_bytes(content)
    return paths


@cases(r"config\.json|model\.keras", encrypted=(6, b"\1\0"), method=(8, b"\x63\0"))
def zip_member_cannot_be_read(folder, field):
    """Encrypted, or compressed by a method that nobody has."""
    return patched(written_keras(folder, keras_members(folder)), *field)


@cases(r"config\.json|model\.keras")
def zip_wrong_checksum(folder):
    (path,) = written_keras(folder, keras_members(folder))
    content = Path(path).read_bytes()
    Path(path).write_bytes(content.replace(b'"softmax"', b'"softmex"', 1))
    return [path]


def replaced(file, value):
    del file[KERNEL_3]
    file[KERNEL_3] = value


cases(
    "dense|surplus",
    no_weight=lambda file: file.__delitem__(KERNEL_3),
    no_layer=lambda file: file.__delitem__("layers/dense"),
    transposed=lambda file: replaced(file, np.zeros((5, 36), "float32")),
    surplus_layer=lambda file: file.create_dataset("layers/surplus/vars/0", (2,), "float32"),
    surplus_weight=lambda file: file.create_dataset("layers/dense/vars/2", (2,), "float32"),
)(changed_keras_weights)


# ---- configurations --------------------------------------------------------------------------------------------------


cases(
    "nest|model.json",
    models='{"class_name": "Sequential", "config": {"name": "nest", "layers": [' * 300 + "]}}" * 300,
    lists="[" * 200_000,
    objects='{"config":' * 100_000,
    closed="[" * 90_000 + "]" * 90_000,
)(json_model)
cases("model.json", null="null", number="3", text='"net"', list="[1]", nan="NaN", twice="{}{}", digits="1" * 200_000)(
    json_model
)


def step(name, *sources):
    """A layer without weights of a functional Keras 2 model, called on these layers."""
    return connected(entry("Activation", name, {"activation": "relu"}), sources)


def chain(*layers, outputs=None):
    """A functional Keras 2 model with the input `data`."""
    return functional(layers, {"data": (3,)}, outputs or [layers[-1]["name"]])


def with_input(model, name):
    return {**model, "config": {**model["config"], "input_layers": [[name, 0, 0]]}}


cases(
    "one|other|nowhere",
    itself=chain(step("one", "one")),
    two=chain(step("one", "other"), step("other", "one")),
    unknown=chain(step("one", "nowhere")),
    node=chain(step("one", ("data", 3, 0)), step("other", "one")),
    tensor=chain(step("one", ("data", 0, 7)), step("other", "one")),
    output=chain(step("one", "data"), outputs=["nowhere"]),
    output_tensor=chain(step("one", "data"), outputs=[("one", 0, 5)]),
    input=with_input(chain(step("one", "data")), "nowhere"),
    twice=chain(step("one", "data"), step("one", "data")),
    unconnected=chain({**step("one"), "inbound_nodes": []}),
)(json_model)


def test_a_part_of_a_model_with_a_cycle_is_refused():
    """The part is found before the calls are sorted."""
    model = chain(step("one", "two"), step("two", "one"), step("end", "two"))
    with pytest.raises(ValueError, match="layer 'two' is in a cycle"):
        mxsame.from_keras(json.dumps(model), outputs="two")


@cases("dense0")
def graph_of_exponential_paths(folder):
    """Sixty layers, each called on the one before twice: paths must not be walked one by one. Its end is unknown."""
    layers = [step("dense0", "nowhere")]
    for number in range(1, 60):
        entry = step(f"dense{number}", f"dense{number - 1}", f"dense{number - 1}")
        layers.append({**entry, "class_name": "Add", "config": {"name": f"dense{number}"}})
    return json_model(folder, chain(*layers))


@cases("at most 20000 times")
def graph_of_exponential_calls(folder):
    """Thirty models in each other, each of which calls the next twice: a billion calls."""
    model = chain(step("one", "data"))
    for number in range(30):
        name = f"model{number}"
        inner = connected({**model, "name": name}, ["data"], [(name, 1, 0)])
        model = chain(inner, outputs=[(name, 2, 0)])
    return json_model(folder, model)


@cases(
    r"layer 'one' \(\w+\): .*must .*received",
    rows=("Resizing", [6, 7, 3], {"height": 1 << 29, "width": 1, "interpolation": "nearest"}),
    no_parts=("split", [4], {"num_or_size_splits": 0, "axis": 1}),
    negative_repeat=("RepeatVector", [4], {"n": -3}),
    upsampling=("UpSampling2D", [6, 7, 3], {"size": [1 << 30, 1 << 30]}),
    reshape=("Reshape", [6, 7, 3], {"target_shape": [1 << 40, -1]}),
    groups=("GroupNormalization", [6, 7, 3], {"groups": 0, "axis": -1, "scale": False, "center": False}),
    rate=("Dropout", [4], {"rate": 2}),
    no_axis=("UnitNormalization", [6, 7, 3], {"axis": []}),
    scales=("Rescaling", [6, 7, 3], {"scale": [1.0] * 5}),
    scales_of_the_batch=("Rescaling", [3], {"scale": [[1.0], [2.0]]}),
    padding=("ZeroPadding2D", [6, 7, 3], {"padding": 1 << 30}),
    before_the_batch=("expand_dims", [6, 7, 3], {"axis": 0}),
    tiles=("tile", [6, 7, 3], {"multiples": [1, -1, 1, 1]}),
    no_block=("nn.depth_to_space", [6, 7, 4], {"block_size": 0}),
    index=("__operators__.getitem", [4], {"slice_spec": [{"start": None, "stop": None, "step": None}, 9]}),
)
def configuration_is_not_one(folder, given):
    name, shape, values = given
    entry = step("one", "data")
    if name[0].isupper():
        entry.update(class_name=name, config={"name": "one", **values})
    else:
        entry.update(class_name="TFOpLambda", config={"name": "one", "function": name})
        entry["inbound_nodes"] = [["data", 0, 0, values]]
    model = chain(entry)
    model["config"]["layers"][0]["config"]["batch_input_shape"] = [None, *shape]
    return json_model(folder, model)


@cases(
    "conv2d|dense|max_pooling2d",
    huge_units=("dense", {"units": 1 << 62}),
    flag=("dense", {"units": True}),
    no_kernel=("conv2d", {"kernel_size": []}),
    huge_kernel=("conv2d", {"kernel_size": [1 << 40, 1 << 40]}),
    unknown_padding=("conv2d", {"padding": "reflect"}),
    unknown_format=("conv2d", {"data_format": "channels_middle"}),
    unknown_activation=("conv2d", {"activation": "os.system"}),
    code=("conv2d", {"activation": {"class_name": "Lambda", "config": {"function": ["eval", None, None]}}}),
    bias_is_text=("conv2d", {"use_bias": "yes"}),
)
def layer_is_not_possible(folder, given):
    name, values = given
    return changed_config(folder, lambda config: layer(config, name)["config"].update(values))


@cases(
    "layer",
    text="layer",
    no_config={"class_name": "Dense"},
    no_class={"class_name": None, "config": {"name": "grow"}},
    unknown={"class_name": "os.system", "config": {"name": "grow"}},
    twice={"class_name": "ReLU", "config": {"name": "conv2d"}},
    wraps_none={"class_name": "Bidirectional", "config": {"name": "grow"}},
    wraps_a_number={"class_name": "SpectralNormalization", "config": {"name": "grow", "layer": 7}},
)
def layer_is_not_one(folder, entry):
    return changed_config(folder, lambda config: config["config"]["layers"].insert(3, entry))


@cases("conv2d|layer")
def weights_of_another_network(folder):
    text = (folder / "keras2" / "unet.json").read_text()
    return [*json_model(folder, text), str(folder / "keras2" / "sequential.legacy.h5")]


# ---- code ------------------------------------------------------------------------------------------------------------


def code(folder):
    """A function that writes a file when it is called."""
    return compile(f"open({str(folder / 'executed')!r}, 'w').write('x')", "evil", "exec")


@cases("Lambda.*evil", code="code", name="name")
def lambda_of_keras_2(folder, kind):
    text = base64.b64encode(marshal.dumps(code(folder))).decode()
    config = {"name": "evil", "function": [text, None, None], "function_type": "lambda", "module": "__main__"}
    if kind == "name":
        config.update(function="os.system", function_type="function", module="os")
        config["arguments"] = {"command": f"touch {folder / 'executed'}"}
    return changed_config(folder, lambda c: c["config"]["layers"].insert(3, {"class_name": "Lambda", "config": config}))


@cases("evil|__lambda__", layer=("Lambda", "function"), activation=("Activation", "activation"))
def lambda_of_keras_3(folder, given):
    kind, argument = given
    text = base64.b64encode(marshal.dumps(code(folder))).decode()
    function = {"class_name": "__lambda__", "config": {"code": text, "defaults": None, "closure": None}}
    entry = {"module": "keras.layers", "class_name": kind, "config": {"name": "evil", argument: function}}
    return changed_keras(folder, lambda config: config["config"]["layers"].insert(3, entry))


@cases("evil", evaluation=("builtins", "eval"), installed=("antigravity", "Dense2"))
def class_of_another_module(folder, value):
    module, kind = value
    config = {"name": "evil", "args": "1+1", "command": f"touch {folder / 'executed'}"}
    entry = {"module": module, "class_name": kind, "config": config, "registered_name": f"{module}>{kind}"}
    return changed_keras(folder, lambda c: c["config"]["layers"].insert(3, entry))


@cases("evil", write="io.write_file", system="os.system", dunder="math.__class__", function="numpy_function")
def operator_that_is_not_one(folder, function):
    entry = {
        "class_name": "TFOpLambda",
        "name": "evil",
        "config": {"name": "evil", "function": function},
        "inbound_nodes": [["data", 0, 0, {"contents": "x", "filename": str(folder / "executed")}]],
    }
    return json_model(folder, chain(entry))


# ---- the tests -------------------------------------------------------------------------------------------------------


def read_in_another_process(root, recorded, listing):
    """Name -> report. Where the process ends, or stays, at one file, another one goes on after it."""
    outcomes, fine = {}, ["fine", [str(recorded["keras2"][0] / "sequential.h5")]]
    path = [str(Path(__file__).parent), str(Path(mxsame.__file__).parent.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "TMPDIR": str(root)}
    while len(outcomes) < len(listing):
        left = [entry for entry in listing if entry[0] not in outcomes]
        (root / "listing.json").write_text(json.dumps([fine, *left]), encoding="utf-8")
        command = [sys.executable, str(Path(__file__).with_name("hostile.py")), str(root / "listing.json")]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, errors = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate(timeout=10)
        reports = [json.loads(line) for line in out.splitlines()]
        assert reports and reports[0]["kind"] is None, f"a file that is fine: {reports[:1]} {errors[-3000:]}"
        outcomes.update({report["name"]: report for report in reports[1:]})
        if len(reports) <= len(left):
            ended = {"kind": "end of the process", "message": errors[-500:], "seen": [], "seconds": 0.0, "length": 0}
            outcomes[left[len(reports) - 1][0]] = ended
    return outcomes


def is_as_expected(report, pattern):
    """Whether a file is refused in these words, or read where there are none, and nothing else has happened."""
    kinds = (None,) if pattern is None else ("ValueError", "TypeError")
    in_words = pattern is None or re.search(pattern, report["message"], re.DOTALL)
    return report["kind"] in kinds and in_words and report["seen"] == [] and report["length"] < 2_000


def with_good_files(folder, recorded):
    folder.mkdir(exist_ok=True)
    for keras, (good, _) in recorded.items():
        (folder / keras).symlink_to(good)
    return folder


def test_files_are_refused(tmp_path, recorded):
    """All of them in one other process, which leaves no file behind."""
    listing, before = [], {}
    for number, (name, (build, _)) in enumerate(CASES.items()):
        folder = with_good_files(tmp_path / str(number), recorded)
        listing.append((name, build(folder)))
        before[name] = folder, set(folder.iterdir())
    outcomes = read_in_another_process(tmp_path, recorded, listing)
    assert [outcomes[name] for name, (_, pattern) in CASES.items() if not is_as_expected(outcomes[name], pattern)] == []
    assert [name for name, (folder, files) in before.items() if set(folder.iterdir()) != files] == []


DAMAGED = ("keras2/sequential.h5", "keras2/unet.keras", "keras3/sequential.keras", "keras3/siamese.h5")


def damaged(folder, number):
    """A recorded file with some of its bytes changed, a piece taken out, or a piece copied elsewhere."""
    generator = np.random.RandomState(number)
    name = DAMAGED[number % len(DAMAGED)]
    content = bytearray((folder / name).read_bytes())
    for _ in range(generator.randint(1, 6)):
        start, length = generator.randint(len(content)), generator.choice([1, 1, 4, 64, 1024])
        how = generator.randint(4)
        if how == 0:
            content[start : start + length] = generator.bytes(length)
        elif how == 1:
            content[start : start + length] = b"\xff" * length
        elif how == 2:
            del content[start : start + length]
        else:
            other = generator.randint(len(content))
            content[other : other + length] = content[start : start + length]
    path = folder / f"damaged{number}{Path(name).suffix}"
    path.write_bytes(content)
    return [str(path)]


def test_a_damaged_file_is_read_or_refused(tmp_path, recorded):
    """Damage may hit what nothing reads, or the numbers of a weight: then the file is read."""
    with_good_files(tmp_path, recorded)
    listing = [(f"damaged{number}", damaged(tmp_path, number)) for number in range(80)]
    before = set(tmp_path.iterdir())
    reports = read_in_another_process(tmp_path, recorded, listing).values()
    refused = [report for report in reports if report["kind"] is not None]
    assert [each for each in reports if not is_as_expected(each, None) and not is_as_expected(each, "")] == []
    assert set(tmp_path.iterdir()) - before == {tmp_path / "listing.json"} and len(refused) > 20
