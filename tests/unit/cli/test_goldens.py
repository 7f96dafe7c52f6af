"""``golden``: recorded beside the old and swapped in, verified by a sample, calibrated by rules."""

import errno
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.captures import make_header, make_prompt, write_capture
from tests.fakes import FakeSide
from tests.unit.run.made import gate, run, side
from validate.capture import CaptureWriter
from validate.capture.goldens import backend_digest, read_verified, stale_reason, write_verified
from validate.capture.project import Project, load_project
from validate.cli import main
from validate.cli.verify import choose_sample, gate_problem, tensor_problems
from validate.errors import CaptureError
from validate.schema import Outcome, Prompt
from validate.schema.report import GateReport

ROOT = Path(__file__).parents[3]
BACKEND = "validate.capture.backends.torch_model"
PROMPTS = [make_prompt(n) for n in range(3)]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")
    (tmp_path / "suites" / "prompts").mkdir(parents=True)
    suite = (ROOT / "suites" / "default.toml").read_text("utf-8")
    (tmp_path / "suites" / "default.toml").write_text(suite, "utf-8")
    lines = "".join(prompt.model_dump_json() + "\n" for prompt in PROMPTS)
    (tmp_path / "suites" / "prompts" / "default.jsonl").write_text(lines, "utf-8")
    monkeypatch.chdir(tmp_path)
    return load_project(tmp_path / "validate.toml")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A torch backend that writes small captures and can be told to fail."""
    seen: list[dict[str, Any]] = []
    fake = types.ModuleType(BACKEND)

    def record(**arguments: Any) -> None:
        seen.append(arguments)
        if arguments["target"] == FAILING.get("target"):
            raise CaptureError(FAILING["target"])
        header = make_header(arguments["prompts"], target=arguments["target"])
        write_capture(arguments["out"], arguments["prompts"], header=header)

    fake.record = record  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, BACKEND, fake)
    FAILING.clear()
    return seen


FAILING: dict[str, str] = {}


def test_recording_follows_the_recipe_and_notes_today_s_source(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], project: Project
) -> None:
    assert main(["golden", "record", "cuda-repeat", "--device", "cpu"]) == 0

    folder = project.folder("cuda-repeat")
    assert capsys.readouterr().out == f"{folder}\n"
    call = calls[0]
    assert (call["path"], call["target"], call["device"]) == ("reference", "cuda-repeat", "cpu")
    recipe = project.targets["cuda-repeat"].recipe
    assert recipe is not None
    assert call["options"] == recipe.options
    note = read_verified(folder)
    assert note is not None
    assert (note.how, note.source_digest, note.hardware) == (
        "recorded",
        backend_digest("torch"),
        "Test CPU",
    )
    assert stale_reason("cuda-repeat", folder) is None
    assert [path.name for path in folder.parent.iterdir()] == ["cuda-repeat"]


def test_card_that_is_not_here_is_refused_before_anything_is_recorded(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["golden", "record"]) == 2
    said = capsys.readouterr().err
    assert "device 'cuda': torch" in said
    assert "--device cpu" in said
    assert calls == []


def test_unknown_golden_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["golden", "record", "cuda-repaet"]) == 2
    assert "'cuda-repaet' is no golden with a recipe; did you mean 'cuda-repeat'?" in (
        capsys.readouterr().err
    )
    assert main(["golden", "verify", "rocm"]) == 2


def test_old_golden_stays_until_the_new_one_is_whole(
    calls: list[dict[str, Any]], project: Project
) -> None:
    main(["golden", "record", "cuda", "--device", "cpu"])
    before = (project.folder("cuda") / "manifest.json").read_bytes()
    FAILING["target"] = "cuda"

    assert main(["golden", "record", "cuda", "--device", "cpu"]) == 4

    assert (project.folder("cuda") / "manifest.json").read_bytes() == before


def test_recording_begins_anew_unless_it_is_resumed(
    calls: list[dict[str, Any]], project: Project
) -> None:
    partial = project.folder("cuda").with_name(".cuda.partial")
    partial.mkdir(parents=True)
    (partial / "old").write_text("", "utf-8")

    main(["golden", "record", "cuda", "--device", "cpu"])

    assert not (project.folder("cuda") / "old").exists()
    main(["golden", "record", "cuda", "--device", "cpu", "--resume"])
    assert [call["resume"] for call in calls] == [False, True]


def begin(partial: Path, command: tuple[str, ...] | None = None) -> None:
    with CaptureWriter(partial, header=make_header(PROMPTS), command=command):
        pass


def test_an_unfinished_recording_is_not_deleted_unasked(
    calls: list[dict[str, Any]], project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is recorded, of a golden that is named before it either."""
    partial = project.folder("cuda-repeat").with_name(".cuda-repeat.partial")
    begin(partial, ("golden record", "cuda-repeat", "--device", "cpu"))

    assert main(["golden", "record", "cuda", "cuda-repeat", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == (
        f"InputError: 'cuda-repeat': {partial} holds an unfinished recording; nothing was done\n"
        "  do next: validate golden record --resume cuda-repeat --device cpu, or remove "
        f"{partial} to begin anew\n"
    )
    assert (partial / "journal.jsonl").is_file()
    assert calls == []


@pytest.mark.parametrize("name", ["journal.jsonl", "manifest.json"])
def test_a_recording_that_cannot_be_read_is_not_deleted_either(
    calls: list[dict[str, Any]],
    project: Project,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    partial = project.folder("cuda").with_name(".cuda.partial")
    partial.mkdir(parents=True)
    (partial / name).write_text("{}\n", "utf-8")

    words = ["golden", "record", "cuda", "--device", "cpu", "--prompts"]
    assert main([*words, "suites/prompts/default.jsonl"]) == 2
    place = Path.cwd() / "suites/prompts/default.jsonl"
    again = f"validate golden record --resume cuda --device cpu --prompts {place}"
    assert f"  do next: {again}, or remove {partial}" in capsys.readouterr().err
    assert (partial / name).is_file()


def test_an_interrupted_golden_prints_its_command_and_exits_130(
    calls: list[dict[str, Any]],
    project: Project,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(**given: Any) -> None:
        begin(given["out"], given["command"])
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[BACKEND], "record", stop)
    words = ["golden", "record", "cuda", "--device", "cpu", "--tasks", "my tasks"]

    assert main(words) == 130
    partial = project.folder("cuda").with_name(".cuda.partial")
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"interrupted; {partial} holds what was recorded; to take it up: validate golden record "
        f"--resume cuda --device cpu --tasks '{Path.cwd()}/my tasks'"
    )


def test_a_golden_on_a_full_disk_is_no_bug_and_names_no_option_that_it_lacks(
    calls: list[dict[str, Any]],
    project: Project,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(**given: Any) -> None:
        begin(given["out"], given["command"])
        raise OSError(errno.ENOSPC, "No space left on device", "results")

    monkeypatch.setattr(sys.modules[BACKEND], "record", full)

    assert main(["golden", "record", "cuda", "--device", "cpu"]) == 4
    said = capsys.readouterr().err
    assert "results: the recording could not be written: No space left on device" in said
    assert "to take it up: validate golden record --resume cuda --device cpu" in said
    assert "--out" not in said


def held(batch: int, tagged: int, plain: int) -> FakeSide:
    """A capture of prompts that ran in batches of ``batch``, those with tags first."""
    named: list[tuple[str, tuple[str, ...]]] = [(f"t-{n:02d}", ("tensors",)) for n in range(tagged)]
    named += [(f"p-{n:02d}", ("text",)) for n in range(plain)]
    groups = [(n, tagged) for n in range(tagged)] + [(n, plain) for n in range(plain)]
    prompts = {
        name: Prompt(id=name, token_ids=(1,) * (40 - n), prompt_length=1, tags=tags)
        for (name, tags), (n, _) in zip(named, groups, strict=True)
    }
    rows = {name: {"logits": np.zeros((1, 3), np.float32)} for name in prompts}
    side = FakeSide("cuda", rows, prompts=prompts)
    order = {name: n % batch for (name, _), (n, _) in zip(named, groups, strict=True)}
    side.manifest = side.manifest.model_copy(update={"batch_rows": order})
    return side


def test_sample_holds_states_wherever_the_golden_does() -> None:
    side = held(3, 7, 12)
    for name in ("t-01", "t-02"):
        tags = {"tags": ("tensors", "state", "text")}
        side.prompts[name] = side.prompts[name].model_copy(update=tags)

    sample = choose_sample(side)

    assert {"t-00", "t-01", "t-02", "t-06"} <= set(sample)


def test_sample_is_made_of_whole_batches_over_all_sizes() -> None:
    assert choose_sample(held(4, 6, 12)) == (
        *(f"t-{n:02d}" for n in (4, 5)),  # the last batch of the tagged is the cheapest
        *(f"p-{n:02d}" for n in (4, 5, 6, 7, 8, 9, 10, 11)),
    )


def test_sample_of_single_rows_is_spread_from_the_shortest_up() -> None:
    sample = choose_sample(held(1, 2, 12))

    assert sample == ("t-00", "t-01", *(f"p-{n:02d}" for n in (1, 3, 5, 7, 9, 11)))


def test_sample_of_a_small_capture_is_all_of_it() -> None:
    assert choose_sample(held(8, 0, 3)) == ("p-00", "p-01", "p-02")


@pytest.mark.parametrize(
    ("off", "name", "by_floor", "said"),
    [
        (0.05, "logits.kl_p90", True, None),
        (0.5, "state.kda_rel_l2", False, None),
        (0.5, "state.kda_rel_l2", True, "state.kda_rel_l2: 0.5 is above the noise floor 0.1"),
        (3.0, "state.kda_rel_l2", False, "state.kda_rel_l2: "),
        (0.95, "logits.kl_p90", False, None),
    ],
)
def test_gate_speaks_against_the_source_beyond_limit_or_floor(
    off: float, name: str, by_floor: bool, said: str | None
) -> None:
    found = gate_problem(gate(run(side("cuda-again", off)), name), by_floor=by_floor)

    assert (found is None) == (said is None), found
    assert said is None or str(found).startswith(said)


def test_gate_that_measured_nothing_speaks_against_the_source() -> None:
    open_gate = gate(run(side("cuda-again", 0.1), oracle=None), "yardstick.ref_error")

    assert open_gate.outcome == "INCONCLUSIVE"
    assert gate_problem(open_gate, by_floor=False) == (f"yardstick.ref_error: {open_gate.reason}")


def sampled(p_value: float, outcome: str) -> GateReport:
    """A gate of kind lossless that saw less than its stated effect, or rejected."""
    plain: GateReport = gate(run(side("cuda-again", 0.05)), "logits.kl_p90")
    found = plain.measurement
    assert found is not None
    return plain.model_copy(
        update={
            "name": "speculative.uniform",
            "kind": "lossless",
            "outcome": Outcome(outcome),
            "measurement": found.model_copy(update={"value": p_value}),
            "judged": 1.0,
            "reason": f"p = {p_value}",
        }
    )


def test_a_sample_that_sees_too_little_of_a_sampler_speaks_not_against_the_source() -> None:
    assert gate_problem(sampled(0.4, "INCONCLUSIVE"), by_floor=False) is None
    assert gate_problem(sampled(1e-6, "FAIL"), by_floor=False) == "speculative.uniform: p = 1e-06"


def oracle_side(**tensors: Any) -> FakeSide:
    held = {"logits": np.ones((2, 3), np.float32), "ids": np.zeros(2, np.int32)} | tensors
    return FakeSide("oracle", {"p-0": held}, streams={"p-0": (1, 2)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"logits": np.full((2, 3), 1 + 1e-7, np.float32)}, []),
        ({"logits": np.full((2, 3), 1.001, np.float32)}, ["p-0/logits: differs by"]),
        ({"logits": np.full((2, 3), np.nan, np.float32)}, ["p-0/logits: differs by nan"]),
        ({"logits": np.ones((3, 2), np.float32)}, ["p-0/logits: another shape or dtype"]),
        ({"ids": np.ones(2, np.int32)}, ["p-0/ids: other values"]),
        ({"weights": np.ones((2, 1), np.float32)}, ["p-0: other tensors"]),
    ],
)
def test_oracle_run_again_must_give_the_same_numbers(
    change: dict[str, Any], said: list[str]
) -> None:
    found = list(tensor_problems(oracle_side(), oracle_side(**change)))

    assert len(found) == len(said)
    for problem, start in zip(found, said, strict=True):
        assert problem.startswith(start)


def test_calibration_refuses_a_path_that_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["golden", "calibrate", "--ref", "reference"]) == 2
    assert "--ref reference: it runs here" in capsys.readouterr().err


def test_calibration_refuses_stale_goldens(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], project: Project
) -> None:
    main(["golden", "record", "cuda", "--device", "cpu"])
    folder = project.folder("cuda")
    note = read_verified(folder)
    assert note is not None
    write_verified(folder, note.model_copy(update={"source_digest": "ab" * 32}))

    assert main(["golden", "calibrate"]) == 4
    assert "is stale" in capsys.readouterr().err
