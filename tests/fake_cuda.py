"""Replacements of NVIDIA's driver and CUDA's libraries: shared libraries made by gcc."""

import shutil
import subprocess

import pytest

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc, which makes the stand-ins, is not installed")

# All that MXNet 1.9.1 for CUDA imports from the driver. Every function answers CUDA_ERROR_NO_DEVICE.
DRIVER_FUNCTIONS = (
    *("cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuGetErrorString", "cuLaunchKernel", "cuGraphKernelNodeGetParams"),
    *("cuGraphNodeGetType", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleUnload"),
)
NO_DEVICE = "int {}(void) {{ return 100; }}"


# CUDA's compiler, with the options that examples/hopper gives it: the kernels are functions in C.
NVCC = """#!/bin/sh
for argument in "$@"; do case $argument in *.cu) source=$argument ;; *.draft) target=$argument ;; esac; done
echo "$@" >> "$OPTIONS"
exec gcc -w -x c -c "$source" -o "$target"
"""


def make_compiler(folder):
    """Writes the compiler into the folder; returns its path."""
    path = folder / "nvcc"
    path.write_text(NVCC)
    path.chmod(0o755)
    return path


def make(folder, soname, source="", *options):
    """Compiles a shared library of that name into the folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(folder / soname), "-x", "c", "-", *options]
    subprocess.run(command, input=source, text=True, check=True)
    return folder / soname


def make_driver(folder, functions=DRIVER_FUNCTIONS):
    """A driver with which MXNet can be imported and computes on the CPU; it reports no GPU."""
    return make(folder, "libcuda.so.1", "\n".join(NO_DEVICE.format(name) for name in functions))
