"""The files that lm-eval would write: each is whole under its name, or not there."""

import errno
import json
import os
import re
from pathlib import Path

import pytest

from validate.capture import durable
from validate.capture.backends.lm_eval_run import _write
from validate.capture.importers import is_lm_eval_folder
from validate.errors import CaptureError


def sample(doc: int) -> dict[str, object]:
    return {
        "doc_id": doc,
        "arguments": [("ask", "answer")],
        "resps": [[(-1.5, True)]],
        "filtered_resps": [(-1.5, True)],
        "target": doc,
    }


FOUND = {"samples": {"one": [sample(0), sample(1)], "two": [sample(0)]}, "results": {"one": {}}}
KINDS = ["results_TIME.json", "samples_one_TIME.jsonl", "samples_two_TIME.jsonl"]


def write(results: Path) -> None:
    _write(FOUND, results, {}, label="rocm")


def kinds(folder: Path) -> list[str]:
    """Names without their time stamps."""
    return sorted(re.sub(r"_\d{4}-[^.]*\.\d+", "_TIME", path.name) for path in folder.iterdir())


def stop_at(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Write half of the chunk of that number, from 1, and fail."""
    real, seen = durable._write_all, []

    def write_all(handle, chunk):
        seen.append(chunk)
        if len(seen) == number:
            os.write(handle, chunk[: len(chunk) // 2])
            raise error
        real(handle, chunk)

    monkeypatch.setattr(durable, "_write_all", write_all)


def test_every_line_is_there_and_results_name_no_samples(tmp_path):
    write(tmp_path)

    assert kinds(tmp_path) == KINDS
    (one,) = tmp_path.glob("samples_one_*.jsonl")
    assert [json.loads(line)["target"] for line in one.read_text().splitlines()] == ["0", "1"]
    (results,) = tmp_path.glob("results_*.json")
    assert json.loads(results.read_text()) == {"results": {"one": {}}}


@pytest.mark.parametrize(
    ("number", "kept"), [(1, []), (2, []), (3, KINDS[1:2]), (4, KINDS[1:]), (5, KINDS[1:])]
)
def test_a_write_that_stops_leaves_no_part_under_a_name(tmp_path, monkeypatch, number, kept):
    """Chunks 1 and 2 are lines of the first file, 3 of the second, 4 and 5 the results."""
    stop_at(monkeypatch, number, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert kinds(tmp_path) == kept
    assert not is_lm_eval_folder(tmp_path)


def test_a_full_disk_names_the_file_and_the_bytes(tmp_path, monkeypatch):
    stop_at(monkeypatch, 5, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    size = len(json.dumps({"results": {"one": {}}}, indent=1))
    told = (
        rf"^rocm: {tmp_path}/results_[^ ]*\.json: No space left on device \(ENOSPC\); {size} bytes "
        r"were written; the capture is unfinished\n  do next: free space or repair the disk, then run "
        r"the tasks again$"
    )

    with pytest.raises(CaptureError, match=told):
        write(tmp_path)


def test_what_a_killed_run_left_is_no_result_and_goes_with_the_next(tmp_path):
    """A kill leaves the temporary file; the names are those of an earlier moment."""
    (tmp_path / "results_2026-01-02T03-04-05.678901.json.partial").write_text('{"results": ')
    (tmp_path / "samples_one_2026-01-02T03-04-05.678901.jsonl.partial").write_text('{"doc_id": ')
    (tmp_path / "notes.partial").write_text("mine")
    assert not is_lm_eval_folder(tmp_path)

    write(tmp_path)

    assert kinds(tmp_path) == ["notes.partial", *KINDS]


def test_results_of_an_earlier_run_go_before_its_samples(tmp_path, monkeypatch):
    """A stop in between leaves samples that are results of nothing."""
    write(tmp_path)
    real = Path.unlink

    def unlink(path, **how):
        if path.name.startswith("samples_"):
            raise KeyboardInterrupt
        real(path, **how)

    monkeypatch.setattr(Path, "unlink", unlink)

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert kinds(tmp_path) == KINDS[1:]
