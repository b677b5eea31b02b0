"""The versions and the wheels that mxsame supports. This file imports nothing from the package: `setup.py` runs it."""

import shlex
import sys
from typing import Iterable, List, NamedTuple

MXNET_VERSION = "1.9.1"
NEWEST_PYTHON, NEWEST_NUMPY = (3, 13), (2, 5)
TESTED = f"MXNet {MXNET_VERSION} is tested with Python 3.8 to 3.13 and with NumPy 1.17 to 2.5"
MXNET_CUDA_WHEEL = "mxnet-cu112"
# mxnet-cu112 has machine code for compute capability 5.0 to 8.6, which 8.9 runs, too, but no PTX for newer ones.
OLDEST_CAPABILITY, FIRST_TOO_NEW = (5, 0), (9, 0)
KERNELS = (
    f"{MXNET_CUDA_WHEEL} has kernels for GPUs of compute capability 5.0 to 8.9; "
    "examples/hopper in mxsame's repository builds them for 9.0"
)

ONNX = ("onnx>=1.14", "onnxruntime>=1.16")  # the extra [onnx]


class Library(NamedTuple):
    """A library of CUDA, the wheel that contains it, and a version of this wheel that works with the other wheels."""

    soname: str
    wheel: str
    version: str


PARTS_OF_CUDNN = ("", *(f"_{part}_{use}" for part in ("ops", "cnn", "adv") for use in ("infer", "train")))
# CUDA's libraries, which the wheel mxnet-cu112 does not contain, in the order of loading: none needs a later one.
LIBRARIES = (
    Library("libcudart.so.11.0", "nvidia-cuda-runtime-cu11", "11.8.89"),
    Library("libnvToolsExt.so.1", "nvidia-nvtx-cu11", "11.8.86"),
    Library("libnvrtc.so.11.2", "nvidia-cuda-nvrtc-cu11", "11.8.89"),
    Library("libcublasLt.so.11", "nvidia-cublas-cu11", "11.11.3.6"),
    Library("libcublas.so.11", "nvidia-cublas-cu11", "11.11.3.6"),
    Library("libcufft.so.10", "nvidia-cufft-cu11", "10.9.0.58"),
    Library("libcurand.so.10", "nvidia-curand-cu11", "10.3.0.86"),
    Library("libcusolver.so.11", "nvidia-cusolver-cu11", "11.4.1.48"),
    Library("libnccl.so.2", "nvidia-nccl-cu11", "2.21.5"),
    # libcudnn.so.8 loads its parts when they are first used, by their sonames.
    *(Library(f"libcudnn{part}.so.8", "nvidia-cudnn-cu11", "8.9.6.50") for part in PARTS_OF_CUDNN),
)


def pins(libraries: Iterable[Library] = LIBRARIES) -> List[str]:
    """Returns pip's requirements for these libraries: ``['nvidia-cuda-runtime-cu11==11.8.89', ...]``."""
    return list(dict.fromkeys(f"{library.wheel}=={library.version}" for library in libraries))


def install(*requirements: str) -> str:
    """Returns the command that installs these requirements in this Python."""
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])
