"""``validate conformance``: exit codes, hints, what is printed where, saved cases."""

import json
from pathlib import Path

import pytest

from tests.unit.conformance import tiny
from validate.cli import main
from validate.conformance.stored import save_case

OP = "tests.unit.conformance.tiny:OPERATION"
HERE = "tests.unit.conformance.tiny"
RENORM = ["conformance", "--op", "top_k_renorm_prob", "--impl", "torch:exactly_k"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(place: Path, *, op: str, implementation: str, settings: dict[str, str]) -> None:
    case = tiny.case(1, 4)
    save_case(case, place, op=op, implementation=implementation, settings=settings, device="cpu")


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["conformance", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.slow
def test_the_tie_rule_is_part_of_the_contract(folder: Path, capsys) -> None:
    code, out, _ = run(*RENORM[1:], "--contract", "ties=all", capsys=capsys)
    assert code == 1
    assert out.startswith("FAIL top_k_renorm_prob: torch:exactly_k [ties=all")
    assert "tie at" in out
    assert "break: ties" in out

    code, out, _ = run(*RENORM[1:], "--contract", "ties=exactly_k", capsys=capsys)
    assert code == 0
    assert out.startswith("PASS")


@pytest.mark.slow
def test_failure_is_saved_and_run_again_by_the_command_it_prints(folder: Path, capsys) -> None:
    code, out, err = run("--op", OP, "--impl", f"{HERE}:late_heads", "--out", "mine", capsys=capsys)

    assert code == 1
    assert "pattern: only heads >= 12" in out
    assert "smallest failing input: B1-H13-s0 (52 bytes, the smallest of " in out
    assert "18/18 double" in err
    assert json.loads(Path("mine/conformance.json").read_text("utf-8"))["verdict"] == "FAIL"
    assert "| `B1-H16-s0` | value |" in Path("mine/conformance.md").read_text("utf-8")

    again = f"validate conformance --case mine/case --impl {HERE}:late_heads"
    assert f"rerun: {again}" in out
    code, out, _ = run(*again.split()[2:], "--op", OP, "--format", "json", capsys=capsys)
    assert code == 1
    found = json.loads(out)
    assert (found["effort"], found["points"], found["points_failed"]) == ("case", 1, 1)
    code, out, _ = run(*again.split()[2:-1], f"{HERE}:right", "--op", OP, capsys=capsys)
    assert code == 0
    assert "ran    : one saved case" in out


@pytest.mark.slow
def test_file_of_the_working_directory_is_importable(folder: Path, capsys) -> None:
    (folder / "my_kernels.py").write_text("def double(x, shift):\n    return 2 * x + shift\n")
    code, out, _ = run("--op", OP, "--impl", "my_kernels:double", "--format", "json", capsys=capsys)

    assert code == 0
    assert json.loads(out)["verdict"] == "PASS"


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ([], ["--op is missing", "validate list engines"]),
        (["--op", "top_k_renorm_prob"], ["--impl is missing"]),
        (
            ["--op", "top_k_renorm", "--impl", "torch:exactly_k"],
            ["no such operation; did you mean 'top_k_renorm_prob'?"],
        ),
        (
            ["--op", "top_k_renorm_prob", "--impl", "torch:exactlyk"],
            ["did you mean 'torch:exactly_k'?", "known for top_k_renorm_prob: "],
        ),
        (
            ["--op", "top_k_renorm_prob", "--impl", "exactly_k"],
            ["no such implementation; did you mean 'torch:exactly_k'?", "MODULE:FUNCTION"],
        ),
        (["--op", "min_p", "--impl", "torch:exactly_k"], ["it implements top_k_renorm_prob"]),
        (
            ["--op", "min_p", "--impl", "no_such_module:f"],
            ["there is no module 'no_such_module' here or installed"],
        ),
        ([*RENORM[1:], "--contract", "tie=all"], ["did you mean 'ties'?"]),
        ([*RENORM[1:], "--contract", "ties=al"], ["did you mean 'all'?"]),
        ([*RENORM[1:], "--contract", "ties"], ["it is not of the form KEY=VALUE"]),
        (
            [*RENORM[1:], "--contract", "ties=all", "--contract", "ties=exactly_k"],
            ["ties was given as 'all' already"],
        ),
        (["--case", "nowhere"], ["a saved case is a folder with"]),
        ([*RENORM[1:], "--time-limit", "inf"], ["86400"]),
        ([*RENORM[1:], "--time-limit", "1e10"], ["86400"]),
        ([*RENORM[1:], "--time-limit", "nan"], ["--time-limit", "86400"]),
        ([*RENORM[1:], "--out", ""], ['--out "": no place is named']),
        ([*RENORM[1:], "--out", "/dev/null/x"], ["/dev/null/x: nothing can be written there"]),
        (["--selftest", "--impl", "torch:split"], ["--selftest with --impl"]),
        (["--selftest", "--full", "--out", "x"], ["--selftest with --full, --out"]),
        (["--selftest", "--op", "min_pp"], ["did you mean 'min_p'?"]),
    ],
)
def test_usage_errors_exit_2_and_say_what_is_near(words, texts, folder: Path, capsys) -> None:
    code, out, err = run(*words, capsys=capsys)

    assert code == 2
    assert out == ""
    assert [text for text in texts if text not in err] == []


