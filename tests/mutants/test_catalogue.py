"""The list of mutants stays true to the code, so that `make mutants` runs at any time."""

from collections import Counter

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant, locate, mutated, product_sources

TEXTS = {path: path.read_text() for path in product_sources()}


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert len(MUTANTS) >= 80
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_code_that_there_is(mutant: Mutant) -> None:
    path = locate(mutant, TEXTS)
    changed = mutated(mutant, TEXTS[path])
    assert changed != TEXTS[path]
    compile(changed, str(path), "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_must_notice_a_mutant_are_there(mutant: Mutant) -> None:
    assert mutant.noticed_by
    for test in mutant.noticed_by:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), path
        if name:
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
