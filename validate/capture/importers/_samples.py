"""``samples_<task>_*.jsonl`` line by line: only the keys that are needed become Python objects."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic_core import SchemaValidator, ValidationError, core_schema

from validate.capture.messages import Fault
from validate.schema.evals import HASH_DIGITS, SIDECAR, EvalItem, OutputType

__all__ = ["digest_of", "read_items"]

REQUEST = "gen_args_0"
"""lm-eval's name of a sample's first request; ``arg_1`` holds its generation arguments."""
NO_FILTER = "none"


def digest_of(value: object) -> str:
    """First digits of the SHA-256 of ``value`` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def read_items(
    path: Path, *, task: str, metrics: Sequence[str], kind: OutputType
) -> Iterator[tuple[int, EvalItem]]:
    """The items of one file with their line numbers, in the order of the file.

    Args:
        path: The file.
        task: Whose samples they are.
        metrics: Keys of a sample that hold scores.
        kind: What its answers are; a rolling log-likelihood has no greedy flag.

    Raises:
        Fault: A line is no whole JSON object or holds nothing that can be paired; it is named.
        OSError: The file cannot be read.
    """
    read = _Reader(task, metrics, kind)
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                yield number, read.item(line)
            except ValidationError as err:
                raise _broken(number, line, err) from err
            except (ValueError, TypeError, LookupError, OverflowError) as err:
                msg = f"line {number} holds no answer that can be read: {err}"
                raise Fault(msg) from err


def _broken(number: int, line: bytes, err: ValidationError) -> Fault:
    first = err.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    where = f"{place}: " if place else ""
    half = "" if line.endswith(b"\n") else " (the file ends in the middle of it: half-written)"
    return Fault(f"line {number} is no whole sample{half}: {where}{first['msg']}")


_Beside = tuple[Any, Any, Any, Any, Any, Any]
NOTHING: _Beside = (None, None, None, None, None, None)
"""What a foreign sample keeps beside: no ids, finish reason, prompt tokens, BOS or truncation."""


def _beside(held: Mapping[str, Any]) -> _Beside:
    ids = held.get("token_ids")
    return (
        None if ids is None else tuple(ids),
        held.get("finish_reason"),
        held.get("prompt_tokens"),
        _short(held.get("prompt_tokens_hash")),
        held.get("bos"),
        held.get("truncated"),
    )


class _Reader:
    """Turns the lines of one task into items."""

    def __init__(self, task: str, metrics: Sequence[str], kind: OutputType) -> None:
        self.task = task
        self.rolling = kind == "loglikelihood_rolling"
        self.metrics = tuple(metrics)
        self.validate = _validator(self.metrics, kind).validate_json
        self.digests: dict[str, str] = {}

    def item(self, line: bytes) -> EvalItem:
        """One line; a plain ``float`` of a bool or number is a score, text is none."""
        raw: dict[str, Any] = self.validate(line)
        get = raw.get
        values, greedy, response = _responses(get("resps"), rolling=self.rolling)
        beside = get(SIDECAR)
        return EvalItem(
            self.task,
            get("filter") or NO_FILTER,
            raw["doc_id"],
            _short(get("doc_hash")),
            _short(get("prompt_hash")),
            _short(get("target_hash")),
            self._scores(raw),
            values,
            greedy,
            response,
            None if response is None else _text(get("filtered_resps")),
            get("target"),
            *(NOTHING if beside is None else _beside(beside)),
            None if response is None else self._arguments(raw),
        )

    def _scores(self, raw: Mapping[str, Any]) -> dict[str, float]:
        """Metrics of one value; a list (log-likelihood and length) is what ``resps`` hold already."""
        found = {}
        for name in self.metrics:
            if name not in raw:
                continue
            value = raw[name]
            if type(value) is float:
                found[name] = value
            elif isinstance(value, (bool, int)):
                found[name] = float(value)
            elif not isinstance(value, (list, dict)):
                found[name] = math.nan
        return found

    def _arguments(self, raw: Mapping[str, Any]) -> str | None:
        """Digest of the generation arguments; one is made for each distinct text alone."""
        given = ((raw.get("arguments") or {}).get(REQUEST) or {}).get("arg_1")
        if not isinstance(given, dict):
            return None
        text = repr(given)
        if text not in self.digests:
            self.digests[text] = digest_of(given)
        return self.digests[text]


def _validator(metrics: Sequence[str], kind: OutputType) -> SchemaValidator:
    """Reads the needed keys of a line and skips documents and prompts, which are most of it."""
    text = core_schema.nullable_schema(core_schema.str_schema(strict=True))
    anything = core_schema.any_schema()
    request = _record({"arg_1": anything})
    finish: list[Literal["stop", "length"]] = ["stop", "length"]
    beside = {
        "prompt_tokens": core_schema.nullable_schema(
            core_schema.int_schema(strict=True, ge=0, lt=2**63)
        ),
        "prompt_tokens_hash": text,
        "bos": core_schema.nullable_schema(core_schema.int_schema(strict=True, ge=0, lt=2**63)),
        "truncated": core_schema.nullable_schema(core_schema.bool_schema(strict=True)),
        "finish_reason": core_schema.nullable_schema(core_schema.literal_schema(finish)),
        "token_ids": core_schema.nullable_schema(
            core_schema.list_schema(core_schema.int_schema(strict=True, ge=-(2**63), lt=2**63))
        ),
    }
    keys: dict[str, core_schema.CoreSchema] = dict.fromkeys(metrics, anything)
    keys |= {
        "doc_hash": text,
        "prompt_hash": text,
        "target_hash": text,
        "filter": text,
        "target": core_schema.nullable_schema(
            core_schema.str_schema(coerce_numbers_to_str=True),
        ),
        "resps": anything,
        SIDECAR: core_schema.nullable_schema(_record(beside)),
    }
    if kind in ("generate_until", "unknown"):
        keys["filtered_resps"] = anything
        keys["arguments"] = core_schema.nullable_schema(_record({REQUEST: request}))
    number = core_schema.typed_dict_field(core_schema.int_schema(strict=True, ge=0, lt=2**63))
    return SchemaValidator(_record(keys, doc_id=number))


def _record(
    keys: Mapping[str, core_schema.CoreSchema], **required: core_schema.TypedDictField
) -> core_schema.CoreSchema:
    optional = {
        name: core_schema.typed_dict_field(schema, required=False) for name, schema in keys.items()
    }
    return core_schema.typed_dict_schema({**optional, **required}, extra_behavior="ignore")


def _responses(
    resps: Any, *, rolling: bool
) -> tuple[tuple[float, ...], tuple[bool, ...], str | None]:
    """Log-likelihoods and greedy flags, or what was generated; lm-eval writes numbers as texts."""
    if not resps:
        return (), (), None
    if isinstance(resps, str):
        return (), (), resps
    first = resps[0]
    inner = first[0] if isinstance(first, list) and first else first
    if isinstance(inner, list):
        values = tuple([float(one[0][0]) for one in resps])
        return values, tuple([one[0][1] in (True, "True") for one in resps]), None
    if rolling:
        return tuple([float(one[0] if isinstance(one, list) else one) for one in resps]), (), None
    return (), (), inner if isinstance(inner, str) else str(inner)


def _text(value: Any) -> str | None:
    while isinstance(value, list) and value:
        value = value[0]
    return None if value is None or value == [] else str(value)


def _short(value: str | None) -> str | None:
    return value[:HASH_DIGITS] if value else None
