"""How stored captures are made: their recipes in ``validate.toml``, and the backends for them."""

from collections.abc import Sequence
from pathlib import Path

from validate.capture.devices import choose_device
from validate.capture.digest import prompt_set_digest
from validate.capture.eval_plan import plan_evals
from validate.capture.project import DEFAULT_WEIGHTS, Project, Recipe
from validate.capture.provenance import collect_provenance, sources_digest
from validate.capture.resolve import Progress, record_path
from validate.capture.targets import Target, did_you_mean
from validate.errors import InputError
from validate.schema import CaptureHeader, Prompt

__all__ = ["chosen_goldens", "device_for", "record_recipe"]

ORACLE_CHUNK = 8
"""Tokens a chunk of the oracle's chunked prefill; as the torch model's default."""


def chosen_goldens(names: Sequence[str], project: Project) -> dict[str, Recipe]:
    """Recipes of the goldens that are named, or of all, in the order of ``validate.toml``.

    Raises:
        InputError: A name is no golden with a recipe.
    """
    known = {
        name: entry.recipe
        for name, entry in project.targets.items()
        if entry.kind == "golden" and entry.recipe is not None
    }
    for name in names:
        if name not in known:
            msg = (
                f"'{name}' is no golden with a recipe{did_you_mean(name, known)}\n"
                f"  known: {', '.join(known) or '(none)'}"
            )
            raise InputError(msg)
    return {name: recipe for name, recipe in known.items() if not names or name in names}


def device_for(name: str, recipe: Recipe, *, wanted: str | None) -> str:
    """The device a golden is made on: the one wanted, else its recipe's; the oracle's is the CPU.

    Raises:
        InputError: The device is not here.
    """
    if recipe.backend == "oracle":
        return "cpu"
    return choose_device(as_target(name, recipe), wanted or recipe.device)


def as_target(name: str, recipe: Recipe) -> Target:
    """The recipe as a target that runs here, under the golden's own name."""
    return Target(kind="torch", name=name, options=recipe.options, text=name, path=recipe.path)


def record_recipe(
    name: str,
    recipe: Recipe,
    *,
    project: Project,
    prompts: Sequence[Prompt],
    prompt_set: str,
    out: Path,
    device: str,
    resume: bool,
    progress: Progress,
    tasks: Path | None = None,
    docs: int | None = None,
    command: Sequence[str] = (),
) -> None:
    """Record the golden ``name`` into ``out``, with ``docs`` documents of each of ``tasks``, or all.

    ``command`` is what takes an interrupted recording up, as ``resume_command`` wants it.

    Raises:
        InputError: Weights, configuration or prompts do not fit.
        CaptureError: The capture cannot be written.
    """
    if recipe.backend == "torch":
        beside = project.runs / name if docs is None else out.parent / "evals" / name
        plan = None if tasks is None else plan_evals(tasks, beside, project=project, limit=docs)
        record_path(
            recipe.path,
            options=recipe.options,
            label=name,
            prompts=prompts,
            prompt_set=prompt_set,
            out=out,
            device=device,
            resume=resume,
            evals=plan,
            command=command,
            progress=progress,
        )
        return
    from validate.capture.backends.oracle import record
    from validate.capture.backends.torch_model import STREAM_TOKENS, model_identity
    from validate.models import load_config

    config = load_config(project.model_config_file)
    weights = project.weights / f"{DEFAULT_WEIGHTS}.safetensors"
    header = CaptureHeader(
        target=name,
        dtype="float64",
        model=model_identity(config, weights=DEFAULT_WEIGHTS, weights_path=weights),
        prompt_set=prompt_set,
        prompt_digest=prompt_set_digest(prompts),
        sampling={"kind": "greedy", "max_tokens": str(STREAM_TOKENS), "ignore_eos": "true"},
        options={"chunk": str(ORACLE_CHUNK), "stored": "float32"},
        provenance=collect_provenance(device="cpu", uses_torch=False),
        evidence="emulated",
        sources_digest=sources_digest("oracle", "capture"),
    )
    done = 0

    def count(prompt: str) -> None:
        nonlocal done
        done += 1
        progress(done, len(prompts), f"{name}: {prompt}")

    record(
        weights_path=weights,
        config=config,
        prompts=prompts,
        out=out,
        header=header,
        stream_tokens=STREAM_TOKENS,
        chunk=ORACLE_CHUNK,
        resume=resume,
        command=command,
        progress=count,
    )
