"""The types of arguments: values for each axis, names, shapes and paths. The types of MXNet's arrays are in `_mxnet`.

Padding names may be given in any case; layouts must be in upper case.
"""

from os import PathLike
from typing import Any, List, Literal, Optional, Protocol, Sequence, Tuple, Union, runtime_checkable

Ints = Union[int, Sequence[int]]  # one for all axes, or one for each
FilePath = Union[str, "PathLike[str]"]

Layout = Literal["NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC"]
DataFormat = Literal["channels_first", "channels_last"]
Activation = Literal["relu", "sigmoid", "tanh", "softrelu", "softsign"]
PoolMode = Literal["max", "avg"]
KernelKind = Literal["conv", "depthwise", "pointwise", "conv_transpose"]

KerasPadding = Literal["same", "valid", "SAME", "VALID"]
Causal = Literal["causal", "CAUSAL"]
NamedPadding = Literal["same", "valid", "SAME", "VALID", "keras-mxnet"]
Padding = Union[NamedPadding, int, Sequence[Ints]]  # a name, or an int or a (low, high) pair for each axis
ConvPadding = Union[Padding, Causal]
AxisPadding = Union[NamedPadding, Causal, Ints]  # of one axis: a name, an int or a (low, high) pair


class SupportsShape(Protocol):
    """An array of any library."""

    @property
    def shape(self) -> Any:
        """The length of each axis."""


class KerasModel(Protocol):
    """A model of tf.keras or Keras 3, in memory."""

    @property
    def layers(self) -> Any:
        """The layers, in a list."""


@runtime_checkable
class DeclaresInputs(Protocol):
    """A net that declares the shapes of its inputs, and names them and its outputs: a network of `from_keras`."""

    declared_shapes: List[Tuple[Any, ...]]
    input_names: List[str]
    output_names: List[str]


Arrays = Union[SupportsShape, Sequence[SupportsShape]]  # the array of the only input, or one for each input
Shape = Union[Sequence[Optional[int]], SupportsShape]  # or an array with this shape
_Nested = Sequence[Union[int, Shape, None]]
InputShape = Union[SupportsShape, Sequence[Union[int, SupportsShape, _Nested, None]]]  # nested as the net takes inputs
