"""Attention tensors, states, routers and the structure search: one rule each, at its edge."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt
from tests.layers import LEVELS, prefill, router
from tests.measured import assert_measured, known
from validate.metrics._bulk import _breakdown as bulk_breakdown
from validate.metrics._finite import look
from validate.metrics._peaks import _named
from validate.metrics._places import Place
from validate.metrics._positions import where_positions
from validate.metrics._routing import NEVER, Choice, Flips, Routing, _oracle, _weights, routing
from validate.metrics._states import Peak, States, _add_map, _raise, state_scan
from validate.metrics._structure import (
    ErrorMap,
    _matched,
    _permuted,
    add_rows,
    find_structure,
    new_map,
)
from validate.metrics._taps import taps_apart
from validate.metrics._tensors import (
    Bulk,
    Key,
    LayerSums,
    Scan,
    _add_lse,
    _first_structure,
    _Step,
)
from validate.metrics._three_way import Half, Unit, Ways, _compared, _unit_undefined, add_halves
from validate.metrics._unmeasured import undefined
from validate.metrics.attention_lse_abs import _slope
from validate.metrics.attention_lse_slope import attention_lse_slope
from validate.metrics.attention_row_rel_l2 import attention_row_rel_l2
from validate.metrics.attention_scale import _scale
from validate.metrics.state_chunked_oneshot import state_chunked_oneshot
from validate.schema import Worst

KV = Place(0, "decode", "kv", "state.decode.kv.0")
CONV = Place(0, "decode", "conv", "state.decode.conv.0")
KDA = Place(0, "decode", "kda", "state.decode.kda.0")
ROUTER = Place(3, "prefill", "router", "prefill.router.3")


def test_nothing_was_measured_of_nothing() -> None:
    found = undefined("m", "why", unit="nats", n_of="prompts")

    assert (found.n, found.value, found.breakdown) == (0, None, {})


def test_without_rows_set_apart_their_error_is_not_shown() -> None:
    assert bulk_breakdown({}, {"p-0": Bulk(rows=2, err2=1.0, ref2=4.0)}) == {
        "rows": 2.0,
        "rows set apart by router ties": 0.0,
    }


def test_the_first_bad_place_is_that_of_the_first_side() -> None:
    bad = {"ref": np.array([0.0, np.nan]), "cand": np.array([np.nan, 0.0])}

    assert known(look("p-0", "t", bad)).first == (1,)


class TestStates:
    def raised(self, *errors: float) -> Peak:
        """Units of reference 1, one a prompt, all of them apart."""
        peak = Peak()
        base = np.ones((1, 1, 1))
        for at, error in enumerate(errors):
            _raise(peak, base, base + error, f"p-{at}", CONV, np.array([True]))
        return peak

    @pytest.mark.parametrize(
        ("errors", "value", "prompt"),
        [((0.25, 0.5, 0.25), 0.5, "p-1"), ((0.5, 0.5), 0.5, "p-0"), ((0.0, 0.25), 0.25, "p-1")],
    )
    def test_the_first_of_the_worst_units_set_apart(
        self, errors: tuple[float, ...], value: float, prompt: str
    ) -> None:
        peak = self.raised(*errors)

        assert (peak.apart_value, known(peak.apart_worst).prompt) == (value, prompt)
        assert (peak.apart, peak.units, peak.value, peak.worst) == (len(errors), 0, 0.0, None)

    def test_a_large_cache_row_is_held_to_itself(self) -> None:
        """Rows (3, 0) and (1, 0), mean square 5: the first is off by 1 of 3."""
        peak = Peak()
        base = np.array([[3.0, 0.0], [1.0, 0.0]])
        _raise(peak, base, base + np.array([[0.0, 1.0], [0.0, 0.0]]), "p-0", KV)

        assert_measured(peak.row, 1 / 3, atol=1e-12, rtol=0)

    def test_the_worst_of_those_set_apart_is_told(self) -> None:
        worst = Worst(prompt="p-9", place="here", value=0.125)
        peaks = {
            how: Peak(apart_worst=Worst(prompt="p-0", place=how, value=value))
            for how, value in (("oneshot", 0.25), ("chunked", 0.5), ("decode", 0.375))
        }

        assert known(_named(worst, peaks)).detail == "set apart by ties: p-0 chunked 0.5"

    def test_a_state_of_unlike_axes_has_no_transpose(self) -> None:
        made = States()
        state = np.ones((1, 2, 3))
        _add_map(made, state, state, KDA, 0)

        assert made.transposed2 == {}

    def test_a_prompt_without_a_batch_row_stands_in_row_0(self) -> None:
        tensors = {"p-0": {"state.decode.kda.0": np.ones((2, 2, 2), np.float32)}}
        manifest = make_manifest("rocm")
        found = state_scan(make_pair(tensors, FakeSide("rocm", tensors, manifest=manifest)))

        assert found.maps[0, "decode"].rows == {0: 1}

    def test_the_taps_of_a_state_are_counted(self) -> None:
        """q, k and v of two taps."""
        state = np.ones((3, 4, 2), np.float32)
        tensors = {"p-0": {f"state.{how}.conv.2": state for how in ("oneshot", "chunked")}}
        found = state_chunked_oneshot(make_pair(tensors, tensors), LEVELS)

        assert (found.value, found.n) == (0.0, 6)

    def test_a_tap_of_the_first_token_follows_it(self) -> None:
        """Two tokens, three taps: nobody's, token 0 at a near tie in layer 1, token 1 clear."""
        scores = np.array([[0.5, 0.4375], [0.75, 0.25]])
        held = prefill({"hidden.1": np.ones((2, 2))}) | router(scores, [[0], [0]])
        pair = make_pair(
            {"p-0": held},
            {"p-0": held},
            prompts={"p-0": make_prompt("p-0", [1, 2])},
            route_gap=0.0625,
        )
        place = Place(2, "chunked", "conv", "state.chunked.conv.2")

        assert known(taps_apart(pair, "p-0", place, taps=3)).tolist() == [False, True, False]


