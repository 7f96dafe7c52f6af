"""A report computed again from files, and where it differs from the one that was stored."""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from validate.capture.digest import file_sha256
from validate.capture.reader import CaptureReader, open_capture
from validate.errors import CaptureError
from validate.oracle import load_weights
from validate.run.compare import compare
from validate.run.evals_alone import evals_alone
from validate.run.measure import Progress, silent
from validate.schema.bundle import BundleCapture
from validate.schema.pair import Side
from validate.schema.report import Report
from validate.schema.suite import Limits, Suite, Waiver
from validate.suite import load_limits, load_suite, load_waivers, select_gates

__all__ = ["Inside", "Known", "differences", "recompute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Why captures may not be judged, as a checkout knows it."""

    blocks: Callable[[Side, Side, Suite], Sequence[str]]
    """Of ref and cand by a suite."""
    stale: Callable[[CaptureReader], str | None]
    """Of a capture, where it is a golden of other source."""


RELATIVE, ABSOLUTE = 1e-6, 1e-12
"""How far a number computed on another processor may be off: a billion roundings of float64,
and a thousandth of what any report shows."""
NOT_COMPUTED = ("tool_version", "claims", "selftest", "explained")
"""Keys of a report that do not follow from captures."""
NOT_COMPUTED_OF_SIDES = ("path", "reused")

LEFT_OUT = re.compile(
    r"repeat '(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,99})' is left out of the noise floor: "
    r"it is (?:under judgement itself|ref itself|'[A-Za-z0-9][A-Za-z0-9._-]{0,99}' once more)"
)
"""Notes on captures that took no part, which a bundle does not hold: the whole sentence."""
TOKENS = re.compile(r"[0-9]{1,9}(-[0-9]{0,9})?")
"""What ``--tokens`` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The parts of an unpacked bundle, by name below ``folder``."""

    folder: Path
    captures: Sequence[BundleCapture]
    suite: str
    limits: str
    golden: str | None
    waivers: str | None
    weights: str | None
    config: str | None
    known: Known | None = None
    """What must be among the report's reasons for judging nothing; None: nobody knows here."""


def recompute(stored: Report, inside: Inside, *, progress: Progress = silent) -> Report:
    """Judge the captures inside as the stored report was judged: same gates, prompts and names.

    Args:
        stored: The report; only what was asked for is taken from it.
        inside: Where the parts lie.
        progress: Told what is being measured.

    Raises:
        ValidateError: A part is missing or damaged, or nothing can be compared.
    """
    if not stored.gates:
        msg = "the report judges no gate"
        raise CaptureError(msg)
    readers: dict[str, list[Any]] = {role: [] for role in ("ref", "cand", "oracle", "repeat")}
    for held in inside.captures:
        reader = open_capture(inside.folder / held.folder, label=held.label)
        if reader.digest != held.digest:
            msg = f"{held.folder}: digest {reader.digest[:12]}, {held.digest[:12]} is listed"
            raise CaptureError(msg)
        readers[held.role].append(reader)
    if len(readers["ref"]) != 1 or len(readers["cand"]) != 1 or len(readers["oracle"]) > 1:
        counts = ", ".join(f"{len(found)} {role}" for role, found in readers.items())
        msg = f"one ref, one cand and at most one oracle are needed, there are {counts}"
        raise CaptureError(msg)
    suite = _suite(stored, inside)
    ran = [gate.name for gate in stored.gates]
    reasons: Sequence[str] = ()
    if inside.known is not None:
        sides, gates = (readers["ref"][0], readers["cand"][0]), select_gates(suite, only=ran)
        if stored.prompts or evals_alone(*sides, suite=suite, gates=gates) is None:
            reasons = inside.known.blocks(*sides, suite)
    stale = _stale(stored, inside, [one for held in readers.values() for one in held])
    return compare(
        ref=readers["ref"][0],
        cand=readers["cand"][0],
        suite=suite,
        limits=_limits(stored, inside),
        repeats=readers["repeat"],
        oracle=next(iter(readers["oracle"]), None),
        weights=_weights(readers["ref"][0], inside),
        config=_config(inside),
        only=() if len(ran) == len(suite.gates) else ran,
        prompts=stored.prompts,
        blocked=tuple(dict.fromkeys((*stored.blocked, *reasons, *stale))),
        waivers=(*suite.waivers, *_waivers(suite, inside)),
        golden=None if inside.golden is None else _golden(inside.folder / inside.golden),
        command=_command(stored),
        progress=progress,
    )


def _stale(stored: Report, inside: Inside, readers: Sequence[CaptureReader]) -> Iterator[str]:
    """Reasons of stale goldens that the report does not tell; paths and digests in them may differ."""
    for reader in readers:
        why = None if inside.known is None else inside.known.stale(reader)
        names = {reader.label, Path(reader.label).name, reader.manifest.target}
        heads = tuple(f"golden '{name}' " for name in names)
        if why is not None and not any(told.startswith(heads) for told in stored.blocked):
            yield why


def _suite(stored: Report, inside: Inside) -> Suite:
    suite = load_suite(inside.folder / inside.suite)
    if Path(suite.limits).name != Path(stored.suite.limits).name:
        msg = f"{inside.suite} names limits = {suite.limits}, the report {stored.suite.limits}"
        raise CaptureError(msg)
    return suite.model_copy(update={"path": stored.suite.path})


def _waivers(suite: Suite, inside: Inside) -> tuple[Waiver, ...]:
    """The waivers of the file that the suite names; no other file can add any."""
    if (suite.waivers_file is None) != (inside.waivers is None):
        there = "no file of waivers" if inside.waivers is None else "a file of waivers"
        msg = f"{inside.suite} names waivers_file = {suite.waivers_file}, and there is {there}"
        raise CaptureError(msg)
    return () if inside.waivers is None else load_waivers(inside.folder / inside.waivers)


def _golden(path: Path) -> Report:
    try:
        return Report.model_validate_json(path.read_bytes())
    except ValidationError as error:
        msg = f"{path.name}: no report that can be read ({error.errors()[0]['msg']})"
        raise CaptureError(msg) from error


def _limits(stored: Report, inside: Inside) -> Limits:
    """The limits, under the name that the report has for their file."""
    found, name = load_limits(inside.folder / inside.limits), stored.suite.limits
    entries = {k: replace(v, pointer=f"{name}#{k}") for k, v in found.entries.items()}
    return Limits(path=name, entries=entries, lines=found.lines)


def _weights(ref: Any, inside: Inside) -> Mapping[str, Any] | None:
    if inside.weights is None:
        return None
    path = inside.folder / inside.weights
    digest = file_sha256(path)
    if digest != ref.manifest.model.weights_digest:
        msg = f"{inside.weights}: sha256 {digest[:12]}, ref was captured with other weights"
        raise CaptureError(msg)
    return load_weights(path)


def _config(inside: Inside) -> Mapping[str, Any] | None:
    if inside.config is None:
        return None
    try:
        found = json.loads((inside.folder / inside.config).read_bytes())
    except (ValueError, RecursionError) as error:
        msg = f"{inside.config}: not JSON: {error}"
        raise CaptureError(msg) from error
    if not isinstance(found, dict):
        msg = f"{inside.config}: no table of a model's dimensions"
        raise CaptureError(msg)
    return found


def _command(stored: Report) -> str:
    """The command up to ``--only``, made of the names in the report and never taken from it.

    Of the first gate's line only the options are looked at: whether the suite was named, and
    which prompts and lengths were asked for.
    """
    first = stored.gates[0]
    sides = ["--ref", stored.ref.label, "--cand", stored.cand.label]
    suite = ["--suite", _named(first.rerun, stored.suite.path)]
    made = [["validate", "compare", *sides], ["validate", "compare", *sides, *suite]]
    made.append(["validate", "compare", *suite, *sides])
    try:
        given = shlex.split(first.rerun)
    except ValueError:
        given = []
    start = next((one for one in reversed(made) if given[: len(one)] == one), made[0])
    asked = given[len(start) : -2]
    return shlex.join([*start, *(asked if _may_be_asked(asked, stored.prompts) else [])])


def _named(rerun: str, path: str) -> str:
    """The suite as the user wrote it: a path to a file of that name, or the report's own word."""
    found = re.search(r"--suite ([A-Za-z0-9_./-]+) ", rerun)
    return found[1] if found and Path(found[1]).name == Path(path).name else path


def _may_be_asked(words: Sequence[str], prompts: Sequence[str]) -> bool:
    """Whether these are ``--prompt`` and ``--tokens`` with what they can hold, and no more."""
    if len(words) % 2:
        return False
    named: list[str] = []
    lengths = False
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == "--prompt" and not lengths:
            named += value.split(",")
        elif option == "--tokens" and not lengths and TOKENS.fullmatch(value):
            lengths = True
        else:
            return False
    return lengths or set(named) == set(prompts)


def differences(stored: Report, fresh: Report) -> list[str]:
    """Each value of a report that does not follow from its captures, by its place.

    Numbers may be off by 1e-6 of themselves, for they were computed on another processor.

    Args:
        stored: The report that was handed over.
        fresh: The same, computed here.
    """
    left_out = [found for note in stored.notes if (found := LEFT_OUT.fullmatch(note))]
    names = [found["name"] for found in left_out]
    notes = [note for note in stored.notes if LEFT_OUT.fullmatch(note) is None]
    twice = [
        f"notes: repeat '{name}' is left out twice" for name in {*names} if names.count(name) > 1
    ]
    told = {**_told(stored), "notes": notes}
    return [*twice, *_differ("", told, _told(fresh))]


def _told(report: Report) -> dict[str, Any]:
    held = {k: v for k, v in report.model_dump(mode="json").items() if k not in NOT_COMPUTED}
    for role in ("ref", "cand"):
        held[role] = {k: v for k, v in held[role].items() if k not in NOT_COMPUTED_OF_SIDES}
    held["gates"] = {gate["name"]: gate for gate in held["gates"]}
    return held


def _differ(place: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(key for key in new if key not in old)):
            inner = f"{place}.{key}" if place else str(key)
            yield from _differ(inner, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (one, two) in enumerate(zip(old, new, strict=True)):
            yield from _differ(f"{place}[{at}]", one, two)
    elif not _equal(old, new):
        yield f"{place}: {_short(old)} in the report, {_short(new)} from the captures"


def _equal(old: Any, new: Any) -> bool:
    if type(old) is float and type(new) is float:
        return math.isclose(old, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(old) is type(new) and bool(old == new)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."  # noqa: PLR2004  one line of a terminal
