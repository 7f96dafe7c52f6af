"""Pairing: the same things pair; everything that differs is named, all of it, in one error."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, digest, make_manifest, make_prompt, make_stream
from tests.unit.metrics.evals_items import eval_pair, items
from validate.errors import IncomparableError
from validate.pairing import pair, pair_evals_alone
from validate.pairing.evals import pair_evals
from validate.schema import Pair
from validate.schema.evals import EvalSet


def tensors(prompts: int = 2, *, dtype: Any = np.float32) -> dict[str, dict[str, np.ndarray]]:
    """Two prompts with three tokens, one MLA output and its positions each."""
    return {
        f"p-{i}": {
            "logits": np.ones((3, 4), dtype),
            "logits.positions": np.arange(3, dtype=np.int32),
            "prefill.positions": np.arange(3, dtype=np.int32),
            "prefill.mla.3.out": np.ones((3, 2, 4), dtype),
        }
        for i in range(prompts)
    }


def side(
    label: str,
    held: dict[str, dict[str, np.ndarray]] | None = None,
    *,
    prompts: Any = None,
    streams: Any = None,
    **changes: Any,
) -> FakeSide:
    """One side whose manifest tells the truth about its tensors, ``changes`` apart."""
    held = tensors() if held is None else held
    changes.setdefault("dtype", "float32")
    manifest = make_manifest(label, tensors=held, **changes)
    return FakeSide(label, held, prompts=prompts, streams=streams, manifest=manifest)


def accepted(ref: FakeSide, cand: FakeSide, **settings: Any) -> tuple[str, ...]:
    """Prompts of the pair that pairing makes."""
    return pair(ref, cand, near_tie=0.0, route_gap=0.0, **settings).prompts


def refusal(ref: FakeSide, cand: FakeSide, **settings: Any) -> list[str]:
    """Lines of the one error that pairing raises."""
    with pytest.raises(IncomparableError) as caught:
        pair(ref, cand, near_tie=0.1, route_gap=0.01, **settings)
    return str(caught.value).splitlines()


def test_equal_captures_pair_and_settings_pass_through():
    oracle = side("oracle")
    made = pair(
        side("cuda"),
        side("rocm"),
        oracle=oracle,
        weights={"embed.weight": np.ones(2)},
        config={"layers": 9},
        near_tie=0.25,
        route_gap=0.5,
    )

    assert isinstance(made, Pair)
    assert made.prompts == ("p-0", "p-1")
    assert (made.near_tie, made.route_gap) == (0.25, 0.5)
    assert made.oracle is oracle
    assert made.config == {"layers": 9}
    assert made.weights is not None


@pytest.mark.parametrize("make", [pair, pair_evals, pair_evals_alone])
def test_no_side_takes_the_other_s_place(make):
    """A swapped pair blames ref for what cand did, and all else looks as before."""
    ref, cand = side("cuda"), side("rocm")
    made = make(ref, cand, near_tie=0.0, route_gap=0.0)

    assert made.ref is ref
    assert made.cand is cand


@pytest.mark.parametrize("make", [pair, pair_evals, pair_evals_alone])
def test_no_side_s_evals_take_the_other_s_place(make):
    """Ref right, cand wrong: swapped, a drop reads as a gain."""
    sides = [side("cuda"), side("rocm")]
    for one, score in zip(sides, (1.0, 0.0), strict=True):
        answers = [{"scores": {"acc": score}}]
        head = eval_pair(answers, answers).task
        held = EvalSet(model=one.label, tasks={"t": head}, items=items(answers))
        object.__setattr__(one, "evals", held)

    (found,) = make(*sides, near_tie=0.0, route_gap=0.0).evals.pairs
    assert [one.scores["acc"] for one in (*found.ref, *found.cand)] == [1.0, 0.0]


def test_other_dtype_of_the_same_kind_pairs():
    oracle = side("oracle", tensors(dtype=np.float64), dtype="float64")

    assert accepted(side("cuda"), side("rocm"), oracle=oracle)


def test_missing_and_extra_tensors_are_all_named():
    held = tensors()
    moved = held["p-1"].pop("prefill.mla.3.out")
    held["p-1"]["prefill.mla.7.out"] = moved

    lines = refusal(side("cuda"), side("rocm", held))

    # 2 prompts x 4 tensors, one renamed: 7 shared of 9 names in all.
    assert lines[0] == "ref 'cuda' and cand 'rocm' share 7 of 9 tensors; nothing was compared"
    assert "  only in ref : p-1/prefill.mla.3.out" in lines
    assert "  only in cand: p-1/prefill.mla.7.out" in lines
    assert lines[-2] == (
        "  likely cause: the two captures name their layers or artifacts differently"
    )
    assert lines[-1].startswith("  do next     : ")


def test_a_capture_that_stopped_early_is_named_as_the_cause():
    held = tensors()
    del held["p-1"]["prefill.mla.3.out"]

    lines = refusal(side("cuda"), side("rocm", held))

    assert lines[0].startswith("ref 'cuda' and cand 'rocm' share 7 of 8 tensors")
    assert "  only in cand: (none)" in lines
    assert "  likely cause: the cand capture (rocm) stopped early or left out an artifact" in lines


def test_at_most_five_names_and_the_count_of_the_rest():
    held = tensors(8)
    for named in held.values():
        del named["prefill.mla.3.out"]

    lines = refusal(side("cuda", tensors(8)), side("rocm", held))

    only = next(line for line in lines if line.startswith("  only in ref"))
    assert only.count("prefill.mla.3.out") == 5
    assert only.endswith(" and 3 more")


def test_shape_difference_names_axes_of_both_sides():
    held = tensors()
    held["p-0"]["prefill.mla.3.out"] = np.ones((3, 16, 4), np.float32)

    lines = refusal(side("cuda"), side("rocm", held))

    assert lines[0] == (
        "ref 'cuda' and cand 'rocm' differ in shape, axes or kind of 1 tensors; "
        "nothing was compared"
    )
    assert (
        "  shapes      : p-0/prefill.mla.3.out: ref (rows 3, heads 2, value 4), "
        "cand (rows 3, heads 16, value 4)"
    ) in lines


def test_dtype_kind_difference_is_a_reason():
    held = tensors()
    held["p-0"]["logits"] = np.ones((3, 4), np.int32)

    assert "  shapes      : p-0/logits: ref holds float32, cand int32" in refusal(
        side("cuda"), side("rocm", held)
    )


def test_axes_difference_is_a_reason():
    manifest = make_manifest("rocm", tensors=tensors())
    files = [file.model_dump() for file in manifest.artifacts]
    for file in files:
        for entry in file["tensors"]:
            if entry["name"] == "p-0/prefill.mla.3.out":
                entry["axes"] = ("rows", "value", "heads")
    cand = FakeSide("rocm", tensors(), manifest=make_manifest("rocm", artifacts=files))

    assert (
        "  shapes      : p-0/prefill.mla.3.out: ref (rows 3, heads 2, value 4), "
        "cand (rows 3, value 2, heads 4)"
    ) in refusal(side("cuda"), cand)


def test_tensor_that_the_manifest_does_not_list_is_a_reason():
    cand = FakeSide("rocm", tensors(), manifest=make_manifest("rocm"))

    lines = refusal(side("cuda"), cand)

    assert "p-0/logits: the manifest of cand does not list it" in lines[1]


def test_empty_tensors_on_both_sides_are_a_reason():
    prompts = {"p-0": make_prompt("p-0", [1])}
    ref, cand = (
        side(label, {"p-0": {"logits": np.ones((0, 4), np.float32)}}, prompts=prompts)
        for label in ("cuda", "rocm")
    )

    assert "  shapes      : p-0/logits: both are empty, (rows 0, vocab 4)" in refusal(ref, cand)


def test_positions_difference_names_row_and_both_positions():
    held = tensors()
    held["p-1"]["logits.positions"] = np.array([0, 2, 2], np.int32)

    lines = refusal(side("cuda"), side("rocm", held, prompts=side("cuda").prompts))

    assert "  positions   : p-1/logits.positions: row 1 is position 1 in ref, 2 in cand" in lines


def test_rows_without_positions_are_a_reason_even_when_both_sides_lack_them():
    sides = []
    for label in ("cuda", "rocm"):
        held = tensors(1)
        del held["p-0"]["prefill.positions"]
        sides.append(side(label, held))

    lines = refusal(*sides)

    assert (
        lines[0]
        == "ref 'cuda' and cand 'rocm' hold no positions for 1 passes; nothing was compared"
    )
    assert lines[1] == "  rows        : p-0: no prefill.positions for 1 tensors"
    assert lines[-1] == (
        "  do next     : capture ref and cand anew with the positions that docs/capture-format.md "
        "asks for"
    )


@pytest.mark.parametrize("lost", ["logits", "logits.positions", "prefill.positions"])
@pytest.mark.parametrize(("role", "holder"), [("ref", "cand"), ("cand", "ref")])
def test_next_step_names_the_side_that_lost_a_tensor_and_nothing_else(lost, role, holder):
    held = tensors(1)
    del held["p-0"][lost]
    sides = {"ref": side("cuda", tensors(1)), "cand": side("rocm", tensors(1))}
    sides[role] = side(sides[role].label, held)

    lines = refusal(sides["ref"], sides["cand"])

    assert f"  only in {holder:<4}: p-0/{lost}" in lines
    assert lines[-2].startswith(f"  likely cause: the {role} capture ")
    assert lines[-1] == (
        f"  do next     : capture {role} anew with the tensors that only {holder} holds"
    )


def test_next_step_names_both_sides_that_lost_a_tensor_each():
    ref, cand = tensors(1), tensors(1)
    del ref["p-0"]["logits"]
    del cand["p-0"]["prefill.mla.3.out"]

    assert refusal(side("cuda", ref), side("rocm", cand))[-1] == (
        "  do next     : capture ref and cand anew, both with the tensors that either holds"
    )


def test_next_step_names_the_side_whose_own_rows_do_not_fit():
    held = tensors(1)
    held["p-0"]["prefill.mla.3.out"] = np.ones((2, 2, 4), np.float32)
    both = side("cuda", held), side("rocm", held)

    assert refusal(*both)[-1].startswith("  do next     : capture ref and cand in the layout of ")
    assert refusal(side("cuda", tensors(1)), side("rocm", held))[-1].startswith(
        "  do next     : capture cand in the layout of "
    )


def test_next_step_names_the_side_that_lost_a_stream():
    streams = {"p-0": make_stream("p-0", [1, 2])}
    cand = side("rocm", tensors(1), streams=streams)

    assert refusal(side("cuda", tensors(1)), cand)[-1] == (
        "  do next     : capture ref anew with the streams that only cand holds"
    )


def test_rows_must_be_as_many_as_positions():
    sides = []
    for label in ("cuda", "rocm"):
        held = tensors(1)
        held["p-0"]["prefill.mla.3.out"] = np.ones((2, 2, 4), np.float32)
        held["p-0"]["decode.prefix.attn.3.in"] = np.ones((9, 4), np.float32)
        sides.append(side(label, held))

    lines = refusal(*sides)

    assert (
        "p-0/prefill.mla.3.out: ref holds (rows 2, heads 2, value 4), prefill.positions (rows 3)"
    ) in "\n".join(lines)
    assert "decode.prefix" not in "\n".join(lines)


def test_prompts_of_one_side_alone_are_named():
    ref = side("cuda", tensors(3), prompt_digest=digest("three"))
    cand = side("rocm", tensors(2), prompt_digest=digest("two"))

    lines = refusal(ref, cand)

    assert lines[0] == "ref 'cuda' and cand 'rocm' share 2 of 3 prompts; nothing was compared"
    assert lines[1] == "  prompts     : ref ran prompt set 'default', cand 'default'"
    assert "  only in ref : p-2" in lines
    assert "  only in cand: (none)" in lines
    assert "  likely cause: another prompt set or an unfinished capture" in lines


def test_other_token_ids_name_prompt_position_and_both_ids():
    prompts = {
        "p-0": make_prompt("p-0", [1, 2, 3]),
        "p-1": make_prompt("p-1", [1, 9, 3]),
    }
    cand = side("rocm", prompts=prompts, prompt_digest=digest("other"))

    lines = refusal(side("cuda"), cand)

    assert lines[0] == "ref 'cuda' and cand 'rocm' share 1 of 2 prompts; nothing was compared"
    assert lines[1].endswith("; p-1: token ids differ from position 1 on (ref 2, cand 9)")
    assert lines[-2].endswith(": another prompt set or an unfinished capture")


def test_other_token_ids_under_one_digest_are_a_damaged_capture():
    """The digest says one prompt set and the ids say two: a file was changed after it was written."""
    prompts = side("cuda").prompts | {"p-1": make_prompt("p-1", [1, 9, 3])}

    lines = refusal(side("cuda"), side("rocm", prompts=prompts))

    assert lines[1].endswith("; p-1: token ids differ from position 1 on (ref 2, cand 9)")
    assert lines[-2] == "  likely cause: a damaged capture"


def test_a_prompt_that_continues_on_one_side_is_told_by_length():
    prompts = {
        "p-0": make_prompt("p-0", [1, 2, 3]),
        "p-1": make_prompt("p-1", [1, 2, 3, 4]),
    }
    cand = side("rocm", prompts=prompts, prompt_digest=digest("other"))

    assert any("p-1: ref has 3 tokens, cand 4" in line for line in refusal(side("cuda"), cand))


@pytest.mark.parametrize("digests_agree", [True, False], ids=["same-digest", "other-digest"])
def test_prompts_that_read_the_same_under_another_digest_are_refused(digests_agree):
    digest_of = digest("prompts" if digests_agree else "other")
    cand = side("rocm", prompt_digest=digest_of)
    if digests_agree:
        assert accepted(side("cuda"), cand)
    else:
        assert "although the prompts read the same" in "\n".join(refusal(side("cuda"), cand))


def test_another_order_of_prompts_is_refused():
    prompts = side("cuda").prompts
    cand = side("rocm", prompts=dict(reversed(prompts.items())))

    assert any("the order of the prompts differs" in line for line in refusal(side("cuda"), cand))


def test_stream_missing_on_one_side():
    ref = side("cuda", streams={"p-0": [1, 2], "p-1": [3]})
    cand = side("rocm", streams={"p-0": [1, 2]})

    lines = refusal(ref, cand)

    assert (
        lines[0] == "ref 'cuda' and cand 'rocm' share 1 of 2 greedy streams; nothing was compared"
    )
    assert "  only in ref : p-1" in lines
    assert lines[-1] == "  do next     : capture cand anew with the streams that only ref holds"


def test_streams_of_another_kind_are_refused():
    """A sampled stream beside a greedy one differs without any error."""
    sampled = make_stream("p-0", [1, 2]).model_copy(update={"kind": "sampled"})
    cand = side("rocm", streams={"p-0": sampled})

    lines = refusal(side("cuda", streams={"p-0": [1, 2]}), cand)

    assert lines[1] == "  streams     : p-0: ref is greedy, cand is sampled"
    assert lines[-1] == "  do next     : capture cand anew with streams of ref's kind"


def streaming(label: str, tokens: int, rows: int) -> FakeSide:
    """A side whose one greedy stream has ``tokens`` tokens and ``rows`` rows of logits."""
    held = {"p-0": {**tensors(1)["p-0"], "stream.logits": np.ones((rows, 4), np.float32)}}
    return side(label, held, streams={"p-0": make_stream("p-0", [5] * tokens)})


def test_streams_of_other_lengths_pair():
    assert accepted(streaming("cuda", 3, 3), streaming("rocm", 2, 2))


def test_stream_logits_must_fit_their_own_stream():
    lines = refusal(streaming("cuda", 3, 3), streaming("rocm", 3, 2))

    assert (
        "  shapes      : p-0/stream.logits: cand holds (rows 2, vocab 4), its stream has 3 tokens"
    ) in lines


def changed_model(**changes: Any) -> Any:
    return make_manifest().model.model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"config_digest": digest("x")}, "architecture", "k3-nano (kimi-k3, config 2d711642b726)"),
        ({"architecture": "llama"}, "architecture", "cand k3-nano (llama, config "),
        ({"tokenizer_digest": digest("x")}, "tokenizer", "cand 2d711642b726 (length 259, vocab"),
        ({"tokenizer_length": 260}, "tokenizer", "(length 260, vocab 272)"),
        ({"vocab_size": 280}, "tokenizer", "(length 259, vocab 280)"),
        ({"weights_digest": digest("x"), "weights": "seed2"}, "weights", "cand seed2 (2d711642"),
    ],
    ids=["config", "architecture", "tokenizer", "length", "vocab", "weights"],
)
def test_another_model_is_refused_with_both_digests(changes, kind, text):
    # 2d711642b726 begins sha256("x"), from `printf x | sha256sum`.
    lines = refusal(side("cuda"), side("rocm", model=changed_model(**changes)))

    line = next(line for line in lines if line.startswith(f"  {kind:<12}: "))
    assert text in line
    assert lines[0].endswith("; nothing was compared")


def test_declared_weights_are_compared():
    model = changed_model(weights_digest=digest("seed2"), weights="seed2")
    cand = side("rocm:weights=seed2", model=model, declared_weights=True)

    assert accepted(side("cuda"), cand)


def test_weights_declared_under_ref_s_own_name_are_refused():
    cand = side("rocm", model=changed_model(weights_digest=digest("x")), declared_weights=True)

    lines = refusal(side("cuda"), cand)

    assert lines[0].startswith(
        "ref 'cuda' and cand 'rocm' hold other weights under one name, seed1"
    )
    assert any(
        "cand declares the weights seed1 (2d711642b726), ref's seed1 are" in x for x in lines
    )


def test_undeclared_weights_say_how_to_declare_them():
    model = changed_model(weights_digest=digest("seed2"), weights="seed2")

    lines = refusal(side("cuda"), side("rocm:pad=tile", model=model))

    assert lines[-1].endswith("or declare the difference in the target: rocm:weights=seed2")


def test_weights_declared_by_ref_do_not_excuse_cand():
    model = changed_model(weights_digest=digest("seed2"), weights="seed2")

    assert refusal(side("cuda", model=model, declared_weights=True), side("rocm"))


def test_sampling_difference_names_key_and_both_values():
    lines = refusal(
        side("cuda", sampling={"temperature": "0", "max_new_tokens": "8"}),
        side("rocm", sampling={"temperature": "0", "max_new_tokens": "16", "stop": "x"}),
    )

    assert lines[0].startswith("ref 'cuda' and cand 'rocm' differ in 2 sampling parameters")
    assert ("  sampling    : max_new_tokens: ref 8, cand 16; stop: ref (unset), cand x") in lines


def test_fault_in_ref_must_be_named_by_its_target():
    lines = refusal(side("cuda", fault="HD-05"), side("rocm"))

    assert "planted fault HD-05" in lines[0]
    assert "its target 'cuda' does not name" in lines[0]


@pytest.mark.parametrize("target", ["reference:fault=HD-05", "reference:pad=tile,fault=HD-05"])
def test_fault_in_ref_that_its_target_names_is_compared(target):
    ref = side(target, fault="HD-05")

    assert accepted(ref, side("rocm"))


def test_fault_named_by_a_longer_name_is_not_named():
    assert refusal(side("reference:fault=HD-055", fault="HD-05"), side("rocm"))


def test_empty_captures_are_incomparable():
    lines = refusal(side("cuda", {}), side("rocm", {}))

    assert "  empty       : ref holds no prompts" in lines
    assert "  empty       : cand holds no prompts" in lines


def test_captures_without_tensors_are_incomparable():
    ref = side("cuda", {"p-0": {}})
    lines = refusal(ref, side("rocm", {"p-0": {}}))

    assert "  empty       : ref holds no tensors for the 1 shared prompts" in lines
    assert "  empty       : cand holds no tensors for the 1 shared prompts" in lines


def test_every_reason_is_told_at_once():
    held = tensors(3)
    held["p-0"]["prefill.mla.3.out"] = np.ones((3, 16, 4), np.float32)
    del held["p-1"]["logits"]
    cand = side(
        "rocm",
        held,
        model=changed_model(weights_digest=digest("seed2"), vocab_size=280),
        sampling={"temperature": "1"},
        prompt_digest=digest("three"),
    )

    lines = refusal(side("cuda"), cand)

    assert lines[0] == (
        "ref 'cuda' and cand 'rocm' differ in tokenizer, weights, sampling, prompts, tensors "
        "and 1 more (6 reasons); nothing was compared"
    )
    starts = {line.split(":")[0].strip() for line in lines[1:]}
    assert starts >= {"tokenizer", "weights", "sampling", "prompts", "tensors", "shapes"}
    assert len([line for line in lines if line.startswith("  do next")]) == 1


def test_oracle_differences_name_the_oracle():
    held = tensors()
    del held["p-1"]["prefill.mla.3.out"]
    oracle = side("oracle", held, fault="HD-05", model=changed_model(weights_digest=digest("x")))

    lines = refusal(side("cuda"), side("rocm"), oracle=oracle)

    assert lines[0].startswith("ref 'cuda' and oracle 'oracle' differ in weights, honesty, tensors")
    assert any(line.startswith("  oracle weights: ref seed1") for line in lines)
    assert any("the oracle carries the planted fault HD-05" in line for line in lines)
    assert "  only in oracle: (none)" in lines


def test_evals_alone_are_refused_between_unlike_models_and_only_there():
    """Without prompts the model's identity is all that tells two runs apart."""
    other = side("rocm", {}, model=changed_model(weights_digest=digest("x"), weights="seed2"))

    made = pair_evals_alone(side("cuda", {}), side("rocm", {}), near_tie=0.25, route_gap=0.5)

    assert (made.prompts, made.near_tie, made.route_gap) == ((), 0.25, 0.5)
    with pytest.raises(IncomparableError, match="weights     : ref seed1"):
        pair_evals_alone(side("cuda", {}), other, near_tie=0.0, route_gap=0.0)


def test_oracle_on_other_prompts_is_refused():
    oracle = side("oracle", tensors(3), prompt_digest=digest("three"))

    lines = refusal(side("cuda"), side("rocm"), oracle=oracle)

    assert lines[0] == "ref 'cuda' and oracle 'oracle' share 2 of 3 prompts; nothing was compared"


def test_declared_weights_do_not_excuse_the_oracle():
    model = changed_model(weights_digest=digest("seed2"), weights="seed2")
    oracle = side("oracle", model=model, declared_weights=True)

    assert refusal(side("cuda"), side("rocm"), oracle=oracle)


def test_only_positions_are_read():
    ref, cand = side("cuda"), side("rocm")

    pair(ref, cand, near_tie=0.0, route_gap=0.0)

    # Shapes come from the manifests: a comparison must not read gigabytes before it starts.
    assert ref.reads == [
        f"p-{i}/{name}" for i in (0, 1) for name in ("logits.positions", "prefill.positions")
    ]
    assert cand.reads == ref.reads
