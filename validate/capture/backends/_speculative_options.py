"""From the keys of a target to what draws and drafts."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from validate.capture.backends.torch_speculative import GREEDY, SPEC, TOKENS, Speculation
from validate.capture.digest import file_sha256
from validate.capture.project import Project
from validate.errors import InputError
from validate.models import SPECULATIVE_FAULTS, Trace
from validate.models.drafting import Drafter
from validate.models.dspark import load_draft_config, load_drafter
from validate.models.plain import Target
from validate.models.sampler import Build
from validate.models.verify import Verifier

__all__ = ["Chosen", "choose", "require_fault_site", "speculative_options"]

Draft = Literal["on", "off", "onehot"]
_BUILD: Mapping[str, Build] = {"reference": "dense", "rocm": "sparse"}


class Chosen(NamedTuple):
    """What a capture draws with."""

    run: Speculation
    drafter_digest: str | None


_FAULT_KEYS: Mapping[str, tuple[str, str]] = {
    "SP-07": ("verifier", "exact_match"),
    "VX-21": ("cut", "0.3"),
}
"""The key and value that a planted fault needs to have a site."""
_UNDRAFTED_FAULTS = ("VX-10", "VX-11", "VX-12", "VX-13", "VX-14", "VX-19", "VX-20", "VX-40")
"""Faults whose site is the sampler, with or without drafts."""
_WEIGHED_FAULTS = {
    "VX-15": ("chain", "target_only"),
    "VX-16": ("chain", "target_only"),
    "SP-09": ("chain",),
    "VX-22": ("chain",),
}
"""Verifiers whose arithmetic a fault is in."""


def require_fault_site(options: Mapping[str, str], *, drawn: bool) -> None:
    """Refuse a fault of sampling or speculation that the other keys leave no place.

    Args:
        options: The keys with their defaults.
        drawn: Whether any prompt of the set is drawn from.

    Raises:
        InputError: It would record a clean run.
    """
    fault = options.get("fault", "")
    if fault not in SPECULATIVE_FAULTS:
        return
    key, needed = _FAULT_KEYS.get(fault, ("", ""))
    why = None
    if not drawn:
        why = "no prompt of the set is tagged 'speculative', so nothing is drawn"
    elif options["draft"] == "off" and fault not in _UNDRAFTED_FAULTS:
        why = "nothing is drafted (draft=off), and its site is speculative decoding"
    elif key and options.get(key) != needed:
        why = f"{key}={options.get(key)}, and its site is the code of {key}={needed}"
    elif options.get("verifier") not in _WEIGHED_FAULTS.get(fault, (options.get("verifier"),)):
        why = f"verifier={options['verifier']} does none of the arithmetic that it is in"
    elif fault in ("SP-09", "VX-22") and options["draft"] == "onehot":
        why = "draft=onehot draws no proposal"
    if why is not None:
        msg = (
            f"fault={fault} has no site here: {why}\n"
            "  do next: leave out the other key; the fault sets what it needs"
        )
        raise InputError(msg)


def speculative_options(
    path: str, options: Mapping[str, str], *, has_drafter: bool
) -> dict[str, str]:
    """The keys with their defaults, as the manifest states them.

    Raises:
        InputError: A value is unknown, or a key says how to judge drafts that ``draft=off``
            leaves out.
    """
    key, needed = _FAULT_KEYS.get(options.get("fault", ""), ("", ""))
    options = ({key: needed} if key else {}) | dict(options)
    draft = options.get("draft", "on" if has_drafter else "off")
    made = {
        "draft": _one_of("draft", draft, get_args(Draft)),
        "build": _one_of("build", options.get("build", _BUILD[path]), get_args(Build)),
        "tokens": options.get("tokens", str(TOKENS["spec-sampled"])),
        "seed": options.get("seed", "1"),
    }
    if draft == "off":
        for given in ("verifier", "cut"):
            if given in options and given != key:
                msg = (
                    f"{given}={options[given]}: nothing is drafted here, so nothing is verified\n"
                    f"  do next: leave out {given}, or draft=off"
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
    # Fewer sampled tokens leave greedy streams whole: those of ref are held against them.
    whole = TOKENS[GREEDY]
    tokens: dict[str, int] = {
        "sampled": many,
        SPEC: many,
        GREEDY: max(whole, whole * many // TOKENS[SPEC]),
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
