"""Parts of the selftest: what is handed out first, what is cut off in time, what is remembered."""

import math
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.captures import make_prompt, make_tensors, write_capture
from tests.fakes import FakeSide
from tests.measured import assert_measured
from validate.capture import Tensor, open_capture
from validate.errors import CaptureError, InputError
from validate.faults import FAULTS
from validate.faults.kernels import OPERATION_CONTROLS, OPERATION_FAULTS
from validate.schema import Levels, Measurement, Pair
from validate.schema.selftest import CleanReport
from validate.selftest import recall
from validate.selftest.area import QUICK, held, ordered, planned, summed_up
from validate.selftest.clean import allowed_alarms, choose_options
from validate.selftest.eval_folders import DOCS, write_pair
from validate.selftest.planted import log_probabilities
from validate.selftest.pool import Done, spread
from validate.selftest.trim import trim


def doubled(value: int) -> int:
    if value < 0:
        raise ValueError("below zero")
    return 2 * value


def broken(_value: int) -> int:
    raise CaptureError("damaged")


def done(tasks: list[int], work, **changes) -> dict[int, Done[int]]:
    found: dict[int, Done[int]] = {}
    spread(tasks, work, processes=1, done=found.__setitem__, **changes)
    return found


def test_every_fault_and_every_control_is_planned_once() -> None:
    tasks = planned("all")
    names = [task.name for task in tasks]

    assert len(set(names)) == len(names)
    assert {task.id for task in tasks if task.case is not None} >= set(FAULTS)
    operations = [task for task in tasks if task.operation is not None]
    assert len(operations) == len(OPERATION_FAULTS) + len(OPERATION_CONTROLS)
    assert {f"OK-{n}" for n in range(1, 11)} <= {task.id for task in tasks}


def test_quick_names_cases_that_exist() -> None:
    assert [task.name for task in planned("all", quick=True)] != []
    assert {task.name for task in planned("all", quick=True)} == set(QUICK)


def test_area_of_gates_keeps_faults_that_name_one_of_it() -> None:
    logits = {task.id for task in planned("logits")}

    assert {"TV-09", "ND-13", "OK-5"} <= logits
    assert logits.isdisjoint({"SA-04", "SP-11", "TV-06"})
    assert {task.id for task in planned("pairing")} == {"VX-140", "VX-141", "VX-144", "VX-147"}
    with pytest.raises(InputError, match="did you mean 'logits'"):
        planned("logit")


def test_longest_begins_first_and_one_makes_what_others_wait_for() -> None:
    first = [task.name for task in ordered(planned("all"), 4)[:5]]
    whole = ordered(planned("all"), 4)

    assert sorted(task.name for task in whole) == sorted(task.name for task in planned("all"))
    assert first[0] in {"SP-02", "VX-14", "OK-3", "OK-4"}
    assert len({"SP-02", "SP-03", "SP-05", "SP-06"} & set(first)) == 1


def test_error_of_a_case_leaves_the_others_be() -> None:
    found = done([-1, 3], doubled)

    assert found[3] == Done(result=6)
    assert found[-1] == Done(result=None, why="ValueError: below zero")
    with pytest.raises(CaptureError, match="damaged"):
        done([1], broken)


def test_time_limit_breaks_off_what_runs_and_begins_nothing_more() -> None:
    found = done([1, 2], partial(slow, 30.0), seconds=0.2)

    assert found[1] == Done(result=None, why="broken off at the time limit")
    assert found[2] == Done(result=None, why="not begun within the time limit")


def slow(seconds: float, value: int) -> int:
    time.sleep(seconds)
    return value


def test_clean_candidates_differ_and_stay_what_they_are() -> None:
    options = [choose_options(number) for number in range(300)]

    assert options[7] == choose_options(7)
    for key in ("batch", "splits", "pad", "chunk", "threads"):
        assert len({one[key] for one in options}) > 1
    assert 40 < sum("state" in one for one in options) < 110
    assert allowed_alarms(300) == 8


