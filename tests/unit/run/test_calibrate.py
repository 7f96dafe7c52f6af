"""calibrate: limits from clean pairs, faults beside them, refusals."""

from dataclasses import replace

import pytest

from tests.unit.run.made import METRICS, YARDSTICK, entry, limits, offset, repeats, side, suite
from validate.errors import InputError, SuiteError
from validate.run import calibrate
from validate.run.calibrate import OPEN
from validate.schema.measurement import Measurement, Worst
from validate.schema.suite import CleanRule, GateSpec
from validate.suite import dump_limits, load_limits

P90 = GateSpec(name="logits.kl_p90", kind="bound", weight=1.0)
P50 = GateSpec(name="logits.kl_p50", kind="noise_ratio", weight=1.0)
RATIO = GateSpec(name="logits.err_ratio", kind="three_way", weight=1.0)
FLIPS = GateSpec(name="logits.top1_flips", kind="exact")
KNOWN = (*METRICS, "logits.top1_flips", "attention.routing_mismatch")


def gap(pair, levels):
    """A gap of a quarter of the offset, as a worst value and as a companion."""
    value = offset(pair) / 4
    return Measurement(
        metric="logits.top1_flips",
        value=value,
        unit="positions",
        n=2,
        n_of="positions",
        worst_value=value,
        breakdown={"largest gap": value},
    )


def rule(*basis, **changes):
    """Twice the clean value, or what is asked for."""
    fields = {"basis": basis or ("repeats",), "factor": 2.0, "why": "because"}
    return CleanRule(**{**fields, **changes})


RULES = {
    "near_tie": rule(metrics=("logits.top1_flips",)),
    "route_gap": rule(metrics=("attention.routing_mismatch",), breakdown="largest gap"),
    "yardstick.ref_error": rule("oracle", factor=3.0),
    "logits.kl_p90": rule("repeats", "oracle", factor=4.0),
    "logits.kl_p50": rule("repeats", roundoff=(16.0, 2)),
    "logits.err_ratio": rule(worst_factor=3.0),
}
ALL = {**METRICS, "logits.top1_flips": gap, "attention.routing_mismatch": gap}


def made(*gates, **changes):
    """Calibrate on ref 0, repeats 0.1, 0.1, 0.1, 0.2 and the oracle at 1.0."""
    fields = {
        "ref": side("cuda"),
        "repeats": repeats(0.1, 0.1, 0.1, 0.2),
        "oracle": side("oracle", 1.0),
        "suite": suite(*(gates or (P90, P50, RATIO, FLIPS))),
        "rules": RULES,
        "metrics": ALL,
        "path": "t.toml",
    }
    return calibrate(**{**fields, **changes}).entries


def test_a_bound_is_the_factor_times_the_largest_upper_limit():
    """By hand: the oracle is 1.0 from ref; its upper limit 1.1 times 4 is 4.4."""
    limit = made(P90)["logits.kl_p90.bfloat16"]

    assert limit.value == 4.4
    assert limit.clean == pytest.approx(1.1)
    assert limit.source == "measured"
    assert limit.pointer == "t.toml#logits.kl_p90.bfloat16"
    assert limit.basis == (
        "4 x the largest of 9 clean pairs (repeats, oracle), at least 0: because"
    )


def test_the_basis_decides_which_pairs_count():
    """Repeats alone: 0.2, upper limit 0.22, times 4 is 0.88."""
    rules = {**RULES, "logits.kl_p90": rule("repeats", factor=4.0)}

    assert made(P90, rules=rules)["logits.kl_p90.bfloat16"].value == 0.88


def test_a_limit_is_never_below_a_repeat():
    """Whatever the basis: the oracle at 0.05 would give 4 x 0.165, a repeat is at 0.2."""
    rules = {**RULES, "logits.kl_p90": rule("oracle", factor=1.5)}
    limit = made(P90, rules=rules, oracle=side("oracle", 0.05))["logits.kl_p90.bfloat16"]

    assert limit.clean == pytest.approx(0.22)


def test_a_noise_ratio_holds_each_repeat_against_the_floor_of_the_others():
    """The last repeat, 0.2 (upper limit 0.22), over a floor of exactly 0.1: 2.2, twice that 4.4."""
    limit = made(P50)["logits.kl_p50.bfloat16"]

    assert limit.clean == pytest.approx(2.2)
    assert limit.value == 4.4
    assert limit.roundoff == (16.0, 2)


