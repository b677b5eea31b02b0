"""What would be another value in silence is refused by name: classes that are not Keras's own, keys of a configuration
that nothing reads, arguments that are None."""

import ast
import inspect
import json
import re

import numpy as np
import pytest
from configurations import entry, model_of

import mxsame
from mxsame._mxnet import mx
from mxsame.keras_format.description import Config
from mxsame.port import call_context, reading
from mxsame.port.activations import ACTIVATIONS, arguments_of
from mxsame.port.converters import LAYERS, OPERATORS
from mxsame.port.table import operator_name

REGISTERED = {"module": None, "registered_name": "mine>Softmax"}  # as `.keras` files have it


def wrapping(wrapper, *layer, **more):
    return entry(wrapper, config={"layer": entry(*layer, **more)})


OF_A_USER = {
    "registered, .h5": entry("mine>Softmax"),
    "registered, .keras": entry("Softmax", **REGISTERED),
    "of a script": entry("Softmax", module=None, registered_name="Softmax"),
    "of a module": entry("Softmax", module="mine.layers", registered_name="Softmax"),
    "wrapped": wrapping("TimeDistributed", "Softmax", "inner", **REGISTERED),
    "normalized": wrapping("SpectralNormalization", "mine>Dense", "inner", {"units": 2}),
    "in both directions": wrapping("Bidirectional", "mine>LSTM", "inner", {"units": 2}),
    "activation": entry("Activation", config={"activation": entry("ReLU", "inner", **REGISTERED)}),
    "nested model": {**model_of(entry("ReLU")), "class_name": "mine>Functional", "name": "one"},
    "nested model without a package": {**model_of(entry("ReLU")), "class_name": "Softmax1", "name": "one"},
}


@pytest.mark.parametrize("name", ["mine>Softmax", "Softmax", "one"])
def test_a_class_of_a_user_is_given_by_its_names(name):
    custom = {name: lambda config, weights: mx.gluon.nn.HybridLambda(lambda F, x: x * 2)}
    for kind in ("registered, .h5", "registered, .keras"):
        net = mxsame.from_keras(json.dumps(model_of(OF_A_USER[kind])), custom=custom)
        assert net(mx.nd.ones((1, 3, 4))).asnumpy().max() == 2


def test_a_block_of_a_user_has_the_types_of_the_model():
    model = model_of(entry("Mine"), entry("Rescaling", "quarter", {"scale": 0.25}))
    model["config"]["layers"][0]["config"]["dtype"] = "int32"
    custom = {"Mine": lambda config, weights: mx.gluon.nn.HybridLambda(lambda F, x: x / 2)}
    net = mxsame.from_keras(json.dumps(model), custom=custom)
    assert net(mx.nd.ones((1, 3, 4), dtype="int32") * 3).asnumpy().max() == 0.25  # halves are rounded, quarters are not


