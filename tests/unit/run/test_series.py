"""What plots are drawn from: values by hand from small pairs, aggregated as a report shows them."""

import numpy as np

from tests.fakes import make_pair, make_prompt
from tests.layers import LEVELS, prefill
from tests.logit_cases import kl_pair
from tests.measured import assert_measured
from tests.unit.metrics.spec_made import drafted, fair, pair, side
from validate.metrics import METRICS
from validate.metrics._logit_rows import logit_rows
from validate.run.series import FloorDrift, series_of
from validate.run.series_evals import flip_series
from validate.run.series_logits import BUCKETS, Drift, drift_of, kl_series
from validate.run.series_speculative import BINS, acceptance_series, uniform_series
from validate.run.series_streams import survival_series
from validate.run.series_tensors import head_series, hidden_series, ratio_series
from validate.schema.series import MOST_COLUMNS


def drift(kl, positions=None):
    """Rows with these KLs at positions 0, 1, ... unless given."""
    at = range(len(kl)) if positions is None else positions
    return Drift(np.array(list(at), np.int32), np.array(kl, np.float64))


class TestLogits:
    def test_quantiles_of_cand_and_of_all_repeats_together(self):
        """0, 1, ..., 100 mnats: linear interpolation gives p50 = 50, p90 = 90, the largest 100."""
        kls = [0.001 * n for n in range(101)]
        _, found = kl_series(drift(kls), [drift(kls[:51]), drift(kls[51:])])

        cand, floor = found.lines
        assert found.x.places == ("p50", "p90", "p99", "p99.9", "largest")
        assert_measured(cand.values, [0.05, 0.09, 0.099, 0.0999, 0.1], atol=1e-12, rtol=0)
        assert (floor.values, floor.role) == (cand.values, "floor")

    def test_buckets_of_positions_hold_about_equally_many_rows(self):
        """96 positions, 24 buckets of 4; KL rises by 1 mnat each: bucket i has the median 4 i + 1.5."""
        found, _ = kl_series(drift([0.001 * n for n in range(96)]), [])

        line = found.lines[0]
        assert len(found.x.places) == BUCKETS
        assert found.x.places[:2] == ("0 to 3", "4 to 7")
        assert found.x.places[-1] == "92 to 95"
        medians = [0.001 * (4 * bucket + 1.5) for bucket in range(BUCKETS)]
        assert_measured(line.low, medians, atol=1e-12, rtol=0)
        assert found.n == 96

    def test_a_bucket_that_the_repeats_lack_stays_empty(self):
        """Cand has positions 0 and 50, the repeats 0 alone; nothing is made up."""
        found, _ = kl_series(drift([0.1, 0.2], [0, 50]), [drift([0.3], [0])])

        assert found.lines[1].values == (0.3, None)

    def test_rows_are_those_of_the_teacher_forced_pass(self):
        """Two prompts of 2 and 1 rows, in pair order."""
        rows = logit_rows(kl_pair({"p-0": [0.1, 0.2], "p-1": [0.3]}))

        found = drift_of(rows.forced)

        assert found.positions.tolist() == [0, 1, 0]
        assert_measured(found.kl, [0.1, 0.2, 0.3], atol=1e-12, rtol=0)

    def test_a_million_positions_become_two_dozen_places(self):
        """Aggregated before anything is drawn."""
        rng = np.random.default_rng(3)
        many = drift(rng.exponential(size=1_000_000), rng.integers(0, 131_072, 1_000_000))

        found = kl_series(many, [many])

        assert [len(one.x.places) for one in found] == [BUCKETS, 5]
        assert_measured(found[1].lines[0].values[0], np.log(2.0), atol=0.005, rtol=0)


class TestTensors:
    PAIR = make_pair(
        {"p-0": prefill({"kda.0.out": [[[3.0], [4.0]]], "hidden.0": [[3.0, 4.0]]})},
        {"p-0": prefill({"kda.0.out": [[[3.0], [2.0]]], "hidden.0": [[3.0, 6.0]]})},
    )

    def test_a_cell_is_a_head_of_a_layer(self):
        """Head 1: |2 - 4| / 4 = 0.5; head 0 is exact."""
        (found,) = head_series(self.PAIR)

        assert (found.name, found.kind) == ("attention.heads_prefill", "heat")
        assert [(line.name, line.values) for line in found.lines] == [("kda.0", (0.0, 0.5))]
        assert found.x.places == ("0", "1")

    def test_hidden_states_by_layer(self):
        """|(0, 2)| / |(3, 4)| = 0.4."""
        (found,) = hidden_series(self.PAIR)

        assert_measured(found.lines[0].values, [0.4], atol=1e-7, rtol=0)
        assert found.lines[0].name == "prefill"

    def test_a_layer_with_fewer_heads_has_empty_cells(self):
        """KDA and MLA need not have as many."""
        outs = {"kda.0.out": [[[1.0], [1.0]]], "mla.1.out": [[[1.0]]]}
        same = {"p-0": prefill(outs)}

        (found,) = head_series(make_pair(same, same))

        assert [line.values for line in found.lines] == [(0.0, 0.0), (0.0, None)]

    def test_more_heads_than_columns_show_the_worst_of_neighbours(self):
        """400 heads, one of them wrong: its column is."""
        outs = np.ones((1, 2 * MOST_COLUMNS, 1))
        wrong = outs.copy()
        wrong[0, 301] = 2.0
        ref, cand = ({"p-0": prefill({"kda.0.out": one})} for one in (outs, wrong))

        (found,) = head_series(make_pair(ref, cand))

        assert found.x.places[150] == "300 to 301"
        assert [at for at, value in enumerate(found.lines[0].values) if value] == [150]

    def test_ratios_leave_heads_out_and_keep_their_ends(self):
        """A limit that no data bound is None."""
        breakdown = {
            "prefill.kda.0 ratio": 2.0,
            "prefill.kda.0 ratio low": 1.5,
            "prefill.kda.0 head 0 ratio": 9.0,
            "prefill.kda.0 ref": 0.1,
        }

        (found,) = ratio_series("attention.introduced_ratio", breakdown)

        line, same = found.lines
        assert found.x.places == ("prefill.kda.0",)
        assert (line.values, line.low, line.high) == ((2.0,), (1.5,), (None,))
        assert same.values == (1.0,)
        assert ratio_series("attention.introduced_ratio", {}) == []


