"""`mxsame.export_onnx` and MXNet's own exporter, `mx.onnx.export_model`, on the same nets: which are written, and which
of the files give what the net gives. Each net has a process of its own. Needs the extra `onnx`, and for Keras models
`oracle`."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np

import mxsame
from benchmarks import networks, onnx, results
from benchmarks.architectures import NETWORKS, named
from benchmarks.worker import alone
from mxsame._mxnet import mx

OURS, MXNETS = "mxsame.export_onnx", "mx.onnx.export_model"
ZOO, LAYERS, KERAS = "gluon.model_zoo.vision", "mxsame.nn", "keras.applications"
MODEL_ZOO = (
    *(f"resnet{depth}_v{version}" for version in (1, 2) for depth in (18, 34, 50, 101, 152)),
    *(f"vgg{depth}{norm}" for norm in ("", "_bn") for depth in (11, 13, 16, 19)),
    "alexnet",
    *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
    "squeezenet1.0",
    "squeezenet1.1",
    "inceptionv3",
    *(f"{family}{width}" for family in ("mobilenet", "mobilenetv2_") for width in ("1.0", "0.75", "0.5", "0.25")),
)
NETS = (  # (where it is from, its name)
    *((ZOO, name) for name in MODEL_ZOO),
    *((LAYERS, network.name) for network in NETWORKS),
    *((KERAS, name) for name in onnx.APPLICATIONS),
)
TOLERANCE = 1e-4


def net_of(source: str, name: str) -> Tuple[Any, tuple]:
    """A net with random weights, and the shape of its input."""
    if source == LAYERS:
        case = networks.case(named(name), 1)
        return networks.kits(case, ["mxsame"])["mxsame"].net, case.shape
    if source == KERAS:
        model = onnx.model_of(name)
        return mxsame.from_keras(model), (1, *onnx.picture_shape(model))
    net = mx.gluon.model_zoo.vision.get_model(name)
    size = 299 if name == "inceptionv3" else 224
    mx.random.seed(0)
    net.initialize(mx.init.MSRAPrelu("in", slope=0))
    net(mx.nd.zeros((1, 3, size, size)))
    networks.randomise_norms(net)
    return net, (1, 3, size, size)


def by_mxsame(net: Any, shape: tuple, file: str) -> None:
    mxsame.export_onnx(net, file, shape)


def by_mxnet(net: Any, shape: tuple, file: str) -> None:
    """Traced for the shape, so that the graph computes no size, for which this exporter has no operators."""
    symbol = net(mx.sym.var("data", shape=shape))
    parameters = {name: parameter.data() for name, parameter in net.collect_params().items()}
    mx.onnx.export_model(symbol, parameters, [shape], np.float32, file)


EXPORTERS: Dict[str, Callable[[Any, tuple, str], None]] = {OURS: by_mxsame, MXNETS: by_mxnet}


def measure(source: str, name: str) -> dict:
    """A row: for each exporter the report of `exported`, from a process of its own."""
    try:
        reports = alone("exporters:measure_one", source=source, name=name)
    except RuntimeError as error:  # the process crashed
        reports = {exporter: {"error": str(error)} for exporter in EXPORTERS}
    return {"name": name, "mode": source, "exporters": reports}


def measure_one(source: str, name: str) -> Dict[str, dict]:
    """Of one net, in this process."""
    net, shape = net_of(source, name)
    data = np.random.RandomState(2).uniform(0, 1, shape).astype("float32")
    want = net(mx.nd.array(data)).asnumpy()
    return {exporter: exported(export, net, data, want) for exporter, export in EXPORTERS.items()}


def exported(export: Callable[[Any, tuple, str], None], net: Any, data: np.ndarray, want: np.ndarray) -> dict:
    """The file's operators, the seconds that it took, and its difference from the net by onnxruntime, as a part of the
    largest output; or why there is none."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net.onnx")
        try:
            export(net, data.shape, file)
            report: Dict[str, Any] = {"seconds": round(time.perf_counter() - began, 2), "operators": onnx.nodes(file)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}
        try:
            return {**report, "difference": networks.difference(onnx.in_session(file, data)(), want)}
        except Exception as error:
            return {**report, "refused": f"{type(error).__name__}: {error}"[:300]}


def is_right(report: dict) -> bool:
    return report.get("difference", float("inf")) <= TOLERANCE


def counts(rows: List[dict]) -> Iterator[Tuple[str, str, int, int, int]]:
    """(source of the nets, exporter, how many there are, how many are written, how many are right)."""
    for source, group in results.by_mode(rows).items():
        for exporter in EXPORTERS:
            files = [row["exporters"][exporter] for row in group]
            yield source, exporter, len(files), sum("error" not in each for each in files), sum(map(is_right, files))
