"""Which sizes a side may choose for itself: rows of its own stream, ids kept of top-k; no other."""

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_prompt, make_stream
from tests.topk import as_topk
from validate.errors import IncomparableError
from validate.pairing import pair
from validate.pairing._tensors import tensor_reasons

F32 = np.float32
LOGITS = np.array([[4, 3, 2, 1, 0]] * 3, F32)
POSITIONS = np.arange(3, dtype=np.int32)
PASS = {"decode.positions": np.arange(2, dtype=np.int32), "decode.attn.3.in": np.ones((2, 4), F32)}


def side(label, *prompts, streams=None, listed=None):
    """Prompts of three tokens that hold these tensors; the manifest lists ``listed`` or all."""
    held = {f"p-{i}": named for i, named in enumerate(prompts)}
    manifest = make_manifest(label, tensors=listed or held, dtype="float32")
    texts = {prompt: make_prompt(prompt, [1, 2, 3]) for prompt in held}
    return FakeSide(label, held, prompts=texts, streams=streams, manifest=manifest)


def reasons(ref, cand):
    """Facts by kind."""
    return {one.kind: one.facts for one in tensor_reasons(ref, cand, name="cand")}


def streaming(label, rows, vocab=4, tokens=None):
    """One stream as long as its logits, or of ``tokens`` tokens."""
    tokens = rows if tokens is None else tokens
    streams = {"p-0": make_stream("p-0", [1] * tokens)}
    return side(label, {"stream.logits": np.ones((rows, vocab), F32)}, streams=streams)


def test_logits_of_streams_must_agree_in_vocabulary():
    """Their rows are free; a padded vocabulary is no row."""
    assert reasons(streaming("cuda", 2), streaming("rocm", 3)) == {}
    assert reasons(streaming("cuda", 2), streaming("rocm", 2, vocab=5)) == {
        "shapes": ("p-0/stream.logits: ref (rows 2, vocab 4), cand (rows 2, vocab 5)",)
    }


def test_every_stream_is_held_against_its_logits():
    """Also behind a prompt without logits of a stream."""
    logits = {"stream.logits": np.ones((2, 4), F32)}
    streams = {prompt: make_stream(prompt, [1, 1]) for prompt in ("p-0", "p-1")}
    other = streams | {"p-1": make_stream("p-1", [1, 1, 1])}
    ref = side("cuda", {"logits": LOGITS}, logits, streams=streams)
    cand = side("rocm", {"logits": LOGITS}, logits, streams=other)

    assert reasons(ref, cand) == {
        "shapes": ("p-1/stream.logits: cand holds (rows 2, vocab 4), its stream has 3 tokens",)
    }


def test_logits_of_a_stream_that_is_not_there_are_a_reason():
    """One row too: no stream has no tokens."""
    cand = side("rocm", {"stream.logits": np.ones((1, 4), F32)})

    assert reasons(streaming("cuda", 1), cand) == {
        "shapes": ("p-0/stream.logits: cand holds (rows 1, vocab 4), its stream has 0 tokens",)
    }


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("logits", (2, 5), "(rows 3, vocab 5), cand (rows 2, vocab 5)"),
        ("logits", (3, 6), "(rows 3, vocab 5), cand (rows 3, vocab 6)"),
        (
            "state.oneshot.kda.0",
            (1, 2, 2),
            "(heads 2, key 2, value 2), cand (heads 1, key 2, value 2)",
        ),
        ("logits.positions", (2,), "(rows 3), cand (rows 2)"),
    ],
)
def test_no_other_tensor_is_free_in_any_axis(name, shape, told):
    """The first axis too: half the heads of a state, or a row that is missing."""
    held = {
        "logits": LOGITS,
        "logits.positions": POSITIONS,
        "state.oneshot.kda.0": np.ones((2, 2, 2), F32),
    }
    short = held | {name: np.ones(shape, held[name].dtype)}

    found = reasons(side("cuda", held), side("rocm", short))

    assert found == {"shapes": (f"p-0/{name}: ref {told}",)}


def test_each_side_keeps_as_many_ids_as_it_likes():
    ref, cand = (as_topk({"p-0": {"logits": LOGITS}}, k)["p-0"] for k in (2, 3))

    assert reasons(side("cuda", ref), side("rocm", cand)) == {}


def test_top_k_of_fewer_rows_is_a_reason():
    """Ids kept of three rows beside ids kept of two."""
    ref, cand = (as_topk({"p-0": {"logits": LOGITS[:rows]}}, 2)["p-0"] for rows in (3, 2))

    (shapes,) = reasons(side("cuda", ref), side("rocm", cand)).values()

    assert "p-0/logits.topk.ids: ref (rows 3, choice 2), cand (rows 2, choice 2)" in shapes
    assert "p-0/logits.topk.logits: ref (rows 3, choice 2), cand (rows 2, choice 2)" in shapes


@pytest.mark.parametrize("row_min", [True, False])
def test_full_logits_pair_with_top_k(row_min):
    """They are one tensor, in full or in parts; the row minimum may be left out."""
    full = {"p-0": {"logits": LOGITS, "decode.logits": LOGITS[:2], **PASS}}
    narrow = as_topk(full, 2, row_min=row_min)["p-0"]

    assert reasons(side("cuda", full["p-0"]), side("rocm", narrow)) == {}
    assert reasons(side("cuda", narrow), side("rocm", full["p-0"])) == {}


def test_top_k_beside_no_logits_is_missing_logits():
    full = {"p-0": {"logits": LOGITS, "logits.positions": POSITIONS}}
    narrow = as_topk(full, 2)["p-0"]
    cand = side("rocm", {"logits.positions": POSITIONS})

    (reason,) = tensor_reasons(side("cuda", narrow), cand, name="cand")

    assert (reason.only_ref, reason.only_other) == (("p-0/logits",), ())


def test_the_prefix_of_a_pass_has_rows_of_its_own():
    """What the prefill before a decode held is not a row a position."""
    held = {"p-0": {**PASS, "decode.prefix.attn.3.in": np.ones((9, 4), F32)}}

    assert reasons(side("cuda", held["p-0"]), side("rocm", held["p-0"])) == {}


def test_a_tensor_that_only_the_manifest_lacks_is_a_reason():
    """Beside positions that it lists."""
    listed = {"p-0": {"decode.positions": PASS["decode.positions"]}}

    assert reasons(side("cuda", PASS), side("rocm", PASS, listed=listed)) == {
        "shapes": ("p-0/decode.attn.3.in: the manifest of cand does not list it",)
    }


def test_the_first_of_several_unequal_positions_is_named():
    moved = PASS | {"decode.positions": np.array([5, 6], np.int32)}

    with pytest.raises(IncomparableError) as caught:
        pair(side("cuda", PASS), side("rocm", moved), near_tie=0.0, route_gap=0.0)

    assert "p-0/decode.positions: row 0 is position 0 in ref, 5 in cand" in str(caught.value)
