"""Planted faults explained on the real model: layer, head and switch, from the gate that failed.

Two prompts of the golden, cand recorded here: a run of the quick tests takes a second or two of
one core. The whole way from the command line is run by command (``long``).
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from validate.capture.reader import open_capture
from validate.oracle import load_weights
from validate.run import compare, explain_switches
from validate.run.explain import Scene, explain
from validate.run.explain_capture import Studio, retagged, seen_as
from validate.run.explain_find import find_places, inside_prompts, tally
from validate.schema import ModelConfig, Prompt, Side, Stream
from validate.schema.explained import Explained
from validate.schema.report import Report
from validate.suite import load_limits, load_suite

ROOT = Path(__file__).resolve().parents[2]
SUITE = load_suite(ROOT / "suites/default.toml")
LIMITS = load_limits(ROOT / SUITE.limits)
NAMES = ("inside-09", "inside-17")
KDA = "0-2,4-6"
pytestmark = [pytest.mark.golden, pytest.mark.slow]


@cache
def golden() -> tuple[Side, tuple[Prompt, ...]]:
    """Two prompts of the reference as it was recorded on a GPU, without what was drawn from them."""
    whole = open_capture(ROOT / "golden/k3-nano/cuda", label="cuda")
    prompts = retagged([whole.prompts[name] for name in NAMES], drawn=False)
    return Plain(seen_as(whole, prompts)), prompts


class Plain:
    """A side without drawn streams and their tensors."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.drawn: dict[str, dict[str, Stream]] = {}
        model = whole.manifest.model.model_copy(update={"drafter_digest": None})
        self.manifest = whole.manifest.model_copy(update={"model": model})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def names(self, prompt: str) -> tuple[str, ...]:
        return tuple(n for n in self.whole.names(prompt) if not n.startswith("spec."))


@cache
def model() -> tuple[dict[str, Any], dict[str, Any]]:
    config = json.loads((ROOT / "golden/k3-nano/config.json").read_bytes())
    return load_weights(ROOT / "golden/k3-nano/weights/seed1.safetensors"), config


@contextmanager
def studio(fault: str) -> Iterator[Studio]:
    with tempfile.TemporaryDirectory() as folder:
        yield Studio(
            folder=Path(folder),
            path="rocm",
            options={"fault": fault},
            ref_options={"dtype": "bfloat16"},
            device="cpu",
            progress=lambda _: None,
        )


def explained(fault: str, gate: str, *, switches: tuple[str, ...] = ()) -> Explained:
    """The explanation of a gate that a planted fault fails, with these switches tried."""
    ref, prompts = golden()
    weights, config = model()

    def judged(one: Side, other: Side, oracle: Side | None = None) -> Report:
        return compare(
            ref=one, cand=other, suite=SUITE, limits=LIMITS, weights=weights, config=config,
            only=(gate,),
        )  # fmt: skip

    with studio(fault) as made, pytest.MonkeyPatch.context() as patch:
        kept = tuple(one for one in explain_switches.SWITCHES if one.key in switches)
        patch.setattr(explain_switches, "SWITCHES", kept)
        cand, _ = made.cand(prompts, {})
        scene = Scene(
            ref=ref,
            cand=cand,
            prompts=NAMES,
            weights=weights,
            config=config,
            studio=made if switches else None,
            why_stored="left out here",
            again=judged,
        )
        return explain(failing(judged(ref, cand), gate), gate, scene=scene)


def failing(report: Report, gate: str) -> Report:
    """Two prompts settle no pooled gate: what 11 would call FAIL is FAIL here too."""
    gates = tuple(
        one.model_copy(update={"outcome": "FAIL"})
        if one.name == gate and explain_switches.shows(one, one.measurement)
        else one
        for one in report.gates
    )
    return report.model_copy(update={"gates": gates})


