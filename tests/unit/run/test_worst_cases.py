"""The rows that gates point at: their text, and both sides' first choices."""

import dataclasses
import math

import numpy as np
import pytest

from tests.fakes import make_manifest, make_pair, make_prompt, with_positions
from validate.run.worst_cases import BYTES, MOST_TOKENS, worst_cases
from validate.schema.measurement import Measurement, Worst

LOGITS = np.log([[0.5, 0.25, 0.125, 0.125], [0.7, 0.1, 0.1, 0.1]])
OTHER = np.log([[0.5, 0.25, 0.125, 0.125], [0.2, 0.6, 0.1, 0.1]])


def made(token_ids=(1, 2), *, bytewise=True):
    """Two rows of four ids on both sides."""
    found = make_pair(
        with_positions({"p-0": LOGITS}),
        with_positions({"p-0": OTHER}),
        prompts={"p-0": make_prompt("p-0", token_ids)},
    )
    if bytewise:
        model = found.ref.manifest.model.model_copy(update={"tokenizer_digest": BYTES})
        found.ref.manifest = make_manifest("cuda", model=model)  # type: ignore[misc]
    return found


def measured(place="logits row 1", position=1, prompt="p-0"):
    """A measurement whose worst place this is."""
    worst = Worst(prompt=prompt, position=position, place=place)
    return Measurement(metric="x", value=1.0, unit="nats", n=1, n_of="rows", worst=worst)


def test_both_sides_first_choices_with_their_probabilities():
    """Row 1: ref has id 0 at 0.7, cand id 1 at 0.6; ties in the order of ids."""
    (found,) = worst_cases(made([104, 105, 33]), {"logits.kl_max": measured()})

    assert [one.id for one in found.ref] == [0, 1, 2, 3]
    assert [one.id for one in found.cand] == [1, 0, 2, 3]
    assert math.isclose(found.ref[0].ref or 0, 0.7)
    assert math.isclose(found.ref[0].cand or 0, 0.2)
    assert (found.before, found.target, found.target_text) == ("hi", 33, "!")


def test_gates_of_one_row_share_a_case():
    """Told once, with both names."""
    found = worst_cases(made(), {"logits.kl_max": measured(), "logits.kl_p90": measured()})

    assert [one.gates for one in found] == [("logits.kl_max", "logits.kl_p90")]


def test_places_that_are_no_row_of_logits_bring_no_case():
    """A head, a prompt alone, a prompt that does not count."""
    gates = {
        "attention.head_rel_l2": measured("decode.mla.3.out head 11"),
        "state.kda_rel_l2": measured(None),
        "logits.kl_max": measured(prompt="p-9"),
        "renorm.sum_error": dataclasses.replace(measured(), worst=None),
    }

    assert worst_cases(made(), gates) == ()


def test_bytes_that_are_no_text_and_ids_beyond_bytes_are_spelled_out():
    """0xff is no UTF-8; 256 is the first token of a prompt."""
    (found,) = worst_cases(made([256, 255, 104]), {"logits.kl_max": measured(position=2)})

    assert found.before == "⟨256⟩\\xffh"
    assert found.target is None


def test_another_tokenizer_gives_ids():
    """Nothing is decoded by a guess."""
    (found,) = worst_cases(made([7, 8, 9], bytewise=False), {"logits.kl_max": measured()})

    assert (found.before, found.target_text, found.ref[0].text) == ("7 8", None, None)


def test_a_long_prompt_is_cut_in_front():
    """The last tokens stand nearest to the row; what is cut is counted."""
    ids = [97] * (MOST_TOKENS + 30)
    (found,) = worst_cases(made(ids), {"logits.kl_max": measured(position=MOST_TOKENS + 9)})

    assert (len(found.before), found.cut) == (MOST_TOKENS, 10)


@pytest.mark.parametrize(("place", "position"), [("stream.logits row 1", 2), ("stream step 1", 3)])
def test_a_row_of_the_stream_follows_the_prompt(place, position):
    """Prompt, then ref's own greedy tokens; a step is told by the token that it emitted."""
    found = make_pair(
        {"p-0": {"stream.logits": LOGITS}},
        {"p-0": {"stream.logits": OTHER}},
        prompts={"p-0": make_prompt("p-0", [1, 2, 3], prompt_length=2)},
        ref_streams={"p-0": [5, 6]},
        cand_streams={"p-0": [5, 9]},
    )

    (case,) = worst_cases(found, {"greedy.unexplained": measured(place, position)})

    assert (case.before, case.target) == ("1 2 5", 6)
