"""Items are joined by document and prompt hash; every difference is a reason."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeSide
from tests.lm_eval_folders import choice_samples, digest, text_samples, write_folder
from tests.unit.metrics.evals_items import eval_pair, eval_side, item
from validate.capture.importers import EvalFolder, open_lm_eval
from validate.pairing.evals import match_evals


def side(folder: Path, tasks: Any, **changes: Any) -> EvalFolder:
    return open_lm_eval(write_folder(folder, tasks, **changes), label=folder.name)


@pytest.fixture
def ref(tmp_path: Path) -> EvalFolder:
    return side(
        tmp_path / "ref", {"gsm8k": text_samples([1, 0, 1]), "arc": choice_samples(4, seed=1)}
    )


NEXT = "(do next: run all tasks without --limit, or both sides with the same --limit)"


def test_rows_in_another_order_are_joined(tmp_path: Path, ref: EvalFolder) -> None:
    """Document 0 of ref is document 2 of cand, and stands beside it."""
    samples = text_samples([1, 0, 1])
    swap = {0: 2, 1: 1, 2: 0}
    moved = [dict(sample, doc_id=swap[sample["doc_id"]]) for sample in samples]
    cand = side(tmp_path / "cand", {"gsm8k": moved, "arc": choice_samples(4, seed=1)})

    match = match_evals(ref, cand)

    assert match.reasons == ()
    strict = match.pairs[0]
    assert [(a.doc_id, b.doc_id) for a, b in zip(strict.ref, strict.cand, strict=True)] == [
        (0, 2),
        (1, 1),
        (2, 0),
    ]
    assert [one.name for one in match.pairs] == [
        "gsm8k (strict-match)",
        "gsm8k (flexible-extract)",
        "arc",
    ]


def test_doubles_of_the_data_set_are_joined_in_order(tmp_path: Path) -> None:
    """The same question twice is two items on both sides."""
    samples = text_samples([1, 0], filters=["none"])
    for sample in samples:
        sample["doc_hash"] = sample["prompt_hash"] = sample["target_hash"] = digest("same")
    one = side(tmp_path / "a", {"t": samples})
    other = side(tmp_path / "b", {"t": samples})

    (found,) = match_evals(one, other).pairs

    assert [(a.doc_id, b.doc_id) for a, b in zip(found.ref, found.cand, strict=True)] == [
        (0, 0),
        (1, 1),
    ]


def test_samples_without_hashes_are_joined_by_doc_id(tmp_path: Path) -> None:
    """What is lost by it is said by the importer."""
    bare = text_samples([1, 0], filters=["none"])
    for sample in bare:
        del sample["doc_hash"], sample["prompt_hash"], sample["target_hash"]
    one, other = side(tmp_path / "a", {"t": bare}), side(tmp_path / "b", {"t": bare})

    assert len(match_evals(one, other).pairs[0].ref) == 2


def test_side_without_evals_is_missing_not_unlike(ref: EvalFolder) -> None:
    """A capture made without evals is no data; the next step is named."""

    match = match_evals(ref, FakeSide("cuda", {}))

    assert match.missing == "no evals in cand 'cuda'; next: validate eval"
    assert match.pairs == ()


def test_all_differences_of_the_head_are_listed(tmp_path: Path, ref: EvalFolder) -> None:
    """Tasks, version, few-shot count, filters, arguments: not the first alone."""
    cand = side(
        tmp_path / "cand",
        {"gsm8k": text_samples([1, 0], until=["Question"], filters=["none"])},
        version="2.0",
        fewshot=5,
    )

    reasons = match_evals(ref, cand).reasons

    assert reasons == (
        "tasks only in ref: arc",
        "task gsm8k, version: ref 1.0, cand 2.0",
        "task gsm8k, few-shot count: ref 0, cand 5",
        "task gsm8k, filters: ref flexible-extract, strict-match, cand none",
        f"task gsm8k, number of items: ref 3, cand 2 {NEXT}",
        'task gsm8k, generation argument until: ref ["\\n\\n"], cand ["Question"]',
    )


def test_the_next_step_of_a_limited_run_is_told_once(tmp_path: Path, ref: EvalFolder) -> None:
    """Two tasks with fewer items: a run with --limit."""
    cand = side(tmp_path / "cand", {"gsm8k": text_samples([1]), "arc": choice_samples(1, seed=1)})

    assert match_evals(ref, cand).reasons == (
        f"task gsm8k, number of items: ref 3, cand 1 {NEXT}",
        "task arc, number of items: ref 4, cand 1",
    )


def test_another_chat_template_is_a_reason(tmp_path: Path, ref: EvalFolder) -> None:
    """Its digest stands in the head."""
    cand = side(
        tmp_path / "cand",
        {"gsm8k": text_samples([1, 0, 1]), "arc": choice_samples(4, seed=1)},
        head={"chat_template_sha": "abc"},
    )

    assert match_evals(ref, cand).reasons == ("chat_template_sha: ref (unset), cand abc",)


def test_another_prompt_of_the_same_document_is_a_reason(tmp_path: Path, ref: EvalFolder) -> None:
    """Other few-shot examples: the same questions, asked otherwise."""
    samples = choice_samples(4, seed=1)
    for sample in samples:
        sample["prompt_hash"] = digest(f"shot {sample['doc_id']}")
    cand = side(tmp_path / "cand", {"gsm8k": text_samples([1, 0, 1]), "arc": samples})

    (reason,) = match_evals(ref, cand).reasons

    assert reason.startswith("task arc: 4 documents were asked with another prompt, e.g. doc_id 0")
    assert "other few-shot examples, another template or other seeds" in reason


def test_other_documents_are_counted_on_both_sides(tmp_path: Path, ref: EvalFolder) -> None:
    """Another split of the data set."""
    samples = choice_samples(4, seed=1)
    samples[3]["doc_hash"] = digest("another question")
    cand = side(tmp_path / "cand", {"gsm8k": text_samples([1, 0, 1]), "arc": samples})

    assert match_evals(ref, cand).reasons == (
        "task arc: 1 items only in ref, e.g. doc_id 3; 1 items only in cand, e.g. doc_id 3",
    )


def test_other_arguments_of_single_items_are_a_reason(tmp_path: Path, ref: EvalFolder) -> None:
    """The heads agree and the requests do not: TV-07 as a budget that one run overrode."""
    samples = text_samples([1, 0, 1])
    samples[1]["arguments"]["gen_args_0"]["arg_1"]["max_gen_toks"] = 12
    cand = side(tmp_path / "cand", {"gsm8k": samples, "arc": choice_samples(4, seed=1)})

    (reason,) = match_evals(ref, cand).reasons

    assert reason == (
        "task gsm8k, filter strict-match: 1 of 3 items have other generation arguments (stop "
        "strings, token budget, temperature), e.g. doc_id 1"
    )


def test_another_answer_key_is_a_reason(tmp_path: Path, ref: EvalFolder) -> None:
    """The target of an item was corrected between two versions of the data."""
    samples = choice_samples(4, seed=1)
    samples[2]["target_hash"] = digest("other")
    cand = side(tmp_path / "cand", {"gsm8k": text_samples([1, 0, 1]), "arc": samples})

    assert match_evals(ref, cand).reasons == (
        "task arc: 1 of 4 items have another target, e.g. doc_id 2",
    )


def test_side_without_hashes_is_told_as_such(tmp_path: Path) -> None:
    """Ref has hashes and cand none: not 'another target'."""
    bare = text_samples([1, 0], filters=["none"])
    for sample in bare:
        del sample["doc_hash"], sample["prompt_hash"], sample["target_hash"]
    one = side(tmp_path / "a", {"t": text_samples([1, 0], filters=["none"])})
    other = side(tmp_path / "b", {"t": bare})

    (reason,) = match_evals(one, other).reasons
    assert reason == (
        "task t: cand has no hashes for 2 of 2 items that the other side has, so prompts and targets "
        "cannot be compared (do next: run cand once more with --log_samples by an lm-eval that writes "
        "doc_hash, prompt_hash and target_hash)"
    )
    assert match_evals(other, one).reasons[0].startswith("task t: ref has no hashes for 2 of 2")


def sides(one: Any, other: Any) -> tuple[Any, Any]:
    """Two sides of one task t without items, whose heads are changed by ``one`` and ``other``."""
    made = []
    for label, changes in (("cuda", one), ("rocm", other)):
        task = eval_pair([], [], **changes).task
        made.append(eval_side(label, tasks={"t": task}))
    return made[0], made[1]


@pytest.mark.parametrize(
    ("ref", "cand", "told"),
    [
        (True, False, "ref true, cand false"),
        (False, True, "ref false, cand true"),
        (None, False, "ref (unset), cand false"),
        (False, None, "ref false, cand (unset)"),
        (True, None, None),
        (None, True, None),
    ],
)
def test_other_direction_of_a_metric_is_a_reason(ref: Any, cand: Any, told: str | None) -> None:
    """What is not said counts as higher is better, as the scores are read."""
    reasons = match_evals(*sides({"metrics": {"acc": ref}}, {"metrics": {"acc": cand}})).reasons

    assert reasons == (() if told is None else (f"task t, metric acc, higher_is_better: {told}",))


def test_other_configuration_is_a_reason_where_both_have_one() -> None:
    """Filters, metrics and prompts by key, cut short around the place where they part."""
    long = "x" * 200
    ref = {"config": {"doc_to_text": f'"{long}a{long}"', "filter_list": "[1]"}}
    cand = {"config": {"doc_to_text": f'"{long}b{long}"', "metric_list": "[2]"}}
    cut = ["…" + "x" * 15 + letter + "x" * 44 + "…" for letter in "ab"]

    assert match_evals(*sides(ref, cand)).reasons == (
        f"task t, doc_to_text: ref {cut[0]}, cand {cut[1]}",
        "task t, filter_list: ref [1], cand (unset)",
        "task t, metric_list: ref (unset), cand [2]",
    )
    assert match_evals(*sides(ref, ref)).reasons == ()
    assert match_evals(*sides(ref, {})).reasons == ()


def asked(label: str, *items: Any, docs: int = 2) -> Any:
    """A side of one task t whose head tells ``docs`` documents, whatever its items."""
    task = eval_pair([], [], docs=docs).task
    return eval_side(label, tasks={"t": task}, items=items)


def test_only_ref_against_itself_is_the_same() -> None:
    """A control of equal items is another run: its agreement is measured."""
    ref, cand = (asked(label, item(0), item(1)) for label in ("cuda", "rocm"))

    assert match_evals(ref, ref).same is True
    assert match_evals(ref, cand).same is False


@pytest.mark.parametrize(("more", "role"), [(0, "ref"), (1, "cand")])
def test_items_of_one_side_alone_are_a_reason(more: int, role: str) -> None:
    """The heads agree and one side holds an item more: nothing is dropped to make them fit."""
    held = [[item(0), item(1)], [item(0), item(1)]]
    held[more].append(item(2))

    match = match_evals(asked("cuda", *held[0]), asked("rocm", *held[1]))

    assert match.reasons == (f"task t: 1 items only in {role}, e.g. doc_id 2",)
    assert match.pairs == ()


@pytest.mark.parametrize("lost", ["doc_hash", "prompt_hash"])
@pytest.mark.parametrize("role", ["ref", "cand"])
def test_one_hash_of_the_two_is_not_enough_to_join_by(lost: str, role: str) -> None:
    """Half a key would find no partner on the side that has both."""
    whole, bare = (item(0), item(1)), tuple(item(doc, **{lost: None}) for doc in (0, 1))
    held = (bare, whole) if role == "ref" else (whole, bare)

    match = match_evals(asked("cuda", *held[0]), asked("rocm", *held[1]))

    assert match.reasons == ()
    (found,) = match.pairs
    assert [(a.doc_id, b.doc_id) for a, b in zip(found.ref, found.cand, strict=True)] == [
        (0, 0),
        (1, 1),
    ]


def test_three_of_a_kind_are_joined_in_order() -> None:
    """A question that the data set holds three times is three items."""
    thrice = [item(doc, doc_hash="d", prompt_hash="p", target_hash="g") for doc in (0, 1, 2)]

    (found,) = match_evals(asked("a", *thrice, docs=3), asked("b", *thrice, docs=3)).pairs

    assert [(a.doc_id, b.doc_id) for a, b in zip(found.ref, found.cand, strict=True)] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


@pytest.mark.parametrize(
    ("ref", "cand", "told"),
    [
        ("a" + "x" * 59, "b" + "x" * 59, ("a" + "x" * 59, "b" + "x" * 59)),
        ("a" + "x" * 60, "b" + "x" * 60, ("a" + "x" * 44 + "…", "b" + "x" * 44 + "…")),
        ("x" * 45, "x" * 61, ("x" * 45, "x" * 45 + "…")),
    ],
    ids=["sixty letters", "one more", "one is the start of the other"],
)
def test_settings_beyond_sixty_letters_are_cut(ref: str, cand: str, told: tuple[str, str]) -> None:
    """Fifteen letters before the place where they part, and forty-five from it on."""
    match = match_evals(*sides({"config": {"k": ref}}, {"config": {"k": cand}}))

    assert match.reasons == (f"task t, k: ref {told[0]}, cand {told[1]}",)
