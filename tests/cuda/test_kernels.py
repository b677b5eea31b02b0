"""The real MXNet for CUDA on a GPU of compute capability 9.0 that gcc makes.

The memory of this GPU is the host's. The runtime has machine code for no kernel, and the driver prints which kernel it
starts. All other libraries of CUDA answer that everything went well.
"""

import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import sites
from fake_cuda import make, make_compiler, needs_gcc

from mxsame.installation.requirements import KERNELS, LIBRARIES

pytestmark = needs_gcc

ROOT = Path(__file__).resolve().parent.parent.parent
MXNET = metadata.distribution("mxnet-cu112").locate_file("mxnet")
RUNTIME = """
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned x, y, z; } dim3;
static __thread struct { dim3 grid, block; size_t shared; void *stream; } call;
static __thread int last;
int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    call.grid = grid; call.block = block; call.shared = shared; call.stream = stream;
    return 0;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
    *grid = call.grid; *block = call.block; *shared = call.shared; *stream = call.stream;
    return 0;
}
int cudaLaunchKernel(void) { return last = 209; }
int cudaPeekAtLastError(void) { return last; }
int cudaGetLastError(void) { int error = last; last = 0; return error; }
const char *cudaGetErrorString(int error) { return "no kernel image is available for execution on the device"; }
void *__cudaRegisterFatBinary(void *binary) { return &call; }
int cudaDriverGetVersion(int *version) { *version = 12000; return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = 1024; return 0; }
int cudaMemGetInfo(size_t *unused, size_t *all) { *unused = *all = 1ul << 30; return 0; }
int cudaMalloc(void **memory, size_t size) { *memory = calloc(size + 1, 1); return 0; }
int cudaHostAlloc(void **memory, size_t size, unsigned flags) { return cudaMalloc(memory, size); }
int cudaStreamCreate(void **stream) { return cudaMalloc(stream, 8); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return cudaMalloc(event, 8); }
int cudaMemcpy(void *to, void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, void *from, size_t size, int kind, void *stream) { memcpy(to, from, size); return 0; }
int cudaMemsetAsync(void *to, int value, size_t size, void *stream) { memset(to, value, size); return 0; }
"""
DRIVER = """
#include <stdio.h>
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return 0; }
int cuModuleLoad(void **module, const char *path) { *module = (void *)1; return 0; }
int cuModuleGetFunction(const char **function, void *module, const char *name) { *function = strdup(name); return 0; }
int cuLaunchKernel(const char *function) { printf("%s\\n", function); fflush(stdout); return 0; }
"""
ZEROS = "_ZN5mxnet2op8mxnet_op20mxnet_generic_kernelINS1_11op_with_reqINS1_10set_to_intILi0EEELi1EEEJPfEEEviDpT0_"
CALLS = """
from mxsame._mxnet import mx
zeros = lambda: mx.nd.zeros((2, 3), mx.gpu())
pad = lambda: mx.nd.pad(mx.nd.array([[[[1]]]], mx.gpu()), "constant", (0, 0, 0, 0, 1, 1, 0, 1))
for call in (zeros, pad):
    try:
        print(call().asnumpy().tolist(), flush=True)
    except mx.base.MXNetError as error:
        print(*str(error).splitlines()[-2:], sep="\\n", flush=True)
"""


def answering(soname, imported, source=""):
    """C code of a library with all functions that are imported from it, most of which do nothing."""
    prefix = {"libcuda.so.1": r"cu[A-Z]\w+", "libnccl.so.2": r"nccl\w+"}.get(soname, rf"\w+(?=@{re.escape(soname)})")
    names = {found[0] for found in (re.match(prefix, name) for name in imported) if found}
    missing = sorted(name for name in names if not re.search(rf"\b{name}\(", source))
    return source + "".join(f"int {name}(void) {{ return 0; }}\n" for name in missing)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python where MXNet has this GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    listed = subprocess.run(["nm", "-D", "--undefined-only", MXNET / "libmxnet.so"], capture_output=True, text=True)
    imported = [line.split()[-1] for line in listed.stdout.splitlines()]
    sources = {"libcudart.so.11.0": RUNTIME, "libcudnn.so.8": "long cudnnGetVersion(void) { return 8906; }\n"}
    for soname, *_ in LIBRARIES:
        versions = folder / f"{soname}.map"
        versions.write_text(f"{'' if soname.startswith('libnccl') else soname} {{ global: *; }};")
        code = answering(soname, imported, sources.get(soname, ""))
        make(folder / "nvidia" / "all" / "lib", soname, code, "-w", f"-Wl,--version-script={versions}")
    make(folder, "libcuda.so.1", answering("libcuda.so.1", imported, DRIVER), "-w")
    environment = {"LD_LIBRARY_PATH": str(folder), "OPTIONS": str(folder / "options")}
    return lambda *arguments, **more: sites.run(
        [ROOT, folder, MXNET.parent, sites.SITE], *map(str, arguments), **environment, **more
    )


def test_an_operator_whose_kernel_is_missing_names_what_to_do(run):
    zeros, hint, pad, again = run("-c", CALLS).stdout.splitlines()
    missing = "ErrStr:no kernel image is available for execution on the device"
    assert zeros.endswith(f"mxnet_generic_kernel {missing}") and pad.endswith(f"image_2d_pad_constant_kernel {missing}")
    assert hint == again == f"{KERNELS}. `mxsame doctor` lists the GPUs."


def test_the_doctor_names_it_too(run):
    code = "import json\nfrom mxsame import doctor\nprint(json.dumps(doctor.as_data(list(doctor.examine()))))"
    done = run("-c", code)
    assert f"gpu(0) has compute capability 9.0, and {KERNELS}." in done.stdout, done.stderr
    assert f"a convolution fails: {KERNELS}." in done.stdout


def test_a_kernel_that_is_built_starts(run, tmp_path):
    """The fill of `zeros` is compiled, by gcc; the pad operator is not."""
    (tmp_path / "mxnet" / "src").mkdir(parents=True)
    (tmp_path / "mxnet" / "src" / "zeros.cu").write_text(f"void {ZEROS}(void) {{}}")
    folder, nvcc = tmp_path / "kernels", make_compiler(tmp_path)
    build = ROOT / "examples" / "hopper" / "build.py"
    done = run(build, "--mxnet", tmp_path / "mxnet", "--out", folder, "--nvcc", nvcc, "src/zeros.cu")
    assert done.stdout.splitlines()[1] == "1 kernels; use them with", done.stderr
    started, zeros, pad, _ = run("-c", CALLS, LD_PRELOAD=str(folder / "libmxnet_kernels.so")).stdout.splitlines()
    assert started == ZEROS and zeros.startswith("[[") and "no kernel image" in pad