class TestRouting:
    def test_ties_of_ref_and_cand_count_against_the_oracle_too(self) -> None:
        """Ref and cand part within the gap at token 1; the oracle is sure of ref's expert."""
        near = [[0.75, 0.25], [0.5, 0.4375]]
        sure = [[0.75, 0.25], [0.75, 0.25]]
        turned = [[0.75, 0.25], [0.4375, 0.5]]
        sides = [
            {"p-0": prefill({"hidden.1": np.ones((2, 2))}) | router(scores, ids)}
            for scores, ids in ((near, [[0], [0]]), (turned, [[0], [1]]), (sure, [[0], [0]]))
        ]
        found = routing(make_pair(sides[0], sides[1], oracle=sides[2], route_gap=0.0625))

        assert found.ties["p-0", "prefill"].tolist() == [NEVER, 1]
        assert found.oracle_ties["p-0", "prefill"].tolist() == [NEVER, 1]

    @pytest.mark.parametrize(
        ("gaps", "worst"),
        [((0.25, 0.5, 0.25), "p-1"), ((0.25, 0.25), "p-0"), ((0.0,), "p-0"), ((0.0, 0.25), "p-1")],
    )
    def test_the_first_of_the_widest_gaps_is_named(
        self, gaps: tuple[float, ...], worst: str
    ) -> None:
        """Ref rates the two experts so far apart; cand took the other one."""
        ref, cand = (
            {
                f"p-{at}": prefill({"hidden.1": np.ones((1, 2))})
                | router([scores[:: 1 if side == 0 else -1]], [[side]])
                for at, scores in enumerate([0.25 + gap, 0.25] for gap in gaps)
            }
            for side in (0, 1)
        )
        flips = routing(make_pair(ref, cand)).flips

        assert known(flips.worst).prompt == worst
        assert flips.worst_gap == max(gaps)

    def test_an_oracles_tie_may_be_as_wide_as_the_gap(self) -> None:
        """0.5 against 0.4375."""
        weights, first = np.ones((1, 1)), np.full(1, NEVER, dtype=np.int32)
        scores = np.array([[0.5, 0.4375]])
        one, other = (Choice(scores=scores, ids=np.array([[i]]), weights=weights) for i in (0, 1))
        _oracle({"oracle": one, "ref": one, "cand": other}, first, 0.0625, 3)

        assert first.tolist() == [3]

    def test_weights_set_apart_are_those_of_rows_set_apart(self) -> None:
        """Row 0 was set apart at layer 1 and differs by 0.125, row 1 by 0.5."""
        ids, scores = np.zeros((2, 1), int), np.zeros((2, 2))
        read = {
            side: Choice(scores=scores, ids=ids, weights=np.array(weights))
            for side, weights in (("ref", [[0.5], [0.5]]), ("cand", [[0.625], [1.0]]))
        }
        flips, first = Flips(), np.array([1, NEVER], dtype=np.int32)
        _weights(flips, read, first, "p-0", ROUTER, np.arange(2))

        assert (flips.weight_apart, flips.weight_err, flips.weight_rows) == (0.125, 0.5, 1)


