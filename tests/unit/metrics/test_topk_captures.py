"""Logits metrics on captures that store top-k, log-sum-exp, tail mass and row minimum."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt, with_positions
from tests.logit_cases import LEVELS, assert_why
from tests.measured import assert_measured
from tests.topk import as_topk
from tests.unit.gates.made import floor, limit, spec
from validate.gates import judge
from validate.metrics.flip_rate import flip_rate
from validate.metrics.kl_exceed_rate import kl_exceed_rate
from validate.metrics.kl_max import kl_max
from validate.metrics.kl_p50 import kl_p50
from validate.metrics.kl_p90 import kl_p90
from validate.metrics.logits_err_ratio import logits_err_ratio
from validate.metrics.logits_nonfinite import logits_nonfinite
from validate.metrics.nll_delta import nll_delta
from validate.metrics.top1_flips import top1_flips
from validate.pairing import pair as paired
from validate.run.yardstick import floor_of

VOCAB, PROMPTS, ROWS = 24, 8, 2
MIN = "store cand's row minimum"


def sides(noise=0.05, *, decode=False):
    """Full logits of eight prompts of two rows, cand off by a little."""
    rng = np.random.default_rng(4)
    ref = {f"p-{i:02d}": 3 * rng.normal(size=(ROWS, VOCAB)) for i in range(PROMPTS)}
    cand = {prompt: x + noise * rng.normal(size=x.shape) for prompt, x in ref.items()}
    made = with_positions(ref), with_positions(cand)
    if decode:
        for side, factor in zip(made, (0.9, 0.7), strict=True):
            for named in side.values():
                named["decode.logits"] = named["logits"][1:] * factor
                named["decode.positions"] = np.array([1], dtype=np.int32)
    return made


def pair_of(ref, cand, **settings):
    prompts = {prompt: make_prompt(prompt, [1, 2]) for prompt in ref}
    return make_pair(ref, cand, prompts=prompts, **settings)


KL = [kl_p50, kl_max]


@pytest.mark.parametrize("metric", KL)
@pytest.mark.parametrize("k", [1, 5, 12])
def test_the_full_value_lies_between_the_bounds(metric, k):
    """And closer the more ids are kept."""
    ref, cand = sides(decode=True)
    full = metric(pair_of(ref, cand), LEVELS)
    part = metric(pair_of(as_topk(ref, k), as_topk(cand, k)), LEVELS)
    more = metric(pair_of(as_topk(ref, 2 * k), as_topk(cand, 2 * k)), LEVELS)

    assert full.upper is None
    assert part.upper is not None
    assert more.upper is not None
    assert 0 <= part.value <= full.value <= part.upper
    assert part.value <= more.value
    assert more.upper <= part.upper
    assert "keep more ids" in str(part.why_open)
    if full.interval is not None:
        assert part.interval.low <= full.interval.low
        assert part.interval.high >= full.interval.high


@pytest.mark.parametrize("metric", KL)
def test_all_ids_kept_leave_no_doubt(metric):
    ref, cand = sides()
    full = metric(pair_of(ref, cand), LEVELS)
    part = metric(pair_of(as_topk(ref, VOCAB), as_topk(cand, VOCAB)), LEVELS)

    assert_measured([part.value, part.upper], [full.value, full.value], atol=1e-12, rtol=1e-6)


def test_all_ids_kept_give_the_same_companions():
    """Everything that is shown beside the counts; KL of no position, so that no slope is rounding."""
    ref, cand = sides(0.4, decode=True)
    pairs = pair_of(ref, cand), pair_of(as_topk(ref, VOCAB), as_topk(cand, VOCAB))
    for metric, names in (
        (kl_max, ["topk_overlap", "top1_agreement", "tied_rows", "abs_dlogprob.max", "tvd.max"]),
        (kl_max, ["kl_reverse.max", "row.p90", "mean", "decode.logits.mean"]),
        (top1_flips, ["margin_shift.max", "margin_shift.p75", "near_ties", "near_ties.predicted"]),
        (nll_delta, ["nll_ref", "mean", "signed"]),
    ):
        full, part = (metric(pair, LEVELS).breakdown for pair in pairs)
        wanted = [full[name] for name in names if name != "topk_overlap"]
        got = [part[name] for name in names if name != "topk_overlap"]
        assert_measured(got, wanted, atol=1e-12, rtol=1e-6)


def test_the_units_above_a_limit_are_counted_by_their_upper_bounds():
    """So that the number of prompts that would do is one that does; unbounded ones lie above all."""
    ref, cand = sides()
    tensors = as_topk(cand, 12)
    part = kl_p50(pair_of(as_topk(ref, 12), tensors), LEVELS)
    tensors["p-03"] = as_topk({"p-03": cand["p-03"]}, 12, row_min=False)["p-03"]
    blind = kl_p50(pair_of(as_topk(ref, 12), tensors), LEVELS)

    assert part.interval is not None
    assert blind.interval is not None
    assert len(part.interval.above) == len(blind.interval.above) == PROMPTS // 2
    assert part.upper is not None
    assert part.interval.above[0] >= part.upper
    assert sum(unit > 1e9 for unit in blind.interval.above) == 1


@pytest.mark.parametrize("metric", KL)
@pytest.mark.parametrize("narrow", ["ref", "cand"])
def test_a_side_with_full_logits_is_read_at_the_ids_of_the_other(metric, narrow):
    ref, cand = sides()
    full = metric(pair_of(ref, cand), LEVELS)
    both = metric(pair_of(as_topk(ref, 5), as_topk(cand, 5)), LEVELS)
    mixed = metric(
        pair_of(as_topk(ref, 5), cand) if narrow == "ref" else pair_of(ref, as_topk(cand, 5)),
        LEVELS,
    )

    assert mixed.value <= full.value <= mixed.upper
    assert mixed.value >= both.value


@pytest.mark.parametrize("metric", KL)
def test_without_cands_row_minimum_nothing_passes(metric):
    """And more prompts would not help; a FAIL needs the lower bound alone."""
    ref, cand = sides()
    part = metric(pair_of(as_topk(ref, 5), as_topk(cand, 5, row_min=False)), LEVELS)
    share = 0.0 if part.interval is None else 0.01

    def outcome(at):
        return judge(
            spec("bound"), measurement=part, limit=limit(at), noise=None, alpha_share=share,
            rerun="",
        )  # fmt: skip

    assert part.upper == math.inf
    assert part.interval is None or part.interval.high is None
    assert outcome(1e9).outcome == "INCONCLUSIVE"
    assert MIN in str(outcome(1e9).reason)
    assert outcome(1e-9).outcome == "FAIL"


def test_refs_row_minimum_is_not_needed_for_kl():
    ref, cand = sides()
    part = kl_max(pair_of(as_topk(ref, 5, row_min=False), as_topk(cand, 5)), LEVELS)

    assert part.upper is not None
    assert part.upper < math.inf


def test_pass_needs_the_upper_bound_and_fail_the_lower():
    ref, cand = sides()
    part = kl_max(pair_of(as_topk(ref, 5), as_topk(cand, 5)), LEVELS)
    assert part.value is not None
    assert part.upper is not None
    middle = (part.value + part.upper) / 2

    def outcome(at):
        return judge(
            spec("bound"), measurement=part, limit=limit(at), noise=None, alpha_share=0.0, rerun=""
        ).outcome

    low, high = part.value, part.upper
    assert [outcome(at) for at in (high, middle, low * 0.99)] == [
        "PASS",
        "INCONCLUSIVE",
        "FAIL",
    ]


def test_equal_top_k_captures_measure_exactly_zero():
    ref, _ = sides()
    narrow = as_topk(ref, 5)

    for metric in KL:
        assert metric(pair_of(narrow, narrow), LEVELS).value == 0.0


def test_by_hand():
    """ref 1/2, 1/4, 1/4; cand 1/2, 3/8, 1/8, both kept at one id, with p 1/2 each: 0 from below.

    From above, of the two others: 1/2 ln(1/4) for the most that one may have, and cand gives each at
    least 1/8: 1/2 (ln(1/4) - ln(1/8)) = ln(2) / 2... with p of one id at most 1/2: 1/2 ln(1/2).
    """
    ref, cand = np.log([[0.5, 0.25, 0.25]]), np.log([[0.5, 0.375, 0.125]])
    part = kl_max(
        make_pair(
            as_topk(with_positions({"p-0": ref}), 1), as_topk(with_positions({"p-0": cand}), 1),
            prompts={"p-0": make_prompt("p-0", [1])},
        ),
        LEVELS,
    )  # fmt: skip

    assert_measured(part.value, 0.0, atol=1e-15, rtol=0)
    assert_measured(part.upper, 0.5 * (math.log(0.5) - math.log(0.125)), atol=0, rtol=1e-12)


def row_of(*shares):
    """One prompt of one row with these probabilities."""
    return with_positions({"p-0": np.log([shares])})


def test_full_logits_of_ref_by_hand():
    """ref .5 .4 .1 in full, cand .1 .3 .6 at its first id alone.

    Shared: .1 ln(.1/.6). Of the rest ref knows .5 ln .5, and gives at most .4 to one id:
    .4 ln .4; cand gives each at least .1.
    """
    ref, cand = row_of(0.5, 0.4, 0.1), row_of(0.1, 0.3, 0.6)
    part = kl_max(
        make_pair(ref, as_topk(cand, 1), prompts={"p-0": make_prompt("p-0", [1])}), LEVELS
    )
    shared, rest = 0.1 * math.log(1 / 6), 0.5 * math.log(0.5) + 0.4 * math.log(0.4)

    assert_measured(part.upper, shared + rest - 0.9 * math.log(0.1), atol=0, rtol=1e-12)


def test_full_logits_of_cand_by_hand():
    """ref .5 .4 .1 at its first id alone, cand .3 .1 .6 in full: its least is .1, which is not kept."""
    ref, cand = row_of(0.5, 0.4, 0.1), row_of(0.3, 0.1, 0.6)
    part = kl_max(
        make_pair(as_topk(ref, 1), cand, prompts={"p-0": make_prompt("p-0", [1])}), LEVELS
    )
    known = 0.5 * math.log(0.5 / 0.3) + 0.5 * math.log(0.5)

    assert_measured(part.upper, known - 0.5 * math.log(0.1), atol=0, rtol=1e-12)


def test_refs_own_first_choice_is_never_lost():
    """Cand keeps one id, which is not ref's first: a flip of 2 nats."""
    ref = with_positions({"p-0": [[4.0, 3.0, 2.0, 1.0]]})
    cand = as_topk(with_positions({"p-0": [[1.0, 0.0, 4.0, 3.0]]}), 1)
    prompts = {"p-0": make_prompt("p-0", [1])}
    found = flip_rate(make_pair(ref, cand, prompts=prompts, near_tie=1.9), LEVELS)

    assert (found.value, found.upper) == (1.0, 1.0)
    assert found.worst_value == 2.0


