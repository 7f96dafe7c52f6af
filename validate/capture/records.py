"""The token data of a capture: prompts and streams as JSON lines, timing as one JSON object."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from validate.capture.format import check_prompt, check_stream
from validate.capture.jsontext import compact, parse, parse_record
from validate.capture.messages import Fault
from validate.schema import Manifest, Prompt, Stream

__all__ = [
    "check_lengths",
    "check_options",
    "encode_manifest",
    "encode_timing",
    "read_prompts",
    "read_streams",
    "read_timing",
]

SHOWN = 40
"""Characters of a value that a message shows."""
SAMPLED = ("sampled", "spec-sampled")
"""Kinds that draw at T > 0: each stream has as many tokens as were asked for, or a stop token."""

Record = TypeVar("Record", bound=BaseModel)


def _lines(data: bytes, kind: type[Record], noun: str) -> Iterator[tuple[int, Record]]:
    """Line number (from 1) and record of every line."""
    if data and not data.endswith(b"\n"):
        msg = "the last line has no end; the file is cut short"
        raise Fault(msg)
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        yield number, parse_record(kind, line, f"line {number} is no {noun}")


def read_prompts(data: bytes, *, needed: bool = True) -> dict[str, Prompt]:
    """Prompts by id, in the order of the file.

    Args:
        data: The file.
        needed: False for a capture of evals, which may have no prompt of its own.

    Raises:
        Fault: A line is no prompt, an id comes twice, or there is none at all.
    """
    prompts: dict[str, Prompt] = {}
    for number, prompt in _lines(data, Prompt, "prompt"):
        if prompt.id in prompts:
            msg = f"line {number}: prompt {prompt.id!r} is there already"
            raise Fault(msg)
        check_prompt(prompt)
        prompts[prompt.id] = prompt
    if needed and not prompts:
        msg = "the capture holds no prompts"
        raise Fault(msg)
    return prompts


def read_streams(
    data: bytes, prompts: Mapping[str, Prompt], batch_rows: Mapping[str, int]
) -> dict[str, dict[str, Stream]]:
    """Streams by kind, then by prompt id, in the order of the file; ``greedy`` is always there.

    Raises:
        Fault: A line is no stream, belongs to no prompt, or comes twice.
    """
    streams: dict[str, dict[str, Stream]] = {"greedy": {}}
    for number, stream in _lines(data, Stream, "stream"):
        if stream.prompt not in prompts:
            msg = f"line {number}: stream of prompt {stream.prompt!r}, which the capture lacks"
            raise Fault(msg)
        held = streams.setdefault(stream.kind, {})
        if stream.prompt in held:
            msg = f"line {number}: the {stream.kind} stream of prompt {stream.prompt!r} is there already"
            raise Fault(msg)
        check_stream(stream, prompt=stream.prompt, batch_row=batch_rows.get(stream.prompt))
        held[stream.prompt] = stream
    return streams


def check_options(options: Mapping[str, str]) -> None:
    """Check the manifest's options that say how streams were drawn, where they are known.

    Raises:
        Fault: ``tokens``, ``seed`` or ``cut`` is no value of its kind.
    """
    for key, least in (("tokens", 1), ("seed", 0)):
        if key in options and not _whole(options[key], least):
            msg = f"options say {key}={_short(options[key])}: a whole number from {least} is meant"
            raise Fault(msg)
    if "cut" in options and not _chance_below_one(options["cut"]):
        msg = f"options say cut={_short(options['cut'])}: a probability below 1 is meant"
        raise Fault(msg)


def check_lengths(streams: Mapping[str, Mapping[str, Stream]], options: Mapping[str, str]) -> None:
    """Hold the lengths of streams at T > 0 against the option ``tokens``, where it is known.

    Args:
        streams: By kind, then by prompt id.
        options: Of the manifest, as ``check_options`` left them.

    Raises:
        Fault: A stream that no stop token ended has another length.
    """
    if "tokens" not in options:
        return
    asked = int(options["tokens"])
    for kind in SAMPLED:
        for stream in streams.get(kind, {}).values():
            if stream.finish_reason == "length" and len(stream.token_ids) != asked:
                msg = (
                    f"the {kind} stream of prompt {stream.prompt!r} ended by its length with "
                    f"{len(stream.token_ids)} tokens, and the manifest's options say tokens={asked}"
                )
                raise Fault(msg)


def _whole(text: str, least: int) -> bool:
    return re.fullmatch(r"0|[1-9][0-9]{0,18}", text) is not None and int(text) >= least


def _chance_below_one(text: str) -> bool:
    plain = re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,20})?(e-[0-9]{1,3})?", text)
    return plain is not None and float(text) < 1


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def read_timing(data: bytes) -> dict[str, float]:
    """Timings by name; the unit ends the name, as in ``prefill_seconds``.

    Raises:
        Fault: Not one JSON object of finite numbers.
    """
    raw = parse(data)
    if not isinstance(raw, dict):
        msg = "timing is not one JSON object"
        raise Fault(msg)
    bad = {
        name: value
        for name, value in raw.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value)
    }
    if bad:
        name, value = next(iter(bad.items()))
        msg = f"timing {name!r} is {value!r}, not a finite number"
        raise Fault(msg)
    return {name: float(value) for name, value in raw.items()}


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of float64
        return False


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON: one line a field, one a file and one a tensor, so that diffs stay small."""
    fields = manifest.model_dump(mode="json")
    lines = ",\n".join(
        f'"{name}": {_artifacts(value) if name == "artifacts" else compact(value)}'
        for name, value in fields.items()
    )
    return f"{{\n{lines}\n}}\n".encode()


def _artifacts(files: list[dict[str, Any]]) -> str:
    lines = []
    for file in files:
        tensors = ",\n    ".join(compact(entry) for entry in file["tensors"])
        rest = compact({name: value for name, value in file.items() if name != "tensors"})
        lines.append(f'{rest[:-1]},"tensors":[{tensors}]}}')
    return "[\n  " + ",\n  ".join(lines) + "\n]"


def encode_timing(timing: Mapping[str, float]) -> bytes:
    """One line of JSON.

    Raises:
        Fault: A value is not finite.
    """
    for name, value in timing.items():
        if not math.isfinite(value):
            msg = f"timing {name!r} is {value!r}, not a finite number"
            raise Fault(msg)
    return compact(dict(timing)).encode() + b"\n"
