"""The page of the site on moving from keras-mxnet: its blocks run, and print what their comments show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TESTS = Path(__file__).parent.parent


def test_the_page_on_moving_from_keras_mxnet_runs():
    spec = importlib.util.spec_from_file_location("documents", TESTS / "test_documents.py")
    documents = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(documents)
    namespace: dict = {}
    for block in documents.blocks(documents.KERAS_MXNET, "python"):
        documents.run(documents.KERAS_MXNET, block, namespace)