def test_device_that_is_not_here_exits_3(folder: Path, capsys) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    code, out, _ = run(*RENORM[1:], "--device", "cuda", capsys=capsys)

    assert code == 3
    assert out.startswith("INCONCLUSIVE top_k_renorm_prob")
    assert "reason : nothing ran: there is no CUDA device here" in out


def test_file_does_not_decide_what_is_imported(folder: Path, capsys) -> None:
    save(folder / "case", op=OP, implementation="os:abort", settings={"sign": "plus"})

    code, _, err = run("--case", "case", "--op", OP, capsys=capsys)
    assert code == 2
    assert "a file does not decide what is imported" in err
    assert "do next: --impl os:abort" in err

    code, _, err = run("--case", "case", "--impl", f"{HERE}:right", capsys=capsys)
    assert code == 2
    assert "next: --op" in err


def test_case_that_belongs_to_another_operation_says_so(folder: Path, capsys) -> None:
    save(folder / "case", op="double", implementation="torch:exactly_k", settings={})

    words = ["--case", "case", "--op", "top_k_renorm_prob", "--impl", "torch:exactly_k"]
    code, _, err = run(*words, capsys=capsys)

    assert code == 2
    assert "case: the case belongs to 'double', --op says 'top_k_renorm_prob'" in err


def test_folder_that_takes_no_result_is_refused_before_the_sweep(folder: Path, capsys) -> None:
    (folder / "file").write_text("mine")
    (folder / "mine" / "case").mkdir(parents=True)
    (folder / "mine" / "case" / "notes.txt").write_text("mine")

    code, _, err = run(*RENORM[1:], "--out", "file", capsys=capsys)
    assert (code, "file: nothing can be written there (File exists)" in err) == (2, True)
    assert "/" not in err.replace("next: --out DIR", "")  # no point was counted
    code, _, err = run(*RENORM[1:], "--out", "mine", capsys=capsys)
    assert (code, "mine/case: it exists and is no saved case" in err) == (2, True)
    assert [path.name for path in (folder / "mine").iterdir()] == ["case"]


def test_case_of_another_operation_is_refused(folder: Path, capsys) -> None:
    save(folder / "case", op="top_k_renorm_prob", implementation="torch:exactly_k", settings={})

    code, _, err = run("--case", "case", capsys=capsys)

    assert code == 2
    assert "case: arguments are ['shift', 'x'], top_k_renorm_prob takes" in err


def test_engines_are_listed_with_what_they_implement(capsys) -> None:
    assert main(["list", "engines", "--format", "json"]) == 0
    rows = {(row["name"], row["op"]): row for row in json.loads(capsys.readouterr().out)["engines"]}

    assert rows["torch:exactly_k", "top_k_renorm_prob"]["state"] == "unrun on ROCm"
    assert rows["torch", "whole model"]["targets"] == ["reference", "rocm"]
