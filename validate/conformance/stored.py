"""A sweep point on disk: ``case.json`` and ``inputs.safetensors``, nothing executable.

Formats that safetensors' NumPy side does not know (bfloat16, float8) are stored by
their bits. A folder is data from anybody: names, sizes and digests are checked before
anything is used, and no path or module named in it is opened.
"""

import hashlib
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import ml_dtypes
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from validate.conformance.records import Breach, Case, Effort, Operation, Settings
from validate.errors import InputError

__all__ = ["StoredCase", "fit_case", "load_case", "probe_folder", "save_case"]

CASE, INPUTS = "case.json", "inputs.safetensors"
_JSON_LIMIT = 4 << 20
_INPUTS_LIMIT = 8 << 30
_BITS: Mapping[str, Any] = {
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e8m0fnu": np.uint8,
}
_PLAIN = frozenset(
    {"float64", "float32", "float16", "bool"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
Finite = Annotated[float, Field(allow_inf_nan=False)]
NonFinite = Literal["nan", "inf", "-inf"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Special(_Record):
    float: NonFinite


class _Array(_Record):
    dtype: str
    shape: tuple[Annotated[int, Field(ge=0)], ...]


class StoredCase(_Record):
    """What ``case.json`` holds."""

    schema_version: Literal[1] = 1
    op: str
    implementation: str
    """The one that failed; told, never imported on the word of this file."""
    settings: dict[str, str]
    device: str
    id: str
    axes: dict[str, bool | int | Finite | str]
    scalars: dict[str, bool | int | Finite | str | _Special | None]
    arrays: dict[str, _Array]
    sha256: str
    """Of ``inputs.safetensors``."""
    clauses: tuple[str, ...] = ()
    """Clauses that it broke when it was saved."""
    what: tuple[str, ...] = ()


def save_case(
    case: Case,
    folder: Path,
    *,
    op: str,
    implementation: str,
    settings: Mapping[str, str],
    device: str,
    breaches: Sequence[Breach] = (),
) -> None:
    """Write a sweep point; a folder that is there is replaced once the new one is whole.

    Raises:
        InputError: The folder cannot be written.
    """
    arrays = {n: v for n, v in case.inputs.items() if isinstance(v, np.ndarray)}
    scalars = {n: _scalar(v) for n, v in case.inputs.items() if n not in arrays}
    held = save({name: _as_bits(array) for name, array in arrays.items()})
    record = StoredCase(
        op=op,
        implementation=implementation,
        settings=dict(settings),
        device=device,
        id=case.id,
        axes={n: _scalar(v) for n, v in case.axes.items()},
        scalars=scalars,
        arrays={n: _Array(dtype=a.dtype.name, shape=a.shape) for n, a in arrays.items()},
        sha256=hashlib.sha256(held).hexdigest(),
        clauses=tuple(breach.clause for breach in breaches),
        what=tuple(breach.what for breach in breaches),
    )
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / INPUTS).write_bytes(held)
        (partial / CASE).write_text(record.model_dump_json(indent=1) + "\n", "utf-8")
        if folder.exists():
            _remove_old(folder)
        partial.replace(folder)
    except OSError as error:
        msg = f"{folder}: the failing case cannot be written ({error.strerror}); next: --out DIR"
        raise InputError(msg) from error


def probe_folder(folder: Path, *, case: Path | None = None) -> None:
    """Make a folder and see that it takes files, before an hour goes into what it is for.

    Args:
        folder: Where results will go.
        case: Where a failing case will be saved: absent, or an earlier case.

    Raises:
        InputError: Nothing can be written there, or ``case`` is something else.
    """
    probe = folder / ".probe.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
        other = case is not None and (case.is_symlink() or case.exists())
    except OSError as error:
        msg = f"{folder}: nothing can be written there ({error.strerror}); next: --out DIR"
        raise InputError(msg) from error
    if case is not None and other and (case.is_symlink() or not (case / CASE).is_file()):
        msg = f"{case}: it exists and is no saved case; next: --out DIR"
        raise InputError(msg)


def load_case(folder: Path) -> tuple[StoredCase, Case]:
    """Read a sweep point, checking every name, size and digest.

    Raises:
        InputError: The folder is missing, damaged, hostile or of another version.
    """
    text = _read(folder, CASE, limit=_JSON_LIMIT)
    try:
        record = StoredCase.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        msg = f"{folder / CASE}: {place or 'it'}: {first['msg']}"
        raise InputError(msg) from error
    held = _read(folder, INPUTS, limit=_INPUTS_LIMIT)
    digest = hashlib.sha256(held).hexdigest()
    if digest != record.sha256:
        msg = f"{folder / INPUTS}: sha256 is {digest[:16]}…, {CASE} says {record.sha256[:16]}…"
        raise InputError(msg)
    try:
        stored = load(held)
    except (SafetensorError, ValueError, KeyError) as error:
        msg = f"{folder / INPUTS}: no safetensors file: {error}"
        raise InputError(msg) from error
    if set(stored) != set(record.arrays) or set(stored) & set(record.scalars):
        msg = f"{folder}: arrays are {sorted(stored)}, {CASE} says {sorted(record.arrays)}"
        raise InputError(msg)
    inputs: dict[str, Any] = {
        name: _from_bits(stored[name], form, f"{folder / INPUTS}: {name}")
        for name, form in record.arrays.items()
    }
    inputs |= {
        name: float(value.float) if isinstance(value, _Special) else value
        for name, value in record.scalars.items()
    }
    return record, Case(id=record.id, axes=record.axes, inputs=inputs)


def fit_case(operation: Operation, case: Case, settings: Settings, *, place: Path) -> None:
    """Check that a stored case has the arguments of an operation and implies outputs.

    Raises:
        InputError: It does not fit the operation.
    """
    op = operation.contract.op
    like = next(operation.cases(Effort.QUICK, settings)).inputs
    if set(like) != set(case.inputs):
        msg = f"{place}: arguments are {sorted(case.inputs)}, {op} takes {sorted(like)}"
        raise InputError(msg)
    try:
        operation.outputs(case.inputs, settings)
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        msg = f"{place}: it is no input of {op}: {text}"
        raise InputError(msg) from error


def _read(folder: Path, name: str, *, limit: int) -> bytes:
    path = folder / name
    try:
        if path.is_symlink() or not path.is_file():
            msg = f"{path}: no such file; a saved case is a folder with {CASE} and {INPUTS}"
            raise InputError(msg)
        size = path.stat().st_size
        if size > limit:
            msg = f"{path}: {size} bytes, at most {limit} are read"
            raise InputError(msg)
        return path.read_bytes()
    except OSError as error:
        msg = f"{path}: it cannot be read ({error.strerror})"
        raise InputError(msg) from error


def _remove_old(folder: Path) -> None:
    """Take an earlier case away; anything else is left alone."""
    if folder.is_symlink() or not (folder / CASE).is_file():
        msg = f"{folder}: it exists and is no saved case; next: --out DIR"
        raise InputError(msg)
    shutil.rmtree(folder)


def _scalar(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return _Special(float="nan" if math.isnan(plain) else "inf" if plain > 0 else "-inf")
    return plain


def _as_bits(array: np.ndarray) -> np.ndarray:
    name = array.dtype.name
    if name not in _BITS and name not in _PLAIN:
        msg = f"arrays of {name} cannot be stored"
        raise ValueError(msg)
    held = np.array(array, order="C", copy=True)
    return held.view(_BITS[name]) if name in _BITS else held


def _from_bits(stored: np.ndarray, form: _Array, place: str) -> np.ndarray:
    if form.dtype not in _BITS and form.dtype not in _PLAIN:
        msg = f"{place}: unknown dtype '{form.dtype}'"
        raise InputError(msg)
    carrier = np.dtype(_BITS[form.dtype]).name if form.dtype in _BITS else form.dtype
    if stored.dtype.name != carrier or stored.shape != form.shape:
        msg = (
            f"{place}: it is {stored.dtype.name} {stored.shape}, "
            f"{CASE} says {form.dtype} {form.shape}"
        )
        raise InputError(msg)
    array = np.array(stored, copy=True)
    return array.view(np.dtype(getattr(ml_dtypes, form.dtype))) if form.dtype in _BITS else array
