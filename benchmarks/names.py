"""The names of networks and variants in tables and charts, and the titles of charts: what names.txt has."""

from __future__ import annotations

from pathlib import Path

TEXT = Path(__file__).with_name("names.txt").read_text(encoding="utf-8")
NETWORKS, VARIANTS, OTHER_NAMES, TITLES, MEASURED = (
    dict(line.split(": ", 1) for line in table.splitlines()[1:]) for table in TEXT.rstrip().split("\n\n")[1:]
)


def title(table: str, default: str = "") -> str:
    """
    >>> title("layers-train")
    'Layers of known networks, training'
    """
    name, training, _ = table.partition("-train")
    return TITLES.get(name, default) + ", training" * bool(training)


def variant(name: str, mode: str = "", reference: str = "") -> str:
    """
    >>> variant("explicit pad"), variant("gather"), variant("mxsame"), variant("mxsame", "time")
    ('explicit padding', 'gather', 'mxsame.hybridize', 'mxsame.from_keras')
    """
    own = (OTHER_NAMES.get(f"{name} / {other}") for other in (mode, reference))
    return next(filter(None, own), VARIANTS.get(name, name))


def mode(name: str, row: dict) -> str:
    """The title of rows of this mode.

    >>> mode("forward", {"unit": "s", "reference": "symmetric"})
    'Forward pass time (symmetric padding = 1; lower is better)'
    """
    first, comma, more = MEASURED.get(name, name).partition(", ")
    unit = {"s": " time", "MiB": "" if "memory" in name else " memory"}.get(row["unit"], "")
    return f"{first[0].upper()}{first[1:]}{unit}{comma}{more} ({variant(row['reference'], name)} = 1; lower is better)"


def processor(recorded: str) -> str:
    """
    >>> processor("AMD EPYC avx512f"), processor("AMD EPYC AVX512_CORE_BF16"), processor("AMD EPYC")
    ('AMD EPYC with AVX-512', 'AMD EPYC with AVX-512 BF16', 'AMD EPYC')
    """
    return recorded.replace(" avx512f", " with AVX-512").replace(" AVX512_CORE_BF16", " with AVX-512 BF16")


def row(name: str) -> str:
    """
    >>> row("resnet50, batch 8"), row("10 squares, mxsame, dynamic shape"), row("max pool 64 k2 s2")
    ('ResNet-50, batch 8', '10 squares, net.hybridize', 'max pool 64 k2 s2')
    """
    first, comma, more = name.partition(", ")
    return NETWORKS.get(first, first) + comma + variant(more)
