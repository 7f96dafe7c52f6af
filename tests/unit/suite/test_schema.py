"""The published JSON Schema of suites, weights that cannot be split, and suites that say nothing."""

import json
import tomllib
from pathlib import Path

import pytest

from tests.unit.suite.test_suite_files import HEAD, KNOWN, YARDSTICK, refused, written
from validate.errors import SuiteError
from validate.suite import alpha_shares, load_suite, select_gates, suite_schema

ROOT = Path(__file__).parents[3]
P90 = '  { name = "logits.kl_p90", kind = "bound", weight = %s },\n'
NLL = '  { name = "logits.nll_delta", kind = "bound", weight = %s },\n'


def test_the_published_schema_is_current():
    """docs/gates.md says how to write it anew."""
    published = (ROOT / "docs/suite.schema.json").read_text(encoding="utf-8")

    assert published == suite_schema()


@pytest.mark.parametrize("name", ["default", "release"])
def test_the_schema_knows_every_key_of_the_shipped_suites(name):
    """And demands only what they have; nothing beside is allowed."""
    schema = json.loads(suite_schema())
    raw = tomllib.loads((ROOT / f"suites/{name}.toml").read_text(encoding="utf-8"))
    gate = schema["$defs"]["GateSpec"]

    assert set(schema["required"]) <= set(raw) <= set(schema["properties"])
    assert schema["additionalProperties"] is gate["additionalProperties"] is False
    assert {key for one in raw["gates"] for key in one} <= set(gate["properties"])
    assert {one["kind"] for one in raw["gates"]} <= set(gate["properties"]["kind"]["enum"])


def test_where_a_suite_lies_is_not_for_the_suite_to_say(tmp_path):
    """The key was taken and overwritten in silence."""
    assert "path" not in json.loads(suite_schema())["properties"]
    assert refused(tmp_path, "", head=f'{HEAD}path = "x"\n') == "x.toml:8: unknown key 'path'"


def test_weights_are_relative(tmp_path):
    """They need not sum to 1: 3 of 8 is 3 of 8 of alpha, and the shares sum to alpha."""
    suite = load_suite(written(tmp_path, P90 % 3 + NLL % 4), known=KNOWN)
    shares = alpha_shares(suite)

    assert shares["logits.kl_p90"] == pytest.approx(0.01 * 3 / 8)
    assert sum(shares.values()) == pytest.approx(0.01)


def test_without_any_weight_no_alpha_is_spent(tmp_path):
    """Shares of 0, not a division by 0."""
    plain = YARDSTICK.replace(", weight = 1", "")
    suite = load_suite(written(tmp_path, P90 % 0, yardstick=plain), known=KNOWN)

    assert set(alpha_shares(suite).values()) == {0.0}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (("-1", "1"), "gate 'logits.kl_p90': weight = -1: Input should be greater than or equal"),
        (("nan", "1"), "gate 'logits.kl_p90': weight = nan: Input should be a finite number"),
        (("inf", "1"), "gate 'logits.kl_p90': weight = inf: Input should be a finite number"),
        (("'1'", "1"), "gate 'logits.kl_p90': weight = '1': Input should be a valid number"),
        (("1e308", "1e308"), "the weights add up to inf; they are relative, so use numbers near 1"),
        (("1e-12", "1"), "weight 1e-12 of 2 in all is no share of alpha (at least 1e-09)"),
    ],
)
def test_weights_that_cannot_be_split_are_refused(tmp_path, weights, message):
    """A share that is 0, negative or not a number would gate nothing or everything."""
    assert message in refused(tmp_path, P90 % weights[0] + NLL % weights[1])


def test_a_suite_of_the_yardstick_alone_judges_nothing(tmp_path):
    """An error, never a pass."""
    suite = load_suite(written(tmp_path, ""), known=KNOWN)

    with pytest.raises(SuiteError, match="no gate but the yardstick's, so nothing would be said"):
        select_gates(suite)


def test_a_suite_without_gates_is_refused(tmp_path):
    """Whether the list is empty or missing."""
    assert "lists no gates, so it could only pass" in refused(tmp_path, "", yardstick="")
