"""Limits: what is read, refused, written back, and which one a gate gets."""

from pathlib import Path

import pytest

from validate.errors import SuiteError
from validate.schema.suite import GateSpec, Suite
from validate.suite import (
    alpha_shares,
    check_limits,
    choose_limit,
    choose_setting,
    dump_limits,
    limits_digest,
    load_limits,
    load_rules,
    load_suite,
    narrower,
    select_gates,
)

ROOT = Path(__file__).parents[3]
KNOWN = ("logits.kl_p90", "logits.err_ratio", "logits.top1_flips", "state.kda_rel_l2")
TEXT = """\
schema_version = 1

[near_tie.bfloat16]
value = 0.25
source = "derived"
pointer = "docs/gates.md"

[route_gap.bfloat16]
value = 0.01
source = "derived"
pointer = "docs/gates.md"

[logits.kl_p90.bfloat16]
value = 0.02
source = "measured"
pointer = "4 repeats"
clean = 0.003
fault = 0.5
fault_id = "HD-05"

[logits.err_ratio.bfloat16]
value = 1.5
worst = 4
source = "derived"
pointer = "docs/gates.md"
roundoff = [1.0, 2]

[deviation.prefill-fp8.logits.kl_p90.bfloat16]
value = 0.2
source = "derived"
pointer = "docs/gates.md"

[deviation.state-bf16.logits.kl_p90.bfloat16]
value = 0.3
source = "derived"
pointer = "docs/gates.md"

[deviation.prefill-fp8.logits.top1_flips.bfloat16]
value = 7
source = "derived"
pointer = "docs/gates.md"

[deviation.prefill-fp8.near_tie.bfloat16]
value = 0.75
source = "derived"
pointer = "docs/gates.md"
"""
P90 = GateSpec(name="logits.kl_p90", kind="bound", weight=2.0)
RATIO = GateSpec(name="logits.err_ratio", kind="three_way", weight=1.0)
FLIPS = GateSpec(name="logits.top1_flips", kind="exact")
AA = GateSpec(name="yardstick.aa", kind="exact")
STATE = GateSpec(name="state.kda_rel_l2", kind="bound")


def suite_of(*gates):
    """A suite of these gates."""
    return Suite(
        schema_version=1,
        name="small",
        alpha=0.01,
        beta=0.05,
        evidence=("emulated",),
        model="k3-nano",
        prompts="p.jsonl",
        gates=gates,
        path="suites/small.toml",
    )