def test_prompts_beyond_the_stated_kl_are_counted_from_both_sides():
    """Two prompts for sure; without a row minimum any may be."""
    ref, cand = sides(0.0)
    for prompt in ("p-03", "p-05"):
        cand[prompt]["logits"] = cand[prompt]["logits"][:, ::-1].copy()
    full = kl_exceed_rate(pair_of(ref, cand), LEVELS)
    near = kl_exceed_rate(pair_of(as_topk(ref, 18), as_topk(cand, 18)), LEVELS)
    blind = kl_exceed_rate(pair_of(as_topk(ref, 18), as_topk(cand, 18, row_min=False)), LEVELS)

    assert full.value == near.value == blind.value == 2 / 8
    assert blind.upper == 1.0
    assert blind.interval is not None
    assert blind.interval.high == 1.0
    assert MIN in str(blind.why_open)
    assert full.why_open is None
    every = kl_exceed_rate(pair_of(as_topk(ref, VOCAB), as_topk(cand, VOCAB)), LEVELS)
    assert (every.value, every.upper, every.why_open) == (2 / 8, 2 / 8, None)


def flipped(k, *, row_min=True, near_tie=0.5):
    """Cand's first choice is ref's third, 2 nats below ref's first."""
    row = np.array([[4.0, 3.0, 2.0, 1.0, 0.0, -1.0]])
    other = np.array([[1.0, 0.0, 4.0, 3.0, 2.0, -1.0]])
    ref, cand = with_positions({"p-0": row}), with_positions({"p-0": other})
    prompts = {"p-0": make_prompt("p-0", [1])}
    return make_pair(
        as_topk(ref, k, row_min=row_min), as_topk(cand, k), prompts=prompts, near_tie=near_tie
    )


