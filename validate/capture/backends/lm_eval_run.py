"""Run lm-eval's tasks on a model and keep what it wrote: its files, and the items of them.

Scores, filters and metrics are lm-eval's own. Its entry ``simple_evaluate``
spends seconds describing the machine, which the manifest does already; this
calls ``evaluate``, which it wraps.
"""

import contextlib
import datetime as dt
import difflib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from validate.capture.durable import TEMPORARY, sync_folder, write_whole
from validate.capture.importers import open_lm_eval
from validate.errors import InputError
from validate.schema.evals import SIDECAR, EvalRequests, EvalSet

__all__ = ["run_tasks", "task_names"]

SEED = 1234
"""lm-eval's own default for few-shot examples that are drawn."""


def task_names(tasks: Path, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the tasks in a folder, those of ``wanted`` alone where any are named.

    Raises:
        InputError: The folder holds no task, or not one that is wanted.
    """
    known = sorted(path.stem for path in tasks.glob("*.yaml"))
    if not known:
        msg = f"--tasks {tasks}: holds no lm-eval task (*.yaml)"
        raise InputError(msg)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            msg = f"task '{name}' is not in {tasks}{hint}\n  known: {', '.join(known)}"
            raise InputError(msg)
    return tuple(wanted) or tuple(known)


def run_tasks(
    lm: Any,
    tasks: Path,
    *,
    results: Path,
    root: Path,
    names: Sequence[str] = (),
    limit: int | None = None,
    bos_expected: int | None = None,
    about: Mapping[str, Any] | None = None,
) -> EvalSet:
    """Run tasks through lm-eval and read back what it found.

    Args:
        lm: A language model of lm-eval. Where it has ``notes`` (what was sent of each document)
            and ``answers`` (a counted cache), both reach the files and the items.
        tasks: Folder of task files.
        results: Folder for ``results_*.json`` and ``samples_*.jsonl``; those there are replaced.
        root: Folder that ``data_files`` of the tasks are relative to.
        names: Tasks to run; empty: all of the folder.
        limit: Documents of each task; None: all.
        bos_expected: BOS tokens that the tokenizer puts before a prompt, where that is known.
        about: More of the results' ``config``, over what lm-eval and ``lm`` say.

    Raises:
        InputError: No such task, or a task asks for what ``lm`` cannot do.
        CaptureError: The files cannot be written, or not be read back.
    """
    names = task_names(tasks, names)
    _quiet()
    where = tasks.resolve()
    target = results.resolve()
    with contextlib.chdir(root):
        found = _evaluate(lm, where, names, limit)
    config = found.setdefault("config", {"limit": limit})
    config |= getattr(lm, "get_model_info", dict)() | dict(about or {})
    found["date"] = dt.datetime.now(dt.UTC).timestamp()
    found[SIDECAR] = {"bos_expected": bos_expected, "requests": _requests(lm)}
    label = str(config.get("model", type(lm).__name__))
    _write(found, target, getattr(lm, "notes", {}), label=label)
    return open_lm_eval(target, label=label).evals


def _quiet() -> None:
    """Neither bars nor hints of the two packages: the caller shows progress of its own."""
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)


def _evaluate(lm: Any, tasks: Path, names: Sequence[str], limit: int | None) -> dict[str, Any]:
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    loaded = manager.load(list(names))
    for task in loaded["tasks"].values():
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=SEED)
    found = evaluate(lm=lm, task_dict=loaded, limit=limit, bootstrap_iters=0, log_samples=True)
    if found is None:
        msg = "lm-eval gave no results: this process is not its first rank"
        raise InputError(msg)
    return dict(found)


def _requests(lm: Any) -> dict[str, Any] | None:
    answers = getattr(lm, "answers", None)
    if answers is None:
        return None
    return EvalRequests(
        asked=answers.hits + answers.sent,
        sent=answers.sent,
        cached=answers.hits,
        cache_key=answers.model,
    ).model_dump(mode="json")


def _write(
    found: Mapping[str, Any], results: Path, notes: Mapping[Any, Any], *, label: str
) -> None:
    """Write the files as ``lm_eval --log_samples`` does, each whole or not at all; results come last.

    Raises:
        CaptureError: The operating system refused.
    """
    from lm_eval.utils import handle_non_serializable

    def write(name: str, chunks: Iterable[bytes]) -> None:
        write_whole(results / name, chunks, label=label, do_next="run the tasks again")

    def lines(task: str, samples: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
        for sample in samples:
            line = _line(sample, notes.get((task, sample["doc_id"])))
            yield json.dumps(line, default=handle_non_serializable).encode() + b"\n"

    _clear(results)
    stamp = dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat().replace(":", "-")
    rest = dict(found)
    for task, samples in rest.pop("samples").items():
        write(f"samples_{task}_{stamp}.jsonl", lines(task, samples))
    text = json.dumps(rest, indent=1, default=handle_non_serializable)
    write(f"results_{stamp}.json", (text.encode(), b"\n"))


def _clear(results: Path) -> None:
    """Remove the files of an earlier run, and what one that was stopped had begun to write."""
    results.mkdir(parents=True, exist_ok=True)
    for kind in ("results_*.json", "samples_*.jsonl"):  # samples without results count for nothing
        for ending in ("", TEMPORARY):
            for old in results.glob(kind + ending):
                old.unlink()
        sync_folder(results)


def _line(sample: Mapping[str, Any], notes: Sequence[Any] | None) -> dict[str, Any]:
    """One sample in lm-eval's layout, with what it does not keep under a key of ours."""
    from lm_eval.utils import sanitize_list

    line = dict(sample)
    line["arguments"] = {
        f"gen_args_{place}": {f"arg_{part}": value for part, value in enumerate(arguments)}
        for place, arguments in enumerate(sample["arguments"])
    }
    line["resps"] = sanitize_list(sample["resps"])
    line["filtered_resps"] = sanitize_list(sample["filtered_resps"])
    line["target"] = str(sample["target"])
    if notes:
        line[SIDECAR] = _beside(notes)
    return line


def _beside(notes: Sequence[Any]) -> dict[str, Any]:
    from validate.capture.backends.lm_eval_model import BOS, token_digest

    first = notes[0]
    leading = [next((n for n, t in enumerate(note.tokens) if t != BOS), 0) for note in notes]
    told = {
        "prompt_tokens": sum(len(note.tokens) for note in notes),
        "prompt_tokens_hash": token_digest(notes),
        "bos": max(leading),
        "truncated": any(note.truncated for note in notes),
    }
    if first.generated is not None:
        told |= {"token_ids": list(first.generated), "finish_reason": first.finish}
    return told