class TestLogSumExps:
    def step(self, made: Scan) -> _Step:
        found = Routing(flips=Flips(), ties={}, oracle_ties={}, bad=[], tensors=0)
        place = Place(3, "prefill", "mla", "prefill.mla.3.out")
        return _Step(made, found, "p-0", place, np.arange(2), "out", (2, 1))

    def test_a_layer_has_as_many_heads_as_its_log_sum_exps(self) -> None:
        """Two rows of three heads, whose output was not finite and made no map."""
        made = Scan()
        _add_lse(self.step(made), {"ref": np.ones((2, 3)), "cand": np.ones((2, 3))})

        assert made.outputs[3, "prefill", "mla"].errors.err2.shape == (3,)
        assert made.outputs[3, "prefill", "mla"].errors.lse_gap2 is not None

    def test_slope_of_small_sums_and_of_none(self) -> None:
        """ref 0.5 and cand 1: 0.5 / 0.25."""
        assert _slope(Scan(lse_fit=np.array([0.5, 0.25]))) == 2.0
        assert _slope(Scan()) is None

    def test_a_layer_whose_log_sum_exps_are_all_zero_has_no_slope(self) -> None:
        """Layer 3 moves from 0.5 to 0.75: 0.25 x 0.5 / 0.25 = 0.5."""

        def held(lse: float) -> dict[str, Any]:
            outs = {f"mla.{layer}.out": np.ones((1, 1, 2)) for layer in (3, 7)}
            return {"p-0": prefill({**outs, "mla.3.lse": [[lse]], "mla.7.lse": [[0.0]]})}

        m = attention_lse_slope(make_pair(held(0.5), held(0.75)), LEVELS)
        assert m.breakdown == {"prefill": 0.5, "prefill.mla.3": 0.5}


def test_the_first_of_equally_bad_rows_is_named() -> None:
    """2 for 1 in either prompt."""
    sides = [
        {f"p-{at}": prefill({"mla.3.out": np.full((1, 1, 2), value)}) for at in range(2)}
        for value in (1.0, 2.0)
    ]
    m = attention_row_rel_l2(make_pair(*sides), LEVELS)

    assert (m.value, known(m.worst).prompt) == (1.0, "p-0")


def test_a_head_of_zeros_on_both_sides_is_not_scaled() -> None:
    assert _scale(new_map(2, buckets=1)).tolist() == [0.0, 0.0]


class TestThreeWay:
    def test_a_prompt_without_rows_adds_nothing(self) -> None:
        ways, half = Ways(), Half(err2=np.zeros(1), truth2=np.zeros(1), row2=0.0, row=0)
        nothing = np.zeros(0, np.int64)
        add_halves(ways, "t", prompt="p-0", positions=nothing, ref=half, cand=half)

        assert ways.places == {}

    @pytest.mark.parametrize("errors", [(1.0, np.inf), (np.inf, 1.0)])
    def test_an_oracle_of_zeros_on_one_side_is_told(self, errors: tuple[float, float]) -> None:
        assert _unit_undefined([Unit("t", *errors, None)]) == "the oracle is all zero at t"

    def test_a_ratio_holds_each_side_to_its_own_truth(self) -> None:
        """Squared errors 1 and 4 of squared truths 4 and 16: one half each."""
        sums = np.tile([1.0, 4.0, 4.0, 16.0], (3, 1))

        assert _compared("t", sums, LEVELS)["t ratio"] == 1.0


def where(*rows: tuple[float, ...], limit: float = 0.5) -> str | None:
    """Text for batch rows whose positions have these relative errors, the reference 1."""
    profile = {at: (np.square(errors), np.ones(len(errors))) for at, errors in enumerate(rows)}
    return where_positions(profile, width=1, limit=limit, chunk=None)