@pytest.mark.parametrize(
    ("k", "row_min", "near_tie", "certain", "possible"),
    [
        (3, True, 0.5, 1, 1),
        (3, True, 2.5, 0, 0),
        (2, True, 0.5, 1, 1),
        (2, True, 1.5, 0, 1),
        (2, True, 5.5, 0, 0),
        (2, False, 5.5, 0, 1),
    ],
)
def test_flips_are_certain_or_possible(k, row_min, near_tie, certain, possible):
    """Kept: gap 2. Not kept: at least 1, the gap of the last kept id, and at most 5, of the least."""
    found = flip_rate(flipped(k, row_min=row_min, near_tie=near_tie), LEVELS)

    assert (found.value, found.upper) == (certain, possible)
    assert (found.why_open is None) == (certain == possible)


def test_a_flip_that_is_only_possible_is_not_exactly_none():
    found = top1_flips(flipped(2, row_min=False, near_tie=0.5), LEVELS)
    verdict = judge(
        spec("exact", "logits.top1_flips"), measurement=found, limit=limit(0.0), noise=None,
        alpha_share=0.0, rerun="",
    )  # fmt: skip

    assert (found.value, found.upper) == (0.0, 1.0)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "ref's row minimum" in str(verdict.reason)


def test_targets_must_be_among_the_ids():
    ref, cand = sides()
    full = nll_delta(pair_of(ref, cand), LEVELS)
    kept = nll_delta(pair_of(as_topk(ref, VOCAB), as_topk(cand, VOCAB)), LEVELS)
    lost = nll_delta(pair_of(as_topk(ref, 1), as_topk(cand, 1)), LEVELS)

    assert_measured(kept.value, full.value, atol=1e-12, rtol=1e-9)
    assert (lost.value, lost.undefined_kind) == (None, "no_data")
    assert_why(lost, "top-k logits lack the target of \\d+ rows: keep each row's target")


