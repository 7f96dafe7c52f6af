"""Evals in a process beside the capture answer as in this one, and its end is told in words."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

from tests.captures import files_of
from validate.capture import open_capture
from validate.capture.backends import evals_beside, torch_model
from validate.capture.backends.evals_beside import EvalsAsked, EvalsMade
from validate.capture.backends.lm_eval_model import CaptureLM
from validate.capture.backends.torch_batch import run_batch
from validate.capture.eval_plan import EvalPlan
from validate.capture.processes import Child, start_child
from validate.errors import CaptureError, InputError
from validate.schema import CaptureHeader, Manifest, Prompt
from validate.schema.evals import EvalSet

ROOT = Path(__file__).resolve().parents[4]
PROMPTS = (Prompt(id="one", token_ids=(256, 65, 66), prompt_length=2),)


def plan_of(folder: Path, name: str, tasks: tuple[str, ...], limit: int = 3) -> EvalPlan:
    return EvalPlan(
        tasks=ROOT / "suites/tasks",
        results=folder / f"{name}.lm-eval",
        cache=folder / f"{name}.answers",
        root=ROOT,
        names=tasks,
        limit=limit,
    )


def asked(folder: Path) -> EvalsAsked:
    """Minutes of work, under the header of a golden: nothing here looks at it."""
    header = CaptureHeader.model_construct(
        **{
            name: getattr(open_capture(ROOT / "golden/k3-nano/cuda", label="cuda").manifest, name)
            for name in CaptureHeader.model_fields
        }
    )
    return EvalsAsked(
        path="rocm",
        options={},
        device="cpu",
        plan=plan_of(folder, "killed", ("k3_sort",), limit=500),
        header=header,
        resume=False,
        recording="",
        beside=True,
    )


def record(
    folder: Path,
    name: str,
    *tasks: str,
    prompts: Sequence[Prompt] = PROMPTS,
    resume: bool = False,
    **more: str,
) -> Manifest:
    """Evals of the tasks that are named; none: no evals."""
    return torch_model.record(
        path="rocm",
        options={"pad": "tile", **more},
        target="rocm:pad=tile",
        prompts=prompts,
        prompt_set="one",
        out=folder / name,
        device="cpu",
        evals=plan_of(folder, name, tasks) if tasks else None,
        resume=resume,
    )


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def use_processors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(evals_beside, "processors", lambda: count)


@pytest.fixture
def one_thread():
    """As two processes of two threads have, so that either way has one header."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_answers_items_and_branches_are_those_of_this_process(tmp_path, monkeypatch):
    made = {}
    for name, count in (("here", 1), ("beside", 2)):
        use_processors(monkeypatch, count)
        manifest = record(tmp_path, name, "k3_copy", "k3_add3")
        evals = open_capture(tmp_path / name, label=name).evals
        assert evals is not None
        made[name] = (list(evals.items), manifest.path_proof.branches, evals.requests)

    assert made["here"] == made["beside"]
    assert len(made["here"][0]) == 9


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_evals_that_are_taken_up_have_the_bytes_of_those_never_interrupted(
    tmp_path, monkeypatch, one_thread, count
):
    """Interrupted between the batch of log-likelihoods and that of texts; taken up here and beside."""
    use_processors(monkeypatch, 1)
    tasks = ("k3_copy", "k3_add3")
    whole = record(tmp_path, "whole", *tasks)
    with monkeypatch.context() as stopped:
        stopped.setattr(CaptureLM, "_generate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            record(tmp_path, "out", *tasks)
    use_processors(monkeypatch, count)

    taken_up = record(tmp_path, "out", *tasks, resume=True)

    found, expected = (files_of(tmp_path / name) for name in ("out", "whole"))
    assert found.keys() == expected.keys()
    for name in found.keys() - {"manifest.json", "timing.json"}:
        assert found[name] == expected[name], name
    assert taken_up.path_proof == whole.path_proof
    assert b'"requests":{"asked":6,"sent":6,"cached":0,' in found["evals.jsonl"]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_tasks_that_are_left_out_are_told_and_not_the_threads(tmp_path, monkeypatch):
    use_processors(monkeypatch, 2)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with pytest.raises(CaptureError, match="the process of its evals ended"):
            record(tmp_path, "out", "k3_copy")
        with pytest.raises(CaptureError) as caught:
            record(tmp_path, "out", resume=True)
    finally:
        torch.set_num_threads(before)

    assert str(caught.value) == (
        f"rocm:pad=tile: {tmp_path}/out: cannot be resumed: it was begun with lm-eval tasks, and none "
        "are given now\n  do next: validate capture --resume --target rocm:pad=tile --out "
        f"{tmp_path}/out --prompts FILE --tasks FOLDER"
    )


def test_an_unknown_task_is_an_input_error_there_too(tmp_path, monkeypatch):
    use_processors(monkeypatch, 2)

    with pytest.raises(InputError, match=r"task 'k3_copi' is not in .*did you mean 'k3_copy'"):
        record(tmp_path, "out", "k3_copi")


def test_a_child_that_ends_is_told_and_leaves_no_whole_capture(tmp_path, monkeypatch):
    use_processors(monkeypatch, 2)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))

    told = (
        r"^target 'rocm:pad=tile': the process of its evals ended with exit code 1\n  do next: remove "
        r"what ended it \(of SIGKILL mostly too little memory\), then take the recording up; what was "
        r"answered is kept$"
    )
    with pytest.raises(CaptureError, match=told):
        record(tmp_path, "out", "k3_copy")
    with pytest.raises(CaptureError, match="manifest"):
        open_capture(tmp_path / "out", label="out")


