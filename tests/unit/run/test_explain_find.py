"""Which operations of cand err: hand-made pairs whose wrong pass, layer and head are known."""

import numpy as np
import pytest

from tests.exact_runs import PROMPTS, WEIGHTS, heads_lost, ran, side, without
from tests.unit.oracle.tiny import TINY
from validate.oracle import LayerOutput, LayerState
from validate.run.explain_find import find_places, groups, inside_prompts, tally
from validate.run.explain_words import group_words

REF = side("cuda", ran(noise=1))


def found(tensors, *, ref=REF, **changes):
    """What is found between ref and a cand of these tensors."""
    cand = side("rocm", tensors, **changes)
    told = [
        tally(one, inside_prompts(one, list(PROMPTS)), weights=WEIGHTS, config=TINY, progress=print)
        for one in (ref, cand)
    ]
    return find_places(told[0], told[1], sides=(ref, cand))


def test_a_run_with_other_rounding_errs_nowhere():
    assert found(ran(noise=2)) == ()


@pytest.mark.parametrize(
    ("layers", "heads", "decode", "mode", "module"),
    [
        ([1], [2], True, "decode", "MLA"),
        ([1, 4], [0, 2], True, "decode", "MLA"),
        ([4], [1], False, "prefill", "MLA"),
        ([0], [1], False, "prefill", "KDA"),
        ([2, 3], [0], True, "decode", "KDA"),
    ],
)
def test_layers_and_heads_are_named_and_no_others(layers, heads, decode, mode, module):
    """Both passes where a prefill is wrong too; states in pieces are told apart."""
    places = [
        place
        for place in found(ran(heads_lost(layers, heads, decode=decode), noise=2))
        if place.mode != "chunked"
    ]

    assert (places[0].mode, places[0].module) == (mode, module)
    assert {place.mode for place in places} == ({"decode"} if decode else {"prefill", "decode"})
    for mode_ in {place.mode for place in places}:
        assert [p.layer for p in places if p.mode == mode_] == layers
    assert {place.heads for place in places} == {tuple(heads)}
    assert {place.heads_of for place in places} == {3}
    assert all(place.cand > 0.5 > 0.01 > place.ref for place in places)


def test_a_wrong_state_is_named_with_its_layer():
    """Layer 2 leaves its recurrent state with keys and values swapped; outputs of prefill are right."""

    def swapped(made: LayerOutput, layer: int, step: bool) -> LayerOutput:
        if layer != 2 or step:
            return made
        assert made.state.kda is not None
        state = LayerState(kda=made.state.kda.transpose(0, 2, 1), conv=made.state.conv)
        return LayerOutput(out=made.out, lse=made.lse, y=made.y, state=state)

    places = found(ran(swapped, noise=2))
    kept = [tuple(group) for group in groups(places)]

    assert places[0].tensor == "state.oneshot.kda.2"
    assert {p.tensor for p in places if p.mode == "decode"} == {
        "decode.kda.2.out",
        "state.decode.kda.2",
    }
    assert group_words(kept[0]) == ("KDA (state after the whole prefill), layer 2, heads 0-2 of 3")


def test_prompt_and_position_of_the_worst_row_are_named():
    tensors = ran(noise=2)
    tensors["p-1"]["prefill.mla.4.out"][4, 1] *= -3.0
    first = next(p for p in found(tensors) if p.module == "MLA")

    assert (first.prompt, first.position, first.heads) == ("p-1", 4, (1,))


def test_one_wrong_row_among_many_right_ones_is_seen():
    """A row off by a tenth of its head's RMS adds 0.1 / sqrt(14) = 0.027 to the head; 0.031 counts."""
    tensors = ran(noise=2)
    rows = tensors["p-0"]["prefill.kda.0.out"][:, 2]
    smallest = int(np.argmin((rows**2).sum(axis=1)))
    rows[smallest] += 0.1 * np.sqrt((rows**2).mean())
    places = [p for p in found(tensors) if p.module == "KDA" and p.mode == "prefill"]

    assert [(p.layer, p.heads, p.position) for p in places] == [(0, (2,), smallest)]


def test_a_fault_that_ref_has_too_is_not_cands():
    faulty = heads_lost([1], [2], decode=True)

    assert found(ran(faulty, noise=2), ref=side("cuda", ran(faulty, noise=1))) == ()


def test_without_a_ref_that_shows_its_inside_rounding_is_what_is_expected():
    """Twice the unit roundoff of bfloat16, 2^-8; four times that is wrong."""
    bare = side("cuda", without(ran(noise=1), ".in", ".out", "hidden", "state", "positions"))
    lost = ran(heads_lost([1], [2], decode=True))
    places = [place for place in found(lost, ref=bare) if place.mode == "decode"]

    assert inside_prompts(bare, list(PROMPTS)) == ()
    assert [(p.layer, p.heads, p.ref, p.expected) for p in places] == [(1, (2,), None, 2**-7)]


def test_nan_is_wrong_and_has_no_number():
    tensors = ran(noise=2)
    tensors["p-0"]["decode.mla.1.out"][:, 1] = np.nan
    (place,) = [p for p in found(tensors) if p.tensor == "decode.mla.1.out"]

    assert (place.heads, place.cand, place.pattern) == ((1,), None, None)
