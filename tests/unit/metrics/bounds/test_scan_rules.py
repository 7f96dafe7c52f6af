"""Rules of the passes over tensors, states and streams, each on the smallest input that tells it."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair, with_positions
from tests.layers import prefill, router
from tests.logit_cases import LEVELS
from tests.measured import assert_measured, known
from tests.topk import as_topk
from tests.unit.metrics.renorm_made import artifact, side
from tests.unit.metrics.spec_made import PROMPT, drafted, pair as spec_pair, side as spec_made_side
from validate.metrics import METRICS
from validate.metrics._logit_rows import logit_rows
from validate.metrics._places import Place
from validate.metrics._positions import where_positions
from validate.metrics._renorm_tie import untied
from validate.metrics._routing import NEVER, Flips, Routing, routing
from validate.metrics._spec_books import TOKEN_NAMES
from validate.metrics._states import Peak, States, _add_map, _raise
from validate.metrics._tensors import LayerSums, Scan, _add, _add_lse, _finite, _Step, scan
from validate.metrics.attention_introduced_ratio import _why_undefined
from validate.metrics.attention_lse_abs import _pattern
from validate.schema import Pair


class TestTensors:
    def test_a_prompt_without_a_batch_row_stands_in_row_0(self) -> None:
        tensors = {"p-0": prefill({"mla.3.out": np.ones((2, 1, 4))})}
        cand = FakeSide("rocm", tensors, manifest=make_manifest("rocm"))
        found = scan(make_pair(tensors, cand))

        assert found.outputs[3, "prefill", "mla"].errors.rows == {0: 2}

    def test_a_bad_value_of_the_oracle_alone_spoils_no_comparison(self) -> None:
        made = Scan()
        fine, bad = np.ones(2), np.array([1.0, np.nan])

        assert _finite(made, "p-0", "a", "out", {"ref": fine, "cand": fine, "oracle": bad})
        assert (list(made.bad_oracle), made.bad) == (["out"], {})
        assert not _finite(made, "p-0", "b", "out", {"ref": fine, "cand": bad, "oracle": bad})
        assert (len(made.bad_oracle["out"]), list(made.bad)) == (1, ["out"])
        assert made.tensors == 2

    def test_rows_that_a_tie_set_apart_are_summed_apart(self) -> None:
        """A tie at layer 1 sets row 0 of layer 3 apart: 2 against 3 there, 5 against 7 in row 1."""
        ties = {("p-0", "prefill"): np.array([1, NEVER], dtype=np.int32)}
        found = Routing(flips=Flips(), ties=ties, oracle_ties={}, bad=[], tensors=0)
        made = Scan()
        place = Place(3, "prefill", "mla", "prefill.mla.3.out")
        step = _Step(made, found, "p-0", place, np.arange(2), "out", (2, 1))
        _add(
            step,
            {"ref": np.array([[[2.0]], [[5.0]]]), "cand": np.array([[[3.0]], [[7.0]]])},
            batch_row=0,
        )

        bulk = made.by_prompt["out"]["p-0"]
        assert (bulk.rows, bulk.err2, bulk.ref2) == (1, 4.0, 25.0)
        assert (bulk.apart_rows, bulk.apart_err2, bulk.apart_ref2) == (1, 1.0, 4.0)

    def test_log_sum_exps_whose_every_row_is_set_apart_are_not_compared(self) -> None:
        ties = {("p-0", "prefill"): np.array([1, 1], dtype=np.int32)}
        found = Routing(flips=Flips(), ties=ties, oracle_ties={}, bad=[], tensors=0)
        made = Scan()
        place = Place(3, "prefill", "mla", "prefill.mla.3.out")
        step = _Step(made, found, "p-0", place, np.arange(2), "out", (2, 1))
        _add_lse(step, {"ref": np.ones((2, 1)), "cand": np.zeros((2, 1))})

        assert (made.lse_rows, made.lse_err, made.lse_worst) == (0, 0.0, None)

    def test_equal_log_sum_exps_have_no_pattern_though_outputs_have(self) -> None:
        tensors = {"p-0": prefill({"mla.3.out": np.ones((2, 1, 8))})}
        other = {"p-0": prefill({"mla.3.out": 2 * np.ones((2, 1, 8))})}
        pair = make_pair(tensors, other)
        layers: dict[Any, LayerSums] = scan(pair).outputs

        assert _pattern(pair, Scan(outputs=layers), None) is None
        assert _pattern(pair, Scan(outputs=layers, lse_err=0.1), None) is not None

    def test_the_head_without_a_reference_is_named(self) -> None:
        ref = np.ones((2, 3, 4))
        ref[:, 1] = 0.0
        tensors = {"p-0": prefill({"mla.3.out": ref})}
        other = {"p-0": prefill({"mla.3.out": np.ones((2, 3, 4))})}
        found = METRICS["attention.head_rel_l2"](make_pair(tensors, other), LEVELS)

        assert found.why_undefined == (
            "ref is all zero and cand is not in prefill.mla.3.out head 1"
        )

    @pytest.mark.parametrize("lacking", ["weights", "config"])
    def test_the_oracle_needs_weights_and_a_configuration(self, lacking: str) -> None:
        pair = Pair.__new__(Pair)
        for name in ("weights", "config"):
            object.__setattr__(pair, name, None if name == lacking else object())

        assert str(_why_undefined(pair, Scan())).startswith("no weights are at hand")

    def test_a_router_with_a_bad_score_stands_before_others(self) -> None:
        """Layer 1 holds a NaN; layer 2 is compared all the same: two tokens."""
        scores = np.array([[0.9, 0.5, 0.1]] * 2)
        bad = scores.copy()
        bad[0, 0] = np.nan
        held = {
            "prefill.positions": np.arange(2, dtype=np.int32),
            **router(bad, [[0, 1]] * 2, layer=1),
            **router(scores, [[0, 1]] * 2, layer=2),
        }
        found = routing(make_pair({"p-0": held}, {"p-0": held}))

        assert (found.flips.rows, len(found.bad), found.tensors) == (2, 1, 4)


class TestStates:
    def test_rows_are_those_of_a_cache_alone(self) -> None:
        """Two tokens of two numbers: the second row is off by one half of the mean row."""
        base = np.array([[2.0, 0.0], [0.0, 2.0]])
        other = base + np.array([[0.0, 0.0], [1.0, 0.0]])
        cache, state = Peak(), Peak()
        _raise(cache, base, other, "p-0", Place(0, "decode", "kv", "state.decode.kv.0"), None)
        _raise(
            state,
            base.reshape(1, 2, 2),
            other.reshape(1, 2, 2),
            "p-0",
            Place(0, "decode", "kda", "state.decode.kda.0"),
            None,
        )

        assert cache.row == 0.5
        assert state.row == 0.0
        assert_measured([cache.value, state.value], [0.125**0.5] * 2, atol=1e-12, rtol=0)

    def test_distance_from_the_transpose_adds_up(self) -> None:
        """[[1, 2], [3, 4]] on both sides: 2 (3 - 2)^2 = 2, twice."""
        made = States()
        state = np.array([[[1.0, 2.0], [3.0, 4.0]]])
        for prompt in range(2):
            _add_map(made, state, state, Place(0, "decode", "kda", "state.decode.kda.0"), prompt)

        assert made.transposed2 == {(0, "decode"): 4.0}


class TestPositions:
    def test_the_first_token_may_reach_the_bar(self) -> None:
        """Errors 0.5 and 1 throughout, pooled 0.79 at the first; the bar is 0.5."""
        first = np.array([0.25, *[1.0] * 9])
        profile = {0: (first, np.ones(10)), 1: (np.ones(10), np.ones(10))}

        assert where_positions(profile, width=1, limit=0.5, chunk=None) == (
            "only token rows >= 1 wrong (row 0 of batch row 0 within 0.5)"
        )

    def test_two_positions_are_enough_to_spare_the_first(self) -> None:
        """Batch row 0 is right at position 0 alone, batch row 1 nowhere."""
        profile = {0: (np.array([0.0, 1.0]), np.ones(2)), 1: (np.ones(2), np.ones(2))}

        assert where_positions(profile, width=1, limit=0.5, chunk=None) == (
            "only token rows >= 1 wrong (row 0 of batch row 0 exact)"
        )

    def test_quarters_of_nine_positions_are_two_each(self) -> None:
        """After a clean position 3 3 2 2 2 1.5 1 1 1: first two 3, last two 1; thirds tell 8/3."""
        errors = np.array([0.0, 3, 3, 2, 2, 2, 1.5, 1, 1, 1])

        assert where_positions({0: (errors**2, np.ones(10))}, width=1, limit=0.5, chunk=None) == (
            "starts at position 1 and decays"
        )


def test_values_of_both_sides_are_counted_where_they_keep_other_numbers_of_ids() -> None:
    """Two rows of three kept ids on ref, of two on cand: 6 + 4."""
    held = with_positions({"p-0": [[3.0, 2.0, 1.0, 0.0]] * 2})

    assert logit_rows(make_pair(as_topk(held, 3), as_topk(held, 2))).values == 10


def test_rows_over_streams_need_the_streams_of_both_sides() -> None:
    tensors = with_positions({"p-0": [[3.0, 2.0]] * 2})
    tensors["p-0"]["stream.logits"] = np.zeros((1, 2))
    both = make_pair(tensors, tensors, ref_streams={"p-0": [0]}, cand_streams={"p-0": [0]})
    one = make_pair(tensors, tensors, ref_streams={"p-0": [0]})

    assert logit_rows(both).unpaired is None
    assert known(logit_rows(one).unpaired).kind == "unlike"


def test_rows_without_stored_logits_stand_before_others() -> None:
    """Logits are kept of position 1 alone, whose row is not their softmax."""
    row = [0.5, 0.25, 0.25]
    held = {
        **artifact([row, row], [3, 3], [1.0, 1.0]),
        "logits": np.log(np.array([[0.25, 0.5, 0.25]])),
        "logits.positions": np.array([1], dtype=np.int32),
    }
    made = side("rocm", {"a": held})
    named = {name.removeprefix("renorm."): held[name] for name in held if "renorm." in name}

    why = known(untied(made, "a", named))
    assert why.startswith("renorm.in row 1 (position 1) is not the softmax of its own logits: id 0")


def test_single_steps_have_no_token_one_place_on() -> None:
    """Twenty prompts of one step: nothing stands behind its only draft's place, and nothing ails."""
    streams = {f"p-{at}": drafted([0]) for at in range(20)}
    for at, x in enumerate(streams.values()):
        x["drafts"] = np.full((1, 1), at + 5)
        x["confidence"] = np.full((1, 1), 0.5 + at / 100)
        x["accepts"], x["count"] = np.zeros((1, 1), np.int64), np.zeros(1, np.int64)
    found = METRICS["speculative.health"](
        spec_pair(spec_made_side({"spec-sampled": streams})), LEVELS
    )

    assert found.pattern == "spec-sampled: nothing was accepted in 20 steps"
    assert found.breakdown["spec-sampled.agreement_+1"] == 0.0


