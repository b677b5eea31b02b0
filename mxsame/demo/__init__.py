"""What `mxsame demo` shows: three networks on a photograph, layer by layer beside recorded TensorFlow outputs.

>>> from mxsame.demo import networks
>>> [network.name for network in networks.NETWORKS]
['stem', 'sequential', 'autoencoder']
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run"]


def run(console: Console, picture_path: Path | None) -> bool:
    """Runs the demo, prints to `console`, writes the picture (if a path is given); whether every layer was right.

    Raises `ValueError` where the shipped photograph or recordings are not what they should be, `OSError` where a file
    cannot be read or the picture not be written.
    """
    from mxsame.demo import report

    with report.progress(console) as bar:
        step = bar.add_task("importing MXNet", total=5 if picture_path else 3)
        from mxsame.demo import compare, networks, recording

        pixels = recording.photograph()
        results = {}
        for network in networks.NETWORKS:
            bar.update(
                step, advance=1, description=f"{network.name}: MXNet beside TensorFlow's recording", refresh=True
            )
            results[network.name] = result = compare.compare(network, pixels)
            report.show_network(console, result)
        if picture_path:
            bar.update(step, advance=1, description="drawing the picture", refresh=True)
            from mxsame.demo import picture

            picture.draw(pixels, results["stem"], results["autoencoder"], picture_path)
            bar.update(step, advance=1)
    report.show_verdict(console, list(results.values()), picture_path)
    return all(result.ok for result in results.values())
