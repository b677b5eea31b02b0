"""The instruction sets that oneDNN uses on this processor; no other file of the package reads what processor it is.

oneDNN 2.4, which is in MXNet 1.9.1, reads that once. The environment variable `DNNL_MAX_CPU_ISA` excludes newer
instruction sets (`src/cpu/x64/cpu_isa_traits.hpp`). In this package, the following depends on them:

* AVX512_CORE: blocks of 16 channels, else of 8; fast pooling of plain data; convolutions in bfloat16.
* AVX512_CORE_BF16: instructions for bfloat16, in which convolutions are fast.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

SETTING = "DNNL_MAX_CPU_ISA"
FLAGS = {  # instruction set of oneDNN -> the flags of Linux that it needs in addition to those of all sets before it
    "SSE41": {"sse4_1"},
    "AVX": {"avx"},
    "AVX2": {"avx2"},
    "AVX512_CORE": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "AVX512_CORE_VNNI": {"avx512_vnni"},
    "AVX512_CORE_BF16": {"avx512_bf16"},
}
SETS = tuple(FLAGS)
LIMITS = {**{name: name for name in SETS}, **dict.fromkeys(("AVX2_VNNI", "AVX512_MIC", "AVX512_MIC_4OPS"), "AVX2")}
POOLING_CACHE = 1 << 20  # bytes of cache per core that oneDNN assumes unless it is Intel's; plain data in it pools fast


def has(instruction_set: str) -> bool:
    """Returns whether oneDNN uses one of the `SETS` on this processor."""
    return SETS.index(instruction_set) <= SETS.index(newest())


@functools.lru_cache(maxsize=None)
def newest() -> str:
    """Returns the newest of the `SETS` that oneDNN uses on this processor; it uses all before that one, too."""
    return newest_of(cpuinfo(), os.environ.get(SETTING, ""))


def newest_of(info: dict[str, str], limit: str) -> str:
    """Returns `newest` for a processor that Linux describes so, and a value of the variable, ignored if it is unknown.

    >>> zen = {"flags": "sse4_1 avx avx2 avx512f avx512bw avx512vl avx512dq avx512_bf16"}
    >>> newest_of(zen, ""), newest_of(zen, "AVX2"), newest_of(zen, "avx2")
    ('AVX512_CORE', 'AVX2', 'AVX512_CORE')
    """
    flags, supported = set(info.get("flags", "").split()), SETS[0]
    for name in SETS[: SETS.index(LIMITS.get(limit, SETS[-1])) + 1]:
        if not flags >= FLAGS[name]:
            break
        supported = name
    return supported


def cpuinfo() -> dict[str, str]:
    """Returns what Linux reports about the first processor, by Linux's names; {} on other systems."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    return {}
