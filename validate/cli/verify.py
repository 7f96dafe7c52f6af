"""``validate golden verify``: does today's source still compute what a golden holds?"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from validate.capture.devices import has_card
from validate.capture.digest import file_sha256
from validate.capture.goldens import write_verified
from validate.capture.project import Project, Recipe
from validate.capture.reader import CaptureReader, open_capture
from validate.capture.resolve import Progress
from validate.capture.subset import Subset, subset
from validate.cli.cast import ORACLE, family
from validate.cli.goldens import note_for
from validate.cli.recipes import chosen_goldens, device_for, record_recipe
from validate.cli.session import open_project, read_target
from validate.cli.verify_evals import DOCS, eval_problems
from validate.oracle import load_weights
from validate.run import compare
from validate.schema import Outcome, Prompt, Side
from validate.schema.report import GateReport, Report
from validate.schema.suite import Suite
from validate.suite import load_limits, load_suite

__all__ = ["Result", "choose_sample", "gate_problem", "verify_goldens"]

SHOWN = 3
"""How many problems a line tells; the rest are counted."""
PLAIN = ""
LEAST = {"state": 1, "tensors": 2, PLAIN: 6}
"""Prompts of a sample at least, by the tag that decides what is captured of them."""
FLOAT32_REL_L2 = 1e-6
"""Two float64 runs of the oracle, stored as float32, differ by less (8 units of 2**-23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one golden."""

    ok: bool
    line: str
    """For the user; names the golden."""


def verify_goldens(
    names: Sequence[str], *, device: str | None, progress: Progress
) -> tuple[Result, ...]:
    """Run a sample of each golden again; where it holds, accept today's source.

    Raises:
        InputError: A name is no golden, or its recipe's device is not here.
        CaptureError: A golden is missing or damaged.
    """
    project = open_project()
    chosen = chosen_goldens(names, project)
    devices = {name: _device(name, recipe, wanted=device) for name, recipe in chosen.items()}
    return tuple(
        _verify(name, recipe, project=project, device=devices[name], progress=progress)
        for name, recipe in chosen.items()
    )


def choose_sample(golden: Side) -> tuple[str, ...]:
    """Ids of whole batches, with states, with tensors and plain, spread over their sizes.

    Whole batches, because what shares a batch decides how sums are split: on the
    card that made the golden, unchanged source then gives the very same numbers.
    """
    batches: list[list[Prompt]] = []
    for name, prompt in golden.prompts.items():
        if not batches or golden.manifest.batch_rows.get(name, 0) == 0:
            batches.append([])
        batches[-1].append(prompt)
    kinds: dict[str, list[list[Prompt]]] = {tag: [] for tag in LEAST}
    for batch in batches:
        tags = {tag for prompt in batch for tag in prompt.tags}
        kinds[next((tag for tag in LEAST if tag in tags), PLAIN)].append(batch)
    chosen = [batch for tag, least in LEAST.items() for batch in _spread(kinds[tag], least)]
    kept = {prompt.id for batch in chosen for prompt in batch}
    return tuple(name for name in golden.prompts if name in kept)


def _spread(batches: Sequence[list[Prompt]], least: int) -> Iterator[list[Prompt]]:
    """The cheapest batch and others evenly up the cost, until there are ``least`` prompts."""
    by_cost = sorted(batches, key=lambda batch: sum(len(prompt.token_ids) for prompt in batch))
    if not by_cost:
        return
    wanted = min(len(by_cost), -(-least // max(len(batch) for batch in by_cost)))
    for number in range(wanted):
        yield by_cost[number * len(by_cost) // wanted]


def gate_problem(gate: GateReport, *, by_floor: bool) -> str | None:
    """Why a gate speaks against today's source; None when it does not.

    A sample is too small for the confidence that a PASS needs, so an
    INCONCLUSIVE gate holds when its measured value is within the limit, and one
    of kind lossless when it rejects nothing: how much it would see is a matter
    of the whole golden.

    Args:
        gate: One gate of golden against the run of today's source.
        by_floor: Whether the value must be within the noise floor as well: on the
            card that made the golden, for a gate that measures 0 on equal runs.
    """
    found, limit = gate.measurement, gate.limit
    unseen = gate.kind == "lossless" and gate.outcome is Outcome.INCONCLUSIVE
    if (
        gate.name == "yardstick.floor"
        or gate.outcome is Outcome.PASS
        or (unseen and found is not None and found.value is not None)
    ):
        beyond = None
    elif gate.outcome is not Outcome.INCONCLUSIVE:
        beyond = gate.reason or str(gate.outcome)
    elif found is None or found.value is None or limit is None:
        beyond = gate.reason or "nothing was measured"
    else:
        value = found.value if gate.judged is None else gate.judged
        beyond = None if value <= limit.value else f"{value:.4g} is beyond {limit.value:.4g}"
    floor = None if gate.noise is None else gate.noise.value
    if beyond is None and by_floor and floor is not None and found and found.value is not None:
        within = found.value <= floor
        beyond = None if within else f"{found.value:.4g} is above the noise floor {floor:.4g}"
    return None if beyond is None else f"{gate.name}: {beyond}"


def _device(name: str, recipe: Recipe, *, wanted: str | None) -> str:
    """The device wanted, else the recipe's where it is here, else the CPU."""
    here = recipe.device == "cpu" or has_card(recipe.device)
    return device_for(name, recipe, wanted=wanted or (recipe.device if here else "cpu"))


def _verify(
    name: str, recipe: Recipe, *, project: Project, device: str, progress: Progress
) -> Result:
    folder = project.folder(name)
    golden = open_capture(folder, label=name)
    sample = choose_sample(golden)
    prompts = [golden.prompts[prompt] for prompt in sample]
    suite = load_suite(project.suite)
    limits = load_limits(project.root / suite.limits)
    held = golden.evals
    answered = held is not None and suite.tasks is not None
    with tempfile.TemporaryDirectory(prefix="validate-verify-") as scratch:
        out = Path(scratch) / name
        record_recipe(
            name,
            recipe,
            project=project,
            prompts=prompts,
            prompt_set=golden.manifest.prompt_set,
            out=out,
            device=device,
            resume=False,
            progress=progress,
            tasks=project.root / str(suite.tasks) if answered else None,
            docs=DOCS,
        )
        fresh = open_capture(out, label=f"{name} run again")
        part = subset(golden, sample)
        if recipe.backend == "oracle":
            problems = list(tensor_problems(part, fresh))
        else:
            report = _compare(
                part, fresh, name=name, project=project, suite=suite, progress=progress
            )
            same = fresh.manifest.provenance.hardware == golden.manifest.provenance.hardware
            problems = _gate_problems(report, suite=suite, same_card=same)
            if held is not None:
                dtype = golden.manifest.dtype
                problems += eval_problems(held, fresh.evals, limits=limits, dtype=dtype)
        note = note_for(recipe.backend, out, how="verified", sample=sample)
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        line = f"{name}: not accepted, {'; '.join(problems[:SHOWN])}{more}"
        return Result(ok=False, line=f"{line}\n  do next: validate golden record {name}")
    write_verified(folder, note)
    return Result(
        ok=True, line=f"{name}: {len(sample)} prompts run again on {note.hardware}, accepted"
    )


def _gate_problems(report: Report, *, suite: Suite, same_card: bool) -> list[str]:
    zero_on_self = {gate.name for gate in suite.gates if gate.on_self == 0}
    told = [
        gate_problem(gate, by_floor=same_card and gate.name in zero_on_self)
        for gate in report.gates
        if not gate.name.startswith("evals.")  # documents are joined one by one instead
    ]
    return [problem for problem in told if problem is not None]


def _compare(
    golden: Subset,
    fresh: CaptureReader,
    *,
    name: str,
    project: Project,
    suite: Suite,
    progress: Progress,
) -> Report:
    sample = tuple(golden.prompts)
    oracle = _oracle(golden, project)
    weights = project.weights / f"{golden.manifest.model.weights}.safetensors"
    known = oracle is not None and file_sha256(weights) == golden.manifest.model.weights_digest
    beside = family(read_target(name, project), project)
    return compare(
        ref=golden,
        cand=fresh,
        suite=suite,
        limits=load_limits(project.root / suite.limits),
        repeats=tuple(
            subset(open_capture(project.folder(other), label=other), sample) for other in beside
        ),
        oracle=oracle,
        weights=load_weights(weights) if known else None,
        config=json.loads(project.model_config_file.read_bytes()) if known else None,
        command=f"validate golden verify {name}",
        progress=lambda what: progress(0, 0, f"{name}: {what}"),
    )


def _oracle(golden: Side, project: Project) -> Subset | None:
    if ORACLE not in project.targets or not project.folder(ORACLE).is_dir():
        return None
    oracle = open_capture(project.folder(ORACLE), label=ORACLE)
    return subset(oracle, tuple(golden.prompts))


def tensor_problems(golden: Side, fresh: Side) -> Iterator[str]:
    """Tensors and streams of two oracle runs that are not the same numbers."""
    for prompt in golden.prompts:
        if golden.names(prompt) != fresh.names(prompt):
            yield f"{prompt}: other tensors"
            continue
        if golden.streams[prompt].token_ids != fresh.streams[prompt].token_ids:
            yield f"{prompt}: another greedy stream"
        for name in golden.names(prompt):
            a, b = golden.tensor(prompt, name), fresh.tensor(prompt, name)
            if a.shape != b.shape or a.dtype != b.dtype:
                yield f"{prompt}/{name}: another shape or dtype"
            elif not np.issubdtype(a.dtype, np.floating):
                if not np.array_equal(a, b):
                    yield f"{prompt}/{name}: other values"
            else:
                size = float(np.linalg.norm(a.astype(np.float64)))
                error = float(np.linalg.norm(b.astype(np.float64) - a.astype(np.float64)))
                if not (error <= FLOAT32_REL_L2 * size):
                    yield f"{prompt}/{name}: differs by {error:.3g} of {size:.3g}"
