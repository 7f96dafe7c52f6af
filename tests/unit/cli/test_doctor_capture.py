"""``doctor`` tells the machine and its problems; ``capture`` checks before it works."""

import json
import sys
import types
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest

from validate.cli import main
from validate.cli.machine import name_clashes

ROOT = Path(__file__).parents[3]
BACKEND = "validate.capture.backends.torch_model"


@pytest.fixture(autouse=True)
def at_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")
    (tmp_path / "suites" / "prompts").mkdir(parents=True)
    for name in ("suites/default.toml",):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    line = {"id": "p-0", "token_ids": [256, 1], "prompt_length": 1}
    (tmp_path / "suites" / "prompts" / "default.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    fake = types.ModuleType(BACKEND)

    def record(**arguments: Any) -> None:
        seen.append(arguments)
        arguments["progress"](1, 1, "p-0")

    fake.record = record  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, BACKEND, fake)
    return seen


def installed(folder: Path, name: str, *files: str) -> Distribution:
    info = folder / f"{name}-5.0.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 5.0.9\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return PathDistribution(info)


def test_package_that_takes_our_name_is_told_with_the_way_out(tmp_path: Path) -> None:
    clash = installed(tmp_path, "configobj", "configobj/__init__.py", "validate/__init__.py")
    harmless = installed(tmp_path, "other", "other/validate/__init__.py", "validated.py")
    ours = installed(tmp_path, "validate", "validate/__init__.py")

    told = name_clashes([clash, harmless, ours])

    assert len(told) == 1
    assert told[0].startswith("name clash: configobj 5.0.9 installs a top-level package 'validate'")
    assert "pip uninstall configobj" in told[0]


def test_doctor_tells_environment_kernels_and_problems(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")

    assert main(["doctor", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"]["arch"] == torch.backends.cpu.get_cpu_capability()
    assert found["provenance"]["threads"] == torch.get_num_threads()
    assert found["provenance"]["environment"]["MKL_CBWR"] == "COMPATIBLE"
    assert set(found["kernels"]) == {"aiter", "triton", "flashinfer", "fla"}
    assert (
        "golden 'cuda' was not recorded yet; do next: validate golden record cuda"
        in (found["problems"])
    )

    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "variable   MKL_CBWR=COMPATIBLE" in text
    assert "kernels    aiter " in text
    assert "problem    golden 'cuda' was not recorded yet" in text


def test_capture_records_what_was_asked_for(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--target", "rocm:pad=tile", "--out", "here", "--device", "cpu"]

    assert main(["capture", *arguments]) == 0

    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("here\n", "1/1 p-0\n")
    call = calls[0]
    assert (call["path"], call["options"], call["device"]) == ("rocm", {"pad": "tile"}, "cpu")
    assert (call["target"], call["prompt_set"], call["resume"], call["out"]) == (
        "rocm:pad=tile",
        "default",
        False,
        Path("here"),
    )
    assert [prompt.id for prompt in call["prompts"]] == ["p-0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "rcm", "--out", "x"], "did you mean 'rocm'?"),
        (["--target", "cuda", "--out", "x"], "target 'cuda' is a stored capture"),
        (["--target", "rocm", "--out", "x", "--device", "tpu"], "device 'tpu' is unknown"),
        (["--target", "rocm", "--out", "x", "--device", "cuda"], "finds no cuda device here"),
        (["--target", "rocm", "--out", "x", "--prompts", "no.jsonl"], "no.jsonl: cannot be read"),
        (["--target", "rocm", "--out", "suites"], "--out suites: it exists and is not empty"),
    ],
)
def test_capture_refuses_before_it_works(
    arguments: list[str],
    said: str,
    calls: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["capture", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert calls == []


def test_capture_resumes_into_a_folder_that_is_there(
    calls: list[dict[str, Any]], at_project: Path
) -> None:
    (at_project / "here").mkdir()
    (at_project / "here" / "journal.jsonl").write_text("{}", "utf-8")

    assert main(["capture", "--target", "rocm", "--out", "here", "--resume"]) == 0
    assert calls[0]["resume"] is True
