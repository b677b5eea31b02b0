"""Names that users mistake for others, of Keras, of PyTorch and of MXNet, and what to write instead."""

from __future__ import annotations

import difflib
from typing import Any, Collection, Iterable, Mapping, Optional, Sequence

OF_DEPTHWISE = "a depthwise layer has in_channels * depth_multiplier channels"
OTHER_NAMES = {  # argument name in Keras or MXNet -> candidates here; the first one that the function has is suggested
    **dict.fromkeys(("stride", "strides"), ("strides", "stride")),
    **dict.fromkeys(("kernel", "kernel_size", "pool_size"), ("kernel_size", "pool_size")),
    **dict.fromkeys(("dilation_rate", "dilate"), ("dilation",)),
    **dict.fromkeys(("filters", "num_filter", "channels"), ("channels", f"depth_multiplier: {OF_DEPTHWISE}")),
    "shape": ("input_shape",),
    **dict.fromkeys(("context", "device"), ("ctx",)),
    "bias": ("use_bias",),
    "custom_objects": ("custom: a dict of functions of (config, weights)",),
    "data_format": ('layout: "NHWC" for "channels_last" and two axes',),
    "kernel_initializer": ("weight_initializer",),
    "dilation": ("dilation_rate",),
    "name": ("prefix",),
    "num_group": ("groups",),
    "pad": ("padding",),
}
OTHER_FUNCTIONS = {  # names that other packages have for a function, and the name here
    **dict.fromkeys(("convert", "load", "load_model", "import_keras", "port"), "from_keras"),
    **dict.fromkeys(("save_model", "convert_to_keras", "export_keras"), "to_keras"),
    **dict.fromkeys(("to_onnx", "onnx_export", "export_model"), "export_onnx"),
    **dict.fromkeys(("save_weights", "export_weights"), "to_keras_weights"),
}
OTHER_LAYERS = {  # layers of Keras and PyTorch that are none in Gluon, and what is used there
    "ReLU": 'mxnet.gluon.nn.Activation("relu")',
    "Softmax": "F.softmax(x) in a HybridBlock",
    "UpSampling2D": 'F.UpSampling(x, scale=2, sample_type="nearest") in a HybridBlock',
    "ZeroPadding2D": "padding=((0, 1), (0, 1)) in the next layer",
}
INSTEAD = {  # names of Keras's models and layers, and of PyTorch's, and what is used in Gluon
    **dict.fromkeys(("predict", "predict_on_batch"), "net(mx.nd.array(x)).asnumpy()"),
    **dict.fromkeys(("compile", "fit", "train_on_batch"), "a gluon.Trainer, and mx.autograd.record() around net(x)"),
    "train": "mx.autograd.record() around net(x)",
    "eval": "net(x): outside mx.autograd.record(), a call is inference",
    **dict.fromkeys(("evaluate", "test_on_batch"), "an mx.metric.EvalMetric, which is updated with labels and net(x)"),
    **dict.fromkeys(("weights", "trainable_weights", "variables", "trainable_variables"), "collect_params()"),
    **dict.fromkeys(("get_weights", "set_weights", "kernel", "bias", "count_params", "parameters"), "collect_params()"),
    "trainable": 'collect_params().setattr("grad_req", "null") for layers that are not trained',
    "load_weights": "load_parameters(path)",
    **dict.fromkeys(("save_weights", "state_dict"), "save_parameters(path)"),
    "to_json": "mxsame.to_keras(net, path, input_shape)",
}


def argument(name: str, names: Collection[str]) -> Optional[str]:
    """Returns the argument of a function with these `names` that is likely meant; None if there is none."""
    others = (own for own in OTHER_NAMES.get(name, ()) if own.split(":")[0] in names)
    return next(others, None) or most_alike(name, names)


def unknown_name(module: str, name: str, names: Sequence[str], elsewhere: Mapping[str, Any] = {}) -> AttributeError:
    """Returns the error for a name that a module does not have: with the one to use instead, there or in a module of
    MXNet's, or with all names of the module."""
    gluon_name = name
    for keras, gluon in (("Pooling", "Pool"), ("Average", "Avg"), ("Convolution", "Conv"), ("Normalization", "Norm")):
        gluon_name = gluon_name.replace(keras, gluon)
    here = [each for each in (gluon_name, OTHER_FUNCTIONS.get(name)) if each in names]
    here = here or [f"{gluon_name}{rank}D" for rank in (1, 2, 3) if f"{gluon_name}{rank}D" in names]
    there = [f"{other}.{gluon_name}" for other, owner in elsewhere.items() if hasattr(owner, gluon_name)]
    here = here or ([] if there else list(filter(None, [most_alike(gluon_name, names)])))
    candidates = [f"{module}.{each}" for each in here] or there[:1] or list(filter(None, [OTHER_LAYERS.get(name)]))
    hint = f"use {' or '.join(candidates)}" if candidates else "it has " + ", ".join(names)
    return AttributeError(f"module {module!r} has no attribute {name!r}; {hint}")


def no_attribute(owner: Any, name: str, hint: str = "", instead: Mapping[str, str] = INSTEAD) -> AttributeError:
    """Returns the error for a name that a net or a layer does not have, with what to write instead."""
    hint = f"use {instead[name]}" if name in instead else hint
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}" + (f"; {hint}" if hint else ""))


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """Returns, for a rule, the closest match in parentheses, if there is one."""
    similar = most_alike(name, names) if isinstance(name, str) else None
    return f" (did you mean {similar!r}?)" if similar else ""


def most_alike(name: str, names: Iterable[str], cutoff: float = 0.75) -> Optional[str]:
    """Returns the closest match, such as "Conv2D" for "conv2d"; None if its ratio is below `cutoff`."""
    by_folded = {each.casefold(): each for each in names}
    matches = difflib.get_close_matches(name.casefold(), by_folded, 1, cutoff)
    return by_folded[matches[0]] if matches else None
