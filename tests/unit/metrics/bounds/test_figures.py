"""Figures beside a measurement's value: equal ones, small ones, those of the second of two."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.fakes import make_pair
from tests.layers import LEVELS, prefill, router
from tests.measured import assert_measured
from tests.unit.metrics import renorm_made
from tests.unit.metrics.spec_made import all_stepped, drafted, fair, pair, side
from validate.metrics._finite import look, why_undefined
from validate.metrics._routing import gaps
from validate.metrics._spec_streams import Drawn, Tokens
from validate.metrics._spec_tests import strata_of
from validate.metrics._states import _transposed
from validate.metrics._structure import new_map
from validate.metrics._three_way import PlaceErrors, Ways, _breakdown, add_errors, half_of
from validate.metrics.attention_lse_abs import attention_lse_abs
from validate.metrics.attention_lse_slope import attention_lse_slope
from validate.metrics.attention_routing_weight import attention_routing_weight
from validate.metrics.renorm_kept_set import renorm_kept_set
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_logprob import speculative_logprob
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_surprisal import speculative_surprisal
from validate.metrics.state_kda_rel_l2 import state_kda_rel_l2
from validate.metrics.state_kv_rel_l2 import state_kv_rel_l2


def states(name, *arrays):
    return {
        f"p-{at}": {f"state.{name}": np.asarray(array, np.float32)}
        for at, array in enumerate(arrays)
    }


def test_a_later_state_that_is_worse_is_the_worst():
    """1 / 5 in the first prompt, 3 / 5 in the second, 2 / 5 in the third."""
    ref = states("oneshot.kda.4", *[[[[3.0, 4.0]]]] * 3)
    cand = states("oneshot.kda.4", [[[3.0, 5.0]]], [[[3.0, 7.0]]], [[[3.0, 6.0]]])
    m = state_kda_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.value is not None
    assert_measured(m.value, 0.6, atol=0, rtol=1e-12)
    assert m.worst is not None
    assert (m.worst.prompt, m.n) == ("p-1", 3)


def test_the_first_of_equally_bad_states_is_named():
    ref = states("oneshot.kda.4", [[[2.0]]], [[[2.0]]])
    cand = states("oneshot.kda.4", [[[1.0]]], [[[3.0]]])
    m = state_kda_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.worst is not None
    assert m.worst.prompt == "p-0"


def test_a_small_cache_row_is_held_to_the_mean_row():
    """Rows (3, 4) and (1, 0): mean square 13. The second is off by 2: sqrt(4 / 13)."""
    m = state_kv_rel_l2(
        make_pair(
            states("decode.kv.3", [[3.0, 4.0], [1.0, 0.0]]),
            states("decode.kv.3", [[3.0, 4.0], [1.0, 2.0]]),
        ),
        LEVELS,
    )

    assert_measured(m.breakdown["decode worst token row"], math.sqrt(4 / 13), atol=0, rtol=1e-12)


def test_the_first_of_equally_bad_weights_is_named():
    """0.75 to 0.5 in either prompt."""

    def made(weight):
        held = prefill({"hidden.1": np.ones((1, 2))}) | router(
            [[1.0, 0.75, 0.5, 0.0]], [[0, 1]], [[weight, 0.25]]
        )
        return {"p-0": held, "p-1": held}

    m = attention_routing_weight(make_pair(made(0.75), made(0.5)), LEVELS)

    assert m.worst is not None
    assert (m.value, m.worst.prompt) == (0.25, "p-0")


def test_a_slope_of_small_log_sum_exps():
    """ref 0.5, cand 0.75: 0.25 x 0.5 / 0.25 = 0.5."""

    def held(lse):
        return {"p-0": prefill({"mla.3.out": np.ones((1, 1, 2)), "mla.3.lse": [[lse]]})}

    m = attention_lse_slope(make_pair(held(0.5), held(0.75)), LEVELS)

    assert m.value == 0.5
    assert m.breakdown == {"prefill": 0.5, "prefill.mla.3": 0.5}


def test_renorm_rows_of_a_later_prompt_are_judged():
    rows = renorm_made.artifact([renorm_made.ROW], [3], [1.0])
    ref, cand = (renorm_made.side(label, {"a": {}, "b": rows}) for label in ("cuda", "rocm"))

    found = renorm_kept_set(renorm_made.made_pair(ref, cand), LEVELS)

    assert (found.value, found.n) == (0.0, 1)


def test_tokens_outside_the_support_are_counted_beside_the_surprise():
    streams = fair(60)
    for at in (0, 7):
        streams["p-0"]["p"][at] = 0.0
        streams["p-0"]["falls"][at, :, 0] = [1.0, 0.0]  # all of the mass stands before it

    found = speculative_surprisal(pair(side({"sampled": streams})), LEVELS)

    assert found.breakdown["sampled.outside_support"] == 2.0


def test_a_later_kind_without_a_number_is_the_worst():
    right, broken = fair(5), fair(5)
    broken["p-3"]["logprob"][2] = np.nan

    found = speculative_logprob(
        pair(side({"sampled": right, "spec-sampled": all_stepped(broken)})), LEVELS
    )

    assert found.value is not None
    assert math.isnan(found.value)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.place) == ("p-3", "spec-sampled, own row")


def test_the_larger_distance_of_two_kinds_counts():
    near, far = fair(5), fair(5)
    near["p-0"]["logprob"][1] += 0.25
    far["p-0"]["logprob"][1] += 0.5
    for plain_ones, drafts in ((near, far), (far, near)):
        kinds = {"sampled": plain_ones, "spec-sampled": all_stepped(drafts)}
        found = speculative_logprob(pair(side(kinds)), LEVELS)

        assert found.value is not None
        assert_measured(found.value, 0.5, atol=1e-12, rtol=0)
        assert found.n == 80


def test_the_worst_log_sum_exp_of_all_prompts_is_named():
    """Off by 0.25, 1 and 0.5: the second; where two are equally bad, the first of them."""

    def held(*lses):
        return {
            f"p-{at}": prefill({"mla.3.out": np.ones((1, 1, 2)), "mla.3.lse": [[lse]]})
            for at, lse in enumerate(lses)
        }

    m = attention_lse_abs(make_pair(held(2, 2, 2), held(2.25, 3, 2.5)), LEVELS)
    assert m.worst is not None
    assert (m.value, m.worst.prompt) == (1.0, "p-1")

    m = attention_lse_abs(make_pair(held(2, 2), held(2.5, 1.5)), LEVELS)
    assert m.worst is not None
    assert (m.value, m.worst.prompt) == (0.5, "p-0")


@pytest.mark.parametrize(
    ("own2", "gap2", "told"),
    [(16.0, 1.0, True), (16.0, 1.21, False), (0.0, 0.0, False), (16.0, None, False)],
)
def test_a_transposed_state_is_four_times_nearer(own2, gap2, told):
    """Of a reference 16: the state itself at distance 1, its transpose at 0.25 or 0.275."""
    errors = new_map(1, buckets=1)
    errors.err2, errors.ref2 = np.array([own2]), np.array([16.0])

    assert (_transposed(errors, gap2) is not None) is told


def test_healthy_steps_of_several_prompts_ail_in_nothing():
    streams = {}
    for at in range(3):
        streams[f"p-{at}"] = drafted((1, 0, 1) * (5 + at))
        streams[f"p-{at}"]["drafts"] = streams[f"p-{at}"]["drafts"].copy()
        streams[f"p-{at}"]["drafts"][1::3] = 1

    found = speculative_health(pair(side({"spec-sampled": streams})), LEVELS)

    assert (found.value, found.n, found.pattern) == (0.0, 3 * (5 + 6 + 7), None)


def test_the_first_of_several_bad_numbers_is_named():
    streams = fair(20)
    for prompt, at in (("p-2", 3), ("p-2", 7), ("p-5", 1)):
        streams[prompt]["entropy"][at] = np.nan

    found = speculative_surprisal(pair(side({"sampled": streams})), LEVELS)

    assert "rocm: 3 of 160 values of sampled.entropy" in (found.why_undefined or "")
    assert "the first in token 3 of p-2;" in (found.why_undefined or "")


def test_greedy_ids_beyond_the_tokenizer_are_inside_the_vocabulary():
    """The last id of the tokenizer, the first behind it, the last of the vocabulary, and no id."""
    made = side({"spec-greedy": {"p-0": drafted([1] * 3)}})
    model = made.manifest.model
    length, vocab = model.tokenizer_length, model.vocab_size
    streams = drafted([1] * 3)
    streams["tokens"][:4] = (length - 1, length, vocab - 1, vocab)

    found = speculative_nonfinite(pair(side({"spec-greedy": {"p-0": streams}})), LEVELS)

    assert found.breakdown["cand.spec-greedy.greedy_tokens_beyond_tokenizer"] == 2.0
    assert found.breakdown["cand.spec-greedy.tokens"] == 1.0


def test_strata_are_told_by_rows_parameters_and_quarters():
    """Of 200 tokens 75 are under other parameters; quarters of 50 of either size."""
    n = 200
    order = np.arange(n)
    columns: dict[str, Any] = {field.name: np.zeros(n) for field in fields(Tokens)}
    columns["row"] = (order >= 100).astype(int)
    columns["group"] = (order % 8 < 3).astype(int)
    columns["position"] = order.copy()
    columns["entropy"] = order[::-1] / n
    drawn = Drawn(kind="k", tokens=Tokens(**columns), steps=None, groups=("T 1", "T 2"))

    row, depth, parameters, entropy = strata_of(drawn)

    assert row.groups == []
    assert [(name, np.flatnonzero(mask).tolist()) for name, mask in parameters.groups] == [
        ("parameters T 1", [at for at in range(n) if at % 8 >= 3]),
        ("parameters T 2", [at for at in range(n) if at % 8 < 3]),
    ]
    assert [int(mask.sum()) for _, mask in depth.groups] == [50] * 4
    assert [int(mask.sum()) for _, mask in entropy.groups] == [50] * 4
    assert list(np.flatnonzero(depth.groups[0][1])) == list(range(50))
    assert list(np.flatnonzero(entropy.groups[0][1])) == list(range(150, 200))


@pytest.mark.parametrize(("heads", "told"), [(1, 0), (2, 2)])
def test_heads_are_told_where_there_are_several(heads, told):
    """Squared errors 1 and 4 of the truth 4: ref 0.5, cand 1, ratio 2, for each head alike."""
    sums = np.array([[1.0], [4.0], [4.0], [4.0]]) * np.ones((4, heads))
    ways = Ways(places={"prefill.mla.1.out": PlaceErrors(by_prompt={"p-0": sums})})

    shown = _breakdown({"": ways}, LEVELS)

    assert shown["prefill.mla.1 ref"] == 0.5
    assert shown["prefill.mla.1 cand"] == 1.0
    assert shown["prefill.mla.1 ratio"] == 2.0
    assert sum(name.endswith(" ratio") and " head " in name for name in shown) == told


def test_rows_of_one_prompt_that_come_in_parts_add_up():
    """Twice off by 1 and by 2 from 3: squared errors 2 and 8, squared truth 18."""
    ways = Ways()
    true = np.full((1, 1, 1), 3.0)
    for _ in range(2):
        add_errors(
            ways,
            "prefill.mla.1.out",
            prompt="p-0",
            positions=np.zeros(1, np.int64),
            ref=(true + 1, true),
            cand=(true - 2, true),
        )

    held = ways.places["prefill.mla.1.out"].by_prompt["p-0"]

    assert held.tolist() == [[2.0], [8.0], [18.0], [18.0]]


def test_the_gap_of_sets_is_from_the_lowest_lost_to_the_highest_gained():
    """By ref's scores 1 and 2 were given up for 5 and 9: 9 - 1; and the other way round."""
    scores, low, high = np.array([[1.0, 2.0, 5.0, 9.0]]), np.array([[0, 1]]), np.array([[2, 3]])

    assert gaps(scores, low, high).tolist() == [8.0]
    assert gaps(scores, high, low).tolist() == [8.0]


def test_values_that_are_not_finite_are_told_for_three_tensors():
    def finding(name):
        return look("p-0", name, {"cand": np.array([1.0, np.nan])})

    found = [finding(name) for name in "abcd"]
    held = [one for one in found if one is not None]

    assert held[0].unlike == 0
    assert why_undefined(held[:1]) == (
        "1 values are not finite in 1 tensors: p-0 a: cand 1 NaN, first at (1,)"
    )
    assert str(why_undefined(held[:3])).endswith("| p-0 c: cand 1 NaN, first at (1,)")
    assert str(why_undefined(held)).endswith("first at (1,) | and 1 more tensors")


def test_half_of_a_pair_names_its_worst_row():
    """Two heads: rows off by (0, 1), (2, 1) and (1, 1): squares 1, 5 and 2."""
    true = np.full((3, 2, 1), 2.0)
    got = true + np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]])[:, :, None]

    half = half_of(got, true)

    assert (half.row, half.row2) == (1, 5.0)
    assert (half.err2.tolist(), half.truth2.tolist()) == ([5.0, 3.0], [12.0, 12.0])
    assert half_of(got[:0], true[:0]).row2 == 0.0