def test_the_ratio_of_errors_needs_every_id():
    ref, cand = sides()
    oracle, _ = sides()
    found = logits_err_ratio(pair_of(as_topk(ref, 5), as_topk(cand, 5), oracle=oracle), LEVELS)

    assert (found.value, found.undefined_kind) == (None, "no_data")
    assert_why(found, "the ratio needs full logits")


@pytest.mark.parametrize("narrow", [(True, True), (False, True), (True, False)])
def test_the_ratio_of_errors_takes_every_id_in_any_form(narrow):
    """OK-9: all ids as top-k, as log-probabilities whose sum is 1, and not by id."""
    ref, cand = sides(decode=True)
    oracle, _ = sides(noise=0.0, decode=True)
    for named in ref.values():
        named["logits"] = named["logits"] + 0.01 * np.sin(np.arange(VOCAB))
        named["decode.logits"] = named["decode.logits"] + 0.01 * np.sin(np.arange(VOCAB))
    full = logits_err_ratio(pair_of(ref, cand, oracle=oracle), LEVELS)
    told = [
        as_topk(log_probabilities(side), VOCAB) if few else side
        for few, side in zip(narrow, (ref, cand), strict=True)
    ]
    found = logits_err_ratio(pair_of(*told, oracle=oracle), LEVELS)

    assert full.value is not None
    assert found.value is not None
    assert found.worst_value is not None
    assert full.worst_value is not None
    assert_measured(found.value, full.value, atol=0, rtol=1e-9)
    assert_measured(found.worst_value, full.worst_value, atol=0, rtol=1e-9)


