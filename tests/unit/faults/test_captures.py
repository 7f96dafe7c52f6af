"""Faults in captures: planted in a golden repeat, and seen by the gates that the record names.

Reference and candidate are a dozen prompts of two recordings of the reference path; each is judged
by the gates of the record alone, with the committed limits. Without the fault none of them fails.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from validate.capture import open_capture
from validate.capture.reader import CaptureReader
from validate.capture.subset import Subset, subset
from validate.errors import IncomparableError, InputError
from validate.faults import FAULTS
from validate.faults.capture_records import CAPTURE_FAULTS
from validate.faults.captures import PLANTS, SIDES, Role, plant
from validate.run import compare
from validate.schema import Side
from validate.suite import load_limits, load_suite

pytestmark = pytest.mark.golden

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "golden/k3-nano"
BY_ID = {fault.id: fault for fault in CAPTURE_FAULTS}
CASES = [(f.id, s) for f in CAPTURE_FAULTS for s in f.severities or (None,)]


@cache
def recorded(name: str) -> CaptureReader:
    return open_capture(GOLDEN / name, label=name, verify=False)


@cache
def kept() -> tuple[str, ...]:
    """Prompts of every kind: with tensors, states and streams, one long, two of one length."""
    prompts = recorded("cuda").prompts

    def tagged(tag: str, count: int) -> list[str]:
        return [name for name, prompt in prompts.items() if tag in prompt.tags][:count]

    long = [name for name, prompt in prompts.items() if len(prompt.token_ids) >= 64][:1]
    wanted = {
        *tagged("tensors", 3),
        *tagged("speculative", 3),
        *tagged("state", 2),
        *tagged("copy", 3),
        *long,
    }
    return tuple(name for name in prompts if name in wanted)


def honest(name: str) -> Subset:
    return subset(recorded(name), kept())


def planted(
    fault: str, severity: str | None, folder: Path, *, role: Role = "cand"
) -> CaptureReader:
    source = "cuda" if role == "ref" else "cuda-repeat"
    out = plant(fault, GOLDEN / source, folder, role=role, severity=severity, prompts=kept())
    return open_capture(out, label=source)


def judged(ref, cand, gates):
    return compare(
        ref=ref,
        cand=cand,
        oracle=honest("oracle"),
        suite=load_suite(ROOT / "suites/default.toml"),
        limits=load_limits(ROOT / "golden/tolerances.toml"),
        only=gates or ("logits.kl_max",),
    )


def outcomes(report) -> dict[str, str]:
    return {gate.name: str(gate.outcome) for gate in report.gates}


CONTRADICTED = {"TV-04", "TV-05", "TV-09", "VX-143", "VX-145", "VX-146"}
"""INCOMPARABLE by the rows that were filtered, which these small captures do not hold."""


@pytest.mark.parametrize(("fault", "severity"), CASES, ids=[f"{f}-{s}" for f, s in CASES])
def test_fault_is_seen(fault, severity, tmp_path):
    record = BY_ID[fault]
    ref: Side = honest("cuda")
    if "ref" in SIDES.get(fault, ()):
        ref = planted(fault, severity, tmp_path / "ref", role="ref")
    cand = planted(fault, severity, tmp_path / "cand")

    if record.expect == "INCOMPARABLE" and not record.gates:
        with pytest.raises(IncomparableError, match="nothing was compared"):
            judged(ref, cand, ())
        return
    found = outcomes(judged(ref, cand, record.gates))

    seen = {found[gate] for gate in record.gates if gate in found}
    assert ("FAIL" if fault in CONTRADICTED else record.expect) in seen, found


def test_a_fault_that_changes_nothing_is_refused(tmp_path):
    """Planted in prompts of 64 tokens and more: among shorter ones it would look missed, or spared."""
    short = [name for name, prompt in honest("cuda").prompts.items() if len(prompt.token_ids) < 64]

    with pytest.raises(
        InputError, match=r"^fault 'TV-10' changes nothing in these \d+ prompts of "
    ):
        plant("TV-10", ROOT / "golden/k3-nano/cuda-repeat", tmp_path / "c", prompts=short)


def test_without_a_fault_no_gate_of_any_record_fails():
    gates = tuple(dict.fromkeys(gate for fault in CAPTURE_FAULTS for gate in fault.gates))

    found = outcomes(judged(honest("cuda"), honest("cuda-repeat"), gates))

    assert set(found) >= {gate for gate in gates if not gate.startswith("yardstick")}
    assert {gate: o for gate, o in found.items() if o not in {"PASS", "INCONCLUSIVE"}} == {}


def test_every_record_has_its_plant_and_is_in_the_catalogue():
    assert set(PLANTS) == set(BY_ID)
    assert {id_ for id_ in BY_ID if FAULTS.get(id_) != BY_ID[id_]} == set()
    assert {fault.where for fault in CAPTURE_FAULTS} == {"capture"}


def test_a_fault_of_one_side_leaves_the_other_as_it_is(tmp_path):
    left = planted("TV-05", None, tmp_path / "ref", role="ref")
    name = kept()[0]

    assert left.manifest.fault is None
    assert np.array_equal(left.tensor(name, "logits"), honest("cuda").tensor(name, "logits"))
    assert planted("TV-05", None, tmp_path / "cand").manifest.fault == "TV-05"


def test_a_planted_reference_says_so_in_its_target(tmp_path):
    assert planted("TV-01", "row", tmp_path, role="ref").manifest.target == "cuda:fault=TV-01"


@pytest.mark.parametrize(
    ("fault", "severity", "message"),
    [
        ("VX-01", None, "fault 'VX-01' is not planted in captures\n  known: TV-01, "),
        ("TV-02", "2", "fault 'TV-02': severity '2' is unknown\n  known: 3, 1.5, 1.1"),
        ("TV-05", "2", r"severity '2' is unknown\n  known: \(one size only\)"),
    ],
)
def test_what_it_cannot_plant_is_refused(fault, severity, message, tmp_path):
    with pytest.raises(InputError, match=message):
        plant(fault, GOLDEN / "cuda", tmp_path, severity=severity)
