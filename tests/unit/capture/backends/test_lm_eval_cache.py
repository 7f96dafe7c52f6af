"""Answers on disk: one file a model, never read for another one, taken up line by line."""

from pathlib import Path

import pytest

from validate.capture.backends.lm_eval_cache import Answers
from validate.errors import CaptureError

ONE, OTHER = "1" * 64, "2" * 64


def test_answers_are_found_again_when_a_run_is_taken_up(tmp_path: Path) -> None:
    first = Answers(tmp_path, model=ONE, resume=False)
    first.add({"a": [-1.5, True]}, {"mla": 3})

    again = Answers(tmp_path, model=ONE, resume=True)

    assert again.get("a") == [-1.5, True]
    assert again.branches == {"mla": 3}


def test_a_new_run_begins_anew(tmp_path: Path) -> None:
    Answers(tmp_path, model=ONE, resume=False).add({"a": [1]}, {})

    assert Answers(tmp_path, model=ONE, resume=False).get("a") is None
    assert Answers(tmp_path, model=ONE, resume=True).get("a") is None


def test_two_models_never_share_an_answer(tmp_path: Path) -> None:
    """TV-03: model B is served model A's answers."""
    Answers(tmp_path, model=ONE, resume=False).add({"a": [1]}, {})

    other = Answers(tmp_path, model=OTHER, resume=True)

    assert other.get("a") is None
    assert other.path != Answers(tmp_path, model=ONE, resume=True).path


def test_a_file_under_another_models_name_is_refused(tmp_path: Path) -> None:
    """TV-03 by hand: the file of one model is copied to the name of another."""
    Answers(tmp_path, model=ONE, resume=False).add({"a": [1]}, {})
    (tmp_path / f"{ONE[:32]}.jsonl").rename(tmp_path / f"{OTHER[:32]}.jsonl")

    with pytest.raises(
        CaptureError, match=r"(?s)answers of another model.*a cache is never shared"
    ):
        Answers(tmp_path, model=OTHER, resume=True)


def test_a_line_cut_short_does_not_count_and_is_written_over(tmp_path: Path) -> None:
    first = Answers(tmp_path, model=ONE, resume=False)
    first.add({"a": [1]}, {})
    first.add({"b": [2]}, {})
    whole = first.path.read_bytes()
    first.path.write_bytes(whole[:-9])

    again = Answers(tmp_path, model=ONE, resume=True)

    assert (again.get("a"), again.get("b")) == ([1], None)
    again.add({"b": [2]}, {})
    assert first.path.read_bytes() == whole


def test_the_key_of_a_request_tells_tokens_and_arguments_apart() -> None:
    base = {"kind": "greedy", "tokens": [1, 2], "until": ["\n"], "at_most": 6}
    others = [base | {"tokens": [1, 3]}, base | {"at_most": 7}, base | {"until": [";"]}]

    assert len({Answers.key(asked) for asked in (base, *others)}) == 4
