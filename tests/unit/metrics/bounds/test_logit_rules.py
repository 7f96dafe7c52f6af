"""Logits, kept ids, streams and explained tokens: one rule each, at its edge."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt, with_positions
from tests.logit_cases import EVEN, LEVELS, assert_why, kl_pair, one, row_at
from tests.measured import assert_measured, known
from tests.topk import as_topk
from validate.metrics._explained import Checked, _gap, checked_streams
from validate.metrics._kl_breakdown import kl_breakdown, kl_pattern
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import Reason
from validate.metrics._survival import powers_of_two
from validate.metrics._topk_rows import _gap as topk_gap, topk_statistics
from validate.metrics.greedy_flips_per_1000 import greedy_flips_per_1000
from validate.metrics.greedy_hazard_ratio import greedy_hazard_ratio
from validate.metrics.greedy_invalid_ids import greedy_invalid_ids
from validate.metrics.greedy_length_mismatch import greedy_length_mismatch
from validate.metrics.logits_err_ratio import logits_err_ratio
from validate.metrics.nll_delta import nll_delta
from validate.numerics import TopKRows
from validate.schema import Pair

Streams = Sequence[Sequence[int]]


def with_decode(logits: Any) -> dict[str, dict[str, Any]]:
    """The same rows as prefill and as decoded logits."""
    held = with_positions({"p-0": logits})["p-0"]
    decoded = {"decode.logits": held["logits"], "decode.positions": held["logits.positions"]}
    return {"p-0": {**held, **decoded}}


class TestRows:
    @pytest.mark.parametrize("lacking", [0, 1])
    def test_decoded_rows_of_one_side_alone_stop_the_comparison(self, lacking: int) -> None:
        sides = [with_decode(np.zeros((2, 4))), with_decode(np.zeros((2, 4)))]
        for name in ("decode.logits", "decode.positions"):
            del sides[lacking]["p-0"][name]

        why = known(logit_rows(make_pair(*sides)).unpaired)
        assert why.kind == "unlike"
        assert f"in {('cuda', 'rocm')[lacking]};" in why.why

    def test_no_rows_are_not_those_that_are_scored(self) -> None:
        empty = with_positions({"p-0": np.zeros((0, 4))})
        prompts = {"p-0": make_prompt("p-0", [1, 2])}

        why = known(logit_rows(make_pair(empty, empty, prompts=prompts)).unpaired)
        assert "0 stored positions are not those that 2 tokens score" in why.why

    def test_a_bad_row_behind_an_empty_stream_has_its_position(self) -> None:
        """Two prompt tokens: the first streamed token is predicted at position 1."""
        held = with_positions({"p-0": np.zeros((2, 2))})["p-0"]
        ref = {"p-0": {**held, "stream.logits": np.zeros((0, 2))}}
        cand = {"p-0": {**held, "stream.logits": np.array([[np.nan, 0.0]])}}
        pair = make_pair(ref, cand, ref_streams={"p-0": []}, cand_streams={"p-0": [0]})

        (bad,) = logit_rows(pair).bad
        assert (bad.section, bad.label, bad.position) == ("stream.logits", "rocm", 1)

    def test_prefill_stands_for_a_prompt_that_drifts_alike_in_both(self) -> None:
        pair = make_pair(with_decode([[1.0, 0.0]]), with_decode([[0.5, 0.0]]))
        (drift,) = logit_rows(pair).drifts

        assert drift.section == "logits"

    def test_a_tie_of_cand_alone_counts(self) -> None:
        pair = one([[1.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]])

        assert kl_breakdown(pair, logit_rows(pair))["tied_rows"] == 1.0


class TestKl:
    def test_slope_of_two_positions(self) -> None:
        """1 and 2 mnats at positions 0 and 1: one nat per 1,000 positions."""
        pair = kl_pair({"p-0": [1e-3, 2e-3]})

        assert_measured(
            kl_breakdown(pair, logit_rows(pair))["slope_per_1000_positions"],
            1.0,
            atol=0,
            rtol=1e-9,
        )

    @pytest.mark.parametrize(("times", "told"), [(9.5, None), (10.5, "batch rows 1")])
    def test_a_batch_row_stands_out_above_ten_times(self, times: float, told: str | None) -> None:
        kls = [1e-3, 1e-3, times * 1e-3, times * 1e-3]
        ref = with_positions({f"p-{at}": [EVEN] for at in range(4)})
        cand = with_positions({f"p-{at}": [row_at(kl)] for at, kl in enumerate(kls)})
        manifest = make_manifest("rocm", batch_rows={f"p-{at}": at // 2 for at in range(4)})
        pair = make_pair(ref, FakeSide("rocm", cand, manifest=manifest))

        assert kl_pattern(pair, logit_rows(pair)) == told


@pytest.mark.parametrize(("prompts", "needed"), [(4, 5), (5, None)])
def test_five_prompts_bound_a_median(prompts: int, needed: int | None) -> None:
    """0.5^5 < 0.05 < 0.5^4."""
    rows = {f"p-{at}": np.zeros((2, 4)) for at in range(prompts)}
    found = nll_delta(make_pair(with_positions(rows), with_positions(rows)), LEVELS)

    assert (found.n, found.n_needed) == (prompts, needed)


class TestErrRatio:
    ORACLE = np.array([[1.0, 2.0, 3.0, 4.0]])
    ONE = np.array([[1.0, -1.0, 1.0, -1.0]])

    def pair(self, oracle: Any, ref: Any, cand: Any) -> Pair:
        return make_pair(*(with_positions(held) for held in (ref, cand)), oracle=oracle)

    def test_mean_errors_of_two_prompts(self) -> None:
        """Ref is off by 1 and 3, cand by 2 and 6."""
        ref = {"p-0": self.ORACLE + self.ONE, "p-1": self.ORACLE + 3 * self.ONE}
        cand = {"p-0": self.ORACLE + 2 * self.ONE, "p-1": self.ORACLE + 6 * self.ONE}
        oracle = with_positions(dict.fromkeys(ref, self.ORACLE))
        shown = logits_err_ratio(self.pair(oracle, ref, cand), LEVELS).breakdown

        assert_measured([shown["ref_rms"], shown["cand_rms"]], [2.0, 4.0], atol=0, rtol=1e-12)

    @pytest.mark.parametrize("truth", [np.zeros((1, 5)), np.zeros(4)], ids=["wider", "one row"])
    def test_an_oracle_of_another_form_at_the_same_positions(self, truth: Any) -> None:
        oracle = {"p-0": {"logits": truth, "logits.positions": np.zeros(1, np.int32)}}
        pair = self.pair(oracle, {"p-0": self.ORACLE}, {"p-0": self.ORACLE + self.ONE})
        found = logits_err_ratio(pair, LEVELS)

        assert (found.value, found.undefined_kind) == (None, "unlike")
        assert_why(found, r"at other positions than ref's \(1, 4\)")

    @pytest.mark.parametrize("narrow", [0, 1])
    def test_some_ids_of_one_side_hold_no_error_of_every_id(self, narrow: int) -> None:
        sides = [with_positions({"p-0": self.ORACLE + off * self.ONE}) for off in (1, 2)]
        sides[narrow] = as_topk(sides[narrow], 2)
        found = logits_err_ratio(
            make_pair(*sides, oracle=with_positions({"p-0": self.ORACLE})), LEVELS
        )

        assert found.value is None
        assert_why(found, "top-k logits hold no error of every id")


class TestTopK:
    def rows(self, ids: Sequence[int], shares: Sequence[float], **changes: Any) -> TopKRows:
        """One row of kept ids; what they leave of 1 is the tail."""
        fields: dict[str, Any] = {
            "ids": np.array([ids]),
            "logits": np.log(np.array([shares])),
            "lse": np.zeros(1),
            "tail_mass": np.array([1.0 - sum(shares)]),
            "row_min": np.full(1, -8.0),
        }
        return TopKRows(**{**fields, **changes})

    def low(self, ref: TopKRows, cand: TopKRows) -> Any:
        return topk_statistics(ref, cand, targets=np.array([-1])).low

    def test_the_first_of_the_choices_that_both_share(self) -> None:
        """Both rate 4 and 7 alike; ref stands first with its order."""
        low = self.low(
            self.rows([4, 7, 9], [0.375, 0.375, 0.125]), self.rows([7, 4, 9], [0.25, 0.25, 0.125])
        )

        assert (low.argmax_ref.tolist(), low.argmax_cand.tolist()) == ([4], [4])
        assert (low.ties_ref.tolist(), low.ties_cand.tolist()) == ([2], [2])

    def test_of_refs_tied_firsts_the_one_that_cand_rates_highest(self) -> None:
        """Ref's ids 2 and 7 tie; cand kept 7 alone and puts 4 first."""
        low = self.low(
            self.rows([2, 7, 4], [0.375, 0.375, 0.125]), self.rows([4, 7, 9], [0.5, 0.25, 0.125])
        )

        assert low.argmax_ref.tolist() == [7]
        assert (low.ties_ref.tolist(), low.ties_cand.tolist()) == ([2], [1])

    def test_margin_and_moves(self) -> None:
        """ln(0.5 / 0.25) of ref; no id is kept by both, so none is seen to move."""
        low = self.low(
            self.rows([4, 7, 9], [0.5, 0.25, 0.125]), self.rows([1, 2, 3], [0.25, 0.25, 0.125])
        )

        assert_measured(low.ref_margin, [np.log(2.0)], atol=1e-12, rtol=0)
        assert low.max_abs_dlogprob.tolist() == [0.0]
        assert (low.ties_ref.tolist(), low.ties_cand.tolist()) == ([1], [2])

    def test_a_tail_that_may_hold_a_likelier_id_leaves_no_gap(self) -> None:
        """Ids that the other side kept: 0.25 of ref's row, the tail 0.625."""
        ref = self.rows([4, 7], [0.25, 0.125], top=False)

        low, high = topk_gap(ref, 0, {4: np.log(0.25), 7: np.log(0.125)}, np.log(0.25), 9)
        assert low == 0.0
        assert_measured(high, np.log(0.25) + 8, atol=1e-12, rtol=0)


