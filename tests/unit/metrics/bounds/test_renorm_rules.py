"""Filtered rows: edges of k and p, rounding that is just allowed, which row is told."""

import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.measured import known
from tests.unit.metrics.renorm_made import LEVELS, ROW, artifact, made_pair, side
from validate.metrics._renorm import _broken
from validate.metrics._renorm_asked import other_question
from validate.metrics._renorm_judge import Judged, RowCase, judge_row
from validate.metrics._renorm_rows import Row, SideRows
from validate.metrics._renorm_tie import untied
from validate.metrics.renorm_input_unchanged import renorm_input_unchanged
from validate.metrics.renorm_kept_set import _off

U = 2.0**-24


def judged(given: Any, out: Any, **changes: Any) -> Judged:
    fields = {"k": 2**30, "p": 1.0, "ties": "all", "u_out": U, **changes}
    return judge_row(RowCase(np.asarray(given, float), np.asarray(out, float), **fields))


def row(prompt: str = "a", at: int = 0, **found: Any) -> Row:
    """One row of four entries without any filter."""
    made = Judged(**{"bad": 0, **found})
    return Row(prompt=prompt, row=at, position=at, k=4, p=1.0, vocab=4, u_out=U, judged=made)


def test_a_k_of_zero_counts_as_one() -> None:
    """The largest entry ties with none."""
    assert judged([0.6, 0.4], [1.0, 0.0], k=0).tied is False


def test_more_mass_than_p_is_no_shortfall() -> None:
    """0.8 kept of 0.7 asked for, and all kept where p is 1.5."""
    assert judged([0.5, 0.3, 0.2], [0.625, 0.375, 0.0], p=0.7).shortfall == 0.0
    assert judged([0.5, 0.5], [0.5, 0.5], p=1.5).shortfall == 0.0


def test_a_p_just_above_one_keeps_all() -> None:
    """The last entry, 2^-22, lies within the tie band of 14 u below p, but p of 1 has no band."""
    given = [0.5, 0.5 - 2.0**-22, 2.0**-22]

    found = judged(given, given, p=1 + 2.0**-23)
    assert (found.low, found.high) == (3, 3)


def test_a_p_below_zero_is_zero_before_its_band() -> None:
    """32,768 equal entries: 6 sqrt(2^15) + 4 = 1090 u are 6.5e-5, an entry 3.05e-5: 1 to 3 of them."""
    given = np.full(2**15, 2.0**-15)

    found = judged(given, np.eye(1, 2**15)[0], p=-0.5, ties="exactly_k")
    assert (found.low, found.high, found.wrong) == (1, 3, None)


def test_the_first_of_the_least_kept_entries_is_told() -> None:
    assert judged([0.3, 0.2, 0.2, 0.3], [0.0, 0.5, 0.5, 0.0], k=2, ties="exactly_k").wrong == (
        "keeps id 1 (0.2) and not id 0 (0.3) (k=2, p=1, ties exactly_k)"
    )


@pytest.mark.parametrize(("units", "broken"), [(8, False), (9, True)])
def test_as_much_as_rounding_gives_is_not_broken(units: int, broken: bool) -> None:
    """Four entries: (4 + 4) u."""
    held = SideRows(
        rows=(row(sum_error=units * U),), prompts=frozenset("a"), changed=(), ties="all"
    )

    assert (_broken(held) is not None) is broken


def test_the_first_row_that_one_side_lacks_is_told() -> None:
    """Row 0 of a in ref, of b in cand."""
    assert other_question([row("a")], [row("b")]) == "a renorm row 0 is in ref alone"


def test_a_count_within_the_band_is_off_by_none() -> None:
    """2 kept of 1 to 3."""
    assert _off(row(low=1, kept=2, high=3)) == 0


def test_the_first_prompt_whose_input_changed_is_named() -> None:
    other = np.frombuffer(hashlib.sha256(b"other").digest(), np.uint8)
    right = artifact([ROW], [3], [1.0])
    wrong = {**right, "renorm.in_after_sha256": other}
    held, changed = {"a": right, "b": right, "c": right}, {"a": right, "b": wrong, "c": wrong}
    found = renorm_input_unchanged(made_pair(side("cuda", held), side("rocm", changed)), LEVELS)

    assert (found.value, found.n, known(found.worst).prompt) == (2.0, 3, "b")


def why_untied(given: Any, logits: Any) -> str | None:
    """Rows of ``renorm.in`` beside the logits of the same positions."""
    logits = np.asarray(logits, float)
    at = np.arange(len(logits), dtype=np.int32)
    made = side("rocm", {"a": {"logits": logits, "logits.positions": at}})
    return untied(made, "a", {"in": np.asarray(given), "positions": at})


class TestSoftmaxOfItsLogits:
    def test_rounding_of_the_rows_own_dtype_is_allowed(self) -> None:
        """0.3 is 0.30078125 in bfloat16, off by 2^-8.6 of itself; of float32 that is too much."""
        given = np.array([[0.5, 0.3, 0.2]]).astype(ml_dtypes.bfloat16)
        logits = np.log([[0.5, 0.3, 0.2]])

        assert why_untied(given, logits) is None
        assert why_untied(given.astype(np.float32), logits) is not None

    def test_as_much_as_is_allowed_is_allowed(self) -> None:
        """A masked id may have a probability of 1e-9."""
        assert why_untied([[1.0, 1e-9]], [[0.0, -np.inf]]) is None
        assert why_untied([[1.0, 2e-9]], [[0.0, -np.inf]]) is not None

    def test_large_logits_have_a_softmax(self) -> None:
        """exp(800) has no float64."""
        assert why_untied([[0.5, 0.5]], [[800.0, 800.0]]) is None

    def test_a_row_of_bad_logits_does_not_hide_the_next(self) -> None:
        why = known(why_untied([[0.5, 0.5], [0.5, 0.5]], [[np.nan, 0.0], [0.0, -np.inf]]))

        assert why.startswith("renorm.in row 1 (position 1) is not the softmax of its own logits")
