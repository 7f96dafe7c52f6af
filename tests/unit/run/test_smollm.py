"""Sides of ``make smollm`` on disk: what is measured, judged, refused and written."""

import math

import numpy as np
import pytest

from tests.captures import make_header, make_prompt, write_capture
from tests.lm_eval_folders import choice_samples, write_folder
from validate.capture import Tensor
from validate.errors import IncomparableError
from validate.report.smollm import render_smollm
from validate.run.smollm import Side, compare_sides, measure_yardstick
from validate.run.smollm_record import Limits, SideRun, SmolReport

PROMPTS = [make_prompt(n) for n in range(30)]
YARDSTICK = Limits(loglik=0.1, bits_per_byte=0.01, kl=1e-3)
ROLLING = {"configs": {"text": {"output_type": "loglikelihood_rolling", "num_fewshot": 0}}}


def rolling(n, shift=0.0):
    """Texts of 10 bytes, one log-likelihood each."""
    samples = choice_samples(n, seed=4)
    for doc, sample in enumerate(samples):
        del sample["acc"]
        value = -20.0 - doc + shift
        sample |= {"target": "t" * 10, "resps": [[str(value)]], "filtered_resps": [str(value)]}
        sample |= {"metrics": ["bits_per_byte"], "bits_per_byte": [value, 10]}
    return samples


def make_side(folder, name, *, items=30, noise=0.0, shift=0.0, logit=0.0):
    """``logit`` is added to the second of two logits, which are 0 otherwise."""
    evals = write_folder(
        folder / name / "choice", {"arc": choice_samples(items, seed=1, noise=noise)}
    )
    home = evals / "toy__model"
    text = write_folder(folder / name / "text", {"text": rolling(12, shift)}, head=ROLLING)
    for path in (text / "toy__model").iterdir():
        target = path.name.replace("10-00-00", "11-00-00")
        path.rename(home / target)
    rows = np.zeros((5, 2), np.float32)
    rows[:, 1] += logit
    tensors = {
        "logits": Tensor(rows, ("rows", "vocab")),
        "logits.positions": Tensor(np.arange(5, dtype=np.int32), ("rows",)),
    }
    write_capture(
        folder / name / "logits",
        PROMPTS,
        header=make_header(PROMPTS, target=name, dtype="float32"),
        tensors={prompt.id: tensors for prompt in PROMPTS},
    )
    return Side(name, evals, folder / name / "logits")


def compare(ref, cand, *, role="padding"):
    return compare_sides(name="c", role=role, ref=ref, cand=cand, yardstick=YARDSTICK, share=0.1)


def test_a_side_against_itself_passes_and_all_is_identical(tmp_path):
    side = make_side(tmp_path, "plain")

    found = compare(side, side)

    assert found.outcome == "PASS"
    assert [(t.task, t.items, t.requests, t.identical) for t in found.tasks] == [
        ("arc", 30, 120, 120),
        ("text", 12, 12, 12),
    ]
    assert (found.logits.rows, found.logits.values, found.logits.identical) == (150, 300, 300)
    assert [gate.value for gate in found.gates] == [0.0, 0.0, 0.0]
    assert not found.failed_to_show()


def test_what_moves_beyond_the_limit_fails_and_a_fault_should(tmp_path):
    ref = make_side(tmp_path, "plain")
    cand = make_side(tmp_path, "fault", noise=5.0, shift=-3.0, logit=math.log(3))

    found = compare(ref, cand, role="fault")

    assert [gate.outcome for gate in found.gates] == ["FAIL", "FAIL", "FAIL"]
    assert not found.failed_to_show()
    assert compare(ref, cand).failed_to_show()


def test_numbers_are_those_of_the_formulas(tmp_path):
    ref = make_side(tmp_path, "plain")
    cand = make_side(tmp_path, "moved", shift=-3.0, logit=math.log(3))

    found = compare(ref, cand)

    # Two equal logits against odds of 1 to 3: KL = ½ ln(½ / ¼) + ½ ln(½ / ¾) = ½ ln(4/3).
    assert found.logits.kl_mean == pytest.approx(0.5 * math.log(4 / 3), rel=1e-6)
    # Ties of ref hold every id, so first choices meet.
    assert found.logits.top1_flips == 0
    assert found.logits.max_abs_delta == pytest.approx(math.log(3))
    # Three nats more over ten bytes: 0.3 / ln 2 bits per byte.
    (text,) = [task for task in found.tasks if task.task == "text"]
    assert text.score_cand - text.score_ref == pytest.approx(0.3 / math.log(2))
    assert (text.delta, text.max_abs_delta, text.flips) == (-3.0, 3.0, None)
    # (20 + 21 + … + 31) / 12 = 25.5 nats over ten bytes.
    assert text.score_ref == pytest.approx(2.55 / math.log(2))


def test_the_yardstick_is_made_of_medians_and_a_mean(tmp_path):
    ref = make_side(tmp_path, "plain")
    cand = make_side(tmp_path, "bf16", shift=-3.0, logit=math.log(3))

    limits, found = measure_yardstick(name="y", ref=ref, cand=cand)

    # 30 of 42 items did not move; the 12 texts moved by 3 nats.
    assert limits.loglik == 0.0
    assert limits.bits_per_byte == pytest.approx(0.3 / math.log(2))
    assert limits.kl == pytest.approx(0.5 * math.log(4 / 3), rel=1e-6)
    assert (found.role, found.gates, found.outcome) == ("yardstick", (), None)


def test_other_items_are_refused(tmp_path):
    ref, cand = make_side(tmp_path, "plain"), make_side(tmp_path, "short", items=20)

    with pytest.raises(IncomparableError, match="share 32 of 42 items; nothing was compared"):
        compare(ref, cand)


def test_few_items_are_inconclusive_not_passed(tmp_path):
    side = make_side(tmp_path, "few", items=5)

    found = compare(side, side)

    # 17 items: below 29 no order statistic bounds a p90 from above with 95 %.
    assert [gate.outcome for gate in found.gates] == ["INCONCLUSIVE", "PASS", "PASS"]
    assert found.outcome == "INCONCLUSIVE"
    assert found.failed_to_show()


def test_every_line_of_a_padded_side_says_emulated(tmp_path):
    side = make_side(tmp_path, "padded-zero")
    one = compare(side, side).model_copy(update={"name": "pad=zero"})
    report = SmolReport(
        tool_version="0",
        date="2026-01-01",
        command="make smollm",
        model="m",
        hardware="CPU",
        threads=1,
        versions={"torch": "2"},
        items=12,
        texts="t",
        yardstick=YARDSTICK,
        limit_rule="r.",
        comparisons=(one,),
        sides=(
            SideRun(name="padded-zero", dtype="float32", attention="a", fault=None, branches={}),
        ),
        not_shown=("n",),
        licences={},
    )

    lines = [
        line
        for line in render_smollm(report).splitlines()
        if "pad=zero" in line or "padded-" in line
    ]

    assert len(lines) == 1 + 3 + 2 + 1 + 1
    assert all("emulated" in line for line in lines)
