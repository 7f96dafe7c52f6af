"""Provenance: what this machine can tell is told, and what it cannot is never guessed."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from validate.capture import provenance
from validate.capture.provenance import (
    collect_provenance,
    digest_files,
    numeric_environment,
    sources_digest,
)


def test_cpu_record_names_processor_torch_and_threads() -> None:
    import torch

    record = collect_provenance(device="cpu", environ={"OMP_NUM_THREADS": "1", "EDITOR": "vi"})

    assert record.device == "cpu"
    assert record.arch == torch.backends.cpu.get_cpu_capability()
    assert record.threads == torch.get_num_threads()
    assert record.versions["torch"] == torch.__version__
    assert record.environment == {"OMP_NUM_THREADS": "1"}
    assert record.hardware
    assert record.driver is None


def test_record_without_torch_leaves_threads_unknown() -> None:
    record = collect_provenance(device="cpu", uses_torch=False, environ={})

    assert record.threads is None
    assert record.arch


def test_environment_keeps_only_what_changes_numbers_sorted() -> None:
    environ = {"VLLM_ROCM_USE_AITER": "1", "PATH": "/bin", "AITER_X": "2", "MKL_CBWR": "AVX2"}

    assert numeric_environment(environ) == {
        "AITER_X": "2",
        "MKL_CBWR": "AVX2",
        "VLLM_ROCM_USE_AITER": "1",
    }


def test_digest_depends_on_names_and_contents_not_on_order(tmp_path: Path) -> None:
    one, two = tmp_path / "a.py", tmp_path / "b.py"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    before = digest_files([one, two], root=tmp_path)

    # Birthplace: the definition, name NUL content digest newline, written out by hand.
    lines = "".join(
        f"{name}\0{hashlib.sha256(content).hexdigest()}\n"
        for name, content in (("a.py", b"1"), ("b.py", b"2"))
    )
    assert before == hashlib.sha256(lines.encode()).hexdigest()
    assert digest_files([two, one], root=tmp_path) == before
    two.write_bytes(b"1")
    one.write_bytes(b"2")
    assert digest_files([one, two], root=tmp_path) != before


def test_sources_digest_sees_every_python_file_of_a_room(tmp_path: Path) -> None:
    (tmp_path / "models" / "deep").mkdir(parents=True)
    (tmp_path / "models" / "a.py").write_text("x = 1\n", "utf-8")
    before = sources_digest("models", package=tmp_path)
    (tmp_path / "models" / "note.txt").write_text("no code", "utf-8")

    assert sources_digest("models", package=tmp_path) == before
    (tmp_path / "models" / "deep" / "b.py").write_text("", "utf-8")
    assert sources_digest("models", package=tmp_path) != before


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
    )


def test_source_commit_and_patch_are_those_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("", "utf-8")
    assert provenance.source_state(tmp_path) == (None, None)
    git(tmp_path, "init")
    assert provenance.source_state(tmp_path) == (None, None)
    git(tmp_path, "add", "__init__.py")
    git(tmp_path, "commit", "-m", "x")

    commit, patch = provenance.source_state(tmp_path)

    assert commit is not None
    assert len(commit) == 40
    assert patch is None
    (tmp_path / "__init__.py").write_text("x = 1\n", "utf-8")
    assert provenance.source_state(tmp_path)[1] is not None


@pytest.mark.parametrize("command", [("no-such-program-here",), ("false",), ("true",)])
def test_command_that_tells_nothing_gives_none(command: tuple[str, ...]) -> None:
    assert provenance._output(*command) is None