def test_drafts_with_no_token_in_their_own_place_are_not_shifted() -> None:
    """Streams that end at the anchor, which the draft equals: in its own place nothing is known."""
    streams = {}
    for at in range(20):
        x = drafted([0])
        held = {name: x[name][:1] for name in ("tokens", *TOKEN_NAMES)}
        x["drafts"], held["tokens"] = np.full((1, 1), at), np.full(1, at)
        x["confidence"] = np.full((1, 1), 0.5 + at / 100)
        streams[f"p-{at}"] = x | held
    found = METRICS["speculative.health"](
        spec_pair(spec_made_side({"spec-sampled": streams})), LEVELS
    )

    assert found.breakdown["spec-sampled.agreement_-1"] == 1.0
    assert found.pattern == "spec-sampled: nothing was accepted in 20 steps"


def test_a_shift_to_the_right_shows_where_nothing_stands_to_the_left() -> None:
    """One step behind each prompt, whose last token is the anchor: tokens b, a for the draft a."""
    streams = {}
    for at in range(20):
        x = drafted([1])
        held = {name: x[name][1:] for name in ("tokens", *TOKEN_NAMES)}
        held["tokens"], x["drafts"] = np.array([at + 40, at]), np.full((1, 1), at)
        x["place"], x["confidence"] = np.full(1, PROMPT - 1), np.full((1, 1), 0.5 + at / 100)
        streams[f"p-{at}"] = x | held
    found = METRICS["speculative.health"](
        spec_pair(spec_made_side({"spec-sampled": streams})), LEVELS
    )

    shown = {
        shift: found.breakdown[f"spec-sampled.agreement_{shift}"] for shift in ("-1", "+0", "+1")
    }
    assert shown == {"-1": 0.0, "+0": 0.0, "+1": 1.0}
    assert "drafts agree with the stream shifted by +1 (1.00 against 0.00)" in str(found.pattern)
