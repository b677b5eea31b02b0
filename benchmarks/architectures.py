"""Networks, each written once as a function of a kit of layers (see `benchmarks/kits.py`). Padding is SAME by default.

Shapes are those of keras.applications, and VALID is where Keras has it, except that SAME replaces pads by hand and then
VALID. Classifiers end with global pooling and one dense layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

CLASSES = 1000


@dataclass(frozen=True)
class Network:
    """A network and the images it is made for."""

    name: str
    build: Callable[[Any, Any], Any]  # (kit, input) -> output
    size: int = 224
    classifies: bool = True
    smallest: int = 1
    multiple: int = 1  # which sizes are a multiple of

    def fitting(self, size: int) -> int:
        """The size, or the next larger that the network takes.

        >>> Network("three levels", print, smallest=48, multiple=8).fitting(50)
        56
        """
        return -(-max(size, self.smallest) // self.multiple) * self.multiple


def resnet50(kit: Any, x: Any) -> Any:
    """ResNet-50 v1 with its strides in the first 1x1 convolution of a stage, as Keras has it."""
    x = _conv_norm(kit, x, kit.scaled(64), 7, 2)
    x = kit.max_pool(x, 3, 2)
    for stage, (channels, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x = _bottleneck(kit, x, kit.scaled(channels), stride, project=not block)
    return _classify(kit, x)


def _bottleneck(kit: Any, x: Any, channels: int, stride: int, project: bool) -> Any:
    shortcut = kit.norm(kit.conv(x, 4 * channels, 1, stride)) if project else x
    y = _conv_norm(kit, x, channels, 1, stride)
    y = _conv_norm(kit, y, channels, 3)
    return kit.relu(kit.add(shortcut, kit.norm(kit.conv(y, 4 * channels, 1))))


def mobilenet(kit: Any, x: Any) -> Any:
    """MobileNetV1."""
    x = kit.relu6(kit.norm(kit.conv(x, kit.scaled(32), 3, 2)))
    layers = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for channels, stride in layers:
        x = kit.relu6(kit.norm(kit.depthwise(x, 3, stride)))
        x = kit.relu6(kit.norm(kit.conv(x, kit.scaled(channels), 1)))
    return _classify(kit, x)


def mobilenetv2(kit: Any, x: Any) -> Any:
    """MobileNetV2."""
    x = kit.relu6(kit.norm(kit.conv(x, kit.scaled(32), 3, 2)))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, blocks, stride in stages:
        for block in range(blocks):
            x = _inverted(kit, x, expansion, kit.scaled(channels), 3, 1 if block else stride, False)
    return _classify(kit, kit.relu6(kit.norm(kit.conv(x, kit.scaled(1280), 1))))


def efficientnet(kit: Any, x: Any) -> Any:
    """The body of EfficientNet-B0: depthwise kernels of 3 and 5, squeeze and excite, swish."""
    x = kit.swish(kit.norm(kit.conv(x, kit.scaled(32), 3, 2)))
    stages = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )
    for expansion, channels, blocks, stride, kernel_size in stages:
        for block in range(blocks):
            step = 1 if block else stride
            x = _inverted(kit, x, expansion, kit.scaled(channels), kernel_size, step, True)
    return _classify(kit, kit.swish(kit.norm(kit.conv(x, kit.scaled(1280), 1))))


def _inverted(kit: Any, x: Any, expansion: int, channels: int, kernel_size: int, stride: int, squeezes: bool) -> Any:
    """The inverted residual of MobileNetV2, and of its successor, which squeezes and has swish."""
    y, activation = x, kit.swish if squeezes else kit.relu6
    if expansion > 1:
        y = activation(kit.norm(kit.conv(y, expansion * x.channels, 1)))
    y = activation(kit.norm(kit.depthwise(y, kernel_size, stride)))
    if squeezes:
        gate = kit.swish(kit.conv(kit.global_pool(y), max(1, x.channels // 4), 1, use_bias=True))
        y = kit.scale(y, kit.sigmoid(kit.conv(gate, y.channels, 1, use_bias=True)))
    y = kit.norm(kit.conv(y, channels, 1))
    return kit.add(x, y) if stride == 1 and channels == x.channels else y


def xception(kit: Any, x: Any) -> Any:
    """Xception's entry flow, three blocks of its middle flow, and a classifier."""
    x = _conv_norm(kit, x, kit.scaled(32), 3, 2)
    x = _conv_norm(kit, x, kit.scaled(64), 3)
    for number, channels in enumerate((128, 256, 728)):
        channels = kit.scaled(channels)
        shortcut = kit.norm(kit.conv(x, channels, 1, 2))
        x = _separable(kit, kit.relu(x) if number else x, channels)
        x = _separable(kit, kit.relu(x), channels)
        x = kit.add(kit.max_pool(x, 3, 2), shortcut)
    for _ in range(3):
        y = x
        for _ in range(3):
            y = _separable(kit, kit.relu(y), x.channels)
        x = kit.add(x, y)
    return _classify(kit, x)


def _separable(kit: Any, x: Any, channels: int) -> Any:
    return kit.norm(kit.conv(kit.depthwise(x, 3), channels, 1))


