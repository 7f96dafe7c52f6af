"""Renorm rows are judged on their own side: pairing asks neither that both have them nor that they agree."""

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest
from validate.errors import IncomparableError
from validate.pairing import pair

ROWS = {"renorm.positions": np.arange(2, dtype=np.int32)}


def side(label, more=None):
    held = {"p-0": {"logits": np.ones((3, 4), np.float32), **(more or {})}}
    return FakeSide(label, held, manifest=make_manifest(label, tensors=held, dtype="float32"))


@pytest.mark.parametrize("ref", [None, ROWS])
@pytest.mark.parametrize("cand", [None, {"renorm.positions": np.arange(3, dtype=np.int32)}])
def test_renorm_rows_are_no_reason(ref, cand):
    oracle = side("oracle")
    made = pair(side("cuda", ref), side("rocm", cand), oracle=oracle, near_tie=0.0, route_gap=0.0)
    assert made.prompts == ("p-0",)


def test_other_tensors_still_are():
    more = {"decode.positions": np.arange(2, dtype=np.int32)}
    with pytest.raises(IncomparableError, match="share 1 of 2 tensors"):
        pair(side("cuda", more), side("rocm"), near_tie=0.0, route_gap=0.0)
