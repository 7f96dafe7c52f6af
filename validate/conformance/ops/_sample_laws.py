"""Laws of a sampler with seeds: distribution, independence, replay, batchmates."""

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._laws import law_breach, serial_breach, transforms
from validate.conformance.ops._prob_rows import Array
from validate.conformance.records import Breach, Call, Case

__all__ = ["check_call_seeds", "check_row_seeds"]

STEPS = 8
"""Calls of one crowd of 1,024 rows: 8,192 draws."""
BY_ROW = ("probs", "top_k", "top_p", "min_p", "seeds")


def check_row_seeds(case: Case, call: Call, law: Array) -> tuple[Breach, ...]:
    """Every row draws by its own (seed, step)."""
    drawn = np.stack(
        [call({**case.inputs, "step": step})["ids"].astype(np.int64) for step in range(STEPS)]
    )
    found = law_breach(drawn.reshape(-1), law[0], what=f"{STEPS} steps of {len(law)} seeds")
    if found:
        return found
    u = _transforms(drawn, law[0])
    found = serial_breach(u[:-1], u[1:], what="one step and the next of a seed")
    found += serial_breach(u[:, :-1], u[:, 1:], what="neighbouring rows of a step")
    return found or _replayed(case, call, drawn[0])


def _replayed(case: Case, call: Call, first: NDArray[np.int64]) -> tuple[Breach, ...]:
    """The draws of step 0 again: as they were, reversed, beside unseeded rows, alone."""
    rows = len(first)
    unseeded = case.inputs["seeds"].copy()
    unseeded[1::2] = -1
    every = np.arange(rows)
    plain = [
        ("in an equal call", every, case.inputs["seeds"]),
        ("in reversed order", every[::-1], case.inputs["seeds"]),
        ("beside rows without a seed", every, unseeded),
        *[("alone", every[row : row + 1], case.inputs["seeds"]) for row in (0, rows // 2)],
    ]
    for words, order, seeds in plain:
        inputs = {
            name: np.ascontiguousarray(case.inputs[name][order]) if name in BY_ROW else value
            for name, value in case.inputs.items()
        }
        inputs["seeds"] = np.ascontiguousarray(seeds[order])
        ids = call(inputs)["ids"]
        differ = (ids != first[order]) & (inputs["seeds"] >= 0)
        if differ.any():
            row = int(order[int(np.argmax(differ))])
            what = (
                f"row {row} (seed {case.inputs['seeds'][row]}) draws another id {words}; so do "
                f"{int(differ.sum())} of {int((inputs['seeds'] >= 0).sum())} rows with a seed"
            )
            return (Breach(clause="replay", what=what, at={"row": row}),)
    return _unseeded(case, call, unseeded)


def _unseeded(case: Case, call: Call, seeds: NDArray[np.int64]) -> tuple[Breach, ...]:
    """Rows without a seed draw anew in every call: 512 equal draws have no chance at all."""
    calls = [call({**case.inputs, "seeds": seeds})["ids"][1::2] for _ in range(2)]
    if (calls[0] == calls[1]).all():
        what = f"{len(calls[0])} rows without a seed draw the same ids in two calls"
        return (Breach(clause="independent", what=what, at={"row": 1}),)
    return ()


def check_call_seeds(case: Case, call: Call, law: Array) -> tuple[Breach, ...]:
    """One seed a call: every row has a coin of its own, every seed other coins."""
    seed = int(case.inputs["seed"])
    drawn = np.stack(
        [call({**case.inputs, "seed": seed + i})["ids"].astype(np.int64) for i in range(STEPS)]
    )
    found = law_breach(drawn.reshape(-1), law[0], what=f"{STEPS} seeds of {len(law)} rows")
    if found:
        return found
    u = _transforms(drawn, law[0])
    found = serial_breach(u[:-1], u[1:], what="one seed and the next of a row")
    found += serial_breach(u[:, :-1], u[:, 1:], what="neighbouring rows of a seed")
    if (call(case.inputs)["ids"] != drawn[0]).any():
        found += (Breach(clause="replay", what="an equal seed gives unequal ids"),)
    return found


def _transforms(drawn: NDArray[np.int64], law: Array) -> Array:
    jitter = np.random.default_rng(drawn.size).random(drawn.shape)
    return transforms(drawn, law, jitter)
