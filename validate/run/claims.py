"""Claims files: read, their evidence looked at, and every derived figure computed anew."""

import hashlib
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from validate.errors import InputError
from validate.schema.claims import Claims, ClaimsReport, Derived, Figure, Stated, System
from validate.schema.report import Report

__all__ = ["attach_claims", "evidence_files", "load_claims"]

NO_EVIDENCE = "NO EVIDENCE"
SECONDS = 3600
FORMULAS = {
    "throughput_per_gpu": ("tok/s", "throughput / GPUs"),
    "throughput_per_dollar": ("tok/s per $/hour", "throughput / GPUs / price"),
    "tokens_per_dollar": ("tokens per $", "throughput x 3600 / (GPUs x price)"),
    "tokens_per_joule": ("tokens per J", "throughput / (GPUs x power)"),
    "prefill_rate": ("tok/s", "prompt tokens / TTFT"),
}
"""Derived figures of one system, with unit and formula; ratios to the baseline are named
``throughput_ratio``, ``decode_ratio`` and so on."""
RATIOS = ("throughput", "decode", "ttft", "throughput_per_gpu", "throughput_per_dollar")


def load_claims(path: Path) -> ClaimsReport:
    """Read a claims file and compute what follows from its figures.

    Args:
        path: The TOML file; evidence with a ``sha256`` lies beside it.

    Raises:
        InputError: It cannot be read, says something unknown, or a file of evidence is not the
            one that was meant.
    """
    try:
        raw = path.read_bytes()
        claims = Claims.model_validate(_widened(tomllib.loads(raw.decode("utf-8"))))
    except OSError as error:
        msg = f"{path}: the claims cannot be read ({error.strerror})"
        raise InputError(msg) from error
    except ValidationError as error:
        told = [
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors()[:3]
        ]
        msg = f"{path}: {'; '.join(told)}\n  do next: see docs/claims/README.md"
        raise InputError(msg) from error
    except (ValueError, RecursionError) as error:  # also of 5,000 digits, or nested too deep
        msg = f"{path}: not TOML: {error}"
        raise InputError(msg) from error
    _check_stated(claims, path)
    try:
        derived = tuple(_derived(claims))
    except ArithmeticError as error:
        msg = f"{path}: {error}\n  do next: check the figures and their units"
        raise InputError(msg) from error
    return ClaimsReport(
        path=str(path),
        sha256=hashlib.sha256(raw).hexdigest(),
        claims=claims,
        evidence={
            f"{system.name}/{name}": _worth(figure, path.parent, path)
            for system in claims.systems
            for name, figure in system.figures.items()
        },
        derived=derived,
    )


def attach_claims(report: Report, claims: ClaimsReport) -> Report:
    """The report with claims beside its verdict, and with what keeps them apart.

    Args:
        report: Any report; an earlier claim is replaced.
        claims: What ``load_claims`` read.
    """
    return report.model_copy(
        update={"claims": claims.model_copy(update={"notes": tuple(_notes(report, claims))})}
    )


def evidence_files(claims: Claims) -> tuple[str, ...]:
    """Files that lie beside the claims and are held to a digest, by the names used there."""
    figures = (one for system in claims.systems for one in system.figures.values())
    named = (one.evidence for one in figures if one.sha256 is not None and one.evidence)
    return tuple(dict.fromkeys(named))


def _widened(raw: Any) -> Any:
    """Figures and stated numbers that are written as plain numbers, as tables."""
    for system in raw.get("systems", ()) if isinstance(raw.get("systems", ()), list) else ():
        if not isinstance(system, dict):
            continue
        for key, widen in (("figures", _figure), ("stated", _stated)):
            held = system.get(key)
            if isinstance(held, dict):
                system[key] = {name: widen(value) for name, value in held.items()}
    return raw


def _figure(value: Any) -> Any:
    return value if isinstance(value, dict) else {"value": value}


