"""Eighteen silent passes of respected projects: one case each, numbered and named, closed here."""

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_pair, make_prompt, with_positions
from tests.layers import prefill
from tests.measured import assert_measured
from tests.unit.gates.made import SHARE, interval, limit, measured, spec, verdict
from tests.unit.metrics.spec_made import fair, pair as spec_pair, side as spec_side
from tests.unit.run.made import METRICS, limits, outcomes, run, side
from validate.cli import main
from validate.errors import IncomparableError, SuiteError
from validate.gates import judge
from validate.metrics.attention_rel_l2 import attention_rel_l2
from validate.metrics.attention_row_rel_l2 import attention_row_rel_l2
from validate.metrics.kl_max import kl_max
from validate.metrics.logits_nonfinite import logits_nonfinite
from validate.metrics.speculative_uniform import speculative_uniform
from validate.pairing import pair
from validate.report import render_json
from validate.schema import Levels
from validate.schema.measurement import Detection, Measurement
from validate.suite import load_suite

LEVELS = Levels(low=0.99, high=0.95)
NAN = float("nan")


def logits(ref: Any, cand: Any):
    return make_pair(
        with_positions({"p-0": np.asarray(ref, np.float32)}),
        with_positions({"p-0": np.asarray(cand, np.float32)}),
    )


@pytest.mark.parametrize("kind", ["bound", "exact", "noise_ratio", "three_way"])
def test_01_nan_is_not_beyond_a_limit_and_does_not_pass(kind):
    at = limit(1.0, worst=2.0) if kind == "three_way" else limit(1.0)

    assert verdict(kind, measured(NAN), at).outcome == "FAIL"


def test_01_nan_at_an_end_of_an_interval_does_not_pass():
    found = measured(0.1, interval=interval(0.05, NAN))

    assert verdict("bound", found, limit(1.0)).outcome != "PASS"


def test_02_nan_in_the_reference_is_seen_too():
    bad = [[0.0, 1.0], [NAN, 1.0]]
    found = logits_nonfinite(logits(bad, [[0.0, 1.0], [0.0, 1.0]]), LEVELS)

    assert (found.value, found.breakdown["ref.nan"]) == (1.0, 1.0)
    assert kl_max(logits(bad, [[0.0, 1.0], [0.0, 1.0]]), LEVELS).value is None


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (np.full(3, NAN), np.full(3, NAN)),
        (np.zeros((0,)), np.zeros((0,))),
        (np.zeros(4), np.zeros(())),
    ],
    ids=["nan-nan", "empty-empty", "four-scalar"],
)
def test_03_what_numpys_assertion_takes_ours_refuses(actual, expected):
    with pytest.raises(AssertionError):
        assert_measured(actual, expected, atol=1.0, rtol=1.0)


def test_03_two_empty_tensors_are_not_compared():
    empty = np.zeros((0, 4), np.float32)
    held = {"p-0": {"logits": empty, "logits.positions": np.zeros(0, np.int32)}}
    prompts = {"p-0": make_prompt("p-0", [1, 2])}

    with pytest.raises(IncomparableError, match="both are empty"):
        pair(
            FakeSide("cuda", held, prompts=prompts),
            FakeSide("rocm", held, prompts=prompts),
            near_tie=0.1,
            route_gap=0.1,
        )


def test_04_infinities_of_other_sign_are_two_findings_and_inputs_stay():
    ref, cand = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    ref[0, 1], cand[0, 1] = -np.inf, np.inf
    kept = ref.copy(), cand.copy()
    found = logits_nonfinite(logits(ref, cand), LEVELS)

    assert found.value == 2.0
    assert (found.breakdown["ref.negative"], found.breakdown["cand.positive"]) == (1.0, 1.0)
    assert np.array_equal(ref, kept[0])
    assert np.array_equal(cand, kept[1])


def test_05_an_empty_tensor_has_no_error():
    """No rows: no value, and a sentence why."""
    found = kl_max(make_pair({"p-0": {}}, {"p-0": {}}), LEVELS)

    assert (found.value, found.n) == (None, 0)
    assert found.why_undefined


@pytest.mark.parametrize("kind", ["bound", "exact", "noise_ratio", "three_way"])
def test_06_no_data_is_inconclusive(kind):
    nothing = measured(None, n=0, why_undefined="no prompts")
    at = limit(1.0, worst=2.0) if kind == "three_way" else limit(1.0)

    assert verdict(kind, nothing, at).outcome == "INCONCLUSIVE"
    assert verdict(kind, measured(0.0, n=0), at).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize("error", [ZeroDivisionError("0/0"), TypeError("one argument too many")])
def test_07_and_12_what_a_metric_raises_passes_through(error):
    """12: a TypeError inside a metric is no sign of another signature."""

    def crashes(pair, levels):
        raise error

    with pytest.raises(type(error), match=str(error)):
        run(side("rocm"), metrics={**METRICS, "logits.kl_p90": crashes})


