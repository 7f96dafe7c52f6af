"""``validate report``: saved runs on the command line, up to a bundle of real captures."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.unit.run.made import run, side
from validate.cli import main
from validate.report import read_report, write_reports
from validate.schema.report import LimitChange, SinceGolden
from validate.suite import limits_digest, load_limits, load_suite

ROOT = Path(__file__).parents[3]
CLAIMS = ROOT / "docs" / "claims" / "kimi-k3.toml"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two saved runs, the later of which FAILs."""
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    for folder in ("captured", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "captured" / "manifest.json").write_text("{}", "utf-8")
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.writestr("report.json", "{}")
    for name, off in (("first", 0.1), ("second", 3.0)):
        write_reports(run(side("rocm", off)), tmp_path / "reports" / name)
    return tmp_path / "reports"


def test_saved_run_is_rendered_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = {file.name: file.read_bytes() for file in (runs / "first").iterdir()}
    for name in kept:
        if name != "report.json":
            (runs / "first" / name).unlink()

    assert main(["report", "reports/first"]) == 0
    assert {file.name: file.read_bytes() for file in (runs / "first").iterdir()} == kept
    assert "PASS: every gate" in capsys.readouterr().out


def test_newest_run_is_taken_and_its_verdict_is_the_exit_code(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--out", "copy", "--format", "json"]) == 1

    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "FAIL"
    assert "newest run: reports/second" in shown.err
    assert (runs.parent / "copy" / "report.html").is_file()


def test_claims_stand_beside_the_verdict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "reports/first", "--claims", str(CLAIMS), "--out", "claimed"]) == 0

    assert "stated as 4000 to 7000, NOT as computed" in capsys.readouterr().out
    told = json.loads((runs.parent / "claimed" / "report.json").read_text("utf-8"))
    assert told["claims"]["claims"]["title"].startswith("Kimi K3")
    assert main(["report", "claimed/report.json"]) == 0
    assert "NO EVIDENCE" in capsys.readouterr().out


def test_diff_tells_what_moved_and_exits_0(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--diff", "reports/first", "reports/second/report.json"]) == 0
    assert "  the whole run: PASS -> FAIL  WORSE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["reports/none"], 2, "reports/none: there is no such file or folder\n  runs here: "),
        (["reports/secnd"], 2, "  runs here: reports/second\n  do next: name the folder that "),
        (["reports"], 2, "reports: there is no report.json in it; it holds first, second\n"),
        (["reports"], 2, "  runs here: reports/first, reports/second\n"),
        (["captured"], 2, "captured: is a capture, no run; a run is a folder with a report.json"),
        (["empty"], 2, "empty: there is no report.json in it; it holds nothing\n  runs here: rep"),
        (
            ["run.zip"],
            2,
            "run.zip: it is a zip file, no report\n  do next: validate report --check",
        ),
        (["--bundle", "x.zip", "reports"], 2, "reports: there is no report.json in it"),
        (["--diff", "reports/first", "reports"], 2, "reports: there is no report.json in it"),
        (["reports/first", "reports/second"], 2, "2 runs are named, one is rendered"),
        (["--diff", "reports/first"], 2, "--diff takes two runs, OLD and NEW; 1 are named"),
        (["--diff", "--check", "x.zip"], 2, "--check and --diff are asked for at once"),
        (["--bundle", "x.zip", "--out", "y"], 2, "--bundle and --out are asked for at once"),
        (["--bundle", "reports", "reports/first"], 2, "--bundle reports: it is a folder"),
        (
            ["--bundle", "reports/first/report.json", "reports/first"],
            2,
            "--bundle reports/first/report.json: a file that is no zip file is there",
        ),
        (["--bundle", "validate.toml", "reports/first"], 2, "would be replaced\n  do next: name"),
        (["--check", "x.zip"], 2, "x.zip: there is no such file"),
        (["--check", "x.zip", "reports/first"], 2, "--check takes the bundle alone"),
        (["--own-suite"], 2, "--own-suite says whose suite a bundle is checked by"),
        (["--check", "validate.toml"], 4, "validate.toml: is no zip file: it begins with"),
        (["reports/first", "--claims", "validate.toml"], 2, "validate.toml: "),
        (["--bundle", "x.zip", "reports/first"], 2, "suites/small.toml: cannot be read"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], code: int, said: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *arguments]) == code
    assert said in capsys.readouterr().err
    assert not list(runs.parent.glob("*x.zip*"))


def test_damaged_report_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "first" / "report.json").write_text('{"verdict": NaN}', "utf-8")

    assert main(["report", "reports/first"]) == 2
    assert "no report that can be read" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.golden