class AsItIs(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x


BLOCKS = {  # the user's function of `Mine` -> what is said
    "none": (None, r"\{'Mine': function, 'Other': function\}.*; received Mine \('one'\), Other \('two'\)"),
    "a block": (AsItIs(), r"functions that return blocks \(not to blocks\)"),
    "no block": (lambda config, weights: None, "custom must return a HybridBlock; received a NoneType$"),
    "a class without a configuration": (AsItIs, r"functions that return blocks \(not to blocks\)"),
    "another shape": (
        lambda config, weights: mx.gluon.nn.Flatten(),
        r"data.shape=\(None, 12\); the block given for 'one' returns \(None, 12\); custom",
    ),
    "another shape before another layer": (
        lambda config, weights: AsItIs(),
        r"data.shape=\(None, 12\); the block given for 'one' returns \(None, 3, 4\); custom",
    ),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_wrong_custom_blocks_are_refused(kind):
    given, message = BLOCKS[kind]
    second = "Other" if given is None else "Flatten" if "before" in kind else "ReLU"
    model = model_of(entry("Mine"), entry(second, "two"), entry("MaxPooling1D", "three", {"pool_size": [1]}))
    with pytest.raises((ValueError, TypeError), match=message):
        mxsame.from_keras(json.dumps(model), custom=None if given is None else {"Mine": given})


DATA = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
OPERATIONS = [  # of TensorFlow, and of Keras 3: the name, the arguments, and what comes of it or the message
    ("math.l2_normalize", {}, lambda x: x / np.sqrt((x**2).sum())),
    ("math.l2_normalize", {"axis": None}, lambda x: x / np.sqrt((x**2).sum())),
    ("nn.softmax", {"axis": None}, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    ("Softmax", {"axis": None}, "axis must be"),
    ("Cumsum", {"axis": None, "dtype": None}, "axis must be a number; received None"),
    ("transpose", {"perm": None}, "axes must be a constant; received None"),
    ("clip_by_value", {"clip_value_min": [0.0], "clip_value_max": 1.0}, "x_min must be a number; .*; custom="),
    ("gather", {"indices": [[0]], "axis": 1}, "indices must be integers, of one axis at most"),
    ("repeat", {"repeats": 2}, "argument axis must be given; received repeats=2, x=.*; custom="),
    ("linalg.normalize", {"axis": -1}, r"received linalg.normalize \('one'\)"),
    ("sparse.softmax", {}, r"received sparse.softmax \('one'\)"),
]


@pytest.mark.parametrize(("name", "arguments", "want"), OPERATIONS)
def test_none_is_a_value(name, arguments, want):
    keras_3 = name[0].isupper()
    node = entry(name, config=arguments) if keras_3 else entry("TFOpLambda", config={"function": name})
    model = model_of(node, version="3.11.0" if keras_3 else "2.13.1")
    model["config"]["layers"][1]["inbound_nodes"][0][0][3] = {} if keras_3 else arguments
    if isinstance(want, str):
        with pytest.raises((ValueError, TypeError), match=want):
            mxsame.from_keras(json.dumps(model))
        return
    got = mxsame.from_keras(json.dumps(model))(mx.nd.array(DATA)).asnumpy()
    np.testing.assert_allclose(got, want(DATA), rtol=1e-5)


def test_classes_of_keras_by_their_other_names():
    for name, more in (("Custom>CustomScaleLayer", {}), ("CustomScaleLayer", {"module": "keras.src.applications.x",
                       "registered_name": "Custom>CustomScaleLayer"})):  # fmt: skip
        model = model_of(entry(name, config={"scale": 2.0}, **more))
        model["config"]["layers"][1]["inbound_nodes"] = [[["data", 0, 0, {}], ["data", 0, 0, {}]]]
        assert mxsame.from_keras(json.dumps(model))(mx.nd.ones((1, 3, 4))).asnumpy().max() == 3


def test_layers_of_keras_3_without_a_module_are_no_operators():
    dropout = entry("SpatialDropout1D", config={"rate": 0.5, "seed": None, "dtype": None})
    assert mxsame.from_keras(json.dumps(model_of(dropout, version="3.11.0")))(mx.nd.ones((1, 3, 4))).sum() == 12


def test_all_refusals_are_in_one_error():
    """Those of layers whose inputs are there, in nested models, too, and behind a layer with another key."""
    chain = entry("Flatten", "a", {"halved": 1}), entry("ReLU", "after", {"halved": 2}), entry("Softmax1", "b")
    others = entry("Softmax", "c", {"axis": 7}), wrapping("TimeDistributed", "ReLU", "d", {"new": 3})
    model = model_of(*chain)
    model["config"]["layers"] += others
    for layer in model["config"]["layers"][3:]:
        layer["inbound_nodes"] = [[["data", 0, 0, {}]]]
    model["config"]["output_layers"] = [["after", 0, 0]]
    with pytest.raises(ValueError) as refused:
        mxsame.from_keras(json.dumps(model))
    wanted = ["5 reasons", r"received Softmax1 \('b'\)", "'a' .*halved=1", "'after' .*halved=2", "'c' .*axis=7",
              "'one/d' .*new=3"]  # fmt: skip
    for line, pattern in zip(str(refused.value).splitlines(), wanted):
        assert re.search(pattern, line)
    with pytest.raises(ValueError, match=r"2 reasons:\n.* received Softmax1 \('b'\)\n.* no layer 'unknown'"):
        mxsame.from_keras(json.dumps(model), outputs="unknown")


def test_keys_without_meaning_are_accepted():
    off = json.dumps(called("Softmax", {"mask": None, "training": False}))
    assert mxsame.from_keras(off)(mx.nd.zeros((1, 4)))[0, 0] == 0.25
    float32 = {**POLICY, "config": {"name": "float32"}}
    off = {"dtype": float32, "kernel_initializer": {"class_name": "Zeros"}, "more": None}
    net = mxsame.from_keras(json.dumps(model_of(entry("Flatten", config={**off, "trainable": True, "new": False}))))
    assert net(mx.nd.ones((1, 3, 4))).shape == (1, 12)
    of_keras_3_15 = {"renorm": False, "renorm_clipping": None, "renorm_momentum": 0.99}
    Config(of_keras_3_15).refuse_unread(LAYERS["BatchNormalization"].ignored)


def test_inputs_may_be_given_by_their_name():
    """As Keras 3 writes `layer(inputs=x)`."""
    model = model_of(entry("Softmax", config={"trainable": True}), version="3.11.0")
    x = {"class_name": "__keras_tensor__", "config": {"keras_history": ["data", 0, 0]}}
    model["config"]["layers"][1]["inbound_nodes"] = [{"args": [], "kwargs": {"inputs": x}}]
    assert mxsame.from_keras(json.dumps(model))(mx.nd.ones((1, 3, 4))).asnumpy().max() == 0.25


def called(layer, kwargs):
    """A model of a layer that is called with these arguments."""
    model = model_of(entry(layer), shapes=[(4,)])
    model["config"]["layers"][1]["inbound_nodes"][0][0][3] = kwargs
    return model


def without_a_module(operator):
    """An operator of Keras 3 as `.h5` files have it: only layers are trainable, or not."""
    return model_of(entry(operator, config={"axis": 0, "dtype": None}), version="3.11.0")


POLICY = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "mixed_float16"}, "registered_name": None}
INT8 = {**POLICY, "config": {"mode": "int8"}}
ADD = {"name": "AddV2", "op": "AddV2", "input": ["x", "y"], "attr": {"T": {"type": "DT_FLOAT"}}}
KEYED, RAGGED = model_of(entry("ReLU")), model_of(entry("ReLU"))
KEYED["config"]["scaled"] = 2
RAGGED["config"]["layers"][0]["config"]["ragged"] = True
NOT_READ = r"layer '[a-z/]*' \(.*must not be given, or be None or False; received "
OF_ONE = "'one'|layer=.*one"
OF_TYPE = "dtype must be float32 .*clone_model.*; received dtype="  # without the advice to replace the layer
INNER, BOTH = ("Flatten", "inner", {"inner": 1}), ("LSTM", "inner", {"units": 2, "both": 1})
REFUSED = {  # what -> (a model or its only layer, message)
    **{kind: (layer, "received .*(Softmax|Dense|LSTM|Functional)") for kind, layer in OF_A_USER.items()},
    "a model of a user": (model_of(entry("ReLU"), class_name="mine>Net"), r"keras.Model\(model.inputs, .*'mine>Net'"),
    "TensorFlow 2.3": (entry("TensorFlowOpLayer", config={"node_def": ADD}), r"TensorFlowOpLayer.AddV2 \('one'\)"),
    "an operator without a module": (without_a_module("Average"), r"received Average \('one'\)"),
    "a user's, without a module": (without_a_module("Softmax1"), r"received Softmax1 \('one'\)"),
    "a product without a module": (without_a_module("Prod"), "axis must not be the batch"),
    "a mask": (called("LeakyReLU", {"mask": ["data", 0, 0]}), r"'one' \(LeakyReLU\): argument mask must not be given"),
    "an argument": (called("Add", {"scale": 2}), r"'one' \(Add\): argument scale must not be given; received scale=2"),
    # a key that may mean something, at each position of a configuration
    "a key of a model": (KEYED, "model 'net': scaled must not be given"),
    "a key of a layer": (entry("Flatten", config={"halved": 1}), f"{NOT_READ}halved=1"),
    "a key of what is wrapped": (wrapping("TimeDistributed", *INNER), f"{NOT_READ}inner=1"),
    "a key of both directions": (wrapping("Bidirectional", *BOTH), f"{NOT_READ}both=1"),
    "a key of an activation": (
        entry("Activation", config={"activation": entry("LeakyReLU", "inner", {"slope": 1})}), f"{NOT_READ}slope=1",
    ),
    "float64": (entry("ReLU", config={"dtype": "float64"}), f"{OF_TYPE}'float64'$"),
    "float16": (entry("RandomFlip", config={"mode": "horizontal", "dtype": POLICY}), f"{OF_TYPE}'mixed_float16'$"),
    "int8": (entry("Softmax", config={"axis": 7, "dtype": INT8}), f"{OF_TYPE}'int8'$"),
    "shapes that do not fit": (
        model_of(entry("Concatenate"), shapes=((5, 3), (4, 3))), r"inputs must have shapes .* \(None, 4, 3\)\]$",
    ),
    "a ragged input": (RAGGED, "inputs must not be ragged; received the input 'data'"),
    "Keras 1": (model_of(entry("ReLU"), version="1.2.2"), r"load_model\(path\).save\(path\).*keras_version='1.2.2'"),
    # configurations of another structure, for which Python has its own words
    "a function without a name": (entry("Activation", config={"activation": {"class_name": "x"}}), OF_ONE),
    "a layer without a configuration": (entry("Activation", config={"activation": {"class_name": "ReLU"}}), OF_ONE),
    "no number of units": (entry("RepeatVector"), OF_ONE),
    "a list for a number": (entry("Permute", config={"dims": "ab"}), OF_ONE),
    "pairs of three": (entry("ZeroPadding1D", config={"padding": [[1, 2, 3]]}), OF_ONE),
    "sizes of another rank": (entry("MaxPooling1D", config={"pool_size": [[2], 3]}), OF_ONE),
    "no cell": (entry("RNN", config={"cell": 3}), OF_ONE),
    "a text of bounds": (entry("Discretization", config={"bin_boundaries": "ab"}), OF_ONE),
}  # fmt: skip
WORDS_OF_PYTHON = re.compile(
    "unpack|not subscriptable|has no attribute|could not convert|indices must be|unsupported o"
)


@pytest.mark.filterwarnings("ignore:layer 'one':UserWarning")
@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_a_message_of_mxsame(kind, monkeypatch):
    monkeypatch.setattr(call_context, "fill", lambda *arguments: {})  # without weights
    monkeypatch.setattr(reading, "weight_specs_of", lambda layer: [])
    given, message = REFUSED[kind]
    model = model_of(given) if "name" in given else given
    with pytest.raises((ValueError, TypeError), match=message) as refused:
        mxsame.from_keras(json.dumps(model))
    assert not WORDS_OF_PYTHON.search(str(refused.value))


# of the lengths that `shape` gives, a number that follows from the data, and how a GPU is used
WITHOUT_MEANING = {"out_type", "num", "use_cudnn_on_gpu"}


@pytest.mark.parametrize("name", [*LAYERS, *OPERATORS])
def test_a_converter_reads_its_arguments(name):
    """One that it ignores would be accepted in silence."""
    build = {**LAYERS, **OPERATORS}[name].build
    build = getattr(build, "func", build)
    (function,) = ast.parse(inspect.getsource(build)).body
    read = {node.id for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    assert set(inspect.signature(build).parameters) - {"call"} <= read | WITHOUT_MEANING


TYPES = {("identity", "dtype"), *((name, "output_type") for name in ("argmax", "argmin")), ("shape", "out_type")}
TYPES.add(("top_k", "index_type"))


@pytest.mark.oracle
def test_defaults_of_operators_are_tensorflow_s():
    """An argument that is not given has TensorFlow's default; one that a row lacks is off by default."""
    import tensorflow as tf

    different, seen = {}, 0
    for package in ("", "math", "nn", "image", "linalg"):
        for name, function in vars(getattr(tf, package) if package else tf).items():
            operator = operator_name(f"{package}.{name}".lstrip("."))
            if operator not in OPERATORS or not inspect.isfunction(function):
                continue
            seen += 1
            row = OPERATORS[operator]
            ours = {key: parameter.default for key, parameter in row.signature.parameters.items()}
            ours = {**ours, **(arguments_of(ACTIVATIONS[operator]) if operator in ACTIVATIONS else {})}
            ours.setdefault("alpha", ours.get("negative_slope"))
            theirs = dict(list(inspect.signature(function).parameters.items())[1:])
            for key, parameter in theirs.items():
                default, wanted = ours.get(row.aliases.get(key, key)), parameter.default
                required = parameter.empty in (default, wanted)  # by TensorFlow, or refused here
                if not required and wanted != default and (wanted is not False or default is not None):
                    different[operator, key] = default
    for same in [("softmax", "axis"), ("log_softmax", "axis"), ("one_hot", "axis"), ("pad", "mode"), ("norm", "ord")]:
        del different[same]  # None is -1 or "euclidean", CONSTANT is constant
    del different["pad", "constant_values"]
    assert seen > 70
    assert {at for at in different if at[1] not in ("name", "data_format")} <= TYPES
