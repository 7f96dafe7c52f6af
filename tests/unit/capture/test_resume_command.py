"""The command that takes a capture up: with the options it was begun with, and its tasks."""

from pathlib import Path

import pytest

from tests.captures import PROOF, make_header, make_prompt, write_capture
from tests.unit.capture.test_evals import made
from validate.capture import CaptureWriter, open_capture
from validate.capture.eval_plan import plan_digest, plan_evals
from validate.capture.messages import resume_command
from validate.capture.project import find_project
from validate.capture.resolve import open_stored
from validate.capture.resume import taken_up_by
from validate.capture.targets import parse_target
from validate.errors import CaptureError

PROMPTS = [make_prompt(number) for number in range(3)]
TASKS = ("capture", "--prompts", "mine.jsonl", "--tasks", "suites/tasks")
PLAIN = "validate capture --resume --target rocm:pad=tile --out "


def begin(out: Path, prompts=PROMPTS, *, resume=False, threads=4, **more):
    """Begin a capture, or take it up, and leave it unfinished; evals beside it halve its threads."""
    header = make_header(prompts)
    made = header.provenance.model_copy(update={"threads": threads})
    header = header.model_copy(update={"provenance": made})
    with CaptureWriter(out, header=header, resume=resume, **more) as writer:
        return writer.recording


def refusal(out: Path, **more) -> str:
    with pytest.raises(CaptureError) as caught:
        begin(out, resume=True, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (None, "validate capture --resume --target rocm --out 'my out'"),
        ((), "run the same command again"),
        (
            ("eval", "--tasks", "a b", "--limit", "3"),
            "validate eval --resume --target rocm --out 'my out' --tasks 'a b' --limit 3",
        ),
        (
            ("golden record", "cuda", "--tasks", "a b"),
            "validate golden record --resume cuda --tasks 'a b'",
        ),
        (("; rm", "-rf", "/"), "validate capture --resume --target rocm --out 'my out'"),
        (("\x1b[2J",), "validate capture --resume --target rocm --out 'my out'"),
        (
            ("capture", "--tasks", "\x1b[2J"),
            "validate capture --resume --target rocm --out 'my out' --tasks NAME",
        ),
    ],
)
def test_a_command_holds_every_option(command, expected):
    assert resume_command(Path("my out"), "rocm", command) == expected


def test_who_reads_an_unfinished_capture_is_told_the_whole_command(tmp_path):
    begin(tmp_path / "c", command=TASKS, evals=True)
    again = f"{PLAIN}{tmp_path}/c --prompts mine.jsonl --tasks suites/tasks"

    assert taken_up_by(tmp_path / "c") == again
    with pytest.raises(CaptureError) as caught:
        open_capture(tmp_path / "c", label="cand")
    assert str(caught.value).endswith(f"manifest.json is missing\n  do next: {again}")
    project = find_project(Path.cwd())
    with pytest.raises(CaptureError) as caught:
        open_stored(parse_target(f"{tmp_path}/c", project, faults={}), project)
    assert str(caught.value).endswith(f"no manifest.json in it\n  do next: {again}")


@pytest.mark.parametrize(
    ("prompt_set", "evals", "options"),
    [
        ("default", None, ""),
        ("default", True, " --tasks FOLDER"),
        ("mine", False, " --prompts FILE"),
        ("mine", True, " --prompts FILE --tasks FOLDER"),
    ],
)
def test_what_nobody_told_is_named_by_a_placeholder(tmp_path, prompt_set, evals, options):
    header = make_header(PROMPTS).model_copy(update={"prompt_set": prompt_set})
    with CaptureWriter(tmp_path / "c", header=header, evals=evals):
        pass

    assert taken_up_by(tmp_path / "c") == f"{PLAIN}{tmp_path}/c{options}"


def test_evals_alone_are_taken_up_by_their_own_command(tmp_path):
    header = make_header(()).model_copy(update={"prompt_set": "none"})
    with CaptureWriter(tmp_path / "c", header=header, evals=True):
        pass

    assert taken_up_by(tmp_path / "c") == (
        f"validate eval --resume --target rocm:pad=tile --out {tmp_path}/c --tasks FOLDER"
    )


def test_a_damaged_capture_with_evals_is_not_renewed_without_them(tmp_path):
    header = make_header(()).model_copy(update={"prompt_set": "none"})
    with CaptureWriter(tmp_path / "c", header=header) as writer:
        writer.close(path_proof=PROOF, timing={}, evals=made())
    (tmp_path / "c/evals.jsonl").write_bytes(b"")

    with pytest.raises(CaptureError, match=r"do next *: validate eval .* --tasks FOLDER$"):
        open_capture(tmp_path / "c", label="cand")


