"""Resolution: stored captures are opened, others are made once per digest of what matters."""

import errno
import importlib.metadata
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.captures import make_header
from validate.capture import CaptureWriter, devices, goldens, resolve as resolving
from validate.capture.devices import choose_device
from validate.capture.project import Project, load_project
from validate.capture.provenance import sources_digest
from validate.capture.resolve import Resolved, capture_key, resolve
from validate.capture.targets import Target, parse_target
from validate.errors import CaptureError, InputError
from validate.schema import Prompt

ROOT = Path(__file__).parents[3]
PROMPTS = (Prompt(id="p-0", token_ids=(256, 1, 2), prompt_length=2),)
BACKEND = "validate.capture.backends.torch_model"


class FakeBackend(types.ModuleType):
    """Writes a manifest, or fails as it is told; remembers every call."""

    def __init__(self) -> None:
        super().__init__(BACKEND)
        self.calls: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.begins = False

    def record(self, *, out: Path, **arguments: Any) -> None:
        self.calls.append(arguments | {"out": out})
        if self.begins:
            with CaptureWriter(out, header=make_header(PROMPTS), command=arguments["command"]):
                raise KeyboardInterrupt
        out.mkdir(parents=True, exist_ok=True)
        if self.error is not None:
            (out / "shard.partial").write_text("half", "utf-8")
            raise self.error
        (out / "manifest.json").write_text("{}", "utf-8")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    fake = FakeBackend()
    monkeypatch.setitem(sys.modules, BACKEND, fake)
    return fake


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")
    weights = tmp_path / "golden" / "k3-nano" / "weights"
    weights.mkdir(parents=True)
    (weights / "seed1.safetensors").write_bytes(b"one")
    (weights / "seed2.safetensors").write_bytes(b"two")
    return load_project(tmp_path / "validate.toml")


def ignore(done: int, total: int, what: str) -> None:
    """Progress that nobody reads."""


def target(text: str, project: Project) -> Target:
    return parse_target(text, project, faults={"VX-01": "cand"})


def take(
    text: str,
    project: Project,
    *,
    fresh: bool = False,
    make: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    return resolve(
        target(text, project),
        project=project,
        prompts=PROMPTS,
        prompt_set="default",
        fresh=fresh,
        progress=ignore,
        environ=environ or {},
        make=make,
    )


def test_nothing_is_made_when_only_the_place_is_asked_for(
    backend: FakeBackend, project: Project
) -> None:
    asked = take("rocm", project, make=False)

    assert (asked.reused, asked.path.exists(), backend.calls) == (False, False, [])
    made = take("rocm", project)
    assert take("rocm", project, make=False).reused
    assert made.path == asked.path


def test_path_that_runs_here_is_captured_once_and_then_reused(
    backend: FakeBackend, project: Project
) -> None:
    first = take("rocm:pad=tile", project)
    second = take("rocm:pad=tile", project)

    assert (first.reused, second.reused) == (False, True)
    assert first.path == second.path
    assert first.path.parent == project.runs
    assert len(backend.calls) == 1
    call = backend.calls[0]
    assert (call["path"], call["options"], call["device"]) == ("rocm", {"pad": "tile"}, "cpu")
    assert (call["target"], call["prompt_set"], call["resume"]) == (
        "rocm:pad=tile",
        "default",
        False,
    )


def test_order_of_keys_makes_no_second_capture(backend: FakeBackend, project: Project) -> None:
    take("rocm:splits=2,pad=tile", project)

    assert take("rocm:pad=tile,splits=2", project).reused
    assert backend.calls[0]["target"] == "rocm:pad=tile,splits=2"


def test_fresh_makes_the_capture_anew_in_its_place(backend: FakeBackend, project: Project) -> None:
    first = take("rocm", project)
    (first.path / "old").write_text("", "utf-8")

    again = take("rocm", project, fresh=True)

    assert (again.path, again.reused, len(backend.calls)) == (first.path, False, 2)
    assert not (first.path / "old").exists()
    assert backend.calls[1]["resume"] is False


def test_unfinished_capture_is_taken_up_again(backend: FakeBackend, project: Project) -> None:
    backend.error = KeyError("stop")
    with pytest.raises(KeyError):
        take("rocm", project)
    backend.error = None

    done = take("rocm", project)

    assert not done.reused
    assert [call["resume"] for call in backend.calls] == [False, True]


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interrupted_capture_says_that_the_same_command_takes_it_up(
    backend: FakeBackend, project: Project, *, fresh: bool
) -> None:
    backend.begins = True

    with pytest.raises(KeyboardInterrupt) as caught:
        take("rocm", project, fresh=fresh)
    assert str(caught.value) == (
        f"{backend.calls[0]['out']} holds what was recorded; to take it up: "
        f"run the same command again{' without --fresh' if fresh else ''}"
    )


def test_an_interruption_with_nothing_to_take_up_claims_nothing(
    backend: FakeBackend, project: Project
) -> None:
    backend.error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt) as caught:
        take("rocm", project)
    assert str(caught.value) == ""