class TestExplained:
    def checked(self, ref: Any, cand: Any, tokens: Streams) -> tuple[Checked, ...] | Reason:
        tensors = [{"p-0": {"stream.logits": np.asarray(rows)}} for rows in (ref, cand)]
        return checked_streams(
            make_pair(
                *tensors,
                prompts={"p-0": make_prompt("p-0", [1])},
                ref_streams={"p-0": tokens[0]},
                cand_streams={"p-0": tokens[1]},
                near_tie=0.5,
            )
        )

    def test_bad_values_of_both_sides_are_told_of_ref_first(self) -> None:
        bad = [[np.nan, 0.0]]
        found = self.checked(bad, bad, ([1], [1]))

        assert isinstance(found, Reason)
        assert found.why.startswith("ref 'cuda' prompt p-0 stream.logits: 1 NaN")

    def test_an_id_outside_a_vocabulary_of_one(self) -> None:
        found = self.checked([[0.0]], [[0.0]], ([5], [5]))

        assert not isinstance(found, Reason)
        assert [event.gap for event in found[0].off] == [np.inf, np.inf]

    @pytest.mark.parametrize(("token", "gap"), [(-1, np.inf), (0, 0.0), (1, 2.0), (2, np.inf)])
    def test_an_id_outside_the_vocabulary_is_infinitely_far(self, token: int, gap: float) -> None:
        assert _gap(np.array([3.0, 1.0]), 0, token) == gap
        assert _gap(np.array([3.0, 1.0]), token, 0) == (gap if np.isinf(gap) else -gap)

    def test_margins_rest_on_what_a_partition_promises(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One place in order, the rest on its side of it: 0.25 apart and 2 apart."""

        def promised(row: Any, kth: int) -> Any:
            held = np.sort(row)
            return np.concatenate([held[:kth][::-1], held[[kth]], held[kth + 1 :][::-1]])

        monkeypatch.setattr(np, "partition", promised)
        rows = [[0.25, 0.0, -5.0, -9.0], [-9.0, 0.0, -5.0, 2.0]]
        found = self.checked(rows, rows, ([0, 3], [0, 3]))

        assert not isinstance(found, Reason)
        assert found[0].near_tie_rows == 1


class TestStreams:
    def pair(self, ref: Streams, cand: Streams, *repeats: Streams) -> Pair:
        ids = [f"p-{at}" for at in range(len(ref))]
        prompts = {name: make_prompt(name, [1, 2]) for name in ids}
        tensors: dict[str, dict[str, Any]] = {name: {} for name in ids}
        named = [dict(zip(ids, given, strict=True)) for given in (ref, cand, *repeats)]
        return make_pair(
            tensors,
            tensors,
            prompts=prompts,
            ref_streams=named[0],
            cand_streams=named[1],
            repeats=tuple(
                FakeSide(f"repeat-{at}", tensors, prompts=prompts, streams=streams)
                for at, streams in enumerate(named[2:])
            ),
        )

    def test_powers_of_two_begin_with_two(self) -> None:
        assert [powers_of_two(most) for most in (0, 1, 2, 8)] == [[], [], [2], [2, 4, 8]]

    def test_a_repeat_that_parts_at_step_1_has_parted_after_two_tokens(self) -> None:
        found = greedy_flips_per_1000(self.pair([[1, 2, 3]], [[1, 2, 3]], [[1, 9, 9]]), LEVELS)

        assert found.breakdown["floor.survival.2"] == 0.0
        assert found.breakdown["cand.survival.2"] == 1.0

    def test_the_rate_of_all_is_the_worst(self) -> None:
        """One of two tokens."""
        found = greedy_flips_per_1000(self.pair([[1, 2]], [[1, 9]]), LEVELS)

        assert (found.value, found.worst_value) == (500.0, 500.0)

    def test_the_ratio_is_zero_where_nobody_parts(self) -> None:
        found = greedy_hazard_ratio(self.pair([[1, 2]], [[1, 2]], [[1, 2]]), LEVELS)

        assert (found.value, found.worst) == (0.0, None)

    def test_the_id_0_is_valid(self) -> None:
        found = greedy_invalid_ids(self.pair([[0, 1]], [[0, -1]]), LEVELS)

        assert (found.value, found.n) == (1.0, 4)
        assert (known(found.worst).position, known(found.worst).value) == (3, -1.0)

    def test_the_greatest_difference_in_length_is_named(self) -> None:
        """Seven of eight tokens, and one of four."""
        long, short = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4]
        found = greedy_length_mismatch(self.pair([long, short], [long[:7], short[:1]]), LEVELS)

        assert (found.value, known(found.worst).prompt, known(found.worst).value) == (
            2.0,
            "p-1",
            3.0,
        )
