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
    from mxsame.demo import report

    with report.progress(console) as bar:
        step = bar.add_task("importing MXNet", total=5 if picture_path else 3)
        from mxsame import _mxnet  # noqa: F401 - first: it explains what is wrong, with NumPy too
        from mxsame.demo import compare, networks, recording

        pixels = recording.photograph()
        results = {}
        for network in networks.NETWORKS:
            bar.update(
                step, advance=1, description=f"{network.name}: MXNet compared with TensorFlow's recording", refresh=True
            )
            results[network.name] = result = compare.compare(network, pixels)
            report.show_network(console, result)
        if picture_path:
            bar.update(step, advance=1, description="drawing the picture", refresh=True)
            from mxsame.demo import picture

            picture.draw(pixels, results["stem"], results["autoencoder"], picture_path)
            bar.update(step, advance=1)
    report.show_verdict(console, list(results.values()), picture_path)
    return list(results.values())


def as_data(results: list[NetworkResult], picture_path: Path | None) -> dict[str, Any]:
    """What was run, as `mxsame demo --json` prints it."""
    from mxsame import __version__

    networks = [
        {
            "name": result.network.name,
            "right": result.ok,
            "recorded_with": result.recorded_with,
            "layers": [
                {
                    "name": row.layer.name,
                    "kind": row.layer.kind,
                    "output": [row.mxsame.shape[2], *row.mxsame.shape[:2]],
                    "parameters": row.parameters,
                    "pads": row.pads,
                    "difference": row.difference,
                    "symmetric_difference": row.symmetric_difference,
                    "allowed": row.allowed,
                    "right": row.ok,
                }
                for row in result.layers
            ],
        }
        for result in results
    ]
    return {
        "mxsame": __version__,
        "right": all(result.ok for result in results),
        "picture": None if picture_path is None else str(picture_path),
        "networks": networks,
    }
