"""``power`` from captures: what it reads, what it refuses, what it says."""

import json
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair
from tests.unit.run.made import as_told, entry, suite
from validate.errors import InputError
from validate.metrics import METRICS
from validate.run.power import power
from validate.run.power_record import GatePower, PowerReport
from validate.schema.measurement import Levels
from validate.schema.suite import GateSpec, Limits

PROMPTS = [f"p-{i:02d}" for i in range(24)]
GATES = (
    GateSpec(name="logits.kl_p50", kind="noise_ratio", weight=1.0),
    GateSpec(name="logits.nll_delta", kind="bound", weight=1.0),
    GateSpec(name="logits.kl_max", kind="bound"),
    GateSpec(name="logits.top1_flips", kind="exact"),
    GateSpec(name="greedy.divergence_rate", kind="bound", weight=1.0),
)
LIMITS = Limits(
    path="t.toml",
    entries={
        "near_tie.bfloat16": entry(0.5),
        "route_gap.bfloat16": entry(0.01),
        "yardstick.ref_error.bfloat16": entry(2.0),
        "logits.kl_p50.bfloat16": entry(4.0, roundoff=(16.0, 2)),
        "logits.nll_delta.bfloat16": entry(0.05),
        "logits.kl_max.bfloat16": entry(1.0),
        "greedy.divergence_rate.bfloat16": entry(0.5),
    },
)


def captured(label: str, *, noise: float, seed: int) -> FakeSide:
    """Logits of 24 prompts, off by ``noise``; streams that part in the prompt ``seed``."""
    base = np.random.default_rng(0)
    rng = np.random.default_rng([1, seed])
    tensors: dict[str, dict[str, Any]] = {}
    streams = {}
    for i, prompt in enumerate(PROMPTS):
        logits = 2 * base.normal(size=(6, 8))
        tensors[prompt] = {
            "logits": logits + noise * rng.normal(size=logits.shape),
            "logits.positions": np.arange(6, dtype=np.int32),
        }
        streams[prompt] = [1, 2, 3, 4 if i != seed else 5]
    manifest = make_manifest(label, tensors=tensors)
    files = tuple(
        file.model_copy(
            update={"tensors": tuple(as_told(entry, manifest.dtype) for entry in file.tensors)}
        )
        for file in manifest.artifacts
    )
    manifest = manifest.model_copy(update={"artifacts": files})
    return FakeSide(label, tensors, streams=streams, manifest=manifest)


REF = captured("cuda", noise=0.0, seed=99)
REPEATS = [captured(f"cuda-repeat-{i}", noise=0.01, seed=i) for i in range(4)]


def asked(**changes: Any) -> PowerReport:
    fields: dict[str, Any] = {
        "ref": REF,
        "suite": suite(*GATES),
        "limits": LIMITS,
        "repeats": REPEATS,
        "draws": 4,
    }
    return power(**{**fields, **changes})


@pytest.fixture(scope="module")
def report() -> PowerReport:
    return asked(command="validate power")


def gate(report: PowerReport, name: str) -> GatePower:
    return next(found for found in report.gates if found.gate == name)


def test_every_gate_of_the_suite_has_figures_or_says_why_not(report: PowerReport) -> None:
    assert [found.gate for found in report.gates] == [one.name for one in suite(*GATES).gates]
    for found in report.gates:
        assert bool(found.effects) == (found.why_undefined is None)
        for effect in found.effects:
            assert [reach.multiple for reach in effect.reaches] == [1, 2, 4]
            assert [reach.n for reach in effect.reaches] == [
                times * effect.reaches[0].n for times in (1, 2, 4)
            ]


def test_risks_gates_and_clean_runs_stand_in_the_head(report: PowerReport) -> None:
    assert (report.alpha, report.beta) == (0.01, 0.05)
    assert (report.number_of_gates, report.gates_with_interval) == (9, 3)
    assert report.repeats == tuple(f"cuda-repeat-{i}" for i in range(4))
    assert report.clean.draws == 40
    assert report.clean.any_fail == 0.0
    assert report.clean.passes_all == 1.0
    assert report.clean.not_passed == {}


def test_logit_scale_error_is_what_scaled_logits_really_measure(report: PowerReport) -> None:
    """At the size stated the median KL is 1.5 x 4 floors, by scaling ref's logits again."""
    found = gate(report, "logits.kl_p50")
    scale = next(effect for effect in found.effects if effect.effect == "logit scale error")
    assert scale.stated is not None
    assert found.noise_floor is not None

    scaled = {
        prompt: {
            "logits": REF.tensor(prompt, "logits") * (1 - scale.stated / 100),
            "logits.positions": REF.tensor(prompt, "logits.positions"),
        }
        for prompt in PROMPTS
    }
    ref = {p: {n: REF.tensor(p, n) for n in ("logits", "logits.positions")} for p in PROMPTS}
    measured = METRICS["logits.kl_p50"](make_pair(ref, scaled), Levels(low=0.99)).value

    assert measured == pytest.approx(1.5 * 4.0 * found.noise_floor, rel=0.1)


def test_json_is_strict_and_the_same_for_the_same_seed(report: PowerReport) -> None:
    text = report.model_dump_json()

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(text, parse_constant=refuse)
    once, again = (asked(draws=1, suite=suite(*GATES[1:3])) for _ in range(2))
    assert once.model_dump_json() == again.model_dump_json()


@pytest.mark.parametrize("repeats", [[], REPEATS[:2], [REPEATS[0]] * 5, [REF] * 5])
def test_fewer_than_three_repeats_are_refused_with_the_next_step(repeats: list[FakeSide]) -> None:
    with pytest.raises(InputError, match=r"ref 'cuda' has \d repeats, at least 3 needed") as told:
        asked(repeats=repeats)
    assert "do next: " in str(told.value)


def test_metric_whose_interval_is_another_gets_no_figure() -> None:
    """Fail closed: no power is claimed for an interval that the gate does not use."""
    found = gate(
        asked(
            draws=1,
            suite=suite(*GATES[1:3]),
            metrics={**METRICS, "logits.nll_delta": METRICS["logits.kl_p50"]},
        ),
        "logits.nll_delta",
    )

    assert found.effects == ()
    assert found.why_undefined is not None


def test_progress_ends_at_its_total() -> None:
    seen: list[tuple[int, int, str]] = []
    asked(draws=1, progress=lambda done, total, what: seen.append((done, total, what)))

    assert seen[-1][0] == seen[-1][1]
    assert all(done < total for done, total, _ in seen[:-1])
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
