"""``compare``: what it asks of the other rooms, what it prints where, and its exit codes."""

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run.made import repeats, run, side
from validate.capture.project import load_project
from validate.cli import main
from validate.cli.cast import family
from validate.cli.explain import explain_gates
from validate.cli.judge import Asked
from validate.cli.lengths import Lengths, choose_prompts, parse_lengths
from validate.cli.progress import show_progress
from validate.cli.session import read_target
from validate.errors import InputError
from validate.schema import Prompt
from validate.schema.report import Report

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def at_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")
    (tmp_path / "suites" / "prompts").mkdir(parents=True)
    line = prompt("p-0", 3).model_dump_json()
    (tmp_path / "suites" / "prompts" / "default.jsonl").write_text(line + "\n", "utf-8")
    (tmp_path / "golden").mkdir()
    limits = (ROOT / "golden" / "tolerances.toml").read_text("utf-8")
    (tmp_path / "golden" / "tolerances.toml").write_text(limits, "utf-8")
    suite = (ROOT / "suites" / "default.toml").read_text("utf-8")
    (tmp_path / "suites" / "default.toml").write_text(suite, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What reached the judge; its report is the fake of ``reports``."""
    seen: list[Asked] = []

    def judge(what: Asked, progress: Any) -> Report:
        seen.append(what)
        progress(0, 0, "nothing")
        return REPORTS[what.cand]

    monkeypatch.setattr("validate.cli.judge.judge", judge)
    return seen


REPORTS = {
    "good": run(side("rocm", 0.1)),
    "bad": run(side("rocm", 3.0)),
    "open": run(side("rocm", 0.1), repeats=repeats(0.1, 0.1)),
    "unlike": run(side("rocm", 0.1), oracle=side("oracle", 9.0)),
}


@pytest.mark.parametrize(
    ("cand", "verdict", "code"),
    [
        ("good", "PASS", 0),
        ("bad", "FAIL", 1),
        ("open", "INCONCLUSIVE", 3),
        ("unlike", "INCOMPARABLE", 4),
    ],
)
def test_exit_code_is_that_of_the_verdict(
    cand: str, verdict: str, code: int, asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert REPORTS[cand].verdict == verdict

    assert main(["compare", "--ref", "cuda", "--cand", cand]) == code

    shown = capsys.readouterr()
    assert f"{verdict}: " in shown.out
    paths = [line.removeprefix("report: ") for line in shown.out.splitlines()[-4:]]
    names = ["report.json", "report.md", "report.html", "report.xml"]
    assert [Path(path).name for path in paths] == names
    assert json.loads(Path(paths[0]).read_text("utf-8"))["verdict"] == verdict
    assert paths[0].startswith("reports/")


def test_json_stands_alone_on_stdout(
    asked: list[Asked], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compare", "--ref", "cuda", "--cand", "bad", "--format", "json"]) == 1

    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert (report["verdict"], report["cand"]["evidence"]) == ("FAIL", "emulated")
    assert shown.err.startswith("report: reports/")
    written = next((tmp_path / "reports").glob("*/report.json")).read_text("utf-8")
    assert json.loads(written) == report


def test_markdown_is_what_the_file_holds(
    asked: list[Asked], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--format", "markdown", "--out", "here/below"]
    main(["compare", "--ref", "cuda", "--cand", "good", *arguments])

    text = (tmp_path / "here" / "below" / "report.md").read_text("utf-8")
    assert capsys.readouterr().out == text.rstrip("\n") + "\n"


def test_two_runs_in_one_second_have_two_folders(asked: list[Asked], tmp_path: Path) -> None:
    for _ in range(3):
        main(["compare", "--ref", "cuda", "--cand", "good"])

    assert len(list((tmp_path / "reports").iterdir())) == 3


def test_report_that_cannot_be_written_exits_2(
    asked: list[Asked], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "reports").write_text("a file", "utf-8")

    assert main(["compare", "--ref", "cuda", "--cand", "good"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("InputError: --out reports: nothing can be written there (it is a file")
    assert said.endswith("do next: name another folder with --out\n")
    assert asked == []


CLAIMS = ROOT / "docs" / "claims" / "kimi-k3.toml"


@pytest.mark.parametrize("style", ["console", "markdown", "json"])
def test_claims_stand_beside_the_verdict_on_every_page(
    style: str, asked: list[Asked], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--claims", str(CLAIMS), "--out", "claimed", "--format", style]

    assert main(["compare", "--ref", "cuda", "--cand", "bad", *words]) == 1

    printed = capsys.readouterr().out
    files = {file.suffix: file.read_text("utf-8") for file in (tmp_path / "claimed").iterdir()}
    told = json.loads(files[".json"])["claims"]
    assert told["evidence"]["MI355X/price"] == "NO EVIDENCE"
    for text in (printed, files[".md"], files[".html"], files[".json"]):
        assert "Kimi K3" in text
        assert "NO EVIDENCE" in text
    assert ("accuracy verdict beside them: FAIL" in printed) == (style != "json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "claims.toml: the claims cannot be read (No such file or directory)"),
        ("title = ", "claims.toml: not TOML: "),
        ("title = 'x'", "claims.toml: "),
    ],
    ids=["missing", "no-toml", "incomplete"],
)
def test_malformed_claims_are_refused_before_any_work(
    text: str | None,
    said: str,
    asked: list[Asked],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    if text is not None:
        (tmp_path / "claims.toml").write_text(text, "utf-8")

    assert main(["compare", "--ref", "cuda", "--cand", "good", "--claims", "claims.toml"]) == 2

    assert said in capsys.readouterr().err
    assert asked == []
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    "unused", [["--explain"], ["--claims", str(CLAIMS)], ["--out", "here"]], ids=lambda w: w[0]
)
def test_dry_run_refuses_what_it_would_not_look_at(
    unused: list[str], asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--ref", "cuda", "--cand", "rocm", "--dry-run", *unused]) == 2
    assert capsys.readouterr().err.startswith(f"InputError: --dry-run with {unused[0]}: a plan ")


def test_arguments_reach_the_judge_taken_apart(asked: list[Asked]) -> None:
    arguments = ["--only", "logits,state.kda_rel_l2", "--only", "greedy", "--skip", "attention"]
    arguments += ["--prompt", "p-0, p-1", "--tokens", "15-17", "--suite", "s.toml", "--fresh"]

    main(["compare", "--ref", "cuda", "--cand", "good", *arguments])

    assert asked == [
        Asked(
            ref="cuda",
            cand="good",
            suite=Path("s.toml"),
            only=("logits", "state.kda_rel_l2", "greedy"),
            skip=("attention",),
            prompts=("p-0", "p-1"),
            tokens="15-17",
            fresh=True,
        )
    ]
    assert asked[0].command() == (
        "validate compare --ref cuda --cand good --suite s.toml --prompt p-0,p-1 --tokens 15-17"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cand", "rcm"], "no target is named 'rcm'; did you mean 'rocm'?"),
        (["--cand", "rocm:pad=tlie"], "did you mean 'tile'?"),
        (
            ["--cand", "rocm", "--suite", "suites/defualt.toml"],
            "did you mean 'suites/default.toml'?",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*args: Any, **more: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("validate.cli.judge.gather", never)

    assert main(["compare", "--ref", "cuda", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def stored(at_project: Path) -> Path:
    """The project with the golden captures of this repository as its own."""
    (at_project / "golden" / "k3-nano").symlink_to(ROOT / "golden" / "k3-nano")
    return at_project


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_stored_captures_need_the_prompts_of_the_suite(
    stored: Path, dry_run: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (stored / "suites" / "prompts" / "default.jsonl").unlink()

    assert main(["compare", "--ref", "cuda", "--cand", "cuda-repeat", *dry_run]) == 2
    assert "suites/prompts/default.jsonl: cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_captures_of_other_prompts_than_the_suites_are_incomparable(
    stored: Path, dry_run: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--ref", "cuda", "--cand", "cuda-repeat", *dry_run]) == 4

    shown = capsys.readouterr()
    said = " ".join((shown.out + shown.err).split())
    assert "ref cuda was captured on other prompts than the suite's: 'default' (65 prompts" in said
    assert "suites/default.toml names suites/prompts/default.jsonl (1 prompts, digest " in said


def test_explain_tells_every_gate_all_it_has() -> None:
    report = REPORTS["bad"]

    text = explain_gates(report)

    for gate in report.gates:
        assert f"{gate.name}: {gate.outcome} ({gate.kind}" in text
    assert "  value   : 3 nats; n = 2 prompts" in text
    assert "  interval: 2.7 to 3.3, one-sided at" in text
    assert "  noise   : " in text
    assert "  limit   : 1 (derived, t.toml#x)" in text
    assert "  rerun   : validate compare " in text


def test_explain_is_printed_on_request_only(
    asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", "--ref", "cuda", "--cand", "good"])
    assert "alpha share" not in capsys.readouterr().out

    main(["compare", "--ref", "cuda", "--cand", "good", "--explain"])
    assert "alpha share" in capsys.readouterr().out


def prompt(name: str, tokens: int) -> Prompt:
    return Prompt(id=name, token_ids=(1,) * tokens, prompt_length=1)


HELD = {name: prompt(name, tokens) for name, tokens in (("a", 1), ("b", 16), ("c", 17))}


@pytest.mark.parametrize(
    ("text", "lengths", "kept"),
    [
        ("16", Lengths(high=16, drawn=16), ("a", "b")),
        ("17-", Lengths(low=17), ("c",)),
        ("16-17", Lengths(low=16, high=17), ("b", "c")),
    ],
)
def test_lengths_choose_prompts(text: str, lengths: Lengths, kept: tuple[str, ...]) -> None:
    assert parse_lengths(text) == lengths
    assert choose_prompts(HELD, ids=(), lengths=lengths) == kept


@pytest.mark.parametrize("text", ["", "x", "-3", "3-2", "1-2-3"])
def test_wrong_lengths_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--tokens .*: (no length|the range is empty)"):
        parse_lengths(text)


def test_no_prompt_of_such_a_length_is_refused_not_skipped() -> None:
    with pytest.raises(InputError) as caught:
        choose_prompts(HELD, ids=(), lengths=Lengths(low=100))

    assert str(caught.value) == (
        "--tokens: none of 3 prompts has such a length\n  lengths here: 1, 16, 17"
    )


def test_ids_and_lengths_must_both_hold() -> None:
    assert choose_prompts(HELD, ids=("a", "c"), lengths=Lengths(low=2)) == ("c",)
    assert choose_prompts(HELD, ids=("a", "zz"), lengths=None) == ("a", "zz")


def test_family_is_all_other_captures_of_the_same_path(at_project: Path) -> None:
    project = load_project(at_project / "validate.toml")
    for name in ("cuda", "cuda-repeat", "cuda-repeat-3"):
        project.folder(name).mkdir(parents=True)

    def of(text: str) -> tuple[str, ...]:
        return family(read_target(text, project), project)

    assert of("cuda") == ("cuda-repeat", "cuda-repeat-3")
    assert of("cuda-repeat") == ("cuda", "cuda-repeat-3")
    assert of("golden/k3-nano/cuda") == ("cuda-repeat", "cuda-repeat-3")
    assert of("rocm") == ()


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    stream = io.StringIO()

    with show_progress(stream) as report:
        report(0, 0, "measuring")
        for done in range(1, 4):
            report(done, 3, f"prompt {done}")

    assert stream.getvalue() == "3/3 prompt 3\n"


def test_progress_speaks_up_while_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validate.cli.progress.EVERY", 0.05)
    stream = io.StringIO()

    with show_progress(stream) as report:
        report(65, 65, "rocm")
        time.sleep(0.3)
        report(0, 0, "rendering report.html")
        time.sleep(0.3)

    lines = stream.getvalue().splitlines()
    assert lines[0] == "65/65 rocm"
    assert lines[1] == "65/65 rocm (told 0 s ago, still at work)"
    assert lines[-1].startswith("rendering report.html (told ")
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_progress_says_nothing_before_it_is_told_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validate.cli.progress.EVERY", 0.02)
    stream = io.StringIO()

    with show_progress(stream):
        time.sleep(0.1)

    assert stream.getvalue() == ""


def test_progress_on_a_terminal_is_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()

    with show_progress(stream) as report:
        report(0, 0, "measuring")
        report(1, 2, "prompt 1")

    assert "prompt 1" in stream.getvalue()