def _stated(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004  from, to
        return {"low": value[0], "high": value[1]}
    if isinstance(value, str) and re.fullmatch(r"\d{1,12}(\.\d{1,9})?", value):
        digits = len(value.partition(".")[2])
        return {"low": float(value), "high": float(value), "digits": digits}
    return value if isinstance(value, dict) else {"low": value, "high": value}


def _check_stated(claims: Claims, path: Path) -> None:
    known = {*FORMULAS, *(f"{name}_ratio" for name in RATIOS)}
    for system in claims.systems:
        for name in system.stated:
            if name not in known:
                msg = (
                    f"{path}: system '{system.name}' states '{name}', which nothing derives; "
                    f"known: {', '.join(sorted(known))}"
                )
                raise InputError(msg)


def _worth(figure: Figure, folder: Path, path: Path) -> str:
    """What a reader may think of a figure's evidence."""
    if figure.evidence is None:
        return NO_EVIDENCE
    if figure.sha256 is None:
        return f"{figure.evidence} (not checked)"
    file = folder / figure.evidence
    if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
        msg = f"{path}: evidence '{figure.evidence}' is no file beside it"
        raise InputError(msg)
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != figure.sha256:
        msg = f"{path}: evidence '{figure.evidence}' has sha256 {found[:12]}, not {figure.sha256[:12]}"
        raise InputError(msg)
    return f"{figure.evidence} (sha256 {found[:12]}, as claimed)"


def _derived(claims: Claims) -> Iterator[Derived]:
    base = next(system for system in claims.systems if system.name == claims.baseline)
    of_base = _numbers(base)
    for system in claims.systems:
        own = _numbers(system)
        for name, (unit, formula) in FORMULAS.items():
            if name in own:
                yield _one(system, name, own[name], unit, formula)
        for name in RATIOS if system is not base else ():
            if name in own and name in of_base:
                value = own[name] / of_base[name]
                yield _one(system, f"{name}_ratio", value, "ratio", f"{name} / {base.name}'s")


def _numbers(system: System) -> dict[str, float]:
    """Figures of one system and what follows from them, where it does."""
    held = {name: figure.value for name, figure in system.figures.items()}
    speed, price, power = held.get("throughput"), held.get("price"), held.get("power")
    if speed is not None:
        held["throughput_per_gpu"] = speed / system.gpus
        if price is not None:
            held["throughput_per_dollar"] = speed / system.gpus / price
            held["tokens_per_dollar"] = speed * SECONDS / (system.gpus * price)
        if power is not None:
            held["tokens_per_joule"] = speed / (system.gpus * power)
    ttft = system.figures.get("ttft")
    if ttft is not None and ttft.prompt_tokens is not None:
        held["prefill_rate"] = ttft.prompt_tokens / ttft.value
    for name, value in held.items():
        _bounded(system, name, value)
    return held


def _bounded(system: System, name: str, value: float) -> float:
    """The value, unless it is beyond what a float holds."""
    if not 0 < value < math.inf:
        msg = f"system '{system.name}': {name} comes out as {value:g}, which no figure can be"
        raise ArithmeticError(msg)
    return value


def _one(system: System, name: str, value: float, unit: str, formula: str) -> Derived:
    said = system.stated.get(name)
    return Derived(
        system=system.name,
        name=name,
        value=_bounded(system, name, value),
        unit=unit,
        formula=formula,
        stated=None if said is None else _words(said),
        agrees=None if said is None else _agrees(value, said),
    )


def _words(said: Stated) -> str:
    if said.low != said.high:
        return f"{said.low:g} to {said.high:g}"
    return f"{said.low:.{said.digits}f}"


def _agrees(value: float, said: Stated) -> bool:
    """Within what is stated, and half of its last digit either way."""
    half = 0.5 * 10.0**-said.digits
    return said.low - half <= value <= said.high + half


def _notes(report: Report, told: ClaimsReport) -> Iterator[str]:
    claims = told.claims
    bare = [name for name, worth in told.evidence.items() if worth == NO_EVIDENCE]
    if bare:
        yield f"{len(bare)} of {len(told.evidence)} figures have no evidence: {', '.join(bare)}"
    wrong = [f"{one.system} {one.name}" for one in told.derived if one.agrees is False]
    if wrong:
        yield f"stated otherwise than the figures give: {', '.join(wrong)}"
    system = next((one for one in claims.systems if one.name == claims.candidate), None)
    hardware = report.cand.provenance.hardware
    if system is None:
        yield "the claims name no system as the candidate of this verdict"
    elif report.cand.evidence != "hardware" or system.gpu.casefold() not in hardware.casefold():
        yield (
            f"the verdict is on cand '{report.cand.label}', captured on {hardware} (evidence "
            f"{report.cand.evidence}); the figures of '{system.name}' were not measured on that capture"
        )
    model = claims.conditions.get("model")
    if model is not None:
        yield f"the figures are those of {model}; the captures are of weights {report.cand.weights}"
    yield from claims.caveats
