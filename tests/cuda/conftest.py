"""Tests of MXNet for CUDA with CUDA's real libraries and no GPU, in an environment of their own: ``.[cu112,test]``.

    python -m nox -s cuda
    python -m pytest tests/cuda     # where the environment is active

NVIDIA's driver is replaced by one made by gcc, which reports no GPU. Without the wheel mxnet-cu112 nothing here is
collected.
"""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # fake_cuda

try:
    metadata.version("mxnet-cu112")
except metadata.PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
