"""One rule of a metric each, on the smallest input that tells it from its neighbours."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt, with_positions
from tests.logit_cases import EVEN, LEVELS, kl_pair, one, row_at
from tests.measured import assert_measured, known
from tests.topk import as_topk
from tests.unit.metrics.renorm_made import ROW, artifact, divided, made_pair, side
from validate.metrics._bulk import _missing
from validate.metrics._explained import checked_streams
from validate.metrics._finite import look
from validate.metrics._kl_breakdown import kl_breakdown, kl_pattern
from validate.metrics._logit_rows import logit_rows
from validate.metrics._logit_values import bad_logits
from validate.metrics._places import Place
from validate.metrics._positions import where_positions
from validate.metrics._reason import Reason
from validate.metrics._renorm_asked import _counts
from validate.metrics._renorm_judge import RowCase, judge_row, rounding, tie_band
from validate.metrics._routing import NEVER, Choice, Flips, _weights
from validate.metrics._states import States, state_structure
from validate.metrics._structure import _permuted, _scaled, add_rows, new_map
from validate.metrics._tensors import Bulk, LayerSums, Scan, _first_structure, noise_start
from validate.metrics._three_way import (
    Half,
    PlaceErrors,
    Unit,
    Ways,
    _unit_undefined,
    _units,
    add_halves,
    half_of,
)
from validate.metrics._topk_rows import bad_topk, topk_statistics
from validate.metrics._words import ranges
from validate.metrics.flip_rate import flip_rate
from validate.metrics.logits_nonfinite import logits_nonfinite
from validate.metrics.renorm_kept_set import renorm_kept_set
from validate.numerics import TopKRows

U = 2.0**-24


class TestLogitRows:
    def test_an_unpaired_pair_holds_no_values(self) -> None:
        ref, cand = with_positions({"p-0": [EVEN]}), with_positions({"p-0": [EVEN]})
        del cand["p-0"]["logits"]

        found = logit_rows(make_pair(ref, cand))
        assert (found.values, found.bad, found.sections) == (0, (), ())
        assert found.unpaired is not None

    def test_a_bad_value_of_the_only_row_has_its_position(self) -> None:
        (bad,) = logit_rows(one([[np.nan, 0.0]], [EVEN])).bad

        assert (bad.position, bad.found.row) == (0, 0)

    @pytest.mark.parametrize(("at", "paired"), [([0, 1], True), ([-1, 0], False), ([1, 3], False)])
    def test_decoded_positions_lie_within_the_prompt(self, at: list[int], paired: bool) -> None:
        """Three tokens."""
        tensors = with_positions({"p-0": np.zeros((3, 4))})
        tensors["p-0"]["decode.logits"] = np.zeros((2, 4))
        tensors["p-0"]["decode.positions"] = np.array(at, dtype=np.int32)
        prompts = {"p-0": make_prompt("p-0", [1, 2, 3])}

        found = logit_rows(make_pair(tensors, tensors, prompts=prompts))
        assert (found.unpaired is None) == paired

    @pytest.mark.parametrize(("token", "paired"), [(3, True), (4, False)])
    def test_tokens_lie_within_the_vocabulary(self, token: int, paired: bool) -> None:
        """Of four ids the last is 3."""
        tensors = with_positions({"p-0": np.zeros((2, 4))})
        prompts = {"p-0": make_prompt("p-0", [0, token])}

        found = logit_rows(make_pair(tensors, tensors, prompts=prompts)).unpaired
        assert (found is None) == paired

    def test_positions_in_another_order_are_not_those_that_are_scored(self) -> None:
        tensors = with_positions({"p-0": np.zeros((3, 4))})
        tensors["p-0"]["logits.positions"] = np.array([0, 2, 1], dtype=np.int32)

        assert "3 stored positions are not those that 3 tokens score" in str(
            logit_rows(make_pair(tensors, tensors)).unpaired
        )

    def test_the_widest_flip_is_one(self) -> None:
        """Row 0 agrees, row 1 flips across 0.5 nats."""
        (rows,) = logit_rows(one([[9.0, 0.0], [0.5, 0.0]], [[9.0, 0.0], [0.0, 0.5]])).sections

        assert rows.flips == 1
        assert rows.flip_worst is not None
        assert (rows.flip_worst.row, rows.flip_worst.value) == (1, 0.5)

    def test_rows_that_agree_may_not_flip(self) -> None:
        """Kept in full or as the likeliest two of three: nothing is open where the first is equal."""
        held = as_topk(with_positions({"p-0": [[2.0, 1.0, 0.0]] * 2}), 2)

        (rows,) = logit_rows(make_pair(held, held, near_tie=0.0)).sections
        assert (rows.flips_high, rows.capped_high) == (0, 0)

    def test_the_likeliest_kept_ids_are_told(self) -> None:
        """e^2 / (e^2 + e + 1) = 0.6652 and e^3 / (e^3 + e + 1) = 0.8438."""
        held = [
            as_topk(with_positions({"p-0": [row]}), 2) for row in ([2.0, 1.0, 0.0], [0.0, 3.0, 1.0])
        ]

        (rows,) = logit_rows(make_pair(*held)).sections
        assert rows.kl_worst.detail == "top-1 ref 0 (p 0.6652), cand 1 (p 0.8438); stored as top-k"

    def test_masks_behind_the_shared_rows_are_those_of_the_last_shared_one(self) -> None:
        """Ids 0 and 1 are masked in turn on both sides; row 2 of ref alone masks id 1, then id 0."""
        low = -np.inf
        shared = np.array([[low, 0.0, 0.0], [0.0, low, 0.0]])
        right, wrong = ([0.0, low, 0.0], [low, 0.0, 0.0])

        assert bad_logits(np.array([*shared, right]), shared, shared=2) == []
        (bad,) = bad_logits(np.array([*shared, wrong]), shared, shared=2)
        assert (bad.side, bad.negative, bad.row, bad.token) == ("ref", 1, 2, 0)


class TestKl:
    def test_agreement_is_the_share_of_rows_with_one_choice(self) -> None:
        """One of four rows flips."""
        ref = [[1.0, 0.0]] * 4
        pair = one(ref, [*ref[:3], [0.0, 1.0]])

        assert kl_breakdown(pair, logit_rows(pair))["top1_agreement"] == 0.75

    @pytest.mark.parametrize(
        ("rows", "told"),
        [((0, 0, 1, 1), "batch rows 1"), ((0, 0, 0, 1), None), ((0, 1, 1, 1), None)],
    )
    def test_two_prompts_make_a_batch_row(self, rows: tuple[int, ...], told: str | None) -> None:
        """Prompts 0 and 1 are off by a millinat, 2 and 3 by a hundred times that."""
        kls = {f"p-{at}": [1e-3 if at < 2 else 0.1] * 2 for at in range(4)}
        ref = with_positions({prompt: [EVEN for _ in held] for prompt, held in kls.items()})
        cand = with_positions({prompt: [row_at(kl) for kl in held] for prompt, held in kls.items()})
        placed = dict(zip(kls, rows, strict=True))
        manifest = make_manifest("rocm", batch_rows=placed)
        pair = make_pair(ref, FakeSide("rocm", cand, manifest=manifest))

        assert kl_pattern(pair, logit_rows(pair)) == told

    def test_batch_rows_that_are_alike_are_not_named(self) -> None:
        pair = kl_pair({"p-0": [1e-3], "p-1": [2e-3]})

        assert kl_pattern(pair, logit_rows(pair)) is None


def test_a_flip_that_is_open_in_one_of_two_prompts() -> None:
    """One kept id a row and no row minimum: ids that differ may be a flip or none."""
    ref = with_positions({"p-0": [[2.0, 1.0, 0.0]], "p-1": [[2.0, 1.0, 0.0]]})
    cand = with_positions({"p-0": [[2.0, 1.0, 0.0]], "p-1": [[1.0, 2.0, 0.0]]})
    found = flip_rate(
        make_pair(as_topk(ref, 1, row_min=False), as_topk(cand, 1, row_min=False)), LEVELS
    )

    assert (found.value, found.upper, found.worst_value) == (0.0, 0.5, 0.0)


@pytest.mark.parametrize(("bad", "more"), [(3, ""), (5, " | and 2 more places")])
def test_three_places_with_bad_values_are_shown(bad: int, more: str) -> None:
    rows = {f"p-{at}": np.zeros((1, 2)) for at in range(5)}
    cand = {name: x.copy() for name, x in rows.items()}
    for at in range(bad):
        cand[f"p-{at}"][0, 1] = np.nan
    found = logits_nonfinite(make_pair(with_positions(rows), with_positions(cand)), LEVELS)

    detail = known(known(found.worst).detail)
    assert detail.count(" | ") == 2 + bool(more)
    assert detail.endswith(more)


class TestExplained:
    def checked(self, ref: Any, cand: Any, streams: tuple[Any, Any], near_tie: float = 0.5) -> Any:
        tensors = [{"p-0": {"stream.logits": np.asarray(rows)}} for rows in (ref, cand)]
        found = checked_streams(
            make_pair(
                *tensors,
                prompts={"p-0": make_prompt("p-0", [1])},
                ref_streams={"p-0": streams[0]},
                cand_streams={"p-0": streams[1]},
                near_tie=near_tie,
            )
        )
        assert not isinstance(found, Reason)
        return found[0]

    @pytest.mark.parametrize(("own", "near"), [(0.5, True), (0.75, False)])
    def test_both_gaps_may_reach_the_limit(self, own: float, near: bool) -> None:
        """Ref rates the two ids 0.5 apart; cand's id is ``own`` below the top of cand's own row."""
        found = self.checked([[0.5, 0.0]], [[own, 0.0]], ([0], [1]))

        assert found.near_tie is near
        assert len(found.unexplained) == 1 - near

    def test_a_token_off_its_own_row_is_told_of_its_own_side(self) -> None:
        found = self.checked([[2.0, 0.0]], [[2.0, 0.0]], ([1], [0]))
        told = [event.detail for event in found.off]

        assert [event.side for event in found.off] == ["ref"]
        assert told[0].startswith("cuda emitted 1, 2 nats below the top of its own")

    def test_two_ids_have_a_margin(self) -> None:
        """0.25 within the limit, 2 not; a vocabulary of one id has none."""
        rows = [[0.25, 0.0], [2.0, 0.0]]

        assert self.checked(rows, rows, ([0, 0], [0, 0])).near_tie_rows == 1
        assert self.checked([[0.0]], [[0.0]], ([0], [0])).near_tie_rows == 0

    def test_the_second_choice_may_stand_anywhere(self) -> None:
        """A quarter lies between the first two; the third id is far below."""
        for row in ([1.75, 2.0, 0.0], [2.0, 0.0, 1.75], [0.0, 1.75, 2.0]):
            top = int(np.argmax(row))
            assert self.checked([row], [row], ([top], [top])).near_tie_rows == 1


class TestTopK:
    def rows(self, **changes: Any) -> TopKRows:
        """Two rows of three kept ids out of a larger vocabulary."""
        made = TopKRows(
            ids=np.array([[4, 7, 9], [5, 3, 1]]),
            logits=np.log(np.array([[0.5, 0.25, 0.125], [0.5, 0.25, 0.125]])),
            lse=np.zeros(2),
            tail_mass=np.full(2, 0.125),
            row_min=np.full(2, -8.0),
        )
        return replace(made, **changes)

    def test_sums_of_nothing_are_bad(self) -> None:
        found = known(bad_topk("ref", self.rows(lse=np.array([0.0, -np.inf]))))

        assert (found.nan, found.positive, found.negative) == (0, 0, 1)
        assert (found.row, found.token) == (1, -1)

    def test_the_first_bad_place_is_told_with_its_id(self) -> None:
        logits = self.rows().logits.copy()
        logits[0, 2] = logits[1, 0] = np.nan
        found = known(bad_topk("ref", self.rows(logits=logits)))

        assert (found.nan, found.row, found.token) == (2, 0, 9)

    def test_masked_ids_are_not_bad(self) -> None:
        logits = self.rows().logits.copy()
        logits[0, 2] = -np.inf

        assert bad_topk("ref", self.rows(logits=logits)) is None

    def test_shares_and_gaps_of_kept_ids(self) -> None:
        """Row 0: ids 4 7 9 against 7 4 2, two of three shared, ln 2 apart; row 1 is equal."""
        cand = self.rows(ids=np.array([[7, 4, 2], [5, 3, 1]]))
        found = topk_statistics(self.rows(), cand, targets=np.array([-1, -1]))

        assert_measured(found.low.topk_overlap, [2 / 3, 1.0], atol=1e-12, rtol=0)
        assert_measured(found.low.gap, [np.log(2.0), 0.0], atol=1e-12, rtol=0)
        assert_measured(found.gap_high, [np.log(2.0), 0.0], atol=1e-12, rtol=0)
        assert found.low.argmax_cand.tolist() == [7, 5]

    def test_of_cands_tied_firsts_the_one_that_ref_rates_highest(self) -> None:
        """Cand's ids 2 and 7 tie at 3/8; ref kept 7 alone."""
        cand = self.rows(
            ids=np.array([[2, 7, 4], [5, 3, 1]]),
            logits=np.log(np.array([[0.375, 0.375, 0.125], [0.5, 0.25, 0.125]])),
        )

        found = topk_statistics(self.rows(), cand, targets=np.array([-1, -1]))
        assert found.low.argmax_cand.tolist() == [7, 5]