def log_probabilities(side):
    return {
        prompt: {
            name: log_softmax(array, axis=-1) if name.endswith("logits") else array
            for name, array in named.items()
        }
        for prompt, named in side.items()
    }


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("logits.topk.logits", np.nan, "nan"),
        ("logits.topk.logits", np.inf, "positive"),
        ("logits.lse", np.nan, "nan"),
        ("logits.lse", -np.inf, "negative"),
        ("logits.tail_mass", np.nan, "nan"),
        ("logits.row_min", np.inf, "positive"),
    ],
)
@pytest.mark.parametrize("side", ["ref", "cand"])
def test_values_that_are_no_logits_are_counted(side, name, value, kind):
    narrow = [as_topk(full, 5) for full in sides()]
    held = narrow[0 if side == "ref" else 1]["p-02"][name]
    held[(1,) + (0,) * (held.ndim - 1)] = value
    pair = pair_of(*narrow)
    found = logits_nonfinite(pair, LEVELS)

    assert found.value == 1.0
    assert found.breakdown[f"{side}.{kind}"] == 1.0
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-02", 1)
    assert kl_p90(pair, LEVELS).value is None


def _lose(name: str) -> Any:
    def change(named: dict[str, Any]) -> None:
        del named[name]

    return change


def _set(name: str, value: float) -> Any:
    def change(named: dict[str, Any]) -> None:
        named[name][:] = value

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_lose("logits.lse"), "rocm holds logits.topk.ids and no logits.lse"),
        (_lose("logits.topk.ids"), "prompt p-02 holds no logits in rocm"),
        (_set("logits.topk.ids", 7), "cand row 0 holds an id twice"),
        (_set("logits.tail_mass", 0.9), "keeps mass that is not 1 with its tail"),
        (_set("logits.tail_mass", 1.5), "tail outside"),
        (_set("logits.row_min", 99.0), "row minimum above a kept logit"),
        (_set("logits.positions", 0), "logits.positions differ"),
    ],
)
def test_parts_that_do_not_go_together_are_unlike(change, why):
    ref, cand = (as_topk(full, 5) for full in sides())
    change(cand["p-02"])
    found = kl_p90(pair_of(ref, cand), LEVELS)

    assert (found.value, found.undefined_kind) == (None, "unlike")
    assert_why(found, why)


def test_pairing_takes_full_against_top_k_and_other_k():
    """Names, ids kept and row minima may differ; anything else may not."""
    ref, cand = sides()
    prompts = {prompt: make_prompt(prompt, [1, 2]) for prompt in ref}

    def captured(label, held):
        dtype = next(iter(ref.values()))["logits"].dtype.name
        manifest = make_manifest(label, tensors=held, dtype=dtype)
        return FakeSide(label, held, prompts=prompts, manifest=manifest)

    full = captured("cuda", ref)
    near = captured("rocm", as_topk(cand, 5))
    wide = captured("cuda", as_topk(ref, 9, row_min=False))

    for left, right in ((full, near), (near, full), (wide, near)):
        made = paired(left, right, near_tie=0.1, route_gap=0.1)
        assert kl_p90(made, LEVELS).value is not None


def test_a_floor_of_top_k_repeats_is_no_floor():
    """Too low or too high: neither a PASS nor a FAIL could rest on it."""
    ref, cand = sides()
    exact = kl_p50(pair_of(ref, cand), LEVELS)
    part = kl_p50(pair_of(as_topk(ref, 5), as_topk(cand, 5)), LEVELS)
    gate = spec("noise_ratio", "logits.kl_p50")
    known = floor_of(gate, [exact] * 4, dtype="bfloat16", limit=limit(2.0))
    unknown = floor_of(gate, [exact] * 3 + [part], dtype="bfloat16", limit=limit(2.0))
    plain = floor_of(spec("bound"), [part] * 4, dtype="bfloat16", limit=limit(2.0))

    assert known.value is not None
    assert unknown.value is None
    assert unknown.why_undefined == (
        "1 of 4 repeats measure no exact value: store full logits of ref"
    )
    assert plain.value is not None
    assert floor(None).value is None
