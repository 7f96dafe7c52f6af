"""Two lm-eval folders through the whole comparison: clean, wrong, and with the harness at fault."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lm_eval_folders import Sample, choice_samples, text_samples, write_folder
from tests.measured import known
from tests.unit.metrics.evals_made import beside
from validate.capture.importers import open_lm_eval
from validate.errors import InputError
from validate.faults import FAULTS
from validate.faults.evals import EVAL_FAULTS, PLANTERS, plant
from validate.run import compare
from validate.schema.report import GateReport, Report
from validate.suite import load_limits, load_suite

ROOT = Path(__file__).parents[3]
SUITE = load_suite(ROOT / "suites/evals.toml")
LIMITS = load_limits(ROOT / SUITE.limits)
N = 600


def answers(right: Sequence[int]) -> list[Sample]:
    return text_samples(right, filters=["none"], beside=beside)


def folders(tmp_path: Path, *, lost: int = 0, noise: float = 0.02) -> tuple[Path, Path]:
    """Ref by hf and cand by vllm, whose log-likelihoods differ by a little noise."""
    ref = {"gsm8k": answers([1] * N), "arc": choice_samples(N, seed=1)}
    cand = {
        "gsm8k": answers([0] * lost + [1] * (N - lost)),
        "arc": choice_samples(N, seed=1, noise=noise),
    }
    return (
        write_folder(tmp_path / "ref", ref),
        write_folder(tmp_path / "cand", cand, model="vllm"),
    )


def judged(ref: Path, cand: Path, **changes: Any) -> Report:
    sides = [open_lm_eval(path, label=path.name) for path in (ref, cand)]
    return compare(ref=sides[0], cand=sides[1], suite=SUITE, limits=LIMITS, **changes)


def by_name(report: Report) -> Mapping[str, GateReport]:
    return {gate.name: gate for gate in report.gates}


def test_clean_pair_passes_and_says_what_is_not_tested(tmp_path: Path) -> None:
    """A PASS of scores says nothing of kernels: areas and evidence are named."""
    report = judged(*folders(tmp_path))

    assert report.verdict == "PASS"
    assert report.exit_code == 0
    assert "areas this suite has no gate for: attention, state, logits" in report.not_tested[0]
    assert any("no prompt token ids" in sentence for sentence in report.not_tested)
    assert "the kernels of cand on its real device: the evidence is unproven" in report.not_tested


def test_lost_items_fail_with_their_names(tmp_path: Path) -> None:
    """60 of 600 lost: ten points; the reason has the task, the breakdown the items."""
    gate = by_name(judged(*folders(tmp_path, lost=60)))["evals.score_drop"]

    assert gate.outcome == "FAIL"
    assert gate.measurement is not None
    assert gate.measurement.worst is not None
    assert gate.measurement.worst.place == "gsm8k"
    assert "60 lost (doc 0 from token 18" in str(gate.measurement.worst.detail)
    assert gate.measurement.breakdown["lost gsm8k doc 0 exact_match: first divergent token"] == 18.0


def test_moved_log_likelihoods_fail_before_points_are_lost(tmp_path: Path) -> None:
    """Noise of 1 nat flips few answers of 600 and moves every document."""
    report = by_name(judged(*folders(tmp_path, noise=1.0)))

    assert report["evals.loglik_delta"].outcome == "FAIL"


def test_folder_against_itself_is_said_aloud(tmp_path: Path) -> None:
    """The same capture: every difference is 0 by construction."""
    ref, _ = folders(tmp_path)
    report = judged(ref, ref)

    assert report.verdict == "PASS"
    assert "ref and cand are one and the same capture" in report.notes[0]


def test_other_tasks_are_incomparable_with_all_reasons(tmp_path: Path) -> None:
    """Exit 4; evals.setup lists every difference."""
    ref, _ = folders(tmp_path)
    cand = write_folder(tmp_path / "other", {"gsm8k": answers([1] * N)}, fewshot=5, version="2.0")
    report = judged(ref, cand)

    assert report.exit_code == 4
    assert by_name(report)["evals.setup"].reason == (
        "undefined: 3 differences: tasks only in ref: arc; task gsm8k, version: ref 1.0, cand 2.0; "
        "task gsm8k, few-shot count: ref 0, cand 5"
    )


class TestPlantedFaults:
    """The harness at fault, planted in the folders as each bug does it."""

    @pytest.fixture
    def pair(self, tmp_path: Path) -> tuple[Path, Path]:
        ref, cand = folders(tmp_path)
        for folder in (ref, cand):
            path = next(folder.rglob("samples_arc_*"))
            assert path.is_file()
        return ref, cand

    @pytest.mark.parametrize("fault", [fault.id for fault in EVAL_FAULTS])
    def test_fault_is_caught_by_the_gates_it_names(
        self, fault: str, pair: tuple[Path, Path]
    ) -> None:
        """FAIL or INCOMPARABLE, each named gate with the expected outcome."""
        ref, cand = pair
        if fault == "TV-08":
            cand = self.only_text(ref.parent)[1]
            ref = ref.parent / "text_ref"
        plant(fault, ref=ref, cand=cand)
        report = judged(ref, cand, skip=("evals.loglik_delta",) if fault == "TV-08" else ())
        gates = by_name(report)

        assert report.verdict == FAULTS[fault].expect
        assert {gates[name].outcome for name in FAULTS[fault].gates} == {FAULTS[fault].expect}

    @staticmethod
    def only_text(root: Path) -> tuple[Path, Path]:
        tasks = {"gsm8k": answers([1] * N)}
        return (
            write_folder(root / "text_ref", tasks),
            write_folder(root / "text_cand", tasks, model="vllm"),
        )

    @pytest.mark.parametrize(
        ("fault", "gate", "cause"),
        [
            ("TV-03", "evals.identical", "one of them was served from the other's cache"),
            ("TV-07", "evals.rates", "scores fall"),
        ],
    )
    def test_reason_names_the_cause(
        self, fault: str, gate: str, cause: str, pair: tuple[Path, Path]
    ) -> None:
        """What happened, not only that something did."""
        plant(fault, ref=pair[0], cand=pair[1])
        found = by_name(judged(*pair))

        if fault == "TV-07":
            worst = known(known(found[gate].measurement).worst)
            assert worst.place in ("gsm8k, cut", "gsm8k, unreadable")
        else:
            assert cause in str(found[gate].reason)

    def test_empty_slices_are_named_though_both_sides_agree(self, pair: tuple[Path, Path]) -> None:
        """TV-06: score, log-likelihoods and lengths are equal on both sides."""
        plant("TV-06", ref=pair[0], cand=pair[1])
        found = by_name(judged(*pair))

        assert found["evals.loglik_delta"].outcome == "PASS"
        assert found["evals.signal"].outcome == "FAIL"
        assert found["evals.signal"].measurement is not None
        assert "an empty slice was summed" in str(found["evals.signal"].measurement.pattern)

    def test_fault_without_a_place_is_refused(self, tmp_path: Path) -> None:
        """Choices have no length to cut and no kept prompt tokens; unknown ids have no planter."""
        same = {"arc": choice_samples(5, seed=1)}
        ref, cand = write_folder(tmp_path / "a", same), write_folder(tmp_path / "b", same)

        with pytest.raises(InputError, match="no task generates text"):
            plant("TV-07", ref=ref, cand=cand)
        with pytest.raises(InputError, match="so nothing runs on"):
            plant("VX-151", ref=ref, cand=cand)
        with pytest.raises(InputError, match="so no budget is named"):
            plant("VX-152", ref=ref, cand=cand)
        text = {"sums": answers([1] * 5)}
        a, b = write_folder(tmp_path / "c", text), write_folder(tmp_path / "d", text)
        with pytest.raises(InputError, match="so no logarithm is divided"):
            plant("VX-150", ref=a, cand=b)
        with pytest.raises(InputError, match="keep no prompt tokens"):
            plant("TV-08", ref=ref, cand=cand)
        with pytest.raises(InputError, match="known: TV-03, TV-06, TV-07, TV-08"):
            plant("TV-99", ref=ref, cand=cand)

    def test_every_fault_has_a_planter(self) -> None:
        """The catalogue and what can be planted are one list."""
        assert [fault.id for fault in EVAL_FAULTS] == list(PLANTERS)
        assert {fault.where for fault in EVAL_FAULTS} == {"evals"}
