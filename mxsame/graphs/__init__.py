"""A net as a graph, and what is made of it: graphs for its sizes, files, a graph for inference."""

import mxsame._mxnet  # noqa: F401 - first: it explains what is missing, NumPy included
