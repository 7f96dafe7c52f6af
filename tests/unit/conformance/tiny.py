"""A tiny operation, y = 2 x by rows, and implementations of it, right and wrong in every way."""

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from validate.conformance.records import (
    Breach,
    Call,
    Case,
    Contract,
    Effort,
    Operation,
    OutputSpec,
    Settings,
)
from validate.conformance.relations import permuted_rows, repeats, solo_rows

CONTRACT = Contract(
    op="double",
    title="Twice the input",
    signature="double(x, shift) -> y",
    outputs=("y",),
    clauses={
        "value": "y is 2 x + shift, exactly.",
        "repeats": "Equal calls give equal bits.",
        "row-order": "Rows in another order give the same rows.",
        "solo": "A row alone gives what it gives in a batch.",
    },
    settings={"sign": ("plus", "minus")},
)
NAMES = ("row", "head")


def case(rows: int, heads: int, shift: float = 0.0, seed: int = 7) -> Case:
    x = np.random.default_rng(seed).normal(size=(rows, heads)).astype(np.float32)
    return Case(
        id=f"B{rows}-H{heads}-s{shift:g}",
        axes={"batch": rows, "heads": heads, "shift": shift},
        inputs={"x": x, "shift": shift},
    )


def cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    for shift in (0.0, 1.0) if effort is Effort.QUICK else (0.0, 0.5, 1.0, 2.0):
        for heads in (4, 12, 16):
            for rows in (1, 2, 3):
                yield case(rows, heads, shift)


def outputs(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, OutputSpec]:
    return {"y": OutputSpec(shape=inputs["x"].shape, dtype="float32")}


def check(one: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    y = call(one.inputs)["y"]
    sign = 1 if settings["sign"] == "plus" else -1
    expected = sign * (2 * one.inputs["x"] + np.float32(one.inputs["shift"]))
    bad = ~(y == expected)
    if bad.any():
        wrong = {
            name: tuple(int(i) for i in np.flatnonzero(bad.any(axis=1 - axis)))
            for axis, name in enumerate(NAMES)
        }
        at = {name: found[0] for name, found in wrong.items()}
        return (Breach(clause="value", what=f"{int(bad.sum())} values", at=at, wrong=wrong),)
    rows = {"x": 0}
    return (
        *repeats(one, call, base={"y": y}),
        *permuted_rows(one, call, rows, {"y": 0}, base={"y": y}),
        *solo_rows(one, call, rows, {"y": 0}, base={"y": y}),
    )


def shrink(one: Case) -> Iterator[Case]:
    rows, heads = one.inputs["x"].shape
    for fewer in sorted({1, rows - 1}):
        if 0 < fewer < rows:
            yield case(fewer, heads, one.inputs["shift"])
    for fewer in sorted({1, heads // 2, heads - 1}):
        if 0 < fewer < heads:
            yield case(rows, fewer, one.inputs["shift"])


OPERATION = Operation(contract=CONTRACT, cases=cases, outputs=outputs, check=check, shrink=shrink)
NOTHING = Operation(
    contract=CONTRACT,
    cases=lambda effort, settings: iter(()),
    outputs=outputs,
    check=check,
    shrink=shrink,
)


def right(x: torch.Tensor, shift: float) -> torch.Tensor:
    """Twice the input and a shift."""
    return 2 * x + shift


def negated(x: torch.Tensor, shift: float) -> torch.Tensor:
    return -(2 * x + shift)


def raises(x: torch.Tensor, shift: float) -> torch.Tensor:
    raise ZeroDivisionError("no kernel for this shape")


class _Unprintable(RuntimeError):
    def __str__(self) -> str:
        raise self


def raises_unprintable(x: torch.Tensor, shift: float) -> torch.Tensor:
    raise _Unprintable


def raises_surrogate(x: torch.Tensor, shift: float) -> torch.Tensor:
    raise RuntimeError("\udce9t\u00e9")


def negative_view(x: torch.Tensor, shift: float) -> torch.Tensor:
    return torch._neg_view(negated(x, shift))


def negative_view_of_input(x: torch.Tensor, shift: float) -> torch.Tensor:
    return torch._neg_view(x)


def conjugate_view(x: torch.Tensor, shift: float) -> torch.Tensor:
    return torch.complex(right(x, shift), x).conj()


def zero_without_memory(x: torch.Tensor, shift: float) -> torch.Tensor:
    return torch._efficientzerotensor(x.shape)


def leaves(x: torch.Tensor, shift: float) -> torch.Tensor:
    raise SystemExit(3)


def hangs(x: torch.Tensor, shift: float) -> torch.Tensor:
    time.sleep(60)
    return right(x, shift)


def crashes(x: torch.Tensor, shift: float) -> torch.Tensor:
    os.kill(os.getpid(), 11)
    return right(x, shift)


def quits(x: torch.Tensor, shift: float) -> torch.Tensor:
    os.write(1, b"giving up\n")
    os._exit(5)


def nothing(x: torch.Tensor, shift: float) -> None:
    return None


def two(x: torch.Tensor, shift: float) -> tuple[torch.Tensor, torch.Tensor]:
    return right(x, shift), x.clone()


def array(x: torch.Tensor, shift: float) -> np.ndarray:
    return right(x, shift).numpy()


def flat(x: torch.Tensor, shift: float) -> torch.Tensor:
    return right(x, shift).flatten()


def double_precision(x: torch.Tensor, shift: float) -> torch.Tensor:
    return right(x, shift).double()


def elsewhere(x: torch.Tensor, shift: float) -> torch.Tensor:
    return right(x, shift).to("meta")


def writes_input(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = right(x, shift)
    x[-1, -1] += 1
    return y


def writes_past(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = right(x, shift)
    torch.as_strided(x, (x.numel() + 2,), (1,), x.storage_offset())[-2:] = 0
    return y


def reads_past(x: torch.Tensor, shift: float) -> torch.Tensor:
    ahead = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset() + 1).view(x.shape)
    return right(x, shift) + 0 * ahead


def view_of_input(x: torch.Tensor, shift: float) -> torch.Tensor:
    return x[:]


_SCRATCH = torch.zeros(4096)


def view_of_scratch(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = _SCRATCH[: x.numel()].view(x.shape)
    return y.copy_(right(x, shift))


_KEPT: list[torch.Tensor] = []


def writes_earlier(x: torch.Tensor, shift: float) -> torch.Tensor:
    for old in _KEPT:
        old.zero_()
    _KEPT.append(right(x, shift))
    return _KEPT[-1]


def forgets_a_row(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = torch.empty_like(x)
    y[: max(1, x.shape[0] - 1)] = right(x, shift)[: max(1, x.shape[0] - 1)]
    return y


def late_heads(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = right(x, shift)
    y[:, 12:] += 1
    return y


def late_rows(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = right(x, shift)
    y[1:] += shift
    return y


def draws(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = right(x, shift)
    return y if _COUNT.pop() else torch.nextafter(y, y + 1)


_COUNT = [False, False, False, True] + [True] * 0


def mixes_rows(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = right(x, shift)
    if x.shape[0] == 1 and shift == 1.0 and x.shape[1] > 4:
        y = torch.nextafter(y, y + 1)
    return y
