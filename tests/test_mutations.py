"""`mutations.py` breaks what is there. It must never run this file: here every mutation would be noticed."""

from __future__ import annotations

import pytest
from mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("name, file, old, new", MUTATIONS, ids=[name for name, *_ in MUTATIONS])
def test_the_text_to_replace_stands_there_once(name, file, old, new):
    assert (ROOT / file).read_text(encoding="utf-8").count(old) == 1 and old != new
