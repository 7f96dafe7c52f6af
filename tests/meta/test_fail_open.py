"""Where a gate of another tool was seen to pass, ours does not: one case a row, named after it.

The situation is built from small captures, and judged by the code that judges real ones.
"""

from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt, with_positions
from tests.unit.gates.made import floor, interval, limit, measured, verdict
from tests.unit.run.made import limits, outcomes, repeats, run, side, suite
from validate.cli import main
from validate.errors import CaptureError, IncomparableError, SuiteError
from validate.metrics import METRICS
from validate.metrics.greedy_length_mismatch import greedy_length_mismatch
from validate.metrics.kl_max import kl_max
from validate.metrics.logits_nonfinite import logits_nonfinite
from validate.pairing import pair
from validate.schema import Levels
from validate.schema.suite import GateSpec
from validate.suite import load_suite, select_gates

LEVELS = Levels(low=0.99, high=0.95)


def rows(count: int = 3, vocab: int = 4) -> np.ndarray:
    return np.arange(count * vocab, dtype=np.float32).reshape(count, vocab) % 5


def paired(ref: Any, cand: Any, **changes: Any):
    """What pairing makes of two captures, as dictionaries of tensors by prompt."""
    prompts = changes.pop("prompts", (None, None))
    return pair(
        FakeSide("cuda", ref, prompts=prompts[0]),
        FakeSide("rocm", cand, prompts=prompts[1]),
        near_tie=0.25,
        route_gap=0.01,
    )


def test_polygraphy_output_absent_from_run_2():
    ref = with_positions({"p-0": rows()})
    ref["p-0"]["stream.logits"] = rows()
    cand = with_positions({"p-0": rows()})

    with pytest.raises(IncomparableError, match=r"(?s)nothing was compared.*p-0/stream\.logits"):
        paired(ref, cand)


def test_sglang_comparator_tensor_absent_from_target():
    """The other way round, too: what ref lacks is no less missing."""
    cand = with_positions({"p-0": rows()})
    cand["p-0"]["prefill.hidden.0"] = rows()
    cand["p-0"]["prefill.positions"] = np.arange(3, dtype=np.int32)

    with pytest.raises(IncomparableError, match=r"(?s)only in cand.*prefill\.hidden\.0"):
        paired(with_positions({"p-0": rows()}), cand)


def test_sglang_comparator_1_of_a_million_elements_off_by_30():
    ref = np.random.default_rng(1).normal(size=(1000, 1000)).astype(np.float32)
    cand = ref.copy()
    cand[617, 331] += 30.0
    found = kl_max(make_pair(with_positions({"p-0": ref}), with_positions({"p-0": cand})), LEVELS)
    same = kl_max(make_pair(with_positions({"p-0": ref}), with_positions({"p-0": ref})), LEVELS)

    assert same.value == 0.0
    assert verdict("bound", found, limit(0.326)).outcome == "FAIL"
    assert found.worst is not None
    assert found.worst.position == 617


def test_sglang_spec_kit_below_threshold_tried_until_green(capsys):
    """A verdict follows from its data alone; asking again asks the same, and nothing offers to."""
    cand = side("rocm", 3.0)

    assert {outcomes(run(cand))["logits.kl_p90"] for _ in range(3)} == {"FAIL"}
    assert main(["compare", "--help"]) == 0
    offered = capsys.readouterr().out.lower()
    assert "--only" in offered
    assert not [word for word in ("retr", "attempt", "until") if word in offered]


@pytest.mark.parametrize(
    ("error", "code"),
    [(CaptureError("damaged"), 4), (IncomparableError("unlike"), 4), (SuiteError("bad"), 2)],
)
def test_msprobe_any_error_exits_0(error, code, monkeypatch):
    def fail() -> None:
        raise error

    monkeypatch.setattr("validate.cli.catalogue.open_project", fail)

    assert main(["list", "faults"]) == code


def test_msprobe_op_absent_in_target_row_vanishes():
    """A gate without data stays in the report and in the verdict."""
    report = run(side("rocm"), oracle=None, suite=suite(*GATES, THREE_WAY))

    assert [gate.name for gate in report.gates][4:] == [*(g.name for g in GATES), THREE_WAY.name]
    assert outcomes(report)[THREE_WAY.name] == "INCONCLUSIVE"
    assert report.verdict != "PASS"


GATES = (GateSpec(name="logits.kl_p90", kind="bound", weight=1.0),)
THREE_WAY = GateSpec(name="logits.err_ratio", kind="three_way", weight=1.0)


def test_msprobe_nan_at_the_same_place_zeroed():
    both = rows()
    both[1, 2] = np.nan
    found = logits_nonfinite(
        make_pair(with_positions({"p-0": both}), with_positions({"p-0": both})), LEVELS
    )

    assert found.value == 2.0
    assert verdict("exact", found, limit(0.0), name="logits.nonfinite").outcome == "FAIL"


def test_atom_layer_bisect_threshold_unread_and_exit_0():
    """The limit decides, and a FAIL exits 1."""
    loose = run(side("rocm", 3.0), limits=limits(logits__kl_p90__bfloat16=entry(5.0)))

    assert outcomes(loose)["logits.kl_p90"] == "PASS"
    report = run(side("rocm", 3.0))
    assert (outcomes(report)["logits.kl_p90"], report.exit_code) == ("FAIL", 1)