def test_survival_falls_where_streams_part():
    """Of two streams one parts at its second token: 1, 1, 1/2, 1/2; the repeat never does."""
    prompts = {p: make_prompt(p, [1, 2], prompt_length=1) for p in ("p-0", "p-1")}
    tensors: dict[str, dict[str, np.ndarray]] = {p: {} for p in prompts}
    ref = {"p-0": [5, 6, 7], "p-1": [5, 6, 7]}
    made = make_pair(
        tensors,
        tensors,
        prompts=prompts,
        ref_streams=ref,
        cand_streams={"p-0": [5, 9, 7], "p-1": [5, 6, 7]},
    )

    (found,) = survival_series(made)
    (beside,) = survival_series(
        make_pair(
            tensors,
            tensors,
            prompts=prompts,
            ref_streams=ref,
            cand_streams=ref,
            repeats=(made.ref,),
        )
    )

    assert found.x.places == ("0", "1", "2", "3")
    assert [line.values for line in found.lines] == [(1.0, 1.0, 0.5, 0.5)]
    assert [line.role for line in beside.lines] == ["cand", "floor"]
    assert beside.lines[1].name == "1 repeats of ref"


class TestSpeculative:
    def test_fair_draws_are_flat_within_the_band(self):
        """480 tokens over 20 bins: 24 a bin, 99 of 100 of them between 12 and 37."""
        (found,) = uniform_series(pair(side({"sampled": fair(60)})))

        bars, expected = found.lines
        assert (len(bars.values), found.n) == (BINS, 480)
        assert_measured(sum(value or 0.0 for value in bars.values), BINS, atol=1e-9, rtol=0)
        assert expected.low[0] is not None
        assert expected.high[0] is not None
        assert_measured([expected.low[0], expected.high[0]], [12 / 24, 37 / 24], atol=0.05, rtol=0)
        outside = [v for v in bars.values if not expected.low[0] <= (v or 0.0) <= expected.high[0]]
        assert len(outside) <= 2

    def test_argmax_in_every_draw_stands_on_the_left(self):
        """All U below 3/4: the law's first id has that mass."""
        streams = fair(60, zeros=1.0)
        (found,) = uniform_series(pair(side({"sampled": streams})))

        assert all(value == 0.0 for value in found.lines[0].values[15:])

    def test_acceptance_by_index_and_depth(self):
        """Half of the drafts accepted where the rule expects 0.5; ref beside it."""
        streams = {"p-0": drafted([1, 0] * 20, expected=0.25)}
        cand = side({"spec-sampled": streams})
        ref = side({"spec-sampled": {"p-0": drafted([1] * 40)}}, label="cuda")

        index, depth = acceptance_series(pair(cand, ref))

        assert index.x.places == ("1",)
        assert [line.name for line in index.lines] == [
            "cand, observed",
            "ref, observed",
            "cand, expected by its verifier's rule",
        ]
        assert [line.values for line in index.lines] == [(0.5,), (1.0,), (0.25,)]
        assert index.n == 40
        assert len(depth.x.places) == 8

    def test_streams_without_drafts_have_no_acceptance(self):
        assert acceptance_series(pair(side({"sampled": fair(60)}))) == []


def test_flips_of_evals_both_ways_by_task():
    """Those that flip most come first; scores in between count as worse and better."""
    breakdown = {
        "copy: drop": 1.0,
        "copy: lost": 3.0,
        "copy: gained": 1.0,
        "a: b: worse": 2.0,
        "a: b: better": 7.0,
        "requests": 9.0,
    }

    (found,) = flip_series(breakdown)

    assert found.x.places == ("a: b", "copy")
    assert [line.values for line in found.lines] == [(2.0, 3.0), (7.0, 1.0)]
    assert flip_series({"copy: drop": 1.0}) == []


def test_only_gates_that_ran_bring_a_series():
    """A run of one gate reads nothing for the others; an undefined gate draws nothing."""
    made = kl_pair({"p-0": [0.1, 0.2], "p-1": [0.3]})
    measured = {"logits.kl_max": METRICS["logits.kl_max"](made, LEVELS)}
    undefined = {"attention.head_rel_l2": METRICS["attention.head_rel_l2"](made, LEVELS)}
    floor = FloorDrift()
    floor.look(made)

    found = series_of(made, measured=measured, floor=floor)

    assert [one.name for one in found] == ["logits.kl_by_position", "logits.kl_quantiles"]
    assert [line.role for line in found[1].lines] == ["cand", "floor"]
    assert series_of(made, measured=undefined, floor=FloorDrift()) == ()
    assert series_of(made, measured={}, floor=FloorDrift()) == ()


def test_a_repeat_whose_logits_are_not_finite_is_no_floor():
    """Its rows have no KL."""
    made = kl_pair({"p-0": [0.1]})
    made.cand.tensor = lambda *_: np.full((1, 2), np.nan)  # type: ignore[method-assign]
    floor = FloorDrift()

    floor.look(made)

    assert floor.drifts == []
