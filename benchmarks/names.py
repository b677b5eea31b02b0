"""The names of networks and variants in tables and charts. Result files have the shorter ones of the code."""

from __future__ import annotations

NETWORKS = {
    "resnet50": "ResNet-50",
    "mobilenet": "MobileNet",
    "mobilenetv2": "MobileNetV2",
    "xception": "Xception, entry and middle flow",
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
    "explicit pad": "explicit padding",
    "explicit pad, deployed": "explicit padding, deployed",
}


def variant(name: str) -> str:
    """
    >>> variant("explicit pad"), variant("gather")
    ('explicit padding', 'gather')
    """
    return VARIANTS.get(name, name)


def row(name: str) -> str:
    """
    >>> row("resnet50, batch 8"), row("10 squares, mxsame, dynamic shape"), row("max pool 64 k2 s2")
    ('ResNet-50, batch 8', '10 squares, net.hybridize', 'max pool 64 k2 s2')
    """
    first, comma, more = name.partition(", ")
    return NETWORKS.get(first, first) + comma + variant(more)
