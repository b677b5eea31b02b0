"""What `mxsame demo` shows: three networks on a photograph, layer by layer compared with recorded TensorFlow outputs.

>>> from mxsame.demo import networks
>>> [network.name for network in networks.NETWORKS]
['stem', 'sequential', 'autoencoder']
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from mxsame.demo.compare import NetworkResult

__all__ = ["as_data", "run"]


def run(console: Console, picture_path: Path | None) -> list[NetworkResult]:
    """Runs the demo, prints to `console`, writes the picture (if a path is given).

    Raises `ImportError` where MXNet cannot be imported, `ValueError` where the shipped photograph or recordings are not
    what they should be, `OSError` where a file cannot be read or the picture not be written.
    """
    from mxsame import _mxnet  # noqa: F401 - first: it explains what is wrong, with NumPy too
    from mxsame.demo import compare, networks, recording, report

    pixels, results = recording.photograph(), []
    for network in networks.NETWORKS:
        results.append(compare.compare(network, pixels))
        report.show_network(console, results[-1])
    report.show_verdict(console, results)
    if picture_path:
        from mxsame.demo import picture

        picture.draw(results[-1]).savefig(picture_path, dpi=130)
        console.print(f"Picture: {picture_path}", soft_wrap=True, markup=False)
    return results


def as_data(results: list[NetworkResult], picture_path: Path | None) -> dict[str, Any]:
    """What was run, as `mxsame demo --json` prints it."""
    from mxsame import __version__

    def layer(row: Any) -> dict[str, Any]:
        height, width, channels = row.mxsame.shape
        numbers = {"difference": row.difference, "symmetric_difference": row.symmetric_difference}
        return {
            "name": row.layer.name,
            "output": [channels, height, width],
            "pads": row.pads,
            **numbers,
            "right": row.ok,
        }

    return {
        "mxsame": __version__,
        "right": all(result.ok for result in results),
        "picture": None if picture_path is None else str(picture_path),
        "networks": [{"name": each.network.name, "layers": list(map(layer, each.layers))} for each in results],
    }