def test_unfinished_capture_of_another_commit_is_begun_anew(
    backend: FakeBackend, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.error = KeyError("stop")
    with pytest.raises(KeyError):
        take("rocm", project)
    backend.error = None
    monkeypatch.setattr(resolving, "source_state", lambda: ("0" * 40, None))

    done = take("rocm", project)

    assert [call["resume"] for call in backend.calls] == [False, False]
    assert not (done.path / "shard.partial").exists()


def test_key_is_written_beside_the_capture(backend: FakeBackend, project: Project) -> None:
    done = take("rocm", project)

    key = json.loads(done.path.with_name(f"{done.path.name}.key.json").read_text("utf-8"))
    assert key["target"] == "rocm"
    assert key["sources"] == sources_digest("models", "capture")


def key_of(text: str, project: Project, **changes: Any) -> dict[str, str]:
    arguments: dict[str, Any] = {
        "project": project,
        "prompts": PROMPTS,
        "prompt_set": "default",
        "device": "cpu",
        "environ": {},
    }
    return capture_key(target(text, project), **(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"environ": {"ATEN_CPU_CAPABILITY": "avx2"}}, "environment"),
        ({"environ": {"OMP_NUM_THREADS": "1"}}, "environment"),
        ({"environ": {"AITER_SITUV2_A8W4": "1"}}, "environment"),
        ({"prompts": (PROMPTS[0].model_copy(update={"token_ids": (256, 1, 3)}),)}, "prompts"),
        ({"prompts": (PROMPTS[0].model_copy(update={"tags": ("state",)}),)}, "prompts"),
        ({"prompt_set": "other"}, "prompt_set"),
    ],
)
def test_key_changes_with_what_the_numbers_depend_on(
    changes: dict[str, Any], part: str, project: Project
) -> None:
    before, after = key_of("rocm", project), key_of("rocm", project, **changes)

    assert {name for name in before if before[name] != after[name]} == {part}


def test_key_ignores_variables_that_change_no_number(project: Project) -> None:
    assert key_of("rocm", project) == key_of("rocm", project, environ={"EDITOR": "vi"})


def test_key_changes_with_weights_options_torch_cpu_threads_and_sources(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key_of("rocm", project)
    assert key_of("rocm:weights=seed2", project)["weights"] != before["weights"]
    assert key_of("rocm:pad=tile", project)["target"] != before["target"]
    (project.weights / "seed1.safetensors").write_bytes(b"other")
    assert key_of("rocm", project)["weights"] != before["weights"]

    replaced = {
        "cpu": (resolving, "cpu_flags", lambda: "avx2"),
        "processors": (resolving, "processors", lambda: 99),
        "torch": (importlib.metadata, "version", lambda name: "9.9"),
        "sources": (resolving, "sources_digest", lambda *rooms: "0" * 64),
    }
    for part, (place, name, other) in replaced.items():
        with monkeypatch.context() as patch:
            patch.setattr(place, name, other)
            assert key_of("rocm", project)[part] != before[part], part


def make_golden(project: Project, name: str = "cuda") -> Path:
    folder = project.folder(name)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}", "utf-8")
    return folder


def note(**changes: Any) -> goldens.Verified:
    fields: dict[str, Any] = {
        "backend": "torch",
        "source_digest": goldens.backend_digest("torch"),
        "how": "recorded",
        "device": "cuda",
        "hardware": "NVIDIA H200",
        "date": "2026-11-30T00:00:00+00:00",
    }
    return goldens.Verified(**(fields | changes))


def test_current_golden_is_taken_as_it_is(project: Project) -> None:
    folder = make_golden(project)
    goldens.write_verified(folder, note())

    done = take("cuda", project)

    assert (done.path, done.reused, done.label, done.stale) == (folder, False, "cuda", None)


def test_golden_of_other_source_is_stale_until_verified(project: Project) -> None:
    folder = make_golden(project)
    goldens.write_verified(folder, note(source_digest="ab" * 32))

    text = take("cuda", project).stale

    assert text is not None
    assert text.startswith(f"golden 'cuda' in {folder} is stale: it was recorded on 2026-11-30")
    assert "(NVIDIA H200) for source abababababab" in text
    assert "changed: files under validate/models" in text
    assert text.endswith("do next: validate golden verify cuda")
    goldens.write_verified(folder, note(how="verified"))
    assert take("cuda", project).stale is None


def test_golden_without_a_note_is_stale(project: Project) -> None:
    make_golden(project)

    assert "has no verified.json: nobody says for which source" in str(take("cuda", project).stale)