def test_08_a_missing_output_is_incomparable():
    ref, cand = side("cuda"), side("rocm", prompts=("p-0",))

    with pytest.raises(IncomparableError, match=r"(?s)nothing was compared.*p-1"):
        run(cand, ref=ref)


def test_09_one_prompt_has_no_interval_of_width_0():
    one = make_pair(
        {"p-0": prefill({"mla.1.out": [[[2.0]]]})}, {"p-0": prefill({"mla.1.out": [[[2.0]]]})}
    )
    found = attention_rel_l2(one, LEVELS)

    assert found.value == 0.0
    assert found.interval is None or found.interval.high is None


def test_10_a_p_value_that_is_nan_is_not_insignificant():
    seen = Detection(effect=0.1, alpha=SHARE, power=0.95, method="z")
    found = measured(NAN, n=1000, unit="p-value", detection=seen)
    got = judge(
        spec("lossless", weight=1, effect=0.3, effect_of="share of tokens drawn from the argmax"),
        measurement=found,
        limit=limit(0.3, basis="share of tokens drawn from the argmax"),
        noise=None,
        alpha_share=SHARE,
        rerun="validate compare",
    )

    assert got.outcome == "FAIL"


def suite_file(tmp_path, gate: str):
    path = tmp_path / "s.toml"
    path.write_text(
        'schema_version = 1\nname = "x"\nalpha = 0.01\nbeta = 0.05\nevidence = ["emulated"]\n'
        f'model = "k3-nano"\nprompts = "p.jsonl"\ngates = [\n  {gate},\n]\n'
    )
    return path


def test_11_an_unknown_metric_is_an_error_with_a_suggestion(tmp_path, monkeypatch):
    """And nobody is asked over the network."""
    monkeypatch.setattr("socket.socket", None)
    path = suite_file(tmp_path, '{ name = "logits.kl_p9", kind = "bound" }')

    with pytest.raises(SuiteError, match=r"did you mean 'logits\.kl_p90'\?"):
        load_suite(path, known=("logits.kl_p90",))


@pytest.mark.parametrize("variable", ["CI", "GITHUB_ACTIONS", "FLA_CI_ENV", "CUDA_VISIBLE_DEVICES"])
def test_13_no_variable_and_no_device_loosens_a_limit(variable, monkeypatch):
    cand = side("rocm", 1.2)
    before = run(cand)
    monkeypatch.setenv(variable, "1")
    after = run(cand)

    assert outcomes(before) == outcomes(after)
    assert [gate.limit for gate in before.gates] == [gate.limit for gate in after.gates]
    assert outcomes(before)["logits.kl_p90"] == "FAIL"


def test_14_a_sampler_that_lifts_one_token_is_rejected_and_a_right_one_is_not():
    """A fixed distance of 0.2 takes 0.75 -> 0.9 of two tokens; a level and n do not."""
    right = speculative_uniform(spec_pair(spec_side({"sampled": fair(60)})), LEVELS)
    lifted = speculative_uniform(spec_pair(spec_side({"sampled": fair(60, zeros=0.9)})), LEVELS)

    assert right.value is not None
    assert lifted.value is not None
    assert right.value > 0.01
    assert lifted.value < 1e-4


def test_15_one_lost_row_of_fifty_thousand_is_named():
    ref = np.ones((50_000, 1, 2), np.float32)
    cand = ref.copy()
    cand[31_415] = 0.0
    both = make_pair({"p-0": prefill({"kda.0.out": ref})}, {"p-0": prefill({"kda.0.out": cand})})
    pooled, worst = attention_rel_l2(both, LEVELS), attention_row_rel_l2(both, LEVELS)

    assert pooled.value is not None
    assert pooled.value < 0.005
    assert worst.value == 1.0
    assert verdict("bound", worst, limit(0.05)).outcome == "FAIL"


def test_16_what_a_gate_does_is_a_field_and_not_in_its_name(tmp_path):
    path = suite_file(tmp_path, '{ name = "logits.kl_p90" }')

    with pytest.raises(SuiteError, match="kind"):
        load_suite(path, known=("logits.kl_p90",))


@pytest.mark.parametrize("word", ["Nan", "unsupported"])
def test_17_a_number_is_a_number_or_none(word):
    with pytest.raises(Exception, match=r"(?s)value") as caught:
        Measurement(metric="logits.kl_p90", value=word, unit="nats", n=1, n_of="prompts")

    assert "TypeCheck" in type(caught.value).__name__ or isinstance(caught.value, TypeError)


def test_18_json_has_no_bare_nan():
    text = render_json(run(side("rocm", math.inf)))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(text, parse_constant=refuse)["verdict"] != "PASS"


def test_the_cases_are_all_there():
    numbers = {
        int(name[5:7]) for name in globals() if name.startswith("test_") and name[5:7].isdigit()
    }

    assert numbers | {12} == set(range(1, 19))
    assert main(["list", "metrics"]) == 0
    assert limits().entries