def test_tasks_left_out_are_named_and_not_the_threads_that_evals_halve(tmp_path):
    begin(tmp_path / "c", threads=2, command=TASKS, evals=True)

    assert refusal(tmp_path / "c", threads=4, command=("capture",), evals=False) == (
        f"rocm:pad=tile: {tmp_path}/c: cannot be resumed: it was begun with lm-eval tasks, and none "
        f"are given now\n  do next: {PLAIN}{tmp_path}/c --prompts mine.jsonl --tasks suites/tasks"
    )


@pytest.mark.parametrize("command", [TASKS, None])
def test_other_tasks_than_it_was_begun_with_are_refused(tmp_path, command):
    begin(tmp_path / "c", threads=2, command=command, evals=True, eval_plan="a" * 64)
    options = "--prompts mine.jsonl --tasks suites/tasks" if command else "--tasks FOLDER"

    told = refusal(tmp_path / "c", threads=4, command=TASKS, evals=True, eval_plan="b" * 64)
    assert told == (
        f"rocm:pad=tile: {tmp_path}/c: cannot be resumed: it was begun with other lm-eval tasks "
        "(files, --task or --limit) than are given now\n"
        f"  stored : {'a' * 64}\n  now    : {'b' * 64}\n"
        f"  do next: {PLAIN}{tmp_path}/c {options}, with the task files as they were, or name "
        "another folder"
    )


def test_a_recording_keeps_its_tasks_and_older_ones_that_tell_none_are_taken_up(tmp_path):
    first = begin(tmp_path / "c", command=TASKS, evals=True)

    assert begin(tmp_path / "c", resume=True, evals=True, eval_plan="a" * 64) == first
    assert begin(tmp_path / "c", resume=True, evals=True, eval_plan="a" * 64) == first
    assert begin(tmp_path / "c", resume=True, evals=True) == first
    assert "other lm-eval tasks" in refusal(tmp_path / "c", evals=True, eval_plan="b" * 64)


def test_the_digest_of_a_plan_tells_files_tasks_and_documents_apart(tmp_path):
    for name in ("one", "same", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.yaml").write_text("b" if name == "other" else "a")

    def digest(folder="one", names=("x", "y"), limit=3):
        plan = plan_evals(
            tmp_path / folder,
            tmp_path / "out",
            project=find_project(Path.cwd()),
            names=names,
            limit=limit,
        )
        return plan_digest(plan)

    others = [digest("other"), digest(names=("x",)), digest(names=()), digest(limit=None)]
    assert len({digest(), *others}) == 5
    assert digest("same") == digest(names=("y", "x", "x")) == digest()


@pytest.mark.parametrize(
    ("command", "options"), [(None, ""), ((), ""), (TASKS[:3], " --prompts mine.jsonl")]
)
def test_tasks_that_come_late_are_refused(tmp_path, command, options):
    begin(tmp_path / "c", command=command, evals=False)

    assert refusal(tmp_path / "c", threads=2, command=TASKS, evals=True) == (
        f"rocm:pad=tile: {tmp_path}/c: cannot be resumed: it was begun without lm-eval tasks, and "
        f"some are given now\n  do next: {PLAIN}{tmp_path}/c{options}, or name another folder"
    )


def test_a_whole_capture_is_not_taken_for_one_with_other_evals(tmp_path):
    write_capture(tmp_path / "without", PROMPTS)
    with CaptureWriter(tmp_path / "with", header=make_header(())) as writer:
        writer.close(path_proof=PROOF, timing={}, evals=made())

    assert "begun without lm-eval tasks" in refusal(tmp_path / "without", threads=None, evals=True)
    told = refusal(tmp_path / "with", prompts=(), threads=None, evals=False)
    assert told.endswith(f"do next: {PLAIN}{tmp_path}/with --tasks FOLDER")


def test_other_differences_are_told_as_before(tmp_path):
    begin(tmp_path / "c", threads=2, evals=True)

    told = refusal(tmp_path / "c", threads=4, evals=True)
    assert "1 entries of its header differ\n  provenance.threads: stored 2, now 4" in told


def test_a_recording_keeps_its_id_and_takes_the_command_that_was_given_last(tmp_path):
    first = begin(tmp_path / "c", command=TASKS, evals=True)

    assert begin(tmp_path / "c", resume=True) == first
    assert "--prompts mine.jsonl" in str(taken_up_by(tmp_path / "c"))
    assert begin(tmp_path / "c", resume=True, command=("capture", "--tasks", "x")) == first
    assert str(taken_up_by(tmp_path / "c")).endswith("/c --tasks x")
    assert begin(tmp_path / "d") != first