class TestFinite:
    def test_every_kind_of_array_is_seen(self) -> None:
        """An infinity of float16 has other exponent bits than one of bfloat16."""
        for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
            found = look("p-0", "t", {"cand": np.array([1.0, np.inf]).astype(dtype)})
            assert known(found).counts == {"cand": 1}

    def test_an_array_of_nothing_but_nan(self) -> None:
        found = look("p-0", "t", {"cand": np.full(3, np.nan).astype(ml_dtypes.bfloat16)})

        assert known(found).counts == {"cand": 3}


class TestPositions:
    def test_no_data_says_nothing(self) -> None:
        nothing = {0: (np.zeros(4), np.zeros(4))}

        assert where_positions(nothing, width=1, limit=0.1, chunk=None) is None

    def test_an_error_where_ref_is_zero_is_one(self) -> None:
        """Position 3 of ten has no reference: it is held to the mean of all."""
        err2, ref2 = np.zeros(10), np.ones(10)
        err2[3], ref2[3] = 1.0, 0.0

        assert where_positions({0: (err2, ref2)}, width=1, limit=0.1, chunk=None) == (
            "only position 3 (1 of 10)"
        )

    def test_chunks_of_less_than_a_bucket(self) -> None:
        """Buckets of two positions, chunks of one: every bucket is its own chunk, none decays."""
        err2 = np.array([0.0, *np.linspace(1.0, 0.1, 11) ** 2])

        assert where_positions({0: (err2, np.ones(12))}, width=2, limit=0.05, chunk=1) == (
            "from position 2 on, a chunk boundary"
        )