def test_more_alarms_than_allowed_do_not_hold() -> None:
    """Nine in 300."""
    report = CleanReport(
        runs=300,
        alarms=9,
        allowed=8,
        open=0,
        prompts=37,
        sources_digest="0" * 64,
        date="2026-01-01T00:00:00+00:00",
        seconds=1.0,
    )
    table = summed_up((), area="all", suite="default", gates=(), seconds=1.0, clean=report)

    assert not table.held
    assert held(table.model_copy(update={"clean": report.model_copy(update={"alarms": 8})}))
    assert not held(table.model_copy(update={"clean": None, "left": ("SA-01: not begun",)}))


def test_log_probabilities_are_those_of_the_logits(tmp_path: Path) -> None:
    """OK-9: the row (0, ln 3) reads ln 3/4, ln 1/4; nothing else of the capture differs."""
    prompt = make_prompt(0)
    logits = np.zeros((len(prompt.token_ids), 2), np.float32)
    logits[:, 1] = math.log(3.0)
    held = {**make_tensors(prompt), "logits": Tensor(logits, ("rows", "vocab"))}
    write_capture(tmp_path / "right", [prompt], tensors={prompt.id: held})
    log_probabilities(tmp_path / "right", tmp_path / "told")
    right, told = (open_capture(tmp_path / name, label=name) for name in ("right", "told"))

    first = {
        name: told.tensor(prompt.id, f"logits.{name}")[0].tolist()
        for name in ("topk.ids", "lse", "tail_mass")
    }
    assert first == {"topk.ids": [1, 0], "lse": 0.0, "tail_mass": 0.0}
    values = told.tensor(prompt.id, "logits.topk.logits")
    assert values.dtype == np.float32
    assert_measured(float(values[0, 0]), math.log(0.75), atol=0, rtol=1e-6)
    assert_measured(float(values[0, 1]), math.log(0.25), atol=0, rtol=1e-6)
    assert told.tensor(prompt.id, "logits.row_min")[0] == values[0, 1]
    assert set(right.names(prompt.id)) - set(told.names(prompt.id)) == {"logits"}
    assert told.streams == right.streams


def test_eval_folders_hold_the_same_items(tmp_path: Path) -> None:
    ref, cand = write_pair(tmp_path)
    names = [sorted(p.name for p in side.rglob("*") if p.is_file()) for side in (ref, cand)]

    assert names[0] == names[1]
    lines = [len(path.read_text().splitlines()) for path in ref.rglob("samples_*.jsonl")]
    assert lines == [DOCS, DOCS]


def side() -> FakeSide:
    rows = {"logits": np.zeros((2, 3)), "spec.plain.logprob": np.zeros(2)}
    return FakeSide(label="x", tensors={"a": dict(rows), "b": dict(rows)})


def test_trimmed_capture_holds_the_prompts_asked_for_and_nothing_drawn() -> None:
    trimmed = trim(side(), ["b"])

    assert list(trimmed.prompts) == ["b"]
    assert trimmed.names("b") == ("logits",)
    assert (trimmed.drawn, trimmed.manifest.model.drafter_digest) == ({}, None)
    listed = {entry.name for file in trimmed.manifest.artifacts for entry in file.tensors}
    assert all(name.startswith("b/") and "spec." not in name for name in listed)
    with pytest.raises(InputError, match="x: the capture lacks c; it has 2 prompts"):
        trim(side(), ["c"])


def test_metric_of_two_shared_sides_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What involves another side is measured each time."""
    asked = []

    def counted(pair: Pair, _levels: Levels) -> Measurement:
        asked.append(pair.cand.label)
        return Measurement(metric="m", value=0.0, unit="x", n=1, n_of="x")

    monkeypatch.setattr(recall, "METRICS", {"m": counted})
    ref, repeat, cand = side(), side(), side()
    metric = recall.recalling([ref, repeat])["m"]
    for other in (repeat, repeat, cand, cand):
        metric(Pair(ref=ref, cand=other, prompts=("a",)), Levels(low=0.99, high=0.95))

    assert len(asked) == 3
