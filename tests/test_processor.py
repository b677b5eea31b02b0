"""What oneDNN uses of the processor, and that MXNet's own oneDNN agrees."""

import pytest
import running

from mxsame import processor

AVX2 = "sse4_1 avx avx2"
AVX512 = f"{AVX2} avx512f avx512bw avx512vl avx512dq"


@pytest.mark.parametrize(
    ("flags", "limit", "newest"),
    [
        ("sse4_1", "", "SSE41"),
        (AVX2, "", "AVX2"),
        (f"{AVX2} avx512f avx512_bf16", "", "AVX2"),  # Xeon Phi has the foundation only
        (AVX512, "", "AVX512_CORE"),
        (f"{AVX512} avx512_bf16", "", "AVX512_CORE"),  # oneDNN asks for VNNI first
        (f"{AVX512} avx512_vnni avx512_bf16", "", "AVX512_CORE_BF16"),
        (f"{AVX512} avx512_vnni avx512_bf16", "AVX512_CORE_VNNI", "AVX512_CORE_VNNI"),
        (f"{AVX512} avx512_vnni avx512_bf16", "AVX512_CORE_AMX", "AVX512_CORE_BF16"),
        (AVX512, "AVX2_VNNI", "AVX2"),
        (AVX512, "SSE41", "SSE41"),
        (AVX2, "AVX512_CORE", "AVX2"),
        (AVX512, "sse41", "AVX512_CORE"),  # not a value of oneDNN's
    ],
)
def test_the_newest_instruction_set(flags, limit, newest):
    assert processor.newest_of({"flags": flags}, limit) == newest


CONVOLUTION = """
from mxsame import processor
from mxsame._mxnet import mx

data, weight = mx.nd.ones((1, 16, 9, 9)), mx.nd.ones((16, 16, 3, 3))
mx.nd.Convolution(data, weight, kernel=(3, 3), num_filter=16, no_bias=True).wait_to_read()
print("uses", processor.newest())
"""
KERNELS = ["sse41", "avx", "avx2", "avx512_core"]  # oneDNN's, by the instruction sets


@pytest.mark.parametrize("limit", ["SSE41", "AVX2", "AVX512_CORE_BF16"])
def test_onednn_runs_a_convolution_by_these_instructions(limit, monkeypatch):
    """oneDNN prints the kernel that it chose."""
    monkeypatch.setenv("DNNL_VERBOSE", "1")
    monkeypatch.setenv(processor.SETTING, limit)
    printed = running.run_python(CONVOLUTION)
    newest = printed.rpartition("uses ")[2].strip()
    (kernel,) = {line.split(",")[4] for line in printed.splitlines() if ",exec,cpu,convolution" in line}
    assert kernel.partition(":")[2] == KERNELS[min(processor.SETS.index(newest), 3)]