class TestPositions:
    RIGHT_FIRST = (0.0, *[1.0] * 9)

    def test_an_error_at_the_limit_is_none(self) -> None:
        assert where((0, 0.5, 2, 2, 2, 2)) == "from position 2 on"
        assert where((0, 0, 1, 1, 0.5, 1)) is None

    def test_a_batch_row_without_data_spares_nothing(self) -> None:
        nothing, wrong = (np.zeros(4), np.zeros(4)), (np.ones(4), np.ones(4))

        assert where_positions({0: nothing, 1: wrong}, width=1, limit=0.5, chunk=None) is None

    def test_every_other_batch_row_must_be_wrong(self) -> None:
        """Batch row 1 errs at its first position alone, or by no more than the limit."""
        wrong = (4.0,) * 10

        assert where(self.RIGHT_FIRST, wrong) is not None
        assert where(self.RIGHT_FIRST, (4.0, *[0.0] * 9)) is None
        assert where(self.RIGHT_FIRST, (0.5,) * 10, wrong) is None

    def test_errors_at_the_limit_behind_the_first_token_are_none(self) -> None:
        assert where((0.0, *[0.5] * 9), (4.0,) * 10) is None

    def test_one_position_spares_nothing(self) -> None:
        assert where((0.25,), (4.0,)) is None


class TestStructure:
    def test_the_last_bucket_takes_all_later_positions(self) -> None:
        """Squared errors 1, 4 and 9 at positions 0, 3 and 7; two buckets of two positions."""
        errors = new_map(1, buckets=2, width=2)
        ref, off = np.zeros((3, 1, 1)), np.array([1.0, 2.0, 3.0]).reshape(3, 1, 1)
        add_rows(errors, ref, ref + off, batch_row=0, positions=np.array([0, 3, 7]))

        assert errors.profile[0][0].tolist() == [1.0, 13.0]

    def test_a_batch_row_of_no_rows_is_clean(self) -> None:
        errors, nothing = new_map(2, buckets=1), np.zeros((0, 2, 4))
        add_rows(errors, nothing, nothing, batch_row=0, positions=np.zeros(0, np.int64))

        assert find_structure(errors, noise=0.1) is None

    def test_a_small_spread_of_log_sum_exps_is_one(self) -> None:
        """16.5 - 16^2 / 16 = 0.5; off the diagonal sqrt(2 / 64 / 0.5) = 0.25, on it 1."""
        errors = new_map(2, buckets=1)
        errors.lse_gap2 = np.array([[0.25, 1 / 64], [1 / 64, 0.25]])
        errors.lse_sums = np.array([16.0, 16.0, 16.5])

        assert _permuted(errors, 0.25) is not None

    def test_a_head_at_the_limit_is_its_own(self) -> None:
        """Heads 1 and 2 are swapped."""
        distance = np.array([[0.5, 9, 9], [9, 4, 0.25], [9, 0.25, 4]])

        assert _matched(distance, 0.5) == (
            "heads permuted (cand head h equals ref head m: 0→0, 1→2, 2→1)"
        )

    def layers(self, *made: tuple[Key, float]) -> dict[Key, LayerSums]:
        """Two heads a layer, each with this relative error."""
        found = {}
        for (number, mode, kind), error in made:
            errors: ErrorMap = new_map(2, buckets=1)
            errors.err2[:], errors.ref2[:] = error**2, 1.0
            place = Place(number, mode, kind, f"{mode}.{kind}.{number}.out")
            found[number, mode, kind] = LayerSums(place=place, errors=errors, bulk=Bulk(rows=1))
        return found

    @pytest.mark.parametrize(
        ("later", "told"), [(0.1, None), (0.13, "prefill.mla.4.out: all heads")]
    )
    def test_clean_layers_say_what_noise_to_expect(self, later: float, told: str | None) -> None:
        """Bfloat16 alone allows 4 x 2^-7 = 0.031; after a layer off by 0.03 it is 0.12."""
        made = self.layers(((3, "prefill", "kda"), 0.03), ((4, "prefill", "mla"), later))

        assert _first_structure(make_pair({"p-0": {}}, {"p-0": {}}), made) == told

    def test_kinds_of_one_layer_come_by_name(self) -> None:
        made = self.layers(((3, "prefill", "mla"), 1.0), ((3, "prefill", "kda"), 1.0))

        assert _first_structure(make_pair({"p-0": {}}, {"p-0": {}}), made) == (
            "prefill.kda.3.out: all heads"
        )
