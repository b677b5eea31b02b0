"""Stand-ins for NVIDIA's driver and CUDA's libraries: shared libraries made by gcc."""

import shutil
import subprocess

import pytest

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc, which makes the stand-ins, is not installed")

# All that MXNet 1.9.1 for CUDA imports from the driver. Every function answers CUDA_ERROR_NO_DEVICE.
DRIVER_FUNCTIONS = (
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuGetErrorString",
    "cuGraphKernelNodeGetParams",
    "cuGraphNodeGetType",
    "cuLaunchKernel",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
)
NO_DEVICE = "int {}(void) {{ return 100; }}"

# A driver for CUDA 12.2 with two GPUs; asked for the second one's name, it fails.
TWO_GPUS = """
#include <stdio.h>
#include <string.h>
int cuDriverGetVersion(int *version) { *version = 12020; return 0; }
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = 70 + number; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  if (device != 70) return 999;
  snprintf(name, size, "GPU seventy");
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 6 : -1;
  return device < 70;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 25000000000; return device < 70; }
"""


def make(folder, soname, source="", *options):
    """Compiles a shared library of that name into the folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(folder / soname), "-x", "c", "-", *options]
    subprocess.run(command, input=source, text=True, check=True)
    return folder / soname


def make_driver(folder, functions=DRIVER_FUNCTIONS):
    """A driver with which MXNet can be imported and computes on the CPU; it reports no GPU."""
    return make(folder, "libcuda.so.1", "\n".join(NO_DEVICE.format(name) for name in functions))