def entry(value: float):
    return limit(value, pointer="t.toml#x")


def test_atom_compare_shape_mismatch_truncated_to_the_shorter():
    with pytest.raises(IncomparableError, match=r"p-0/logits: ref \(rows 3, vocab 4\), cand"):
        paired(with_positions({"p-0": rows(3, 4)}), with_positions({"p-0": rows(3, 3)}))


def test_aiter_check_allclose_failure_is_logged_and_not_raised():
    report = run(side("rocm", 3.0))

    assert (report.verdict, report.exit_code) == ("FAIL", 1)


@pytest.mark.parametrize("only", [("logits.kl_p90",), ()])
def test_modular_eligible_without_any_verdict(only):
    """What ran is the suite's: the yardstick always does, and an empty suite is no suite."""
    chosen = select_gates(suite(), only=only, skip=())

    assert {gate.name for gate in chosen} >= {"yardstick.aa", "yardstick.path_proof"}
    with pytest.raises(SuiteError, match="no gate"):
        select_gates(suite(), only=("logits",), skip=("logits",))


def test_modular_suite_without_gates(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text('schema_version = 1\nname = "x"\nalpha = 0.01\nbeta = 0.05\ngates = []\n')

    with pytest.raises(SuiteError):
        load_suite(path, known=("logits.kl_p90",))


def test_modular_verify_token_ids_not_compared():
    tensors = with_positions({"p-0": rows()})
    prompts = ({"p-0": make_prompt("p-0", [1, 2, 3])}, {"p-0": make_prompt("p-0", [1, 2, 4])})

    with pytest.raises(IncomparableError, match=r"p-0: token ids differ from position 2 on"):
        paired(tensors, tensors, prompts=prompts)


def test_vllm_check_logprobs_close_tokens_equal_logprobs_unchecked():
    """Equal argmax in every row, another distribution: the divergence is measured all the same."""
    ref = np.array([[0.0, 1.0, 0.0]] * 30, np.float32)
    cand = np.array([[0.0, 9.0, 0.0]] * 30, np.float32)
    both = make_pair(with_positions({"p-0": ref}), with_positions({"p-0": cand}))

    assert METRICS["logits.top1_flips"](both, LEVELS).value == 0.0
    assert verdict("bound", kl_max(both, LEVELS), limit(0.326)).outcome == "FAIL"


def test_nxd_resolve_metric_missing_metric_is_minus_1(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        'schema_version = 1\nname = "x"\nalpha = 0.01\nbeta = 0.05\nevidence = ["emulated"]\n'
        'model = "k3-nano"\nprompts = "p.jsonl"\n'
        'gates = [\n  { name = "logits.kl_p9o", kind = "bound" },\n]\n'
    )

    with pytest.raises(SuiteError, match=r"names no metric; did you mean 'logits\.kl_p90'\?"):
        load_suite(path, known=("logits.kl_p90",))


def test_llama_cpp_kld_any_value_no_verdict():
    """Every number has a limit, and beyond it the outcome is a FAIL."""
    found = measured(40.0, interval=interval(39.0, 41.0))

    assert verdict("bound", found, limit(0.009)).outcome == "FAIL"
    assert verdict("noise_ratio", found, limit(4.0), noise=floor(0.01)).outcome == "FAIL"


def test_inferencex_model_not_in_table_falls_back():
    """Limits are for one model, and there is no other for want of it."""
    other = make_manifest("rocm").model
    stranger = side("rocm", model=other.model_copy(update={"name": "someone-elses"}))
    report = run(stranger, ref=side("cuda", model=stranger.manifest.model))

    assert set(outcomes(report).values()) == {"INCOMPARABLE"}
    assert "its limits are for k3-nano" in str(report.gates[0].reason)


def test_inferencex_limit_not_in_table():
    lean = limits()
    del lean.entries["logits.kl_p90.bfloat16"]  # type: ignore[attr-defined]

    with pytest.raises(SuiteError, match=r"logits\.kl_p90"):
        run(side("rocm"), limits=lean)


def test_wwb_unequal_number_of_answers_zip_truncates():
    two = with_positions({"p-0": rows(), "p-1": rows()})
    one = with_positions({"p-0": rows()})

    with pytest.raises(IncomparableError, match=r"(?s)only in ref.*p-1"):
        paired(two, one)


def test_wwb_truncated_answer_has_distance_0():
    prompts = {"p-0": make_prompt("p-0", [1, 2, 3])}
    both = make_pair(
        {"p-0": {}},
        {"p-0": {}},
        prompts=prompts,
        ref_streams={"p-0": [5, 6, 7, 8]},
        cand_streams={"p-0": [5, 6]},
    )
    found = greedy_length_mismatch(both, LEVELS)

    assert found.value == 1.0
    assert verdict("exact", found, limit(0.0), name="greedy.length_mismatch").outcome == "FAIL"


def test_repeats_are_made():
    """The world that the cases above are judged in passes where nothing is wrong."""
    assert run(side("rocm"), repeats=repeats()).verdict == "PASS"
