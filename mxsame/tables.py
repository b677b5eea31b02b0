"""Tables of text, as reports print them."""

from typing import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table whose columns are aligned.

    >>> list(aligned([("layer", "shift"), ("conv0", "+1")]))
    ['layer  shift', 'conv0  +1']
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
