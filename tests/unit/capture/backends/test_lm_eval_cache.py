"""Answers on disk: one file a model, never read for another one, taken up line by line."""

import errno
import json
import os
from pathlib import Path

import pytest

from validate.capture import durable
from validate.capture.backends.lm_eval_cache import Answers
from validate.errors import CaptureError

ONE, OTHER = "1" * 64, "2" * 64


def answers(folder: Path, *, model: str, resume: bool, recording: str = "first") -> Answers:
    return Answers(folder, model=model, resume=resume, recording=recording)


def test_answers_are_found_again_when_a_run_is_taken_up(tmp_path: Path) -> None:
    first = answers(tmp_path, model=ONE, resume=False)
    first.add({"a": [-1.5, True]}, {"mla": 3})

    again = answers(tmp_path, model=ONE, resume=True)

    assert again.get("a") == [-1.5, True]
    assert again.branches == {"mla": 3}


def test_a_new_run_begins_anew(tmp_path: Path) -> None:
    answers(tmp_path, model=ONE, resume=False).add({"a": [1]}, {})

    assert answers(tmp_path, model=ONE, resume=False).get("a") is None
    assert answers(tmp_path, model=ONE, resume=True).get("a") is None


def test_two_models_never_share_an_answer(tmp_path: Path) -> None:
    """TV-03: model B is served model A's answers."""
    answers(tmp_path, model=ONE, resume=False).add({"a": [1]}, {})

    other = answers(tmp_path, model=OTHER, resume=True)

    assert other.get("a") is None
    assert other.path != answers(tmp_path, model=ONE, resume=True).path


def test_a_file_under_another_models_name_is_refused(tmp_path: Path) -> None:
    """TV-03 by hand: the file of one model is copied to the name of another."""
    answers(tmp_path, model=ONE, resume=False).add({"a": [1]}, {})
    (tmp_path / f"{ONE[:32]}.jsonl").rename(tmp_path / f"{OTHER[:32]}.jsonl")

    with pytest.raises(
        CaptureError, match=r"(?s)answers of another model.*a cache is never shared"
    ):
        answers(tmp_path, model=OTHER, resume=True)


def test_a_line_cut_short_does_not_count_and_is_written_over(tmp_path: Path) -> None:
    first = answers(tmp_path, model=ONE, resume=False)
    first.add({"a": [1]}, {})
    first.add({"b": [2]}, {})
    whole = first.path.read_bytes()
    first.path.write_bytes(whole[:-9])

    again = answers(tmp_path, model=ONE, resume=True)

    assert (again.get("a"), again.get("b")) == ([1], None)
    again.add({"b": [2]}, {})
    assert first.path.read_bytes() == whole


DAMAGE = {
    "zeroed": lambda line: b"\0" * len(line),
    "no JSON": lambda line: line[1:],
    "cut, with a newline": lambda line: line[:-5],
    "altered": lambda line: line.replace(b"-1.5", b"-2.5").replace(b"1111", b"2222"),
    "no digest": lambda line: json.dumps(json.loads(line)["record"]).encode(),
    "a list": lambda line: b"[1]",
    "not UTF-8": lambda line: b"\xff" + line[1:],
}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_line_is_refused_and_not_taken_for_an_answer(
    tmp_path: Path, how: str, number: int
) -> None:
    first = answers(tmp_path, model=ONE, resume=False)
    first.add({"a": [-1.5]}, {"mla": 3})
    first.add({"b": [-1.5]}, {"mla": 3})
    lines = first.path.read_bytes().split(b"\n")
    lines[number - 1] = DAMAGE[how](lines[number - 1])
    damaged = b"\n".join(lines)
    first.path.write_bytes(damaged)

    with pytest.raises(CaptureError) as caught:
        answers(tmp_path, model=ONE, resume=True)
    said = str(caught.value)
    assert said.startswith(f"{first.path}: line {number} is damaged: ")
    assert said.endswith(f"\n  do next: remove {first.path}; the answers are computed again")
    assert first.path.read_bytes() == damaged