def test_a_child_that_is_killed_names_the_signal(tmp_path, monkeypatch):
    killer = tmp_path / "python"
    killer.write_text("#!/bin/sh\nkill -9 $$\n")
    killer.chmod(0o755)
    use_processors(monkeypatch, 2)
    monkeypatch.setattr(sys, "executable", str(killer))

    with pytest.raises(CaptureError, match="the process of its evals died of SIGKILL"):
        record(tmp_path, "out", "k3_copy")


def test_a_child_that_ended_is_noticed_before_the_next_batch(tmp_path, monkeypatch):
    def start(*words, **more):
        child = start_child(*words, **more)
        child.process.wait()
        return child

    def run(runner, group):
        batches.append([prompt.id for prompt in group])
        return run_batch(runner, group)

    batches: list[list[str]] = []
    prompts = [PROMPTS[0].model_copy(update={"id": name}) for name in ("one", "two", "three")]
    use_processors(monkeypatch, 2)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    monkeypatch.setattr(evals_beside, "start_child", start)
    monkeypatch.setattr(torch_model, "run_batch", run)

    with pytest.raises(CaptureError, match="the process of its evals ended with exit code 1"):
        record(tmp_path, "out", "k3_copy", prompts=prompts, batch="1")
    assert batches == [["one"]]