def test_a_three_way_limit_has_two_parts():
    """The repeat at 0.1 is 0.9 from the oracle, ref 1.0; the largest ratio is 0.9."""
    limit = made(RATIO)["logits.err_ratio.bfloat16"]

    assert limit.clean == pytest.approx(0.9)
    assert (limit.value, limit.worst) == (1.8, 2.7)


def test_the_error_of_ref_is_measured_against_the_oracle():
    """1.0 for ref, 0.9 and 0.8 for repeats; three times 1.0."""
    assert made(P90)["yardstick.ref_error.bfloat16"].value == 3.0


def test_settings_come_from_the_gaps_of_clean_pairs():
    """A quarter of 0.2, doubled; companions do as well as worst values."""
    entries = made(P90)

    assert entries["near_tie.bfloat16"].value == 0.1
    assert entries["route_gap.bfloat16"].value == 0.1
    assert list(entries)[:2] == ["near_tie.bfloat16", "route_gap.bfloat16"]


@pytest.mark.parametrize(("basis", "value"), [("oracle", 0.5), ("reverse", 6.0)])
def test_the_oracle_stands_in_cands_place_where_a_rule_asks_for_it(basis, value):
    """A gap of 3 with the oracle as cand, 0.25 else; doubled. Nobody else measures that pair."""

    def turned(pair, levels):
        found = gap(pair, levels)
        return replace(found, worst_value=3.0 if pair.cand.label == "oracle" else 0.25)

    rules = {
        **RULES,
        "near_tie": rule("repeats", basis, metrics=("logits.top1_flips",)),
        "logits.kl_p90": rule("repeats", basis),
    }

    def gated(pair, levels):
        found = METRICS["logits.kl_p90"](pair, levels)
        return replace(found, value=3.0, interval=None) if pair.cand.label == "oracle" else found

    entries = made(
        P90, rules=rules, metrics={**ALL, "logits.top1_flips": turned, "logits.kl_p90": gated}
    )

    assert entries["near_tie.bfloat16"].value == value
    if basis == "reverse":
        assert entries["logits.kl_p90.bfloat16"].value == 6.0


def test_gaps_are_measured_wide_open_and_gates_with_the_new_settings():
    """Else the present limit would hide the gaps it is made from."""
    seen = []

    def spying(pair, levels):
        seen.append((pair.near_tie, pair.route_gap))
        return gap(pair, levels)

    def gated(pair, levels):
        seen.append((pair.near_tie, pair.route_gap))
        return METRICS["logits.kl_p90"](pair, levels)

    made(P90, metrics={**ALL, "logits.top1_flips": spying, "logits.kl_p90": gated})

    assert set(seen) == {(OPEN["near_tie"], OPEN["route_gap"]), (0.1, 0.1)}


def test_at_least_holds_where_clean_is_tiny():
    """Rounding alone may give so much."""
    rules = {**RULES, "logits.kl_p90": rule("repeats", at_least=5.0)}

    assert made(P90, rules=rules)["logits.kl_p90.bfloat16"].value == 5.0


def test_a_limit_that_would_pass_anything_is_refused():
    """A share above 0.9, say."""
    rules = {**RULES, "logits.kl_p90": rule("repeats", at_most=0.4)}
    with pytest.raises(InputError, match=r"limit 0\.44 .* is above 0\.4, where it would pass any"):
        made(P90, rules=rules)


def test_limits_have_three_significant_digits():
    """1.23456 becomes 1.23."""
    rules = {**RULES, "logits.kl_p90": rule("repeats", factor=1.23456 / 0.22)}

    assert made(P90, rules=rules)["logits.kl_p90.bfloat16"].value == 1.23


def test_faults_stand_beside_and_never_enter():
    """The smallest of them; a ratio is in floors; a fault that gave NaN is no number."""
    faults = {
        "logits.kl_p90": {"HD-05": 9.0, "VX-01": 6.0, "VX-02": float("nan")},
        "logits.kl_p50": {"HD-05": 9.0},
    }
    plain, beside = made(), made(faults=faults)
    limit = beside["logits.kl_p90.bfloat16"]

    assert (limit.fault, limit.fault_id) == (6.0, "VX-01")
    assert limit.value == plain["logits.kl_p90.bfloat16"].value
    assert beside["logits.kl_p50.bfloat16"].fault_id == "HD-05"
    assert beside["logits.kl_p50.bfloat16"].fault == pytest.approx(9.0 / 0.17857, rel=0.01)


def test_a_limit_above_a_fault_is_refused():
    """Every one of them is named."""
    faults = {"logits.kl_p90": {"HD-05": 4.4}, "logits.err_ratio": {"VX-01": 1.1}}
    with pytest.raises(InputError) as caught:
        made(faults=faults)

    told = str(caught.value).splitlines()
    assert len(told) == 2
    assert told[0].startswith("calibrate: logits.kl_p90.bfloat16: limit 4.4 (clean 1.1")
    assert told[0].endswith("is not below 4.4, which the planted fault HD-05 measures")