def test_a_line_of_another_kind_is_refused(tmp_path: Path) -> None:
    first = answers(tmp_path, model=ONE, resume=False)
    first.path.write_bytes(first.path.read_bytes() * 2)

    with pytest.raises(CaptureError, match="line 2 is damaged: it does not hold answers, branches"):
        answers(tmp_path, model=ONE, resume=True)


@pytest.mark.parametrize("held", [b"", b'{"sha256":"12', b"\0" * 30])
def test_a_file_without_a_first_line_is_begun_anew(tmp_path: Path, held: bytes) -> None:
    """What a full disk leaves of the first write; it was refused as another model's."""
    (tmp_path / f"{ONE[:32]}.jsonl").write_bytes(held)

    answers(tmp_path, model=ONE, resume=True).add({"a": [1]}, {})

    assert answers(tmp_path, model=ONE, resume=True).get("a") == [1]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_an_answer_that_cannot_be_written_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    held = answers(tmp_path, model=ONE, resume=False)
    before = held.path.read_bytes()

    def refuse(handle: int, chunk: bytes) -> None:
        os.write(handle, chunk[:7])
        raise OSError(code, os.strerror(code))  # as os.write does: without a file name

    with monkeypatch.context() as patch:
        patch.setattr(durable, "_write_all", refuse)
        with pytest.raises(CaptureError) as caught:
            held.add({"a": [1]}, {"mla": 1})
    assert str(caught.value).startswith(
        f"{held.path}: the answers of the evals could not be written: {os.strerror(code)} "
        f"({errno.errorcode[code]})\n  do next: free space there"
    )
    assert "--out" not in str(caught.value)
    assert held.path.read_bytes() == before
    assert held.get("a") is None


def test_a_cache_that_cannot_be_made_or_read_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CaptureError, match=r"file/1+\.jsonl: .* could not be written: .*ENOTDIR|EEXIST"
    ):
        answers(tmp_path / "file", model=ONE, resume=True)
    (tmp_path / f"{ONE[:32]}.jsonl").mkdir()
    with pytest.raises(CaptureError, match=r"could not be written: .*EISDIR"):
        answers(tmp_path, model=ONE, resume=True)


def test_the_key_of_a_request_tells_tokens_and_arguments_apart() -> None:
    base = {"kind": "greedy", "tokens": [1, 2], "until": ["\n"], "at_most": 6}
    others = [base | {"tokens": [1, 3]}, base | {"at_most": 7}, base | {"until": [";"]}]

    assert len({Answers.key(asked) for asked in (base, *others)}) == 4


def run(held: Answers, *batches: str) -> tuple[int, int]:
    """Ask for batches of keys of one letter as a model does; gives (sent, found again)."""
    for keys in batches:
        if any(held.get(key) is None for key in keys):
            held.add({key: [1] for key in keys}, {})
        held.count(list(keys))
    return held.sent, held.hits


BATCHES = ("ab", "ba", "bc", "dd", "ad")
"""The second and the last ask for nothing new, the third for one of two, the fourth twice for one."""


def test_counts_tell_what_ran_and_what_was_asked_for_again(tmp_path: Path) -> None:
    """By hand: ab, bc and dd run; ba and ad were answered before."""
    assert run(answers(tmp_path, model=ONE, resume=False), *BATCHES) == (6, 4)


@pytest.mark.parametrize("done", range(len(BATCHES) + 1))
def test_counts_of_a_run_that_was_taken_up_are_those_of_one_that_was_not(
    tmp_path: Path, done: int
) -> None:
    run(answers(tmp_path, model=ONE, resume=False), *BATCHES[:done])

    assert run(answers(tmp_path, model=ONE, resume=True), *BATCHES) == (6, 4)


@pytest.mark.parametrize("done", range(len(BATCHES) + 1))
def test_answers_of_another_recording_are_hits_however_often_it_is_taken_up(
    tmp_path: Path, done: int
) -> None:
    """By hand: of an earlier recording there are a and c, so that ab and dd run."""
    run(answers(tmp_path, model=ONE, resume=False, recording="earlier"), "a", "c")

    run(answers(tmp_path, model=ONE, resume=True), *BATCHES[:done])

    assert run(answers(tmp_path, model=ONE, resume=True), *BATCHES) == (4, 6)