@pytest.mark.parametrize(
    ("numbers", "text"), [([0, 1, 2], "0-2"), ([0, 1], "0,1"), ([5], "5"), ([1, 3, 4, 5], "1,3-5")]
)
def test_three_in_a_row_are_a_range(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


class TestRenorm:
    @pytest.mark.parametrize(
        ("what", "value", "counts"),
        [
            ("top_k", 0.0, 1.0),
            ("top_k", 1.0, 1.0),
            ("top_k", 9.0, 5.0),
            ("top_p", -0.5, 0.0),
            ("top_p", 1.5, 1.0),
            ("position", -0.5, -0.5),
        ],
    )
    def test_parameters_as_filters_take_them(self, what: str, value: float, counts: float) -> None:
        assert _counts(what, value, 5) == counts

    def test_bands_of_float32_outputs(self) -> None:
        """(6 sqrt(4) + 4) u = 16 u and (4 + 4) u = 8 u."""
        assert (tie_band(4), rounding(4)) == (16 * U, 8 * U)
        assert rounding(4, u_out=U) == 8 * U
        assert rounding(4, u_out=2.0**-9) == 8 * U + 2.0**-9

    @pytest.mark.parametrize(("below", "high"), [(2.5, 3), (4.5, 3), (5.5, 2)])
    def test_entries_within_four_roundings_may_tie(self, below: float, high: int) -> None:
        """1/2 and 1/4 reach 0.6; a third entry ``below`` u beneath 1/4 may be its equal.

        The output's own rounding, u, adds to the four.
        """
        given = np.array([0.5, 0.25, 0.25 * (1 - below * U), 0.0])
        out = np.array([2 / 3, 1 / 3, 0.0, 0.0])
        found = judge_row(RowCase(given, out, k=2**30, p=0.6, ties="all", u_out=U))

        assert (found.low, found.high) == (2, high)

    def test_another_entry_in_place_of_one_is_neither_too_many_nor_too_few(self) -> None:
        """Of 0.35 0.25 0.2 0.15 0.05 the first three are asked for; id 3 came for id 2."""
        held = artifact([ROW, ROW], [3, 5], [1.0, 0.7])
        out = held["renorm.out"].copy()
        out[0] = divided(np.asarray(ROW, np.float32), np.array([1, 1, 0, 1, 0], bool))
        cand = side("rocm", {"a": {**held, "renorm.out": out}})
        found = renorm_kept_set(made_pair(side("cuda", {"a": held}), cand), LEVELS)

        assert found.value == 1.0
        assert known(found.worst).value == 0.0
        assert (found.breakdown["keeps too many"], found.breakdown["keeps too few"]) == (0.0, 0.0)
        assert found.breakdown["wrong: top-k alone"] == 1.0
        assert found.pattern == "only rows with top-k alone"

    def test_a_k_of_the_whole_vocabulary_is_no_filter(self) -> None:
        """Row 1 (k = 5 of 5 ids, p = 0.7) keeps one entry too many."""
        held = artifact([ROW, ROW], [3, 5], [1.0, 0.7])
        out = held["renorm.out"].copy()
        out[1] = divided(np.asarray(ROW, np.float32), np.array([1, 1, 1, 1, 0], bool))
        cand = side("rocm", {"a": {**held, "renorm.out": out}})
        found = renorm_kept_set(made_pair(side("cuda", {"a": held}), cand), LEVELS)

        assert found.breakdown["wrong: top-p alone"] == 1.0
        assert (found.breakdown["keeps too many"], known(found.worst).value) == (1.0, 1.0)


class TestRouting:
    def test_nothing_was_compared_at_first(self) -> None:
        flips = Flips()

        assert (flips.weight_err, flips.weight_apart, flips.worst_gap) == (0.0, 0.0, 0.0)
        assert Scan().lse_err == 0.0

    def test_the_expert_whose_weight_differs_most_is_named(self) -> None:
        """Experts 2 and 5: 0.9 against 0.8, and 0.1 against 0.4."""
        ids = np.array([[2, 5]])
        scores = np.zeros((1, 8))
        read = {
            "ref": Choice(scores=scores, ids=ids, weights=np.array([[0.9, 0.1]])),
            "cand": Choice(scores=scores, ids=ids, weights=np.array([[0.8, 0.4]])),
        }
        flips = Flips()
        place = Place(3, "prefill", "router", "prefill.router.3")
        first = np.full(1, NEVER, dtype=np.int32)
        _weights(flips, read, first, "p-0", place, np.array([7]))

        worst = known(flips.weight_worst)
        assert (worst.place, worst.position) == ("prefill.router.3.weights expert 5", 7)
        assert worst.detail == "ref 0.1, cand 0.4"
        assert_measured(flips.weight_err, 0.3, atol=1e-12, rtol=0)

        wider = replace(read["cand"], weights=np.array([[0.1, 0.4]]))
        _weights(flips, {**read, "cand": wider}, first, "p-1", place, np.array([9]))
        assert known(flips.weight_worst).prompt == "p-1"
        assert_measured(flips.weight_err, 0.8, atol=1e-12, rtol=0)
        assert flips.weight_rows == 2


class TestThreeWay:
    def test_half_of_nothing(self) -> None:
        nothing = np.zeros((0, 2, 1))

        assert (half_of(nothing, nothing).row, half_of(nothing, nothing).row2) == (0, 0.0)

    def test_the_first_of_equally_bad_rows_is_named(self) -> None:
        ways = Ways()
        half = Half(err2=np.ones(1), truth2=np.ones(1), row2=2.0, row=0)
        for prompt, position in (("p-0", 3), ("p-1", 8)):
            add_halves(
                ways, "t", prompt=prompt, positions=np.array([position]), ref=half, cand=half
            )

        assert ways.places["t"].at == ("p-0", 3)

    def test_each_side_is_held_to_its_own_truth(self) -> None:
        """Errors 1 and 4 of truths 4 and 16: one half each."""
        sums = np.array([[1.0], [4.0], [4.0], [16.0]])
        ways = Ways(places={"t": PlaceErrors(by_prompt={"p-0": sums})})

        assert next(_units(ways)) == Unit("t", 0.5, 0.5, None)

    def test_units_without_any_error(self) -> None:
        assert _unit_undefined([Unit("t", 0.0, 0.0, None)]) == "no unit has an error on ref's side"


def layer(number: int, mode: str, kind: str, *, wrong: bool) -> LayerSums:
    """Two heads of eight values, all of them off where ``wrong``."""
    errors = new_map(2, buckets=1)
    ref = np.arange(1.0, 17.0).reshape(1, 2, 8)
    add_rows(
        errors, ref, ref[:, :, ::-1] if wrong else ref, batch_row=0, positions=np.zeros(1, int)
    )
    place = Place(number, mode, kind, f"{mode}.{kind}.{number}.out")
    return LayerSums(place=place, errors=errors, bulk=Bulk(rows=1))


class TestStructure:
    def test_noise_of_bfloat16(self) -> None:
        """Eight significant bits: a unit roundoff of 2^-8, taken twice; float32 is finer."""
        bf16, fp32 = (FakeSide(dtype, {}) for dtype in ("a", "b"))
        fp32.manifest = make_manifest("b", dtype="float32")

        assert noise_start(bf16) == 2.0**-7
        assert noise_start(bf16, fp32) == 2.0**-7
        assert noise_start(fp32) == 2.0**-23

    def test_first_wrong_layer_of_each_mode_prefill_before_decode(self) -> None:
        """Layer 3 is wrong in both modes, 4 no longer tells anything."""
        made = [
            layer(3, "decode", "mla", wrong=True),
            layer(3, "prefill", "mla", wrong=True),
            layer(4, "decode", "kda", wrong=True),
            layer(4, "prefill", "kda", wrong=True),
        ]
        layers = {(one.place.layer, one.place.mode, one.place.kind): one for one in made}
        pair = make_pair({"p-0": {}}, {"p-0": {}})

        assert _first_structure(pair, layers) == (
            "prefill.mla.3.out: all heads; decode.mla.3.out: all heads"
        )

    @pytest.mark.parametrize("options", [{}, {"chunk": "0"}, {"chunk": "auto"}])
    def test_a_chunk_that_is_no_size_is_not_known(self, options: dict[str, str]) -> None:
        made = layer(3, "prefill", "mla", wrong=True)
        cand = FakeSide("rocm", {"p-0": {}}, manifest=make_manifest("rocm", options=options))
        pair = make_pair({"p-0": {}}, cand)

        assert _first_structure(pair, {(3, "prefill", "mla"): made}) == (
            "prefill.mla.3.out: all heads"
        )

    def test_layers_without_rows_are_passed_over(self) -> None:
        empty = layer(3, "prefill", "mla", wrong=True)
        empty.bulk.rows = 0
        made = [empty, layer(4, "prefill", "kda", wrong=True)]
        layers = {(one.place.layer, one.place.mode, one.place.kind): one for one in made}

        assert _first_structure(make_pair({"p-0": {}}, {"p-0": {}}), layers) == (
            "prefill.kda.4.out: all heads"
        )

    def test_a_factor_may_leave_as_much_as_the_bar(self) -> None:
        """cand = 2 ref and squared error 1 besides, of ref^2 = 4: sqrt(1/4) at a bar of 1/2."""
        errors = new_map(1, buckets=1)
        errors.ref2[:], errors.along[:], errors.err2[:] = 4.0, 4.0, 5.0

        assert _scaled(errors, np.array([0]), 0.5) == " scaled by 2"
        assert _scaled(errors, np.array([0]), 0.499) == ""

    @pytest.mark.parametrize(("limit", "told"), [(0.25, True), (0.24, False)])
    def test_distance_of_log_sum_exps(self, limit: float, told: bool) -> None:
        """Spread 48 - 16^2 / 16 = 32; off the diagonal sqrt(1 * 2 / 32) = 0.25, on it 1."""
        errors = new_map(2, buckets=1)
        errors.lse_gap2 = np.array([[16.0, 1.0], [1.0, 16.0]])
        errors.lse_sums = np.array([16.0, 16.0, 48.0])

        assert (_permuted(errors, limit) is not None) == told

    def test_rows_of_tokens_are_counted(self) -> None:
        """Three tokens, then two, of two heads and eight values."""
        errors = new_map(2, buckets=5)
        for count in (3, 2):
            rows = np.ones((count, 2, 8))
            add_rows(errors, rows, rows, batch_row=4, positions=np.arange(count))

        assert errors.rows == {4: 5}

    def test_every_way_of_making_a_state_names_its_first_wrong_layer(self) -> None:
        """Decode is wrong from layer 0 on, oneshot in layer 1."""
        made = States()
        for number, how in ((0, "decode"), (1, "decode"), (1, "oneshot")):
            made.maps[number, how] = layer(number, how, "kda", wrong=True).errors
        made.maps[0, "oneshot"] = layer(0, "oneshot", "kda", wrong=False).errors

        assert state_structure(make_pair({"p-0": {}}, {"p-0": {}}), made) == (
            "state.decode.kda.0: all heads; state.oneshot.kda.1: all heads"
        )


def test_prompts_without_rows_are_told() -> None:
    assert _missing({"p-0": Bulk(rows=2), "p-1": Bulk()}, "outputs") == (
        "router ties set every row of 1 prompts apart, the first is p-1"
    )
    assert _missing({"p-0": Bulk(rows=1)}, "outputs") is None
