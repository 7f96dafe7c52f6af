"""The table of published faults, written from the records: ``python -m validate.faults.pages``.

``docs/faults-public.md`` holds what this writes; a test demands that it is current.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from validate.faults import FAULTS
from validate.faults.kernels import OPERATION_CONTROLS, OPERATION_FAULTS
from validate.faults.published import NOT_PLANTED, PUBLISHED

__all__ = ["main", "page", "places"]

PAGE = Path("docs") / "faults-public.md"
_ASK = {"cand": "rocm:fault=", "ref": "reference:fault="}
_IN = {"capture": "a capture", "evals": "eval results"}


def places(fault: str) -> tuple[str, ...]:
    """Where a published fault is planted, in Markdown; empty when it is nowhere."""
    return tuple(_places(fault))


def _places(fault: str) -> Iterator[str]:
    if fault in FAULTS:
        record = FAULTS[fault]
        asked = _ASK.get(record.where)
        yield f"`{asked}{fault}`" if asked else _IN[record.where]
    for planted in OPERATION_FAULTS:
        if planted.id == fault or planted.id.startswith(f"{fault}-"):
            yield f"`{planted.op}`" + ("" if planted.id == fault else f" ({planted.id})")
    for control in OPERATION_CONTROLS:
        if control.id == fault:
            yield f"`{control.op}`, as a control that must pass"


def page() -> str:
    """The whole page."""
    rows, planted = [], 0
    for fault, title in PUBLISHED.items():
        found = places(fault)
        planted += bool(found)
        told = "; ".join(found) or f"not planted: {NOT_PLANTED[fault]}"
        expect = FAULTS[fault].expect if fault in FAULTS else ""
        rows.append(f"| {fault} | {title} | {told} | {expect} |")
    lines = [
        "# Published faults and where they are planted",
        "",
        (
            f"{planted} of {len(PUBLISHED)} faults that users of public inference stacks reported are "
            "planted here, each as the mechanism at its place."
        ),
        (
            "A name like `mla_decode` is an operation: the fault is one line of an implementation of "
            "ours, and `validate conformance --selftest` must catch it."
        ),
        "A target like `rocm:fault=LC-01` is the whole model, and `validate compare` must see it.",
        (
            "Faults of captures and eval results are planted in what was recorded "
            "(`validate/faults/captures.py`)."
        ),
        "What each does: [faults.md](faults.md), and the `source` of every record.",
        "",
        "| id | fault | planted in | `compare` says |",
        "|---|---|---|---|",
        *rows,
        "",
        "Written by `python -m validate.faults.pages` from the records.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Write the page below the working directory."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