def test_a_limit_that_is_not_above_clean_is_refused():
    """Repeats of one and the same run, and no at_least."""
    same = [side(f"cuda-repeat-{i}", 0.0) for i in range(4)]
    rules = {**RULES, "logits.kl_p90": rule("repeats")}
    for name in ("near_tie", "route_gap"):
        rules[name] = RULES[name].model_copy(update={"at_least": 0.1})
    with pytest.raises(InputError, match=r"logits\.kl_p90\.bfloat16: limit 0 is not above clean 0"):
        made(P90, repeats=same, rules=rules)
    with pytest.raises(InputError, match=r"logits\.kl_p50\.bfloat16: limit 0 is not above clean 0"):
        made(P50, repeats=same, rules=rules)


@pytest.mark.parametrize("count", [0, 3])
def test_too_few_repeats_are_refused(count):
    """Each must be held against the floor of the others."""
    with pytest.raises(InputError, match=f"{count} repeats of ref, at least 4 needed"):
        made(repeats=repeats(0.1, 0.1, 0.1)[:count])


def test_a_missing_rule_is_refused():
    """All that are missing."""
    with pytest.raises(SuiteError, match=r"no rule for logits\.kl_p90, near_tie; add them to"):
        made(P90, rules={k: v for k, v in RULES.items() if k not in ("near_tie", "logits.kl_p90")})


def test_rules_that_cannot_be_followed_are_refused():
    """No metrics for a setting, no second factor for a three-way limit, no oracle at hand."""
    bent = {**RULES, "near_tie": rule(), "logits.err_ratio": rule()}
    with pytest.raises(SuiteError) as caught:
        made(rules=bent)

    assert "near_tie needs 'metrics'; for logits.err_ratio needs worst_factor" in str(caught.value)
    with pytest.raises(
        InputError, match=r"yardstick\.ref_error: the basis .* leaves no clean pair"
    ):
        made(P90, oracle=None)


@pytest.mark.parametrize(
    ("value", "why", "expected"),
    [(None, "no tensors", "no tensors"), (float("inf"), None, "it measures inf")],
)
def test_an_undefined_clean_measurement_is_refused(value, why, expected):
    """There is no limit from nothing."""

    def undefined(pair, levels):
        return Measurement(metric="x", value=value, unit="", n=0, n_of="prompts", why_undefined=why)

    with pytest.raises(InputError, match=f"kl_p90 is undefined on a clean pair: {expected}"):
        made(P90, metrics={**ALL, "logits.kl_p90": undefined})


def test_an_infinite_gap_on_a_clean_pair_is_refused():
    """An id that one side masks is no tie."""

    def masked(pair, levels):
        return Measurement(
            metric="logits.top1_flips",
            value=1.0,
            unit="positions",
            n=2,
            n_of="positions",
            worst=Worst(prompt="p-0"),
        )

    with pytest.raises(InputError, match="a gap that is no finite number on a clean pair"):
        made(P90, metrics={**ALL, "logits.top1_flips": masked})


def test_tables_without_a_rule_are_taken_over():
    """Budgets of deviations, and fault values that were not measured anew."""
    old = limits(
        **{
            "deviation__prefill-fp8__logits__kl_p90__bfloat16": entry(8.0),
            "logits__kl_p90__bfloat16": entry(1.0, fault=9.0, fault_id="HD-05"),
        }
    )
    entries = made(P90, limits=old)

    assert entries["deviation.prefill-fp8.logits.kl_p90.bfloat16"].value == 8.0
    assert entries["logits.kl_p90.bfloat16"].value == 4.4
    assert entries["logits.kl_p90.bfloat16"].fault_id == "HD-05"


def test_calibrated_limits_can_be_written_and_read(tmp_path):
    """The file that the command writes is a limits file."""
    path = tmp_path / "t.toml"
    entries = made(path=str(path))
    path.write_text(dump_limits(limits_of(path, entries), heading="made by a test"))

    assert load_limits(path, known=KNOWN).entries == entries


def limits_of(path, entries):
    """Limits of one file."""
    from validate.schema.suite import Limits

    return Limits(path=str(path), entries=entries)


def test_yardstick_gates_need_no_rule_but_ref_error():
    """The exact ones have no limit."""
    assert [gate.name for gate in YARDSTICK if gate.kind != "exact"] == ["yardstick.ref_error"]
