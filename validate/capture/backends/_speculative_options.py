"""From the keys of a target to what draws and drafts."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from validate.capture.backends.torch_speculative import TOKENS, Speculation
from validate.capture.digest import file_sha256
from validate.capture.project import Project
from validate.errors import InputError
from validate.models import Trace
from validate.models.dspark import load_draft_config, load_drafter
from validate.models.sampler import Build
from validate.models.speculate import Drafter, Target
from validate.models.verify import Verifier

__all__ = ["SPECULATIVE_KEYS", "Chosen", "choose", "speculative_options"]

SPECULATIVE_KEYS = ("draft", "verifier", "build", "cut", "tokens", "seed")
Draft = Literal["on", "off", "onehot"]
_BUILD: Mapping[str, Build] = {"reference": "dense", "rocm": "sparse"}


class Chosen(NamedTuple):
    """What a capture draws with."""

    run: Speculation
    drafter_digest: str | None


def speculative_options(
    path: str, options: Mapping[str, str], *, has_drafter: bool
) -> dict[str, str]:
    """The keys with their defaults, as the manifest states them.

    Raises:
        InputError: A value is unknown, or a key says how to judge drafts that ``draft=off``
            leaves out.
    """
    draft = options.get("draft", "on" if has_drafter else "off")
    made = {
        "draft": _one_of("draft", draft, get_args(Draft)),
        "build": _one_of("build", options.get("build", _BUILD[path]), get_args(Build)),
        "tokens": options.get("tokens", str(TOKENS["spec-sampled"])),
        "seed": options.get("seed", "1"),
    }
    if draft == "off":
        for key in ("verifier", "cut"):
            if key in options:
                msg = (
                    f"{key}={options[key]}: nothing is drafted here, so nothing is verified\n"
                    f"  do next: leave out {key}, or draft=off"
                )
                raise InputError(msg)
        return made
    if not has_drafter:
        msg = f"draft={draft}: the validate.toml names no drafter\n  do next: name drafter and drafter_config"
        raise InputError(msg)
    verifier = _one_of("verifier", options.get("verifier", "chain"), get_args(Verifier))
    return made | {"verifier": verifier, "cut": f"{_cut(options.get('cut', '0')):g}"}


def _one_of(key: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        msg = f"{key}={value}: must be one of {', '.join(known)}"
        raise InputError(msg)
    return value


def _cut(text: str) -> float:
    try:
        cut = float(text)
    except ValueError:
        cut = float("nan")
    if not 0 <= cut < 1:
        msg = f"cut={text}: must be a probability from 0 (no cut) to below 1"
        raise InputError(msg)
    return cut


def choose(
    target: Target,
    options: Mapping[str, str],
    *,
    project: Project,
    device: str,
    chunk: int,
    trace: Trace,
) -> Chosen:
    """What ``speculative_options`` describe, with the drafter's weights read.

    Raises:
        InputError: The drafter's files are missing or do not fit the target.
    """
    drafter, digest = None, None
    if options["draft"] != "off":
        drafter, digest = _drafter(target, options, project=project, device=device)
    many = int(options["tokens"])
    tokens = {
        kind: max(1, many * count // TOKENS["spec-sampled"]) for kind, count in TOKENS.items()
    }
    build: Build = "dense" if options["build"] == "dense" else "sparse"
    run = Speculation(
        target=target,
        drafter=drafter,
        build=build,
        device=device,
        chunk=chunk,
        seed=int(options["seed"]),
        tokens=tokens,
        trace=trace,
    )
    return Chosen(run, digest)


def _drafter(
    target: Target, options: Mapping[str, str], *, project: Project, device: str
) -> tuple[Drafter, str]:
    path, dimensions = project.drafter, project.drafter_config
    if path is None or dimensions is None or not path.is_file():
        msg = f"drafter weights {path}: no such file\n  do next: train the drafter, or draft=off"
        raise InputError(msg)
    config = load_draft_config(dimensions)
    weights = load_drafter(path, config, target.config, dtype=target.options.dtype, device=device)
    verifiers: dict[str, Verifier] = {name: name for name in get_args(Verifier)}
    drafter = Drafter(
        weights=weights,
        config=config,
        verifier=verifiers[options["verifier"]],
        build="dense" if options["build"] == "dense" else "sparse",
        proposal="greedy" if options["draft"] == "onehot" else "sampled",
        cut=float(options["cut"]),
    )
    return drafter, file_sha256(path)