MADE = EvalsMade(EvalSet(model="rocm", tasks={}, items=()), {}, 1.5)


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Evals beside, and the end of the pipe that they tell on; their process was killed."""
    ours, theirs = Pipe()
    process = subprocess.Popen(["/bin/sh", "-c", "kill -9 $$"])
    monkeypatch.setattr(evals_beside, "start_child", lambda *_, **__: Child(process, ours))
    with theirs, evals_beside._Child(asked(tmp_path)) as made:
        theirs.recv()
        yield made, theirs


def test_a_look_at_evals_that_run_waits_for_nothing(child):
    running, pipe = child
    running.check()
    pipe.send(("progress", (1, 2, "half")))
    running.check()
    pipe.send(("progress", (2, 2, "all")))
    pipe.send(("made", MADE))
    told = []

    assert running.wait(lambda *words: told.append(words)) == MADE
    assert told == [(2, 2, "all")]


def test_evals_that_were_seen_made_are_kept_though_the_process_has_ended(child):
    running, pipe = child
    pipe.send(("made", MADE))
    pipe.close()
    running.check()
    running.check()

    assert running.wait(lambda *_: None) == MADE


def test_what_stopped_the_evals_is_raised_at_the_next_look(child):
    running, pipe = child
    pipe.send(("failed", InputError("no such task")))

    with pytest.raises(InputError, match=r"^no such task$"):
        running.check()


def test_a_process_killed_within_a_message_is_told(child):
    running, pipe = child
    os.write(pipe.fileno(), b"\x00\x00\x10\x00half")
    pipe.close()

    with pytest.raises(CaptureError, match=r"^target 'cuda': .* evals died of SIGKILL\n"):
        running.check()


SHADOWED = """
import os, sys, tempfile
root, os.environ["PYTHONPATH"] = sys.argv[1], os.pathsep
sys.path.insert(0, root)
import validate
sys.path.remove(root)
from validate.capture.backends.evals_beside import _START
from validate.capture.processes import ROOT, start_child
from validate.cli.recording import own_modules
assert str(ROOT) == root
with own_modules(), tempfile.TemporaryFile() as said:
    child = start_child("-c", _START, str(os.getpid()), said=said)
    child.pipe.close()  # it has all it imports by then, and nothing to do
    code = child.process.wait()
    said.seek(0)
    sys.exit(f"{code} {said.read().decode()}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["elsewhere", "beside the package"])
def test_no_module_of_the_working_directory_is_run(tmp_path, place):
    """Started as the command line does, from any folder or from the one that holds the package."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "validate").symlink_to(ROOT / "validate")
    here = root if place == "beside the package" else tmp_path
    for name in ("torch", "signal", "tempfile", "numpy"):
        (here / f"{name}.py").write_text(f"raise SystemExit('ran {name} of this folder')")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}

    told = subprocess.run(
        [sys.executable, "-P", "-c", SHADOWED, str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=here,
        env=environment,
    )

    assert told.stderr.strip() == "0"


def test_a_bug_in_the_child_is_told_with_its_place(tmp_path, monkeypatch):
    """A site module of the child plants it: it breaks what lm-eval is asked with."""
    use_processors(monkeypatch, 2)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('evals_beside' in word for word in sys.orig_argv):\n"
        "    import validate.models.weights as weights\n"
        "    def load_weights(*_, **__): raise ZeroDivisionError('planted')\n"
        "    import validate.models; validate.models.load_weights = load_weights\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))

    with pytest.raises(RuntimeError, match=r"(?s)in make_runner.*ZeroDivisionError: planted"):
        record(tmp_path, "out", "k3_copy")


def test_without_prompts_there_is_nothing_to_run_beside(tmp_path, monkeypatch):
    use_processors(monkeypatch, 2)
    monkeypatch.setattr(evals_beside, "_Child", None)

    manifest = record(tmp_path, "out", "k3_copy", prompts=())

    assert "lm_eval.loglikelihood" in manifest.path_proof.branches


KILLED = """
import os, sys, signal, time
from pathlib import Path
from tests.unit.capture.backends.test_evals_beside import asked
from validate.capture.backends.evals_beside import _Child
with _Child(asked(Path(sys.argv[1]))) as child:
    print(child._process.pid, flush=True)
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_no_child_outlives_a_recording_that_is_killed(tmp_path, seconds):
    """Before it has read what to do, and after."""
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert told.returncode == -signal.SIGKILL, told.stderr
    place = Path(f"/proc/{told.stdout.strip()}/cmdline")
    for _ in range(100):
        if not place.exists() or b"evals_beside" not in place.read_bytes():
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child is still there after 10 s")
    assert not list(tmp_path.glob("*.lm-eval/results_*.json"))


def test_two_processes_share_the_threads_of_one(monkeypatch):
    use_processors(monkeypatch, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with evals_beside.room_beside(True, device="cpu") as beside:
            assert (beside, torch.get_num_threads()) == (True, 2)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("wanted", "device", "count"), [(False, "cpu", 2), (True, "cuda", 2), (True, "cpu", 1)]
)
def test_without_evals_on_a_card_or_on_one_processor_nothing_runs_beside(
    monkeypatch, wanted, device, count
):
    use_processors(monkeypatch, count)
    before = torch.get_num_threads()

    with evals_beside.room_beside(wanted, device=device) as beside:
        assert (beside, torch.get_num_threads()) == (False, before)