def test_bundle_of_real_captures_gives_its_verdict_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored captures, a few prompts, one area; then one byte of one tensor is changed."""
    monkeypatch.chdir(ROOT)
    out, zipped = tmp_path / "run", tmp_path / "evidence.zip"
    asked = ["--ref", "cuda", "--cand", "cuda-repeat", "--only", "greedy", "--tokens", "15-17"]
    code = main(["compare", *asked, "--out", str(out)])

    assert main(["report", "--bundle", str(zipped), str(out)]) == code
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)  # nothing outside the bundle is needed
    assert main(["report", "--check", str(zipped), "--format", "json"]) == code
    assert json.loads(capsys.readouterr().out) == json.loads((out / "report.json").read_text())

    with zipfile.ZipFile(zipped) as archive:
        entry = next(e for e in archive.infolist() if e.filename.endswith(".safetensors"))
    damaged = bytearray(zipped.read_bytes())
    damaged[entry.header_offset + 30 + len(entry.filename) + entry.file_size // 2] ^= 1
    zipped.write_bytes(damaged)
    assert main(["report", "--check", str(zipped)]) == 4
    assert f"{entry.filename}: its bytes are not those" in capsys.readouterr().err


@pytest.mark.golden
@pytest.mark.parametrize("style", ["json", "console"])
def test_a_bundle_whose_golden_report_tells_otherwise_is_told_by_this_one(
    style: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the same suite and limits; what is shown is what this checkout's files give."""
    monkeypatch.chdir(ROOT)
    suite = load_suite(ROOT / "suites" / "default.toml")
    limits = load_limits(ROOT / suite.limits)
    golden = read_report(ROOT / "golden" / "reports" / "default.json")
    law = {"digest": suite.digest, "limits_digest": limits_digest(limits)}
    forged = LimitChange(name="forged", change="tightened", before="1", after="0", where="x")
    since = SinceGolden(path="golden/reports/default.json", found=True, changes=(forged,))
    report = golden.model_copy(
        update={"suite": golden.suite.model_copy(update=law), "since_golden": since}
    )
    monkeypatch.setattr("validate.cli.report_bundle.check_bundle", lambda *a, **b: report)

    assert main(["report", "--check", str(tmp_path / "x.zip"), "--format", style]) == 4

    shown = capsys.readouterr()
    assert "forged" not in shown.out
    assert "1 limits moved by the bundle" in shown.err
    assert "is not so by this checkout's golden report, whose figures are shown" in shown.err


@pytest.mark.golden
@pytest.mark.parametrize(("words", "code"), [((), 4), (("--own-suite",), 0)])
def test_a_bundle_by_a_suite_that_is_not_here_passes_on_its_word_alone(
    words: tuple[str, ...],
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Limits of 1e9 under a name of their own PASS everything."""
    monkeypatch.chdir(ROOT)
    golden = read_report(ROOT / "golden" / "reports" / "default.json")
    own = {"name": "foreign", "limits": "golden/foreign.toml"}
    report = golden.model_copy(
        update={
            "suite": golden.suite.model_copy(update=own),
            "since_golden": None,
            "verdict": "PASS",
            "exit_code": 0,
        }
    )
    monkeypatch.setattr("validate.cli.report_bundle.check_bundle", lambda *a, **b: report)

    assert main(["report", "--check", str(tmp_path / "x.zip"), *words]) == code

    said = capsys.readouterr().err
    assert "suite: the bundle's own; this checkout has no suite 'foreign'" in said
    told = "PASS is a verdict by a suite or limits that this checkout does not have"
    assert (told in said) == (code == 4)
    assert ("add --own-suite" in said) == (code == 4)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One gate of two stored captures, bundled; three prompts are too few for its PASS."""
    folder = tmp_path_factory.mktemp("bundled")
    asked = ["--ref", "cuda", "--cand", "cuda-repeat", "--only", "greedy.invalid_ids"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        main(["compare", *asked, "--tokens", "15-17", "--out", str(folder / "run")])
        assert main(["report", "--bundle", str(folder / "it.zip"), str(folder / "run")]) == 3
    return folder / "it.zip"


@pytest.mark.long
@pytest.mark.golden
def test_what_was_loosened_is_told_by_this_checkouts_golden_report(
    bundled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a golden report by which alpha was half of what it is, the bundle says nothing."""
    monkeypatch.chdir(ROOT)
    golden = read_report(ROOT / "golden" / "reports" / "default.json")
    stricter = golden.suite.model_copy(update={"alpha": golden.suite.alpha / 2})
    monkeypatch.setattr(
        "validate.cli.checkout.load_report",
        lambda path: golden.model_copy(update={"suite": stricter}),
    )
    capsys.readouterr()

    assert main(["report", "--check", str(bundled), "--format", "json"]) == 4

    shown = capsys.readouterr()
    moved = json.loads(shown.out)["since_golden"]["changes"]
    assert [one["name"] for one in moved] == ["default alpha"]
    assert "here; LOOSENED default alpha: " in shown.err or "CHANGED default alpha" in shown.err
    assert "is not so by this checkout's golden report, whose figures are shown" in shown.err


@pytest.mark.long
@pytest.mark.golden
def test_a_stale_golden_that_the_report_does_not_tell_is_found(
    bundled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source here is another than the goldens are valid for: the verdict is not that."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("validate.capture.goldens.backend_digest", lambda backend: "0" * 64)
    capsys.readouterr()

    assert main(["report", "--check", str(bundled)]) == 4

    assert "the captures inside give INCOMPARABLE" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.golden
def test_a_report_that_tells_its_stale_goldens_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is INCOMPARABLE for that reason, and nothing differs, wherever the captures lie."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("validate.capture.goldens.backend_digest", lambda backend: "0" * 64)
    out, zipped = tmp_path / "run", tmp_path / "it.zip"
    asked = ["--ref", "golden/k3-nano/cuda", "--cand", "cuda-repeat"]
    only = ["--only", "greedy.invalid_ids", "--tokens", "15-17"]
    assert main(["compare", *asked, *only, "--out", str(out)]) == 4
    assert main(["report", "--bundle", str(zipped), str(out)]) == 4

    assert main(["report", "--check", str(zipped)]) == 4

    assert "give this verdict again" in capsys.readouterr().err
