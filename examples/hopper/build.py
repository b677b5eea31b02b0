"""Compiles MXNet's own CUDA kernels for a GPU that its wheel has no machine code for, and the library that starts them.

    python examples/hopper/build.py --mxnet MXNET --out KERNELS            # the kernels that mxsame's networks use
    python examples/hopper/build.py --mxnet MXNET --out KERNELS --all      # all of MXNet's
    python examples/hopper/build.py --mxnet MXNET --out KERNELS src/operator/pad.cu

MXNET is a clone of apache/mxnet at the tag 1.9.1. Files that are in KERNELS already are not compiled again. README.md
describes what is needed.
"""

import argparse
import glob
import mmap
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDED = ("include", "src", ".", "3rdparty/mshadow", "3rdparty/ctc_include")  # in the clone
MACROS = (  # those of the wheel that decide which kernels there are, and their names
    *("MXNET_USE_CUDA=1", "MXNET_USE_CUDNN=1", "MSHADOW_USE_CUDA=1", "MSHADOW_USE_CUDNN=1", "MXNET_USE_BLAS_OPEN=1"),
    *("MSHADOW_USE_CBLAS=0", "MSHADOW_USE_MKL=0", "MSHADOW_USE_SSE=0", "MSHADOW_USE_F16C=0"),
    *("MSHADOW_INT64_TENSOR_SIZE=0", "MXNET_ENABLE_CUDA_RTC=1", "NDEBUG"),
)
UNNAMED = re.compile(r"(\d+)_GLOBAL__N_")  # in a mangled name, an unnamed namespace with its length


def in_wheels(pattern):
    """The file or folder of a wheel that this Python can import from."""
    paths = (path for folder in sys.path for path in sorted(glob.glob(os.path.join(glob.escape(folder), pattern))))
    found = next(paths, None)
    if found is None:
        sys.exit(f"{pattern} is in none of the folders of sys.path: install the wheels that README.md names")
    return Path(found)


def compiled(nvcc, arch, mxnet, source, out):
    """Compiles one file of the clone, unless that is done; returns the path of the machine code, or None."""
    target = out / (source.replace("src/", "", 1).replace("/", "_")[: -len(".cu")] + ".cubin")
    if target.exists():
        return target
    wheels = in_wheels("mxnet/include"), in_wheels("nvidia/cudnn/include")  # with dmlc, dlpack and nnvm
    draft = target.with_suffix(".draft")
    done = subprocess.run(
        [
            *(*nvcc.split(), "-cubin", f"-arch=sm_{arch}", "-O3", "-std=c++17", "--expt-relaxed-constexpr", "-w"),
            *(f"-I{path}" for path in (*(mxnet / folder for folder in INCLUDED), *wheels)),
            *(f"-D{macro}" for macro in MACROS),
            *(source, "-o", os.fspath(draft)),
        ],
        cwd=mxnet,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(f"{source}: {done.stdout}", file=sys.stderr)
        return None
    draft.rename(target)
    print(source, flush=True)
    return target


def plain(name):
    """A mangled name, in which unnamed namespaces are empty: their names contain those of a compilation's files."""
    match = UNNAMED.search(name)
    if match is None:
        return name
    return name[: match.start()] + "0" + plain(name[match.end(1) + int(match[1]) :])


def registered(library):
    """The strings of libmxnet.so that may be names of kernels."""
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {name.decode() for name in re.findall(rb"_Z\w+(?=\0)", content)}


def functions(cubin):
    """The names of the kernels, and of other functions, of a file of machine code."""
    listed = subprocess.run(["nm", "--defined-only", cubin], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [name for _, kind, name in map(str.split, listed.splitlines()) if kind in "TtWw"]


def write_index(out, cubins, library):
    """Writes the lines "name file symbol" of INDEX, one for each kernel of the library that is in a file; returns their
    number."""
    names = {}
    for name in registered(library):
        names.setdefault(plain(name), []).append(name)
    lines = {}
    for cubin in sorted(cubins):
        for symbol in functions(cubin):
            for name in names.get(plain(symbol), ()):
                lines.setdefault(name, f"{name} {cubin.name} {symbol}\n")
    (out / "INDEX").write_text("".join(lines.values()))
    return len(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", type=Path, required=True, help="a clone of apache/mxnet at the tag 1.9.1")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the kernels")
    parser.add_argument("--nvcc", default="nvcc", help="CUDA's compiler, 11.8, with more options if you want")
    parser.add_argument("--arch", default="90", help="the compute capability, without its point")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many files are compiled at a time")
    parser.add_argument("--all", action="store_true", help="every file of MXNet")
    parser.add_argument("sources", nargs="*", help="files of the clone; default: those that sources.txt names")
    given = parser.parse_args()
    mxnet, out = given.mxnet.resolve(), given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    listed = (HERE / "sources.txt").read_text().splitlines()
    every = sorted(path.relative_to(mxnet).as_posix() for path in mxnet.glob("src/**/*.cu"))
    sources = every if given.all else given.sources or [line for line in listed if line.startswith("src/")]
    unknown = sorted({*sources} - {*every})
    if unknown:
        sys.exit(f"{mxnet} has no {', '.join(unknown)}: is it a clone of apache/mxnet at the tag 1.9.1?")
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda source: compiled(given.nvcc, given.arch, mxnet, source, out), sources))
    count = write_index(out, out.glob("*.cubin"), in_wheels("mxnet/libmxnet.so"))
    library = out / "libmxnet_kernels.so"
    options = ("-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
    subprocess.run(
        ["gcc", *options, os.fspath(HERE / "kernels.c"), "-o", os.fspath(library), "-ldl", "-lpthread"], check=True
    )
    print(f"{count} kernels; use them with\nexport LD_PRELOAD={library}")
    return results.count(None)


if __name__ == "__main__":
    failed = main()
    sys.exit(f"{failed} files were not compiled" if failed else 0)
