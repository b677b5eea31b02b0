"""The names of networks and variants in tables and charts, and the titles of charts. Result files have the shorter ones
of the code."""

from __future__ import annotations

NETWORKS = {
    "resnet50": "ResNet-50",
    "mobilenet": "MobileNet",
    "mobilenetv2": "MobileNetV2",
    "xception": "Xception without exit flow",
    "efficientnet": "EfficientNet-B0",
    "vgg16": "VGG16",
    "inceptionv3": "InceptionV3",
    "unet": "U-Net",
    "autoencoder": "autoencoder",
}
VARIANTS = {
    "mxsame": "mxsame.hybridize",
    "mxsame, static shape": "mxsame.hybridize",
    "mxsame, dynamic shape": "net.hybridize",
    "mxsame, deployed": "mxsame.deploy",
    "mxsame, deployed, bfloat16": "mxsame.deploy, bfloat16",
    "symmetric": "symmetric padding",
    "symmetric, deployed": "symmetric padding, deployed",
    "symmetric, rewritten": "symmetric padding with mxsame.hybridize",
    "explicit pad": "explicit padding",
    "explicit pad, deployed": "explicit padding, deployed",
    "explicit pad, rewritten": "explicit padding with mxsame.hybridize",
    "planner": "the planner's choice",
    "weights": "the size of the weights",
}
TITLES = {
    "calls": "Time of calls on 16 elements",
    "convert": "Keras model files: mxsame.from_keras and tf.keras",
    "layers": "Layers of known networks",
    "layers-train": "Layers of known networks, training",
    "memory": "Peak memory of networks",
    "networks": "Speed of networks",
    "networks-train": "Speed of networks, training",
    "onnx": "Keras models as ONNX files and in mxsame.deploy",
    "peers": "Speed of mxsame.deploy and of other runtimes",
    "planner": "The planner's choice and other exact plans",
    "sampled": "The planner's choice for layers drawn at random",
    "sampled-train": "The planner's choice for layers drawn at random, training",
    "start": "From the import to the first output of a file",
    "sizes": "Many sizes: MobileNetV2, a quarter of its width",
}
TIMED = {  # what a mode's seconds are the time of
    "call": "a call",
    "forward": "a forward pass",
    "forward and backward": "a forward and backward pass",
    "static shape, forward": "a pass, static shape",
    "dynamic shape, forward": "a pass, dynamic shape",
    "static shape, forward and backward": "training, static shape",
    "dynamic shape, forward and backward": "training, dynamic shape",
    "inference, deployed": "inference",
    "inference, compared with TensorFlow": "inference",
    "one size at a time": "calls with one size",
    "sizes in turn": "calls with sizes in turn",
    "steady state": "calls with sizes in turn",
    "time": "reading",
    "training step, compared with TensorFlow": "a training step",
    "training step": "a training step",
    "first output": "import and first output",
    "another batch": "the first call with another batch",
    "training step, net.hybridize()": "a training step with net.hybridize",
}


OTHER_NAMES = {  # of variants in the rows of a mode, or with a reference
    ("mxsame", "call"): "mxsame",
    ("mxsame", "time"): "mxsame.from_keras",
    ("mxsame", "weights"): "mxsame.from_keras",
    ("ONNX Runtime, mxsame's file", "nodes of the file"): "mxsame's file",
    ("ONNX Runtime, tf2onnx's file", "nodes of the file"): "tf2onnx's file",
}


def variant(name: str, mode: str = "", reference: str = "") -> str:
    """
    >>> variant("explicit pad"), variant("gather"), variant("mxsame"), variant("mxsame", "time")
    ('explicit padding', 'gather', 'mxsame.hybridize', 'mxsame.from_keras')
    """
    return OTHER_NAMES.get((name, mode)) or OTHER_NAMES.get((name, reference)) or VARIANTS.get(name, name)


def mode(name: str, row: dict) -> str:
    """The title of rows of this mode.

    >>> mode("forward", {"unit": "s", "reference": "symmetric"})
    'Time of a forward pass (symmetric padding = 1; lower is better)'
    """
    title = f"Time of {TIMED.get(name, name)}" if row["unit"] == "s" else f"{name[0].upper()}{name[1:]}"
    if row["unit"] == "MiB" and "memory" not in name:
        title = f"Memory of {TIMED.get(name, name)}"
    return f"{title} ({variant(row['reference'], name)} = 1; lower is better)"


def processor(recorded: str) -> str:
    """
    >>> processor("AMD EPYC avx512f"), processor("AMD EPYC AVX512_CORE_BF16"), processor("AMD EPYC")
    ('AMD EPYC with AVX-512', 'AMD EPYC with AVX-512 BF16', 'AMD EPYC')
    """
    return recorded.replace(" avx512f", " with AVX-512").replace(" AVX512_CORE_BF16", " with AVX-512 BF16")


def row(name: str) -> str:
    """
    >>> row("resnet50, batch 8"), row("10 squares, mxsame, dynamic shape"), row("max pool 64 k2 s2")
    ('ResNet-50, batch 8', '10 squares, net.hybridize', 'max pool 64 k2 s2')
    """
    first, comma, more = name.partition(", ")
    return NETWORKS.get(first, first) + comma + variant(more)
