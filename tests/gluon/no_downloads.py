"""Random parameters in place of those that Gluon's model zoo would download: ``pytest -p no_downloads``."""

import tempfile
from pathlib import Path

from mxsame._mxnet import mx

vision, model_store = mx.gluon.model_zoo.vision, mx.gluon.model_zoo.model_store


def get_model_file(name, root=None):
    """A file of random parameters, with which the outputs are neither infinite nor zero."""
    path = Path(tempfile.mkdtemp()) / f"{name}.params"
    net = vision.get_model(name)
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 3, 224, 224)))
    net.save_parameters(str(path))
    return str(path)


model_store.get_model_file = get_model_file