@pytest.fixture
def limits(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(TEXT)
    return load_limits(path, known=KNOWN)


def refused(tmp_path, old, new):
    """The message about a bad limits file, without the folder."""
    path = tmp_path / "t.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(SuiteError) as caught:
        load_limits(path, known=KNOWN)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_every_field_arrives(limits):
    """And the pointer leads to the table."""
    limit = limits.entries["logits.kl_p90.bfloat16"]

    assert (limit.value, limit.source, limit.basis) == (0.02, "measured", "4 repeats")
    assert (limit.clean, limit.fault, limit.fault_id) == (0.003, 0.5, "HD-05")
    assert limit.pointer == f"{limits.path}#logits.kl_p90.bfloat16"
    assert limits.entries["logits.err_ratio.bfloat16"].worst == 4
    assert limits.entries["logits.err_ratio.bfloat16"].roundoff == (1.0, 2)
    assert limits.lines["logits.kl_p90.bfloat16"] == 13


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("value = 0.02", "value = nan", "t.toml:13: [logits.kl_p90.bfloat16] value = nan"),
        ("value = 0.02", "value = inf", "t.toml:13: [logits.kl_p90.bfloat16] value = inf"),
        ("value = 0.02", "value = -0.1", "t.toml:13: [logits.kl_p90.bfloat16] value = -0.1"),
        ("value = 0.02", 'value = "0.02"', "t.toml:13: [logits.kl_p90.bfloat16] value = '0.02'"),
        ("value = 0.02", "value = true", "t.toml:13: [logits.kl_p90.bfloat16] value = True"),
        ("value = 0.02\n", "", "t.toml:13: [logits.kl_p90.bfloat16] the key 'value' is missing"),
        ("value = 0.02", "valeu = 0.02", "unknown key 'valeu'; did you mean 'value'?"),
        ("worst = 4", "worst = nan", "[logits.err_ratio.bfloat16] worst = nan"),
        ('"measured"', '"mesured"', "did you mean 'measured'?"),
        ("clean = 0.003", "clean = 0.02", "value 0.02 is not above clean 0.02"),
        (
            "clean = 0.003\n",
            "",
            "t.toml:13: [logits.kl_p90.bfloat16] is measured and has no 'clean': say what",
        ),
        ("fault = 0.5", "fault = 0.02", "value 0.02 is not below the smallest fault 0.02"),
        ('fault_id = "HD-05"\n', "", "fault and fault_id go together"),
        (
            "logits.kl_p90.bfloat16]\nvalue = 0.02",
            "logits.kl_p9O.bfloat16]\nvalue = 0.02",
            "t.toml:13: [logits.kl_p9O.bfloat16] names no metric; did you mean 'logits.kl_p90'?",
        ),
        (
            "[near_tie.bfloat16]",
            "[near_tie.bf16]",
            "t.toml:3: [near_tie.bf16] dtype 'bf16' is unknown; did you mean 'bfloat16'?",
        ),
        (
            "[deviation.prefill-fp8.near_tie.bfloat16]",
            "[deviation.prefill-fp8.near_ties.bfloat16]",
            "names no metric; did you mean 'near_tie'?",
        ),
        ("schema_version = 1", "schema_version = 3", "t.toml:1: schema_version must be 1"),
        ("schema_version = 1\n", "", "t.toml:1: schema_version must be 1"),
    ],
)
def test_bad_limits_are_refused(tmp_path, old, new, expected):
    """NaN, infinities, texts and unknown names never become a limit."""
    assert expected in refused(tmp_path, old, new)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("[deviation.state-bf16.near_tie.bfloat16]\nvalue = 0.2", "value 0.2 is below the ordinary 0.25"),
        (
            "[deviation.state-bf16.logits.err_ratio.bfloat16]\nvalue = 2.0\nworst = 1.9",
            "worst 1.9 is below the ordinary 2",
        ),
    ],
)  # fmt: skip
def test_a_budget_below_the_ordinary_limit_is_refused(tmp_path, table, part):
    """It would tighten what it is to allow for; line and way out are named."""
    base = (
        '[logits.err_ratio.bfloat16]\nvalue = 1.5\nworst = 2.0\nsource = "derived"\npointer = "x"\n'
    )
    text = '[near_tie.bfloat16]\nvalue = 0.25\nsource = "derived"\npointer = "x"\n' + base
    path = tmp_path / "t.toml"
    path.write_text(f'schema_version = 1\n{text}{table}\nsource = "derived"\npointer = "x"\n')

    with pytest.raises(SuiteError) as caught:
        load_limits(path, known=KNOWN)
    assert "t.toml:11: [deviation.state-bf16." in str(caught.value)
    assert part in str(caught.value)
    assert "raise it, or remove the table so that the ordinary limit holds" in str(caught.value)


def test_a_budget_at_the_ordinary_limit_is_taken(tmp_path):
    path = tmp_path / "t.toml"
    tables = [
        f'[{key}.bfloat16]\nvalue = 0.25\nsource = "derived"\npointer = "x"\n'
        for key in ("near_tie", "deviation.state-bf16.near_tie")
    ]
    path.write_text("schema_version = 1\n" + "".join(tables))

    assert len(load_limits(path, known=KNOWN).entries) == 2


def test_what_is_written_reads_back_equal(tmp_path, limits):
    """Every number to the last bit, in the same order."""
    path = Path(limits.path)
    text = dump_limits(limits, heading="made by hand\nfor a test")
    path.write_text(text)
    again = load_limits(path, known=KNOWN)

    assert text.startswith("# made by hand\n# for a test\nschema_version = 1\n")
    assert again.entries == limits.entries
    assert list(again.entries) == list(limits.entries)
    assert limits_digest(again) == limits_digest(limits)