def vgg16(kit: Any, x: Any) -> Any:
    """VGG16, which SAME pads alike at both ends: kernels of 3 without strides, and VALID max pools."""
    for channels, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            x = _conv_relu(kit, x, kit.scaled(channels))
        x = kit.max_pool(x, 2, 2, padding="valid")
    return _classify(kit, x)


def inceptionv3(kit: Any, x: Any) -> Any:
    """InceptionV3, which SAME pads alike at both ends: whatever has a stride is VALID, and other kernels are odd."""

    def conv(x: Any, channels: int, kernel_size: Any, stride: int = 1, padding: str = "same") -> Any:
        return _conv_norm(kit, x, kit.scaled(channels), kernel_size, stride, padding)

    def chain(x: Any, *convolutions: Any) -> Any:
        """Convolutions in a row, each (channels, kernel size, ..)."""
        for convolution in convolutions:
            x = conv(x, *convolution)
        return x

    def pooled(x: Any, channels: int) -> Any:
        return conv(kit.avg_pool(x, 3, 1), channels, 1)

    def halved(x: Any) -> Any:
        return kit.max_pool(x, 3, 2, padding="valid")

    row, column, halves = (1, 7), (7, 1), (3, 2, "valid")
    x = halved(chain(x, (32, *halves), (32, 3, 1, "valid"), (64, 3)))
    x = halved(chain(x, (80, 1, 1, "valid"), (192, 3, 1, "valid")))
    for channels in (32, 64, 64):
        fives, threes = chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3))
        x = kit.concat(conv(x, 64, 1), fives, threes, pooled(x, channels))
    x = kit.concat(conv(x, 384, *halves), chain(x, (64, 1), (96, 3), (96, *halves)), halved(x))
    for channels in (128, 160, 160, 192):
        sevens = chain(x, (channels, 1), (channels, row), (192, column))
        twice = chain(x, *((channels, kernel) for kernel in (1, column, row, column)), (192, row))
        x = kit.concat(conv(x, 192, 1), sevens, twice, pooled(x, 192))
    sevens = chain(x, (192, 1), (192, row), (192, column), (192, *halves))
    x = kit.concat(chain(x, (192, 1), (320, *halves)), sevens, halved(x))
    for _ in range(2):
        forks = [chain(x, (384, 1)), chain(x, (448, 1), (384, 3))]
        ends = [kit.concat(conv(fork, 384, (1, 3)), conv(fork, 384, (3, 1))) for fork in forks]
        x = kit.concat(conv(x, 320, 1), *ends, pooled(x, 192))
    return _classify(kit, x)


def unet(kit: Any, x: Any) -> Any:
    """U-Net with four levels, half the channels of the original, and SAME: max pools down, transposed convolutions of
    kernel 3 up, each concatenated with what its level had on the way down."""
    channels, levels = x.channels, []
    for level in range(4):
        levels.append(_conv_relu(kit, _conv_relu(kit, x, kit.scaled(32 << level)), kit.scaled(32 << level)))
        x = kit.max_pool(levels[-1], 2, 2)
    x = _conv_relu(kit, _conv_relu(kit, x, kit.scaled(512)), kit.scaled(512))
    for skip in reversed(levels):
        x = kit.concat(skip, kit.transposed(x, skip.channels, 3, 2))
        x = _conv_relu(kit, _conv_relu(kit, x, skip.channels), skip.channels)
    return kit.sigmoid(kit.conv(x, channels, 1, use_bias=True))


def autoencoder(kit: Any, x: Any) -> Any:
    """Convolutions and pooling layers down to an eighth, transposed convolutions of every kernel back up."""
    channels = x.channels
    x = kit.relu(kit.conv(x, kit.scaled(32), 3, use_bias=True))
    x = kit.max_pool(x, 2, 2)
    x = kit.relu(kit.conv(x, kit.scaled(64), 3, 2, use_bias=True))
    x = kit.relu(kit.conv(x, kit.scaled(128), 3, 2, use_bias=True))
    x = kit.relu(kit.transposed(x, kit.scaled(64), 3, 2))
    x = kit.relu(kit.transposed(x, kit.scaled(32), 4, 2))
    x = kit.relu(kit.transposed(x, kit.scaled(16), 2, 2))
    return kit.sigmoid(kit.conv(x, channels, 3, use_bias=True))


def _conv_norm(kit: Any, x: Any, channels: int, kernel_size: Any, stride: int = 1, padding: str = "same") -> Any:
    return kit.relu(kit.norm(kit.conv(x, channels, kernel_size, stride, padding=padding)))


def _conv_relu(kit: Any, x: Any, channels: int) -> Any:
    return kit.relu(kit.conv(x, channels, 3, use_bias=True))


def _classify(kit: Any, x: Any) -> Any:
    return kit.dense(kit.global_pool(x), CLASSES)


NETWORKS = (
    Network("resnet50", resnet50),
    Network("mobilenet", mobilenet),
    Network("mobilenetv2", mobilenetv2),
    Network("xception", xception, size=299),
    Network("efficientnet", efficientnet),
    Network("vgg16", vgg16, smallest=32),
    Network("inceptionv3", inceptionv3, size=299, smallest=75),
    Network("unet", unet, size=128, classifies=False, multiple=16),
    Network("autoencoder", autoencoder, size=112, classifies=False),
)


def named(name: str) -> Network:
    """The network of this name."""
    return next(network for network in NETWORKS if network.name == name)
