"""An output folder of lm-eval as one side of a comparison: ``results_*.json`` and its samples."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from validate.capture.digest import file_sha256
from validate.capture.importers._folder import UNTOLD, EvalFolder, manifest_of
from validate.capture.importers._samples import read_items
from validate.capture.importers._task_config import task_config
from validate.capture.jsontext import whole
from validate.capture.messages import Fault, blame, capture_error, some
from validate.schema.evals import SIDECAR, EvalItem, EvalRequests, EvalSet, EvalTask, OutputType

__all__ = ["is_lm_eval_folder", "open_lm_eval"]

RERUN = "run lm-eval once more into an empty folder, with --log_samples"
OUTPUT_TYPES = ("generate_until", "loglikelihood", "loglikelihood_rolling", "multiple_choice")
SETTINGS = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")


class _Run(NamedTuple):
    """One results file and what it says."""

    file: Path
    head: dict[str, Any]


def is_lm_eval_folder(folder: Path) -> bool:
    """Whether ``folder``, or one folder in it, holds ``results_*.json``; reads nothing."""
    return bool(_homes(folder))


def open_lm_eval(folder: Path, *, label: str) -> EvalFolder:
    """Read one output folder of lm-eval; sample files are streamed line by line.

    Args:
        folder: The folder, or the one above it that lm-eval makes a model.
        label: Side or target name, which begins every message.

    Raises:
        CaptureError: Files are missing, damaged or half-written, an item is missing or there
            twice, or the folder holds several models; file, line and numbers are named.
    """
    homes = _homes(folder)
    if len(homes) != 1:
        names = some({home.name for home in homes})
        raise capture_error(
            label,
            folder,
            f"holds lm-eval results of {len(homes)} models: {names}",
            do_next=f"name one of them, e.g. {homes[0]}" if homes else RERUN,
        )
    runs = [_head(path, label) for path in sorted(homes[0].glob("results_*.json"))]
    tasks: dict[str, EvalTask] = {}
    items: list[EvalItem] = []
    files = [run.file for run in runs]
    for name, run in _owners(runs, homes[0], label).items():
        path = _sample_file(run, name, label)
        task, found = _task(path, name, run.head, label)
        tasks[name] = task
        items += found
        files.append(path)
    evals = _evals(runs[0].head, tasks, tuple(items))
    digest = _digest(files)
    return EvalFolder(
        label=label,
        path=homes[0],
        digest=digest,
        manifest=manifest_of(runs[0].head, evals, label=label, digest=digest),
        evals=evals,
    )


def _homes(folder: Path) -> list[Path]:
    """The folder itself, or those in it, that hold results."""
    if not folder.is_dir():
        return []
    if any(folder.glob("results_*.json")):
        return [folder]
    return sorted({path.parent for path in folder.glob("*/results_*.json")})


def _head(path: Path, label: str) -> _Run:
    with blame(label, path, do_next=RERUN):
        try:
            head = json.loads(path.read_text("utf-8"), parse_int=whole)
        except ValueError as err:
            msg = f"is no whole JSON file: {err} (half-written?)"
            raise Fault(msg) from err
        if not isinstance(head, dict) or not isinstance(head.get("configs"), dict):
            msg = "is no results file of lm-eval: it lacks 'configs'"
            raise Fault(msg)
    return _Run(path, head)


def _owners(runs: Sequence[_Run], home: Path, label: str) -> dict[str, _Run]:
    """Which run each task is from; a task may be in one of them only."""
    owners: dict[str, _Run] = {}
    for run in runs:
        for name in run.head["configs"]:
            if name in owners:
                raise capture_error(
                    label,
                    home,
                    f"task '{name}' is in two results files",
                    facts={"files": f"{owners[name].file.name}, {run.file.name}"},
                    do_next="keep one run of each task in a folder",
                )
            owners[name] = run
    if not owners:
        raise capture_error(label, home, "holds results of no task at all", do_next=RERUN)
    return owners


def _sample_file(run: _Run, task: str, label: str) -> Path:
    """The samples that belong to a results file: of the same date."""
    date = run.file.stem.removeprefix("results_")
    path = run.file.with_name(f"samples_{task}_{date}.jsonl")
    if path.is_file():
        return path
    pattern = re.compile(rf"samples_{re.escape(task)}_\d{{4}}-.*\.jsonl")
    others = [p for p in sorted(run.file.parent.iterdir()) if pattern.fullmatch(p.name)]
    if len(others) == 1:
        return others[0]
    raise capture_error(
        label,
        run.file.parent,
        f"task '{task}' has no samples: {path.name} is missing",
        facts={"others": some({p.name for p in others})},
        do_next="run lm-eval with --log_samples; without its samples no item can be compared",
    )


def _task(
    path: Path, name: str, head: Mapping[str, Any], label: str
) -> tuple[EvalTask, list[EvalItem]]:
    config = head["configs"][name] if isinstance(head["configs"][name], dict) else {}
    better = _of(head, "higher_is_better", name) or {}
    kind = config.get("output_type")
    output: OutputType = kind if kind in OUTPUT_TYPES else "unknown"
    metrics = sorted({*better, *_result_metrics(head, name)})
    items: list[EvalItem] = []
    with blame(label, path, do_next=RERUN):
        lines: dict[tuple[str, int], int] = {}
        for number, item in read_items(path, task=name, metrics=metrics, kind=output):
            before = lines.setdefault((item.filter, item.doc_id), number)
            if before != number:
                msg = (
                    f"lines {before} and {number} both hold doc_id {item.doc_id}, "
                    f"filter '{item.filter}': duplicated items"
                )
                raise Fault(msg)
            items.append(item)
        if not items:
            msg = "holds no sample"
            raise Fault(msg)
        docs = _count_docs(items, head, name)
    filters = tuple(dict.fromkeys(item.filter for item in items))
    seen = {metric for item in items[:1] for metric in item.scores}
    task = EvalTask(
        name=name,
        version=str(_of(head, "versions", name) or UNTOLD),
        fewshot=_fewshot(head, config, name),
        output_type=output,
        filters=filters,
        metrics={
            metric: value if isinstance(value := better.get(metric), bool) else None
            for metric in metrics
            if metric in seen
        },
        docs=docs,
        chance=_chance(items) if output == "multiple_choice" else None,
        generation={
            key: json.dumps(value, sort_keys=True)
            for key, value in (config.get("generation_kwargs") or {}).items()
        },
        config=task_config(config),
    )
    return task, sorted(items, key=lambda item: (filters.index(item.filter), item.doc_id))


def _of(head: Mapping[str, Any], table: str, task: str) -> Any:
    held = head.get(table)
    return held.get(task) if isinstance(held, dict) else None


def _result_metrics(head: Mapping[str, Any], task: str) -> set[str]:
    """Metrics of the aggregate, from keys such as ``exact_match,strict-match``."""
    keys = _of(head, "results", task) or {}
    names = {key.partition(",")[0] for key in keys if "," in key}
    return {name for name in names if not name.endswith("_stderr")}


def _fewshot(head: Mapping[str, Any], config: Mapping[str, Any], task: str) -> int:
    found = _of(head, "n-shot", task)
    found = config.get("num_fewshot") if found is None else found
    return found if isinstance(found, int) else 0


def _count_docs(items: Sequence[EvalItem], head: Mapping[str, Any], task: str) -> int:
    """Documents; every filter must hold each, and as many as the head says.

    Raises:
        Fault: Items are missing.
    """
    by_filter: dict[str, set[int]] = {}
    for item in items:
        by_filter.setdefault(item.filter, set()).add(item.doc_id)
    every = set().union(*by_filter.values())
    for name, held in by_filter.items():
        if held != every:
            lost = sorted(every - held)
            msg = (
                f"filter '{name}' lacks {len(lost)} of {len(every)} items, e.g. doc_id {lost[0]}: "
                "missing items"
            )
            raise Fault(msg)
    said = (_of(head, "n-samples", task) or {}).get("effective")
    if isinstance(said, int) and said != len(every):
        msg = (
            f"holds {len(every)} of the {said} items that the results file counts "
            "(half-written, or from another run)"
        )
        raise Fault(msg)
    return len(every)


def _chance(items: Sequence[EvalItem]) -> float | None:
    """Score of a guess: the mean of one over the choices."""
    shares = [1.0 / len(item.loglikelihoods) for item in items if item.loglikelihoods]
    return math.fsum(shares) / len(shares) if len(shares) == len(items) else None


def _evals(
    head: Mapping[str, Any], tasks: Mapping[str, EvalTask], items: tuple[EvalItem, ...]
) -> EvalSet:
    beside = head.get(SIDECAR) or {}
    requests = beside.get("requests")
    bos = beside.get("bos_expected")
    return EvalSet(
        model=_model(head),
        tasks=tasks,
        items=items,
        requests=EvalRequests.model_validate(requests) if requests else None,
        bos_expected=bos if isinstance(bos, int) else None,
        settings={key: str(head[key]) for key in SETTINGS if head.get(key) is not None},
        lost=_lost(items),
    )


def _model(head: Mapping[str, Any]) -> str:
    config = head.get("config") or {}
    return f"{config.get('model', UNTOLD)} ({_words(config.get('model_args'))})"


def _words(arguments: Any) -> str:
    if isinstance(arguments, dict):
        return ",".join(f"{key}={value}" for key, value in sorted(arguments.items()))
    return str(arguments or UNTOLD)


def _lost(items: Sequence[EvalItem]) -> tuple[str, ...]:
    told = []
    bare = sum(item.doc_hash is None or item.prompt_hash is None for item in items)
    if bare:
        told.append(
            f"{bare} of {len(items)} samples have no hashes: they are paired by doc_id, so another "
            "prompt or another order of the data set goes unnoticed"
        )
    if any(item.prompt_tokens_hash is None for item in items):
        told.append(
            "no prompt token ids: BOS tokens and tokenisation are not checked, prompts are equal "
            "as texts alone"
        )
    written = [item for item in items if item.response is not None]
    if any(item.token_ids is None for item in written):
        told.append("no response token ids: flips do not name the first divergent token")
    if any(item.finish is None for item in written):
        told.append("no finish reasons: answers that were cut are not counted")
    return tuple(told)


def _digest(files: Sequence[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.name} {file_sha256(path)}\n".encode())
    return whole.hexdigest()