@pytest.mark.parametrize(
    ("fault", "layers", "heads"),
    [("VX-01", "3,7,8", "1-11 of 12"), ("HD-08", "3,7,8", "0-11 of 12")],
)
def test_an_attention_fault_names_layer_and_head(fault, layers, heads):
    found = explained(fault, "attention.head_rel_l2")
    rungs = {rung.level: rung.text for rung in found.rungs}

    assert found.summary == (
        "attention.head_rel_l2: cand errs on its own inputs in MLA (decode), "
        f"layers {layers}, heads {heads}"
    )
    assert (rungs["pass"], rungs["layer"], rungs["head"]) == ("decode", layers, heads)
    assert {place.module for place in found.places} == {"MLA"}


def test_a_state_fault_names_the_kda_layers():
    """The state is read transposed from the second chunk of 16 tokens on: outputs too, at token 16."""
    found = explained("LA-01", "state.kda_rel_l2")
    outputs = [p for p in found.places if p.mode == "prefill"]

    assert found.summary.startswith(
        "state.kda_rel_l2: cand errs on its own inputs in KDA (state after the whole prefill), "
        f"layers {KDA}, heads 0-11 of 12"
    )
    assert {(p.module, p.prompt, p.position) for p in outputs} == {("KDA", "inside-17", 16)}


def test_the_switch_that_makes_a_fault_vanish_is_found_with_the_fault_still_planted():
    """Padding rows step the state of the shorter prompt; alone in its batch none does."""
    found = explained("ND-06", "state.kda_rel_l2", switches=("batch",))
    told = {one.key: (one.found, one.note) for one in found.switches}

    assert told == {"batch": ("vanishes", None)}
    assert found.summary.endswith("it vanishes with batch size (batch=1)")


def test_clean_operations_err_nowhere_on_the_real_model():
    """The clean path, another device and kernels than ref's: nothing is named."""
    ref, prompts = golden()
    weights, config = model()

    with studio("VX-01") as made:
        cand, note = made.cand(prompts, {"pad": "zero"})
        told = [
            tally(
                one, inside_prompts(one, NAMES), weights=weights,
                config=ModelConfig.model_validate(config), progress=lambda _: None,
            )
            for one in (ref, cand)
        ]  # fmt: skip
        assert find_places(told[0], told[1], sides=(ref, cand)) == ()

    assert note == "the planted fault VX-01 has no site there and is left out"


def command(*more: str) -> tuple[int, dict[str, Any], str]:
    run = [sys.executable, "-c", "from validate.cli import main; raise SystemExit(main())"]
    done = subprocess.run(
        [*run, "compare", "--ref", "cuda", "--format", "json", *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "gate", "words"),
    [
        ("VX-01", "logits.kl_p90", "MLA (decode), layers 3,7,8, heads 1-11 of 12; it vanishes with padding"),
        ("VX-02", "greedy.unexplained", "MLA (decode), layers 3,7,8, heads 0-11 of 12"),
        ("LA-14", "logits.kl_max", "it vanishes with prefill chunk (chunk=0)"),
        ("LA-03", "speculative.audit", f"cand's states leave their replay in KDA (state after decode), layers {KDA}"),
        ("SA-01", "speculative.uniform", "not a layer, but the streams: stream spec-sampled"),
    ],
)  # fmt: skip
def test_from_the_command_line(fault, gate, words):
    code, report, _ = command(
        "--cand", f"rocm:fault={fault}", "--only", gate.partition(".")[0], "--explain", gate
    )

    assert words in report["explained"]["summary"]
    assert report["explained"]["status"] == "explained"
    assert code in (1, 3)


@pytest.mark.long
def test_a_clean_candidate_has_nothing_to_explain_and_its_exit_code_stays():
    code, report, _ = command("--cand", "rocm", "--only", "logits", "--explain", "logits.kl_p90")

    assert (code, report["explained"]["status"]) == (0, "nothing to explain")


@pytest.mark.long
def test_a_stored_candidate_is_located_and_no_switch_is_tried():
    _, report, _ = command(
        "--cand", "cuda-repeat", "--only", "attention", "--explain", "attention.head_rel_l2",
        "--prompt", "inside-17",
    )  # fmt: skip

    notes = report["explained"]["notes"]
    assert any("'cuda-repeat' is a stored capture" in note for note in notes)
