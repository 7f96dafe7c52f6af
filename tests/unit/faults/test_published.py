"""The 102 published faults: all listed, each planted or excused, and the page is current."""

import re
from pathlib import Path

import pytest

from validate.faults import FAULTS
from validate.faults.kernels import OPERATION_CONTROLS, OPERATION_FAULTS
from validate.faults.pages import PAGE, page, places
from validate.faults.published import NOT_PLANTED, PUBLISHED

ROOT = Path(__file__).resolve().parents[3]
FAMILIES = {"HD": 8, "SA": 13, "SP": 12, "LA": 12, "QU": 12, "LC": 8, "ND": 12, "MO": 9, "TV": 16}
"""Records by family, counted in the collection."""
ENOUGH = 100


def test_all_102_are_listed_once_with_a_title():
    found = dict.fromkeys(FAMILIES, 0)
    for fault in PUBLISHED:
        found[fault[:2]] += 1

    assert found == FAMILIES
    assert sum(found.values()) == 102
    assert len(set(PUBLISHED.values())) == 102


@pytest.mark.parametrize("fault", PUBLISHED)
def test_each_is_planted_or_says_why_not(fault):
    planted, excused = bool(places(fault)), fault in NOT_PLANTED

    assert planted != excused


def test_a_hundred_are_planted():
    assert sum(bool(places(fault)) for fault in PUBLISHED) >= ENOUGH


def test_ids_that_are_ours_are_no_public_ones():
    """Every planted id is published, or begins with VX, or is a variant of a published one."""
    ids = {*FAULTS, *(f.id for f in OPERATION_FAULTS), *(c.id for c in OPERATION_CONTROLS)}
    strange = {i for i in ids if i not in PUBLISHED and not re.match(r"(VX|EV|OK)-", i)}

    assert {i for i in strange if i.rpartition("-")[0] not in PUBLISHED} == set()


def test_the_page_is_current():
    assert (ROOT / PAGE).read_text("utf-8") == page()
