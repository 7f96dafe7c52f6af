"""lm-eval folders: what is read, and what is refused with file, line and numbers."""

import json
import math
from pathlib import Path

import pytest

from tests.lm_eval_folders import DATE, choice_samples, text_samples, write_folder
from validate.capture.importers import is_lm_eval_folder, open_lm_eval
from validate.errors import CaptureError
from validate.schema import Side


def samples_of(folder: Path, task: str) -> Path:
    return folder / "toy__model" / f"samples_{task}_{DATE}.jsonl"


def results_of(folder: Path) -> Path:
    return folder / "toy__model" / f"results_{DATE}.json"


def refused(folder: Path) -> str:
    with pytest.raises(CaptureError) as caught:
        open_lm_eval(folder, label="cand")
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(
        tmp_path / "run", {"gsm8k": text_samples([1, 0, 1]), "arc": choice_samples(5, seed=1)}
    )


def test_folder_is_a_side_with_all_its_items(folder: Path) -> None:
    """Three documents through two filters and five of multiple choice."""
    side = open_lm_eval(folder, label="cand")
    items = side.evals.items

    assert isinstance(side, Side)
    assert [(i.task, i.filter, i.doc_id) for i in items[:4]] == [
        ("gsm8k", "strict-match", 0),
        ("gsm8k", "strict-match", 1),
        ("gsm8k", "strict-match", 2),
        ("gsm8k", "flexible-extract", 0),
    ]
    assert len(items) == 11
    assert [i.scores["exact_match"] for i in items[:3]] == [1.0, 0.0, 1.0]
    assert items[0].response == "step by step\n#### 1"
    assert items[1].answer == "[invalid]"
    assert items[0].arguments is not None
    assert len(items[6].loglikelihoods) == 4
    assert items[6].greedy == (False,) * 4
    assert items[6].arguments is None
    assert side.manifest.evidence == "unproven"
    assert side.evals.model == "hf (pretrained=toy,dtype=bfloat16)"


def test_head_is_read(folder: Path) -> None:
    """Version, few-shot count, filters, metrics, arguments and the score of a guess."""
    gsm8k, arc = open_lm_eval(folder, label="cand").evals.tasks.values()

    assert (gsm8k.version, gsm8k.fewshot, gsm8k.docs) == ("1.0", 0, 3)
    assert gsm8k.filters == ("strict-match", "flexible-extract")
    assert gsm8k.metrics == {"exact_match": True}
    assert gsm8k.generation["until"] == '["\\n\\n"]'
    assert gsm8k.chance is None
    assert arc.chance == 0.25


def test_numbers_survive_to_the_last_digit(tmp_path: Path) -> None:
    """lm-eval writes log-likelihoods as texts; an equal number must stay equal."""
    samples = choice_samples(1, seed=3)
    samples[0]["resps"][0] = [["-12.345678901234567", "True"]]
    side = open_lm_eval(write_folder(tmp_path, {"arc": samples}), label="cand")

    assert side.evals.items[0].loglikelihoods[0] == -12.345678901234567
    assert side.evals.items[0].greedy[0] is True


def test_rolling_loglikelihoods_and_answers_that_look_like_them(tmp_path: Path) -> None:
    """The task's own output type decides: '-3.5' may be an answer."""
    rolling = choice_samples(1, seed=3)
    rolling[0]["resps"] = [["-321.5"]]
    head = {
        "configs": {"wiki": {"output_type": "loglikelihood_rolling"}},
    }
    wiki = open_lm_eval(write_folder(tmp_path / "a", {"wiki": rolling}, head=head), label="a")
    answers = text_samples([1], filters=["none"])
    answers[0]["resps"] = [["-3.5"]]
    sums = open_lm_eval(write_folder(tmp_path / "b", {"sums": answers}), label="b")

    assert wiki.evals.items[0].loglikelihoods == (-321.5,)
    assert sums.evals.items[0].response == "-3.5"
    assert sums.evals.items[0].loglikelihoods == ()


def test_scores_that_are_no_numbers_are_kept_as_such(tmp_path: Path) -> None:
    """'N/A' is NaN, never 0; lists are left to the log-likelihoods."""
    samples = text_samples([1, 1], filters=["none"])
    samples[1]["exact_match"] = "N/A"
    samples[0]["metrics"] = samples[1]["metrics"] = ["exact_match", "word_perplexity"]
    samples[0]["word_perplexity"] = samples[1]["word_perplexity"] = [-3.0, 5]
    first, second = open_lm_eval(write_folder(tmp_path, {"t": samples}), label="c").evals.items

    assert first.scores == {"exact_match": 1.0}
    assert math.isnan(second.scores["exact_match"])


