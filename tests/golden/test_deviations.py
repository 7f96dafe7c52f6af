"""Faults under a declared and proven float8 prefill: the budget has no room for them.

The reference path and the ROCm path with ``prefill=fp8`` are recorded here, over the prompts of
the suite that are looked inside of. Each fault is planted where the model's code makes it:
the argument of the softmax scale, the output of the attention, the experts that are summed.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from validate.capture.backends import torch_model
from validate.capture.reader import open_capture
from validate.models import moe
from validate.models.attention import attend
from validate.run import compare
from validate.schema.pair import Side
from validate.schema.report import Report
from validate.suite import load_limits, load_prompts, load_suite

ROOT = Path(__file__).resolve().parents[2]
SUITE = load_suite(ROOT / "suites/default.toml")
LIMITS = load_limits(ROOT / SUITE.limits)
PROMPTS = [p for p in load_prompts(ROOT / SUITE.prompts) if "tensors" in p.tags]
OFF = 1.02
ATTEND = "validate.models.mla.attend"
pytestmark = [pytest.mark.golden, pytest.mark.slow]
LONG = pytest.mark.long
"""Half a minute each: `make test` takes one form and two faults, the rest by command."""


def scale(patch: pytest.MonkeyPatch) -> None:
    """The softmax scale is 1.02 times what it should be, in prefill and decode."""
    patch.setattr(ATTEND, lambda *a, scale, **k: attend(*a, scale=OFF * scale, **k))


def output(patch: pytest.MonkeyPatch) -> None:
    """The attention output is 1.02 times what it should be."""

    def louder(*given: Any, **named: Any) -> Any:
        made = attend(*given, **named)
        return made._replace(out=OFF * made.out)

    patch.setattr(ATTEND, louder)


def fewer(patch: pytest.MonkeyPatch) -> None:
    """The last of the chosen experts is left out of the sum; ids and weights are told as chosen."""
    real = moe.experts_dense

    def summed(z: Any, routing: moe.Routing, weights: Any, **named: Any) -> Any:
        cut = moe.Routing(routing.scores, routing.ids[..., :-1], routing.weights[..., :-1])
        return real(z, cut, weights, **named)

    patch.setattr(moe, "experts_dense", summed)


Plant = Callable[[pytest.MonkeyPatch], None]


def recorded(
    folder: Path, path: str, options: Mapping[str, str], plant: Plant | None = None
) -> Side:
    """A capture made here, with a planted fault or none."""
    named = ",".join(f"{key}={value}" for key, value in options.items())
    target = ("reference" if path == "reference" else "rocm") + (f":{named}" if named else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        if plant is not None:
            plant(patch)
        torch_model.record(
            path=path,
            options=options,
            target=target,
            prompts=PROMPTS,
            prompt_set="inside",
            out=folder,
            device="cpu",
        )
    return open_capture(folder, label=target)


@pytest.fixture(scope="module")
def ref(tmp_path_factory: pytest.TempPathFactory) -> Side:
    return recorded(tmp_path_factory.mktemp("ref") / "capture", "reference", {})


def judged(ref: Side, cand: Side) -> Report:
    """Without repeats and oracle: gates that need neither."""
    return compare(
        ref=ref, cand=cand, suite=SUITE, limits=LIMITS, only=["attention", "state", "logits"]
    )


def outcomes(report: Report, outcome: str) -> set[str]:
    return {gate.name for gate in report.gates if gate.outcome == outcome}


@pytest.mark.parametrize("form", ["fp8", pytest.param("fp8-fnuz", marks=LONG)])
def test_a_clean_float8_prefill_is_within_its_budgets(tmp_path, ref, form):
    """No gate FAILs, the yardstick holds, and what has no budget passes by the ordinary limit."""
    report = judged(ref, recorded(tmp_path / "cand", "rocm", {"prefill": form}))
    by_name = {gate.name: gate for gate in report.gates}

    assert outcomes(report, "FAIL") == set()
    assert outcomes(report, "INCOMPARABLE") == set()
    assert by_name["attention.scale"].deviation == f"prefill-{form}"
    for name in ("attention.scale", "attention.lse_slope", "attention.lse_abs"):
        assert by_name[name].outcome == "PASS"
    for name in ("attention.routing_mismatch", "attention.routing_weight", "logits.kl_max"):
        assert (by_name[name].outcome, by_name[name].deviation) == ("PASS", None)


@LONG
def test_a_bfloat16_state_is_within_its_budgets(tmp_path, ref):
    report = judged(ref, recorded(tmp_path / "cand", "rocm", {"state": "bf16"}))

    assert outcomes(report, "FAIL") == set()
    assert outcomes(report, "INCOMPARABLE") == set()


@pytest.mark.parametrize(
    ("plant", "gate", "ordinary"),
    [
        (scale, "attention.lse_slope", None),
        pytest.param(output, "attention.scale", None, marks=LONG),
        pytest.param(fewer, "state.kda_rel_l2", "attention.routing_weight", marks=LONG),
    ],
)
def test_a_fault_does_not_hide_under_a_proven_float8_prefill(tmp_path, ref, plant, gate, ordinary):
    """The gate that sees it FAILs by the budget itself, one without a budget by its own limit."""
    report = judged(ref, recorded(tmp_path / "cand", "rocm", {"prefill": "fp8"}, plant))
    by_name = {one.name: one for one in report.gates}

    assert by_name["yardstick.path_proof"].outcome == "PASS"
    assert (by_name[gate].outcome, by_name[gate].deviation) == ("FAIL", "prefill-fp8")
    assert report.verdict == "FAIL"
    if ordinary is not None:
        assert (by_name[ordinary].outcome, by_name[ordinary].deviation) == ("FAIL", None)


def test_budgets_stand_where_a_deviation_moves_a_number_and_nowhere_else():
    """Sets of experts, hidden states, KL, first choices, streams and settings have none."""
    held = {key.split(".", 2)[-1] for key in LIMITS.entries if key.startswith("deviation.")}
    names = {key.rpartition(".")[0] for key in held}

    assert names <= {
        "attention.rel_l2",
        "attention.head_rel_l2",
        "attention.row_rel_l2",
        "attention.scale",
        "attention.lse_abs",
        "attention.lse_slope",
        "attention.introduced_ratio",
        "state.kda_rel_l2",
        "state.conv_rel_l2",
        "state.kv_rel_l2",
        "state.prefill_decode",
        "state.chunked_oneshot",
        "logits.err_ratio",
    }
    for form in ("prefill-fp8", "prefill-fp8-fnuz"):
        assert LIMITS.entries[f"deviation.{form}.attention.scale.bfloat16"].value < OFF - 1
        assert (
            LIMITS.entries[f"deviation.{form}.attention.lse_slope.bfloat16"].value < (OFF - 1) / 2
        )
