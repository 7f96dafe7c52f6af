"""The switches: which are tried, what counts as vanished, and what is said where nothing can be told."""

from dataclasses import dataclass

import pytest

from tests.fakes import make_manifest
from tests.unit.run.made import gate, run, side
from validate.errors import InputError
from validate.run.explain_switches import SWITCHES, given, settings, shows, try_switches
from validate.schema.manifest import PathProof
from validate.schema.report import LimitReport, MeasurementReport, NoiseReport

FAILED = gate(run(side("rocm", 3.0)), "logits.kl_p90")
OPTIONS = {"draft": "on", "verifier": "chain", "cut": "0", "state": "fp32"}
REF = make_manifest(
    "cuda",
    options={
        **OPTIONS,
        "batch": "8",
        "chunk": "0",
        "splits": "1",
        "renorm": "all",
        "build": "dense",
    },
)
CAND = make_manifest(
    "rocm",
    options={
        **OPTIONS, "batch": "8", "chunk": "32", "splits": "4", "renorm": "exactly_k", "build": "sparse",
    },
    path_proof=PathProof(path="rocm", branches={"mla.decode.pad.repeat": 3}),
)  # fmt: skip


def measured(value, **changes):
    """A measurement of so much."""
    return MeasurementReport(
        metric="logits.kl_p90", value=value, unit="nats", n=2, n_of="prompts",
        why_undefined=None if value is not None else "no data", **changes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bound", 1.0, False),
        ("bound", 1.01, True),
        ("exact", 1.0, False),
        ("exact", 0.0, True),
        ("noise_ratio", 1.0, True),
        ("noise_ratio", 0.25, False),
        ("noninferior", 1.5, True),
        ("lossless", 1e-4, True),
        ("lossless", 1e-2, False),
    ],
)
def test_a_number_is_held_against_the_limit_of_its_kind(kind, value, expected):
    """Limit 1, floor 1/2, share of alpha 1e-3."""
    one = FAILED.model_copy(
        update={
            "kind": kind,
            "alpha_share": 1e-3,
            "limit": LimitReport(value=1.0, source="derived", pointer="x"),
            "noise": NoiseReport(value=0.5, repeats=4),
        }
    )

    assert shows(one, measured(value)) is expected


def test_a_worst_row_shows_too_where_the_gate_bounds_it():
    limit = LimitReport(value=1.0, worst=2.0, source="derived", pointer="x")
    one = FAILED.model_copy(update={"kind": "three_way", "limit": limit})

    assert shows(one, measured(0.5, worst_value=2.0)) is False
    assert shows(one, measured(0.5, worst_value=2.5)) is True


def test_what_is_undefined_neither_shows_nor_vanishes():
    without_floor = FAILED.model_copy(update={"kind": "noise_ratio", "noise": None})

    assert shows(FAILED, measured(None)) is None
    assert shows(FAILED, None) is None
    assert shows(without_floor, measured(1.0)) is None


def test_pad_is_read_from_the_path_proof():
    """A planted fault sets a pad that no option names."""
    pad = next(switch for switch in SWITCHES if switch.key == "pad")

    assert given(pad, CAND) == "repeat"
    assert given(pad, REF) == "zero"


def test_values_of_ref_come_first_and_equal_ones_are_not_tried():
    tried = [
        (switch.key, mine, value) for switch, mine, value, why in settings(FAILED, ref=REF, cand=CAND)
        if why is None
    ]  # fmt: skip
    rest = {s.key: why for s, _, _, why in settings(FAILED, ref=REF, cand=CAND) if why is not None}

    assert tried == [
        ("pad", "repeat", "zero"),
        ("pad", "repeat", "tile"),
        ("splits", "4", "1"),
        ("chunk", "32", "0"),
        ("batch", "8", "1"),
        ("path", "rocm", "reference"),
    ]
    assert rest["state"] == "cand has it as ref does"
    assert rest["verifier"] == "nothing that this gate reads hangs on it"


def test_gates_on_streams_try_drafting_first():
    streams = FAILED.model_copy(update={"name": "speculative.uniform"})
    tried = [
        (switch.key, value) for switch, _, value, why in settings(streams, ref=REF, cand=CAND)
        if why is None
    ]  # fmt: skip

    assert tried[:4] == [
        ("draft", "off"), ("verifier", "target_only"), ("verifier", "exact_match"), ("build", "dense"),
    ]  # fmt: skip
    assert "pad" not in dict(tried)


@dataclass
class Bench:
    """Measures 3 nats unless ``cure`` is set so."""

    cure: tuple[str, str]

    def measure(self, options, path):
        if options.get("chunk") == "0":
            msg = "no such chunk\n  do next: another"
            raise InputError(msg)
        if options.get("batch") == "1":
            return measured(None), None
        healed = self.cure in options.items() or (path is not None and self.cure[0] == "path")
        return measured(0.5 if healed else 3.0), "a note" if path else None


def test_one_switch_at_a_time_is_set_and_measured():
    found = {
        (one.key, one.tried): one
        for one in try_switches(
            FAILED, ref=REF, cand=CAND, measure=Bench(cure=("splits", "1")).measure
        )
        if one.found != "not tried"
    }
    told = {key: one.found for key, one in found.items()}

    assert told == {
        ("pad", "zero"): "stays",
        ("pad", "tile"): "stays",
        ("splits", "1"): "vanishes",
        ("chunk", "0"): "unknown",
        ("batch", "1"): "unknown",
        ("path", "reference"): "stays",
    }
    assert found["splits", "1"].value == 0.5
    assert found["chunk", "0"].note == "no such chunk"
    assert found["batch", "1"].note == "no data"
    assert found["path", "reference"].note == "a note"


def test_a_bug_in_measuring_is_no_unknown():
    def broken(options, path):
        msg = "a bug"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="a bug"):
        try_switches(FAILED, ref=REF, cand=CAND, measure=broken)