def test_golden_reached_by_its_folder_is_held_to_its_note_too(project: Project) -> None:
    folder = make_golden(project)
    goldens.write_verified(folder, note(source_digest="ab" * 32))

    assert "is stale" in str(take(str(folder), project).stale)


def test_oracle_golden_goes_stale_with_the_oracle_alone(project: Project) -> None:
    folder = make_golden(project, "oracle")
    goldens.write_verified(
        folder, note(backend="oracle", source_digest=goldens.backend_digest("oracle"))
    )

    assert take("oracle", project).stale is None
    assert goldens.backend_digest("oracle") != goldens.backend_digest("torch")


def test_damaged_note_is_named(project: Project) -> None:
    folder = make_golden(project)
    (folder / goldens.VERIFIED_NAME).write_text('{"schema_version": 1}', "utf-8")

    with pytest.raises(CaptureError) as caught:
        take("cuda", project)

    assert str(caught.value).startswith(
        f"{folder / goldens.VERIFIED_NAME}: backend: Field required"
    )


def test_golden_that_was_never_recorded_says_how_to_record_it(project: Project) -> None:
    with pytest.raises(CaptureError) as caught:
        take("cuda", project)

    assert "is no whole capture: no such folder" in str(caught.value)
    assert str(caught.value).endswith("do next: validate golden record cuda")


def test_samples_of_lm_eval_without_results_are_told_as_such(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a capture that lacks its manifest."""
    monkeypatch.chdir(project.root)
    (project.root / "rocm/toy").mkdir(parents=True)
    (project.root / "rocm/toy/samples_arc_2026-01-05.jsonl").write_text("{}\n")

    with pytest.raises(CaptureError) as caught:
        take("rocm", project)

    assert (
        "'rocm': rocm holds 1 sample files of lm-eval, e.g. samples_arc_2026-01-05.jsonl, and no "
        "results_*.json beside them"
    ) in str(caught.value)
    assert "with --log_samples and --output_path" in str(caught.value)


def test_folder_without_a_manifest_is_no_whole_capture(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    (project.root / "rocm").mkdir()

    with pytest.raises(CaptureError) as caught:
        take("rocm", project)

    assert caught.value.exit_code == 4
    assert "'rocm': rocm is no whole capture: no manifest.json in it" in str(caught.value)
    assert "this folder hides the target named rocm" in str(caught.value)


def test_full_disk_is_said_and_the_rest_passes_through(
    backend: FakeBackend, project: Project
) -> None:
    backend.error = OSError(errno.ENOSPC, "No space left on device", "shard-0")
    with pytest.raises(CaptureError, match="shard-0: the capture could not be written: No space"):
        take("rocm", project)

    backend.error = FileNotFoundError(errno.ENOENT, "No such file", "x")
    with pytest.raises(FileNotFoundError):
        take("rocm", project)


def test_stored_capture_cannot_be_recorded(project: Project) -> None:
    with pytest.raises(InputError, match="target 'cuda' is a stored capture"):
        resolving.record_target(
            target("cuda", project),
            prompts=PROMPTS,
            prompt_set="default",
            out=project.runs,
            device="cpu",
            resume=False,
            progress=ignore,
        )


@pytest.mark.parametrize(
    ("text", "cards", "wanted", "expected"),
    [
        ("rocm", (), None, "cpu"),
        ("rocm", ("rocm",), None, "rocm"),
        ("rocm", ("rocm",), "cpu", "cpu"),
        ("reference", ("rocm",), None, "cpu"),
        ("reference", ("cuda",), None, "cpu"),
        ("reference", ("cuda",), "cuda", "cuda"),
    ],
)
def test_device_follows_the_path_and_what_is_here(
    text: str,
    cards: tuple[str, ...],
    wanted: str | None,
    expected: str,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "has_card", lambda kind: kind in cards)

    assert choose_device(target(text, project), wanted) == expected


def test_device_that_is_not_here_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "has_card", lambda kind: False)

    with pytest.raises(InputError, match=r"device 'cuda': torch .* finds no cuda device here"):
        choose_device(target("reference", project), "cuda")
    with pytest.raises(InputError, match=r"device 'tpu' is unknown; known: cpu, cuda, rocm"):
        choose_device(target("reference", project), "tpu")


def test_aiter_kernels_run_or_refuse(project: Project) -> None:
    with pytest.raises(InputError) as caught:
        choose_device(target("rocm:kernels=aiter", project), None)

    assert "kernels=aiter runs AITER's kernels or nothing" in str(caught.value)
    assert "device cpu, package aiter not installed" in str(caught.value)


def test_cpu_build_of_torch_has_no_card() -> None:
    assert devices.has_card("rocm") is False