def test_what_our_own_runs_keep_beside_is_read(tmp_path: Path) -> None:
    """Prompt tokens, BOS, finish reason and token ids stand under one key."""
    beside = {
        "prompt_tokens": 9,
        "prompt_tokens_hash": "ab" * 32,
        "bos": 1,
        "truncated": False,
        "token_ids": [3, 4],
        "finish_reason": "stop",
    }
    samples = text_samples([1], filters=["none"], beside=lambda _doc, _text: beside)
    head = {
        "validate": {
            "requests": {"asked": 1, "sent": 1, "cached": 0, "cache_key": None},
            "bos_expected": 1,
        }
    }
    side = open_lm_eval(write_folder(tmp_path, {"t": samples}, head=head), label="c")
    item = side.evals.items[0]

    assert (item.prompt_tokens, item.prompt_tokens_hash, item.bos) == (9, "ab" * 8, 1)
    assert (item.token_ids, item.finish, item.truncated) == ((3, 4), "stop", False)
    assert side.evals.requests is not None
    assert side.evals.bos_expected == 1
    assert side.evals.lost == ()


def test_what_is_lost_is_said(tmp_path: Path) -> None:
    """Without hashes, ids and finish reasons some checks cannot be made."""
    samples = text_samples([1, 0], filters=["none"])
    for sample in samples:
        del sample["doc_hash"], sample["prompt_hash"]
    lost = open_lm_eval(write_folder(tmp_path, {"t": samples}), label="c").evals.lost

    assert lost[0] == (
        "2 of 2 samples have no hashes: they are paired by doc_id, so another prompt or another "
        "order of the data set goes unnoticed"
    )
    assert [sentence.split(":")[0] for sentence in lost[1:]] == [
        "no prompt token ids",
        "no response token ids",
        "no finish reasons",
    ]


def test_half_written_file_is_refused_by_its_line(folder: Path) -> None:
    """The last line ends in the middle."""
    path = samples_of(folder, "arc")
    path.write_bytes(path.read_bytes()[:-40])

    message = refused(folder)

    assert str(path) in message
    assert "line 5 is no whole sample (the file ends in the middle of it: half-written)" in message
    assert "run lm-eval once more" in message


def test_missing_lines_are_refused(folder: Path) -> None:
    """The head counts five items, the file holds four."""
    path = samples_of(folder, "arc")
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")

    assert "holds 4 of the 5 items that the results file counts" in refused(folder)


def test_item_that_one_filter_lacks_is_refused(folder: Path) -> None:
    """Every filter sees every document."""
    path = samples_of(folder, "gsm8k")
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")

    assert "filter 'flexible-extract' lacks 1 of 3 items, e.g. doc_id 2" in refused(folder)


def test_duplicated_item_is_refused_by_both_lines(folder: Path) -> None:
    """A file that was appended to twice."""
    path = samples_of(folder, "arc")
    path.write_text(path.read_text("utf-8") * 2, "utf-8")

    assert "lines 1 and 6 both hold doc_id 0, filter 'none'" in refused(folder)


def test_run_without_samples_is_refused(folder: Path) -> None:
    """lm-eval without --log_samples."""
    samples_of(folder, "arc").unlink()

    message = refused(folder)

    assert f"task 'arc' has no samples: samples_arc_{DATE}.jsonl is missing" in message
    assert "--log_samples" in message


def test_half_written_results_are_refused(folder: Path) -> None:
    """The head is one JSON object."""
    results_of(folder).write_text('{"configs": {', "utf-8")

    assert "is no whole JSON file" in refused(folder)


def test_results_of_another_tool_are_refused(folder: Path) -> None:
    """A file of that name that lm-eval did not write."""
    results_of(folder).write_text("[1, 2]", "utf-8")

    assert "is no results file of lm-eval: it lacks 'configs'" in refused(folder)


def test_two_models_in_one_folder_are_refused(folder: Path) -> None:
    """Which of them is meant must be said."""
    (folder / "other").mkdir()
    (folder / "other" / results_of(folder).name).write_text("{}", "utf-8")

    assert "holds lm-eval results of 2 models: 'other', 'toy__model'" in refused(folder)


def test_one_task_in_two_results_files_is_refused(folder: Path) -> None:
    """Two runs of one date each."""
    later = results_of(folder).with_name("results_2026-01-06T10-00-00.000000.json")
    later.write_text(results_of(folder).read_text("utf-8"), "utf-8")

    assert "task 'gsm8k' is in two results files" in refused(folder)


def test_line_without_an_answer_is_refused(folder: Path) -> None:
    """A log-likelihood that is no number is named by its line."""
    path = samples_of(folder, "arc")
    lines = path.read_text("utf-8").splitlines()
    broken = json.loads(lines[2])
    broken["resps"] = [[["many", "False"]]]
    lines[2] = json.dumps(broken)
    path.write_text("\n".join(lines) + "\n", "utf-8")

    assert "line 3 holds no answer that can be read" in refused(folder)


def test_folder_is_recognised_by_its_results(folder: Path, tmp_path: Path) -> None:
    """Also from the folder above the model's; a capture is none."""
    assert is_lm_eval_folder(folder)
    assert is_lm_eval_folder(folder / "toy__model")
    assert not is_lm_eval_folder(tmp_path / "nothing")
