"""Waiver files: strict, with the line of what is wrong; expired or senseless ones are refused."""

import datetime as dt

import pytest

from tests.unit.run.made import suite
from validate.errors import SuiteError
from validate.schema.suite import Waiver
from validate.suite import check_waivers, load_suite, load_waivers

TODAY = dt.date(2026, 3, 1)
GOOD = """\
schema_version = 1

[[waivers]]
gate = "logits.kl_p90"
cand = "rocm*"
reason = "kernel under repair"
issue = "K-12"
expires = 2026-03-01
"""


def written(tmp_path, text):
    """A waiver file."""
    path = tmp_path / "waivers.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(tmp_path, text):
    """The message about a bad waiver file, without the folder."""
    with pytest.raises(SuiteError) as caught:
        load_waivers(written(tmp_path, text))
    return str(caught.value).replace(f"{tmp_path}/", "")


def made(**changes):
    """A waiver that holds today."""
    fields = {"gate": "logits.kl_p90", "reason": "r", "issue": "i", "expires": TODAY}
    return Waiver(**{**fields, **changes})


def problem(*waivers):
    """The message about these waivers of the small suite."""
    with pytest.raises(SuiteError) as caught:
        check_waivers(waivers, suite=suite(), today=TODAY)
    return str(caught.value)


def test_a_good_file_is_read(tmp_path):
    """Every field arrives, and the last day still counts."""
    (waiver,) = load_waivers(written(tmp_path, GOOD))

    assert (waiver.gate, waiver.cand, waiver.issue) == ("logits.kl_p90", "rocm*", "K-12")
    assert waiver.expires == TODAY
    check_waivers([waiver], suite=suite(), today=TODAY)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('issue = "K-12"\n', "", "waivers.toml:3: the key 'issue' is missing"),
        ('reason = "kernel under repair"\n', "", "waivers.toml:3: the key 'reason' is missing"),
        ("expires = 2026-03-01\n", "", "waivers.toml:3: the key 'expires' is missing"),
        ("reason", "raeson", "waivers.toml:3: unknown key 'raeson'; did you mean 'reason'?"),
        ("2026-03-01", '"2026-03-01"', "expires = '2026-03-01': Input should be a valid date"),
        ("2026-03-01", "2026-03-01T00:00:00", "Input should be a valid date"),
        ('"K-12"', '""', "issue = '': String should have at least 1 character"),
        ("logits.kl_p90", "kl_p90", "gate = 'kl_p90': String should match pattern"),
        ("schema_version = 1\n", "", "waivers.toml:1: the key 'schema_version' is missing"),
        ("schema_version = 1", "schema_version = 2", "schema_version = 2: Input should be 1"),
        ("[[waivers]]", "[[waiver]]", "unknown key 'waiver'; did you mean 'waivers'?"),
        ("[[waivers]]", "[waivers", "waivers.toml:3: not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, old, new, message):
    """Nothing is guessed and nothing is silent."""
    assert message in refused(tmp_path, GOOD.replace(old, new))


def test_a_file_without_waivers_is_refused(tmp_path):
    """It would look as if something were waived."""
    assert "waivers" in refused(tmp_path, "schema_version = 1\nwaivers = []\n")
    with pytest.raises(SuiteError, match="cannot be read"):
        load_waivers(tmp_path / "none.toml")


def test_an_expired_waiver_is_refused():
    """With both days and the issue; the scope does not matter."""
    assert problem(made(expires=dt.date(2026, 2, 28), cand="nobody")) == (
        "suites/small.toml: the waiver of logits.kl_p90 for cand 'nobody' expired on 2026-02-28 "
        "(today is 2026-03-01); mend the cause (i) or decide on it anew"
    )


def test_a_waiver_must_name_a_gate_that_may_be_waived():
    """A gate of the suite, with the nearest match, and never the yardstick."""
    told = problem(made(gate="logits.kl_p99"), made(gate="yardstick.floor"))

    assert "names no gate of the suite; did you mean 'logits.kl_p90'?" in told
    assert "for cand '*': a yardstick gate cannot be waived, for without it nothing is" in told


def test_a_waiver_written_twice_is_refused():
    """The same gate and scope, even with another reason; another scope is another waiver."""
    assert problem(made(), made(reason="other")).endswith(
        "the waiver of logits.kl_p90 for cand '*' is written twice: contradictory or double; "
        "keep one of them"
    )
    check_waivers([made(cand="a"), made(cand="b")], suite=suite(), today=TODAY)


def test_waivers_may_stand_in_the_suite(tmp_path):
    """As ``[[waivers]]``, below everything else; they belong to what the suite says."""
    text = """\
schema_version = 1
name = "small"
alpha = 0.01
beta = 0.05
evidence = ["emulated"]
model = "k3-nano"
prompts = "p.jsonl"
waivers_file = "suites/waivers.toml"
gates = [
  { name = "yardstick.aa", kind = "exact" },
  { name = "yardstick.floor", kind = "exact" },
  { name = "yardstick.path_proof", kind = "exact" },
  { name = "yardstick.ref_error", kind = "bound", metric = "logits.kl_p90", weight = 1 },
]
"""
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    plain = load_suite(path, known=["logits.kl_p90"])
    path.write_text(text + GOOD.replace("schema_version = 1\n", ""), encoding="utf-8")
    read = load_suite(path, known=["logits.kl_p90"])

    assert read.waivers_file == "suites/waivers.toml"
    assert [waiver.issue for waiver in read.waivers] == ["K-12"]
    assert read.digest != plain.digest
    path.write_text(f"{text}[[waivers]]\nissue = 3\n", encoding="utf-8")
    with pytest.raises(SuiteError, match=r"x\.toml:15: waiver: the key 'gate' is missing"):
        load_suite(path, known=["logits.kl_p90"])