def test_digest_sees_a_loosened_limit(tmp_path, limits):
    """Any number counts."""
    path = Path(limits.path)
    path.write_text(TEXT.replace("value = 0.02", "value = 0.021"))

    assert limits_digest(load_limits(path, known=KNOWN)) != limits_digest(limits)


def test_ordinary_limit(limits):
    """Without a deviation the table of the gate's own name."""
    chosen = choose_limit(P90, suite=suite_of(P90), limits=limits, dtype="bfloat16")

    assert (chosen.limit.value, chosen.deviation) == (0.02, None)


def test_exact_limit_is_the_demanded_value(limits):
    """It needs no table."""
    chosen = choose_limit(FLIPS, suite=suite_of(FLIPS), limits=limits, dtype="float32")

    assert (chosen.limit.value, chosen.deviation) == (0.0, None)
    assert chosen.limit.pointer == "suites/small.toml#logits.top1_flips"


def test_a_declared_deviation_brings_its_own_budget(limits):
    """Of two the widest; for a gate without budget the ordinary limit."""
    suite = suite_of(P90, RATIO, FLIPS)

    def value(gate, *deviations):
        chosen = choose_limit(
            gate, suite=suite, limits=limits, dtype="bfloat16", deviations=deviations
        )
        return chosen.limit.value, chosen.deviation

    assert value(P90, "prefill-fp8") == (0.2, "prefill-fp8")
    assert value(P90, "prefill-fp8", "state-bf16") == (0.3, "state-bf16")
    assert value(P90, "state-bf16", "prefill-fp8") == (0.3, "state-bf16")
    assert value(P90, "unheard-of") == (0.02, None)
    assert value(RATIO, "prefill-fp8") == (1.5, None)
    assert value(FLIPS, "prefill-fp8") == (7.0, "prefill-fp8")
    assert value(FLIPS, "state-bf16") == (0.0, None)


def test_settings_follow_the_same_rule(limits):
    """near_tie of a deviation, route_gap of everybody."""
    wide = choose_setting("near_tie", limits=limits, dtype="bfloat16", deviations=["prefill-fp8"])
    gap = choose_setting("route_gap", limits=limits, dtype="bfloat16", deviations=["prefill-fp8"])

    assert (wide.limit.value, wide.deviation) == (0.75, "prefill-fp8")
    assert (gap.limit.value, gap.deviation) == (0.01, None)
    with pytest.raises(SuiteError, match=r"no limit \[near_tie.float32\]; did you mean"):
        choose_setting("near_tie", limits=limits, dtype="float32")


def test_missing_limits_are_all_named(limits):
    """Before anything is measured."""
    suite = suite_of(P90, STATE, AA)
    with pytest.raises(SuiteError) as caught:
        check_limits(suite, limits, dtype="bfloat16")
    with pytest.raises(
        SuiteError, match=r"4 of 4 limits that suites/small\.toml needs for float32"
    ):
        check_limits(suite, limits, dtype="float32")

    assert "missing: state.kda_rel_l2" in str(caught.value)
    assert "dtypes : bfloat16 are kept there" in str(caught.value)
    assert "validate golden calibrate" in str(caught.value)
    check_limits(suite_of(P90, RATIO, FLIPS, AA), limits, dtype="bfloat16")


def test_three_way_without_worst_is_refused(tmp_path):
    """At the table, before work starts."""
    path = tmp_path / "t.toml"
    path.write_text(TEXT.replace("worst = 4\n", ""))
    limits = load_limits(path, known=KNOWN)
    with pytest.raises(SuiteError, match="is three_way and needs 'worst' beside 'value'"):
        check_limits(suite_of(RATIO), limits, dtype="bfloat16")


def test_alpha_is_split_by_weight_over_the_whole_suite():
    """Weights 2, 1 and 0 of alpha 0.01: 2/3, 1/3 and nothing."""
    shares = alpha_shares(suite_of(P90, RATIO, FLIPS))

    assert shares == {
        "logits.kl_p90": 0.01 * 2 / 3,
        "logits.err_ratio": 0.01 * 1 / 3,
        "logits.top1_flips": 0.0,
    }
    assert alpha_shares(suite_of(FLIPS)) == {"logits.top1_flips": 0.0}


