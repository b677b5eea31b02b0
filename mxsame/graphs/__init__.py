"""Traces a net into a graph, and builds from it: graphs of static shape, exported files, an inference graph."""

import mxsame._mxnet  # noqa: F401 - first: it explains what is missing, NumPy included
