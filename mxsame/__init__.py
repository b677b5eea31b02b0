"""Convert Keras models to Gluon, and use Keras's `padding="same"` in Apache MXNet 1.9.1.

>>> import mxsame
>>> from mxnet import nd
>>> net = mxsame.from_keras(mxsame.sample("digits"))  # or "model.h5"
>>> net(nd.zeros((1, 8, 8, 1))).shape
(1, 10)
>>> layer = mxsame.nn.Conv2D(64, 3, strides=2)  # as gluon.nn.Conv2D, with Keras's padding
>>> layer.initialize()
>>> layer(nd.zeros((1, 3, 32, 30))).shape
(1, 64, 16, 15)

Keras models: `from_keras`, `compare`, `to_keras`, `to_keras_weights`, `sample`. Graphs and files: `hybridize`,
`deploy`, `export`, `export_onnx`. Padding: `audit`, `plot_padding`, and layers and functions in `nn`, `ops`, `padding`
and `keras`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

from mxsame.installation import importing

__version__ = "0.1.0"

importing.prepare()  # `import mxnet` works from here on; nothing here imports it before it is used

_PUBLIC = {  # name -> the module that it is, or that defines it
    "audit": "mxsame.auditing:audit",
    "compare": "mxsame.port.report:compare",
    "deploy": "mxsame.graphs.deploy:deploy",
    "export": "mxsame.graphs.files:export",
    "export_onnx": "mxsame.onnx.export:export_onnx",
    "from_keras": "mxsame.port.convert:from_keras",
    "hybridize": "mxsame.graphs.hybridize:hybridize",
    "keras": "mxsame.keras",
    "nn": "mxsame.nn",
    "ops": "mxsame.ops",
    "padding": "mxsame.padding",
    "plan": "mxsame.plan",
    "planner": "mxsame.planner",
    "plot_padding": "mxsame.drawing:plot_padding",
    "sample": "mxsame.data:sample",
    "to_keras": "mxsame.export_keras.export:to_keras",
    "to_keras_weights": "mxsame.port.convert:to_keras_weights",
    # what functions return
    "Audit": "mxsame.auditing:Audit",
    "Comparison": "mxsame.port.report:Comparison",
    "Network": "mxsame.port.network:Network",
    "Written": "mxsame.graphs.files:Written",
}

_MODULES = ("doctor", "onnx")  # which may be named without an import of their own

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:  # the same names, for type checkers
    from mxsame import keras as keras, nn as nn, ops as ops, padding as padding, plan as plan, planner as planner
    from mxsame.auditing import Audit as Audit, audit as audit
    from mxsame.data import sample as sample
    from mxsame.drawing import plot_padding as plot_padding
    from mxsame.export_keras.export import to_keras as to_keras
    from mxsame.graphs.deploy import deploy as deploy
    from mxsame.graphs.files import Written as Written, export as export
    from mxsame.graphs.hybridize import hybridize as hybridize
    from mxsame.onnx.export import export_onnx as export_onnx
    from mxsame.port.convert import from_keras as from_keras, to_keras_weights as to_keras_weights
    from mxsame.port.network import Network as Network
    from mxsame.port.report import Comparison as Comparison, compare as compare


def __getattr__(name: str) -> Any:
    """Returns a public name, imported when it is first used."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _PUBLIC:
        from mxsame.suggestions import unknown_name

        elsewhere = {"mxsame.nn": import_module("mxsame.nn")} if name[0].isupper() else {}  # it may be a layer
        raise unknown_name(__name__, name, __all__, elsewhere)
    module, _, attribute = _PUBLIC[name].partition(":")
    value = import_module(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted([*__all__, *_MODULES])