@pytest.mark.parametrize(
    ("only", "skip", "expected"),
    [
        ([], [], ["yardstick.aa", "logits.kl_p90", "logits.top1_flips", "state.kda_rel_l2"]),
        (["logits"], [], ["yardstick.aa", "logits.kl_p90", "logits.top1_flips"]),
        (["state.kda_rel_l2"], [], ["yardstick.aa", "state.kda_rel_l2"]),
        (["logits"], ["logits.kl_p90"], ["yardstick.aa", "logits.top1_flips"]),
        ([], ["logits"], ["yardstick.aa", "state.kda_rel_l2"]),
        (["yardstick"], [], ["yardstick.aa"]),
        (["yardstick.aa"], [], ["yardstick.aa"]),
    ],
)
def test_selection_keeps_the_yardstick(only, skip, expected):
    """Verdicts under --only stand on the same yardstick as in the full run."""
    suite = suite_of(AA, P90, FLIPS, STATE)

    assert [gate.name for gate in select_gates(suite, only=only, skip=skip)] == expected


@pytest.mark.parametrize(
    ("only", "skip", "expected"),
    [
        (
            ["logit"],
            [],
            "--only logit: no area or gate of suites/small.toml; did you mean 'logits'",
        ),
        ([], ["logits.kl_p9"], "--skip logits.kl_p9: .* did you mean 'logits.kl_p90'"),
        ([], ["yardstick"], "yardstick gates come before every verdict and cannot be left out"),
        ([], ["yardstick.aa"], "cannot be left out"),
        (["logits"], ["logits"], "no gate of suites/small.toml is left to judge"),
        ([], ["logits", "state"], "no gate of suites/small.toml is left to judge"),
    ],
)
def test_bad_selections_are_refused(only, skip, expected):
    """A run that judges nothing is an error."""
    with pytest.raises(SuiteError, match=expected):
        select_gates(suite_of(AA, P90, FLIPS, STATE), only=only, skip=skip)


def test_the_narrower_dtype_decides():
    """bfloat16 has fewer bits than float16."""
    assert narrower("float32", "bfloat16") == "bfloat16"
    assert narrower("bfloat16", "float16") == "bfloat16"
    assert narrower("float64", "float32") == "float32"
    with pytest.raises(SuiteError, match="no limits are kept for dtype 'bf16'; did you mean 'bfl"):
        narrower("float32", "bf16")


def test_rules_are_read(tmp_path):
    """Keys without a dtype."""
    path = tmp_path / "c.toml"
    path.write_text(
        'schema_version = 1\n[logits.kl_p90]\nbasis = ["repeats"]\nfactor = 4\nwhy = "because"\n'
    )
    rules = load_rules(path, known=KNOWN)

    assert rules["logits.kl_p90"].factor == 4
    path.write_text(path.read_text().replace("factor = 4", "factor = 1"))
    with pytest.raises(SuiteError, match="factor = 1: Input should be greater than 1"):
        load_rules(path, known=KNOWN)
    path.write_text(path.read_text().replace("logits.kl_p90", "logits.kl"))
    with pytest.raises(SuiteError, match=r":2: \[logits.kl\] names no metric"):
        load_rules(path, known=KNOWN)


def test_shipped_limits_and_rules_cover_the_shipped_suites():
    """Every gate has its limit and its rule, every rule a gate."""
    limits = load_limits(ROOT / "golden/tolerances.toml")
    rules = load_rules(ROOT / "golden/calibration.toml")
    suite = load_suite(ROOT / "suites/default.toml")
    needed = {gate.limit_key for gate in suite.gates if gate.kind not in ("exact", "lossless")}

    check_limits(suite, limits, dtype="bfloat16")
    assert set(rules) == needed | {"near_tie", "route_gap"}
    noisy = [gate.limit_key for gate in suite.gates if gate.kind == "noise_ratio"]
    assert all(limits.entries[f"{key}.bfloat16"].roundoff for key in noisy)
    assert all(limit.basis for limit in limits.entries.values())
