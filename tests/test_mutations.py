"""`mutations.py` breaks what is there. It must never run this file: here every mutation would be noticed."""

from __future__ import annotations

from mutations import MUTATIONS, ROOT, TESTS, TESTS_OF


def test_every_mutation_changes_one_place_and_has_its_tests():
    found = {name: (ROOT / file).read_text(encoding="utf-8").count(old) for name, file, old, _ in MUTATIONS}
    assert found == dict.fromkeys(found, 1)
    files = [*TESTS, *(file for files in TESTS_OF.values() for file in files)]
    assert [file for file in files if not (ROOT / file).is_file()] == []
