"""JSON without surprises: one spelling when written, no ambiguity when read."""

import json
import math
from collections import Counter
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from validate.capture.messages import Fault, validation_fault

__all__ = ["canonical", "compact", "parse", "parse_record", "record_line", "whole"]

MOST_DIGITS = 40
INT64 = range(-(2**63), 2**63)

Record = TypeVar("Record", bound=BaseModel)


def compact(value: Any) -> str:
    """One line of ASCII JSON in the order of ``value``.

    Raises:
        ValueError: ``value`` holds a NaN or an infinity.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def canonical(value: Any) -> bytes:
    """The one spelling of ``value`` that digests are taken of: compact ASCII, keys sorted.

    Raises:
        ValueError: ``value`` holds a NaN or an infinity.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.encode("ascii")


def record_line(record: BaseModel) -> bytes:
    """One JSON line of a record, fields in the order of its class."""
    return compact(record.model_dump(mode="json")).encode() + b"\n"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        msg = f"key {name!r} appears {times} times in one object"
        raise Fault(msg)
    return found


def _no_constant(text: str) -> Any:
    msg = f"{text} is no JSON number"
    raise Fault(msg)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        msg = f"{text} is beyond the range of float64"
        raise Fault(msg)
    return value


def whole(text: str) -> int:
    """A whole number as every array can hold it.

    Raises:
        Fault: It is beyond int64.
        ValueError: It has more than 4,300 digits.
    """
    value = int(text)
    if value not in INT64:
        shown = text if len(text) <= MOST_DIGITS else f"{text[:MOST_DIGITS]}… ({len(text)} digits)"
        msg = f"{shown} is beyond the range of int64, -2^63 to 2^63 - 1"
        raise Fault(msg)
    return value


def parse(data: bytes) -> Any:
    """Parse strict JSON.

    Raises:
        Fault: Not UTF-8, not JSON, nested too deep, a key given twice in one
            object, or a number that is NaN, infinite or a whole one beyond int64.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=whole,
        )
    except UnicodeDecodeError as err:
        msg = f"is not UTF-8 at byte {err.start}"
        raise Fault(msg) from err
    except json.JSONDecodeError as err:
        msg = f"does not parse as JSON: {err.msg} at line {err.lineno} column {err.colno}"
        raise Fault(msg) from err
    except RecursionError as err:
        msg = "does not parse as JSON: nested too deep"
        raise Fault(msg) from err
    except ValueError as err:  # an integer of more than 4,300 digits
        msg = f"does not parse as JSON: {err}"
        raise Fault(msg) from err


def parse_record(kind: type[Record], data: bytes, what: str) -> Record:
    """Parse ``data`` as one record, with no coercion between types.

    Args:
        kind: The pydantic class.
        data: UTF-8 JSON.
        what: Subject and verb of the message, e.g. ``line 3 is no prompt``.

    Raises:
        Fault: As ``parse``, or a field is missing, unknown or of another type.
    """
    try:
        parse(data)
    except Fault as fault:
        msg = f"{what}: {fault.what}"
        raise Fault(msg, **fault.facts) from fault
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as err:
        raise validation_fault(err, what) from err
