"""Recordings that are interrupted, taken up, repeated: the same bytes, and nothing overwritten."""

import contextlib
import functools
import json
from pathlib import Path

import pytest

from tests.captures import files_of
from tests.unit.capture.backends.recording import ONE, make_project, opened, record
from tests.unit.capture.test_evals import made
from validate.capture import CaptureWriter
from validate.capture.backends import torch_batch, torch_model
from validate.capture.backends.evals_beside import EvalsMade, EvalsRunning
from validate.capture.eval_plan import EvalPlan
from validate.errors import CaptureError


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The small project; streams of three tokens."""
    monkeypatch.setattr(torch_batch, "STREAM_TOKENS", 3)
    monkeypatch.setattr(torch_model, "STREAM_TOKENS", 3)
    return make_project(tmp_path, monkeypatch)


def stored(out):
    """The files of a capture without those that hold times."""
    files = files_of(Path(out))
    manifest = json.loads(files.pop("manifest.json"))
    files.pop("timing.json")
    kept = ("batch_rows", "path_proof", "prompt_digest", "options", "evidence", "sources_digest")
    return files, {name: manifest[name] for name in kept}


@pytest.fixture
def one_prompt_a_group(monkeypatch):
    """Commit every prompt at once, so that an interruption leaves some behind."""
    writer = functools.partial(CaptureWriter, shard_prompts=1)
    monkeypatch.setattr(torch_model, "CaptureWriter", writer)


class _StopError(Exception):
    """Stands for whatever ends a recording."""


@pytest.mark.parametrize("done", [1, 2])
def test_an_interrupted_recording_resumes_to_the_same_bytes(one_prompt_a_group, done):
    """Stopped after a batch: nothing runs twice, and the proof counts what ran before."""
    seen: list[int] = []

    def stop(count, *_):
        seen.append(count)
        if len(seen) == done:
            raise _StopError

    options = {"batch": "2"}
    record("whole", options=options)
    with pytest.raises(_StopError):
        record("out", options=options, progress=stop)
    with pytest.raises(CaptureError, match="unfinished"):
        opened("out")
    record("out", options=options, resume=True)

    assert stored("out") == stored("whole")


def test_other_evals_than_a_recording_was_begun_with_are_refused(tmp_path, monkeypatch):
    """They replaced those that were asked for first, whose answers were dropped."""

    def stop(*_):
        raise _StopError

    monkeypatch.setattr(torch_model, "start_evals", stop)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/t.yaml").write_text("task: t")
    plan = functools.partial(
        EvalPlan,
        tasks=tmp_path / "tasks",
        results=tmp_path / "results",
        cache=tmp_path / "cache",
        root=tmp_path,
    )
    with pytest.raises(_StopError):
        record("out", evals=plan(names=("t",)))

    with pytest.raises(_StopError):
        record("out", evals=plan(names=("t",)), resume=True)
    for other in (plan(), plan(names=("u",)), plan(names=("t",), limit=3)):
        with pytest.raises(CaptureError, match="it was begun with other lm-eval tasks"):
            record("out", evals=other, resume=True)
    (tmp_path / "tasks/t.yaml").write_text("task: u")
    with pytest.raises(CaptureError, match="it was begun with other lm-eval tasks"):
        record("out", evals=plan(names=("t",)), resume=True)


def test_a_whole_capture_is_not_given_for_one_with_other_evals(tmp_path, monkeypatch):
    """The evals that are written have three tasks, of two documents at most."""
    scored = EvalsMade(made(), {}, 1.0)
    running = EvalsRunning(lambda: None, lambda _: scored)
    monkeypatch.setattr(torch_model, "start_evals", lambda *_: contextlib.nullcontext(running))
    tasks = tuple(made().tasks)
    (tmp_path / "tasks").mkdir()
    for name in (*tasks, "other"):
        (tmp_path / f"tasks/{name}.yaml").touch()
    plan = functools.partial(
        EvalPlan,
        tasks=tmp_path / "tasks",
        results=tmp_path / "results",
        cache=tmp_path / "cache",
        root=tmp_path,
    )
    whole = record("out", evals=plan(names=tasks, limit=2))

    for same in (plan(names=tasks, limit=2), plan(names=tasks)):
        assert record("out", evals=same, resume=True) == whole
    for other in (plan(), plan(names=("other",)), plan(names=tasks, limit=1)):
        with pytest.raises(CaptureError, match="is whole, with other lm-eval tasks than are given"):
            record("out", evals=other, resume=True)


def test_a_recording_stopped_inside_a_batch_runs_that_batch_again(monkeypatch, one_prompt_a_group):
    """Numbers may depend on what shares a batch, so the whole batch runs; the stored row stays."""
    real, calls = torch_batch.run_batch, []

    def run(runner, group):
        rows = real(runner, group)
        calls.append([row.prompt.id for row in rows])
        return rows if len(calls) != 2 else iter_then_stop(rows)

    def iter_then_stop(rows):
        yield rows[0]
        raise _StopError

    record("whole")
    monkeypatch.setattr(torch_model, "run_batch", run)
    with pytest.raises(_StopError):
        record("out")
    calls.append([])
    record("out", resume=True)

    whole, out = stored("whole"), stored("out")
    inside = ["inside", "two", "one"]
    assert calls == [["plain"], inside, [], inside, ["other"]]
    assert out[0] == whole[0]
    assert out[1]["batch_rows"] == whole[1]["batch_rows"]


def test_a_whole_recording_is_kept_when_it_is_taken_up_again(monkeypatch):
    first = record("out", prompts=ONE)
    monkeypatch.setattr(torch_model, "run_batch", None)

    assert record("out", prompts=ONE, resume=True) == first


def test_a_folder_that_holds_a_capture_is_not_overwritten():
    record("out", prompts=ONE)

    with pytest.raises(CaptureError, match="holds a capture already"):
        record("out", prompts=ONE)


def test_two_recordings_of_one_path_are_equal_to_the_last_bit():
    record("a", "rocm")
    record("b", "rocm")

    assert stored("a") == stored("b")
