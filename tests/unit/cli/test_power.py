"""``validate power``: what is printed where, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from validate.cli import main
from validate.run.power_record import CleanRun, EffectPower, GatePower, PowerReport, Reach

ROOT = Path(__file__).parents[3]

REACHES = tuple(
    Reach(multiple=times, n=62 * times, detected_80=0.5 / times, detected_95=None, stopped_95=0.25)
    for times in (1, 2, 4)
)
REPORT = PowerReport(
    tool_version="0",
    command="validate power --suite suites/default.toml --ref cuda",
    suite="default",
    suite_digest="a",
    limits_digest="b",
    alpha=0.01,
    beta=0.05,
    number_of_gates=2,
    gates_with_interval=1,
    ref="cuda",
    ref_digest="c",
    repeats=("cuda-repeat", "cuda-repeat-2", "cuda-repeat-3"),
    seed=1,
    draws=10,
    clean=CleanRun(draws=100, passes_all=0.97, any_fail=0.01, not_passed={"logits.kl_p90": 0.03}),
    gates=(
        GatePower(
            gate="yardstick.aa",
            kind="exact",
            alpha_share=0.0,
            limit=0.0,
            noise_floor=None,
            n=0,
            n_of="",
            why_undefined="it judges ref",
        ),
        GatePower(
            gate="logits.kl_p90",
            kind="bound",
            alpha_share=0.01,
            limit=0.02,
            noise_floor=0.001,
            n=62,
            n_of="prompts",
            effects=(
                EffectPower(
                    effect="mean-KL shift",
                    unit="nats",
                    method="simulated",
                    reaches=REACHES,
                    stated=0.125,
                    needed_80=248,
                    needed_95=None,
                    checked=(0.0, 0.81, None),
                    note="made by hand",
                ),
            ),
        ),
    ),
)


@pytest.fixture
def _computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(ref: str, suite: Path | None, progress: Any) -> PowerReport:
        progress(1, 1, "done")
        return REPORT

    monkeypatch.setattr("validate.cli.power._power", computed)


@pytest.mark.usefixtures("_computed")
@pytest.mark.parametrize("form", ["console", "markdown"])
def test_table_has_effect_unit_powers_and_prompts(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["power", "--ref", "cuda", "--format", form]) == 0

    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "mean-KL shift, nats" in line)
    cells = [cell for cell in row.replace("|", " ").split("  ") if cell.strip()]
    assert [cell.strip() for cell in cells][-8:] == [
        "mean-KL shift, nats",
        "0.5",
        "-",
        "0.25",
        "-",
        "-",
        "0.125: 248 / -",
        "0.00 / 0.81 / -",
    ]
    assert "97 % of 100 simulated runs" in out
    assert "logits.kl_p90 3 %" in out
    assert "alpha 1 %; beta 5 %" in out
    assert "yardstick.aa: no figure: it judges ref" in out


@pytest.mark.usefixtures("_computed")
def test_json_alone_goes_to_stdout_and_progress_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["power", "--ref", "cuda", "--format", "json"]) == 0

    shown = capsys.readouterr()
    assert PowerReport.model_validate(json.loads(shown.out)) == REPORT
    assert "1/1 done" in shown.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ref", "cudda"], "did you mean 'cuda'"),
        (["--ref", "cuda", "--suite", "suites/none.toml"], "suites/none.toml"),
        (["--ref", "reference"], "do next: name one of those"),
        (["--ref", "oracle"], "at least 3 needed"),
    ],
)
def test_bad_input_exits_2_and_says_what_to_do(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)

    assert main(["power", *words]) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert told in shown.err
