"""Evidence bundles: a report with all that its verdict can be computed from again."""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

import validate
from validate.capture.digest import file_sha256
from validate.capture.format import MANIFEST
from validate.capture.goldens import VERIFIED_NAME
from validate.capture.importers import is_lm_eval_folder
from validate.capture.reader import CaptureReader, open_capture
from validate.errors import CaptureError, InputError, ValidateError
from validate.run.bundle_zip import ASK, INDEX, check_container, unpack, write_zip
from validate.run.claims import attach_claims, evidence_files, load_claims
from validate.run.measure import Progress, silent
from validate.run.recompute import Inside, Known, differences, recompute
from validate.schema.bundle import Bundle, BundleCapture, BundleFile
from validate.schema.report import Report, SideReport

Record = TypeVar("Record", bound=BaseModel)

__all__ = ["Kept", "Render", "Source", "check_bundle", "find_captures", "write_bundle"]

REPORT = "report/report.json"
SUITE, LIMITS, GOLDEN, WAIVERS = "suite.toml", "limits.toml", "golden.json", "waivers.toml"
WEIGHTS, CONFIG = "model/weights.safetensors", "model/config.json"
CLAIMS = "claims/claims.toml"
SHOWN = 5
"""Differences that a message tells."""


Render = Callable[[Report], Mapping[str, bytes]]
"""Gives every file of a report by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A capture that took part, found again."""

    role: str
    label: str
    reader: CaptureReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the parts of a bundle lie."""

    report: Report
    render: Render
    """What makes the files of the report."""
    captures: Sequence[Kept]
    suite: Path
    limits: Path
    golden: Path | None = None
    waivers: Path | None = None
    weights: Path | None = None
    config: Path | None = None
    claims: Path | None = None
    """The claims file of the report, with its evidence beside it."""


def find_captures(report: Report, folders: Mapping[str, Path]) -> tuple[Kept, ...]:
    """Open every capture that a report names, where it still is what it was.

    Args:
        report: Whose ref, cand, oracle and repeats.
        folders: Stored captures by name, in which the oracle and the repeats are looked up by
            digest.

    Raises:
        InputError: A side is a folder of lm-eval, which a bundle cannot hold.
        CaptureError: One is gone, or is no longer the capture that the report was made from.
    """
    for role, side in (("ref", report.ref), ("cand", report.cand)):
        _refuse_folder(role, side)
    stored = {digest: name for name, path in folders.items() if (digest := _digest_of(path))}
    found = [
        Kept(role=role, label=side.label, reader=_same(role, side.digest, side.path, side.label))
        for role, side in (("ref", report.ref), ("cand", report.cand))
    ]
    others = [("repeat", repeat) for repeat in report.repeats]
    if report.oracle is not None:
        others.insert(0, ("oracle", report.oracle))
    for role, other in others:
        name = stored.get(other.digest)
        path = None if name is None else str(folders[name])
        label = name or other.target
        found.append(Kept(role=role, label=label, reader=_same(role, other.digest, path, label)))
    return tuple(found)


def _refuse_folder(role: str, side: SideReport) -> None:
    folder = None if side.path is None else Path(side.path)
    if folder is None or (folder / MANIFEST).is_file() or not is_lm_eval_folder(folder):
        return
    msg = (
        f"{role} '{side.label}': {folder} is an output folder of lm-eval; a bundle holds captures "
        "alone, so this run cannot be bundled\n"
        "  do next: keep the report and both folders, or bundle a comparison of two captures made by "
        "validate eval"
    )
    raise InputError(msg)


def _digest_of(folder: Path) -> str | None:
    manifest = folder / MANIFEST
    return file_sha256(manifest) if manifest.is_file() else None


def _same(role: str, digest: str, path: str | None, label: str) -> CaptureReader:
    if path is None or not Path(path).is_dir():
        where = "among the stored captures" if path is None else f"at {path}"
        msg = (
            f"{role} '{label}': the capture of the report (digest {digest[:12]}) is not {where}\n"
            "  do next: run validate compare again, then bundle its report"
        )
        raise CaptureError(msg)
    reader = open_capture(Path(path), label=label)
    if reader.digest != digest:
        msg = (
            f"{role} '{label}': {path} holds another capture (digest {reader.digest[:12]}) than "
            f"the report was made from ({digest[:12]})\n"
            "  do next: run validate compare again, then bundle its report"
        )
        raise CaptureError(msg)
    return reader


def write_bundle(source: Source, out: Path, *, progress: Progress = silent) -> Bundle:
    """Write a bundle, then check it as its reader will.

    Args:
        source: What goes in.
        out: The zip file; replaced only by a bundle that passes its own check.
        progress: Told what is being measured.

    Raises:
        InputError: It cannot be written.
        CaptureError: The verdict does not follow from the files.
    """
    captures: list[BundleCapture] = []
    files: dict[str, Path | bytes] = _texts(source.report, source.render)
    for kept in source.captures:
        number = sum(one.role == kept.role for one in captures) + 1
        name = f"repeat-{number}" if kept.role == "repeat" else kept.role
        folder = f"captures/{name}"
        files |= {f"{folder}/{inner}": p for inner, p in _files_of(kept.reader).items()}
        captures.append(
            BundleCapture.model_validate(
                {
                    "role": kept.role,
                    "folder": folder,
                    "label": kept.label,
                    "digest": kept.reader.digest,
                }
            )
        )
    parts = {
        SUITE: source.suite,
        LIMITS: source.limits,
        GOLDEN: source.golden,
        WAIVERS: source.waivers,
        WEIGHTS: source.weights,
        CONFIG: source.config,
    }
    files |= {name: path for name, path in parts.items() if path is not None}
    files |= _claims(source)
    progress("hashing every file")
    listed = tuple(_listed(name, files[name]) for name in sorted(files))
    bundle = Bundle(
        tool_version=source.report.tool_version,
        verdict=source.report.verdict,
        report_digest=next(file.sha256 for file in listed if file.path == REPORT),
        captures=tuple(captures),
        weights=source.weights is not None,
        golden=source.golden is not None,
        waivers=source.waivers is not None,
        files=listed,
    )
    text = json.dumps(bundle.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"
    partial = out.with_name(f".{out.name}.unchecked")
    progress(f"writing {out.name}")
    try:
        write_zip(partial, {INDEX: text.encode(), **files})
        check_bundle(partial, render=source.render, progress=progress)
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return bundle


def _claims(source: Source) -> dict[str, Path]:
    """The claims file and the evidence that is held to a digest."""
    told = source.report.claims
    if told is None or source.claims is None:
        return {}
    if file_sha256(source.claims) != told.sha256:
        msg = f"{source.claims}: is no longer the file the report holds claims of; name it anew"
        raise InputError(msg)
    beside = {f"claims/{name}": source.claims.parent / name for name in evidence_files(told.claims)}
    return {CLAIMS: source.claims, **beside}


def _files_of(reader: CaptureReader) -> dict[str, Path]:
    inner = [MANIFEST, *(file.path for file in reader.manifest.artifacts)]
    files = {name: reader.path / name for name in inner}
    verified = reader.path / VERIFIED_NAME
    return {**files, **({VERIFIED_NAME: verified} if verified.is_file() else {})}


def _listed(name: str, content: Path | bytes) -> BundleFile:
    if isinstance(content, bytes):
        return BundleFile(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    return BundleFile(path=name, bytes=content.stat().st_size, sha256=file_sha256(content))


def check_bundle(
    bundle: Path, *, render: Render, known: Known | None = None, progress: Progress = silent
) -> Report:
    """Verify every byte of a bundle and compute its verdict anew from what is inside.

    Args:
        bundle: The zip file, not trusted.
        render: What makes the files of a report; those inside must be just that.
        known: Why captures may not be judged, as far as this checkout knows.
        progress: Told what is being measured.

    Returns:
        The report inside, which the files inside give again.

    Raises:
        InputError: There is no such file.
        CaptureError: A byte was changed, a file is missing or extra, or the files inside give
            another verdict or other numbers; the file, or the number, is named.
    """
    with tempfile.TemporaryDirectory(prefix="validate-bundle-") as name:
        folder = Path(name)
        progress(f"unpacking {bundle.name}")
        names = unpack(bundle, folder)
        index = _index(bundle, names, folder)
        progress("checking every file and the container")
        _check_digests(bundle, index, names, folder)
        check_container(bundle, names, folder)
        report = _judge_again(bundle, index, folder, progress, known)
        progress("rendering the pages again")
        _check_texts(bundle, names, folder, _texts(report, render), report)
        return report


def _index(bundle: Path, names: Sequence[str], folder: Path) -> Bundle:
    for name in (INDEX, REPORT):
        if name not in names:
            held = ", ".join(names[:SHOWN]) or "nothing"
            head = f"holds no {name}, so it is no bundle of validate; {len(names)} files: {held}"
            raise _refused(bundle, head)
    return _parsed(Bundle, bundle, folder / INDEX, INDEX)


def _parsed(record: type[Record], bundle: Path, path: Path, name: str) -> Record:
    raw = path.read_bytes()
    try:
        return record.model_validate_json(raw)
    except ValidationError as error:
        version, made = _versions(raw)
        known = record.model_fields["schema_version"].default
        if version is not None and version != known:
            head = f"{name}: schema_version {version}, this validate {validate.__version__} reads {known}"
            raise _refused(bundle, head, made=made, other=True) from error
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"]) or "the whole file"
        raise _refused(bundle, f"{name}: {place}: {problem['msg']}", made=made) from error


def _versions(raw: bytes) -> tuple[object, str | None]:
    """What a file that cannot be read says of its format and its maker, where it says anything."""
    try:
        held = json.loads(raw)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(held, dict):
        return None, None
    made = held.get("tool_version")
    plain = isinstance(made, str) and re.fullmatch(r"[0-9A-Za-z.+]{1,40}", made)
    version = held.get("schema_version")
    return (version if isinstance(version, int) else None), (str(made) if plain else None)


def _refused(
    bundle: Path,
    head: str,
    told: Sequence[str] = (),
    *,
    made: str | None = None,
    other: bool = False,
) -> CaptureError:
    """The error of a bundle, with the next step: another version where another made it."""
    do_next = ASK
    if other or made not in (None, validate.__version__):
        named = made is not None and made != validate.__version__
        maker = f"validate {made}, which" if named else "the version of validate that"
        do_next = f"check it with {maker} made it; else {ASK}"
    return CaptureError(f"{_many(f'bundle {bundle}: {head}', told)}\n  do next: {do_next}")


def _check_digests(bundle: Path, index: Bundle, names: Sequence[str], folder: Path) -> None:
    """Every file is listed, every listed file is there, and each is what it was."""
    listed = {file.path: file for file in index.files}
    told = [f"{name}: is not listed in {INDEX}" for name in names if name not in {*listed, INDEX}]
    told += [f"{name}: is listed and missing" for name in listed if name not in names]
    for name, file in listed.items():
        if name in names and (now := _listed(name, folder / name)) != file:
            told.append(
                f"{name}: {now.bytes} bytes of sha256 {now.sha256[:12]}; {INDEX} lists "
                f"{file.bytes} bytes of {file.sha256[:12]}"
            )
    if told:
        were = "file was" if len(told) == 1 else "files were"
        raise _refused(bundle, f"{len(told)} {were} changed", told)


def _judge_again(
    bundle: Path, index: Bundle, folder: Path, progress: Progress, known: Known | None
) -> Report:
    stored = _parsed(Report, bundle, folder / REPORT, REPORT)
    inside = Inside(
        folder=folder,
        captures=index.captures,
        suite=SUITE,
        limits=LIMITS,
        golden=GOLDEN if index.golden else None,
        waivers=WAIVERS if index.waivers else None,
        weights=WEIGHTS if index.weights else None,
        config=CONFIG if index.weights else None,
        known=known,
    )
    try:
        fresh = recompute(stored, inside, progress=progress)
        told = [*differences(stored, fresh), *_claims_differ(stored, folder)]
    except ValidateError as error:
        head = f"no verdict can be computed from it: {error}"
        raise _refused(bundle, head, made=stored.tool_version) from error
    if index.verdict is not stored.verdict:
        told.insert(0, f"{INDEX}: verdict {index.verdict}, the report says {stored.verdict}")
    if told:
        head = (
            f"{REPORT} says {stored.verdict}; the captures inside give "
            f"{fresh.verdict}, and {len(told)} values differ"
        )
        raise _refused(bundle, head, told, made=stored.tool_version)
    return stored


def _claims_differ(stored: Report, folder: Path) -> list[str]:
    """Claims of the report that do not follow from the claims file inside."""
    if stored.claims is None:
        return []
    again = attach_claims(stored, load_claims(folder / CLAIMS)).claims
    held = None if again is None else again.model_copy(update={"path": stored.claims.path})
    return [] if held == stored.claims else [f"claims: not what {CLAIMS} gives"]


def _texts(report: Report, render: Render) -> dict[str, Path | bytes]:
    return {f"report/{name}": text for name, text in render(report).items()}


def _check_texts(
    bundle: Path,
    names: Sequence[str],
    folder: Path,
    texts: Mapping[str, Path | bytes],
    report: Report,
) -> None:
    """Every page of the report says what its ``report.json`` says."""
    told = [
        f"{name}: is not what {REPORT} gives"
        for name in names
        if name.startswith("report/") and texts.get(name) != (folder / name).read_bytes()
    ]
    told += [f"{name}: is missing" for name in texts if name not in names]
    if told:
        made = f"made by validate {report.tool_version}, rendered by {validate.__version__}"
        head = f"pages of the report differ ({made})"
        raise _refused(bundle, head, told, made=report.tool_version)


def _many(head: str, told: Sequence[str]) -> str:
    more = [f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    return "\n  ".join([head, *told[:SHOWN], *more])
