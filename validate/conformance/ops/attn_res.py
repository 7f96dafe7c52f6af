"""Contract of ``attn_res``: a softmax over the residual stream's earlier stretches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np

from validate.conformance.captured_linear import captured
from validate.conformance.ops._kda_inputs import generator
from validate.conformance.ops._packed import typed
from validate.conformance.ops._rounding import Expected, roundoff_of
from validate.conformance.ops._rows import (
    CLAUSES,
    MANY,
    TINY,
    check_rows,
    outlier_rows,
    poison_row,
    shrunk_rows,
)
from validate.conformance.records import (
    Axis,
    Breach,
    Call,
    Case,
    Contract,
    Effort,
    Operation,
    OutputSpec,
    Settings,
)
from validate.numerics import to_float64
from validate.oracle import attn_res, rms_norm

__all__ = ["OPERATION", "MixPoint", "make_case"]

_ROWS = {"bank": 1, "prefix": 0}
EPS = 1e-5

CONTRACT = Contract(
    op="attn_res",
    title="Mix of bank and running prefix by the softmax of <RMSNorm(c; norm), proj>",
    signature="attn_res(bank, prefix, norm, proj, eps) -> mixed",
    outputs=("mixed",),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"]
        + " Scores, softmax and mix are float32; with an empty bank (shape [0, rows, hidden]) the"
        " prefix comes back as it is.",
    },
    settings={"weights": ("float32", "input")},
)
"""bank [closed, rows, hidden] in bfloat16 or float32, oldest first, of which there may be none;
prefix [rows, hidden], norm and proj [hidden] in the same dtype; eps above 0. Bank and prefix are read,
never written, and the output [rows, hidden] is fresh memory, also where it equals the prefix. Scores of
hundreds neither overflow nor give NaN. ``weights=input``: the product norm * proj, or the normed
candidate, may be rounded to the dtype of the stream before the score is summed. Oracle:
``validate.oracle.attn_res``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPoint:
    """One sweep point, before its numbers are drawn."""

    rows: int = 3
    bank: int = 3
    width: int = 64
    dtype: str = "bfloat16"
    kind: str = "normal"
    """``outliers``: channels as in a trained stream; ``growing``: later stretches are larger;
    ``sharp``: scores of hundreds, whose exponentials overflow; ``equal``: one candidate many
    times; ``zero``: some candidates are zero; ``small`` 1e-3, where eps counts; ``captured``: k3-nano's last mix
    (bank 3, width 256)."""
    amplitude: int = 1
    probe: str = "plain"
    poison: str = "none"

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        words = [f"B{self.rows}", f"N{self.bank}", f"D{self.width}", dtype, self.kind]
        words += [f"x{self.amplitude}"]
        words += [
            word for word in (self.probe, f"nan-{self.poison}") if word not in {"plain", "nan-none"}
        ]
        return "-".join(words)


def make_case(point: MixPoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    shape = (point.bank + 1, point.rows, point.width)
    size = 1e-3 if point.kind == "small" else float(point.amplitude)
    c = size * rng.normal(size=shape)
    if point.kind == "outliers":
        c = outlier_rows(rng, shape)
    if point.kind == "growing":
        c = c * (4.0 ** np.arange(len(c)))[:, None, None]
    if point.kind == "equal":
        c = np.broadcast_to(c[:1], shape).copy()
    if point.kind == "zero":
        c[::2] = 0.0
    steep = 300.0 if point.kind == "sharp" else 2.0
    inputs: dict[str, Any] = {
        "bank": typed(c[:-1], point.dtype),
        "prefix": typed(c[-1], point.dtype),
        "norm": typed(np.exp(rng.normal(0.0, 0.3, point.width)), point.dtype),
        "proj": typed(steep * rng.normal(size=point.width) / np.sqrt(point.width), point.dtype),
        "eps": EPS,
    }
    if point.kind == "captured":
        held, rows = captured(), slice(0, point.rows)
        inputs |= {name: typed(held[f"mix.{name}"], point.dtype) for name in ("norm", "proj")}
        inputs["bank"] = typed(held["mix.bank"][:, rows], point.dtype)
        inputs["prefix"] = typed(held["mix.prefix"][rows], point.dtype)
    axes: dict[str, Axis] = {name: getattr(point, name) for name in point.__dataclass_fields__}
    if point.poison == "row":
        poison_row(inputs, _ROWS)
    return Case(id=point.id, axes=axes, inputs=inputs)


def _quick() -> Iterator[MixPoint]:
    for bank in range(9):
        yield MixPoint(bank=bank)
    kinds = ("normal", "outliers", "growing", "sharp", "equal", "zero", "small")
    for kind, dtype in product(kinds, ("bfloat16", "float32")):
        yield MixPoint(kind=kind, dtype=dtype)
    for width in (1, 7, 63, 65, 576, 7168):
        yield MixPoint(width=width)
    for dtype in ("bfloat16", "float32"):
        yield MixPoint(rows=20, width=256, kind="captured", dtype=dtype)
    for amplitude in (4, 16):
        yield MixPoint(amplitude=amplitude)
    for rows in MANY:
        yield MixPoint(rows=rows, width=16)
    for rows in (1, 2, 3, 5):
        yield MixPoint(rows=rows, width=33, probe="rows")
    yield MixPoint(rows=5, bank=0, probe="rows")
    yield MixPoint(poison="row")
    yield MixPoint(probe="repeats")


def _full() -> Iterator[MixPoint]:
    for rows, bank, width, kind, dtype in product(
        (1, 5, 33),
        (0, 1, 2, 7, 8),
        (7, 256, 7168),
        ("normal", "outliers", "growing", "sharp", "equal", "zero", "small"),
        ("bfloat16", "float32"),
    ):
        yield MixPoint(rows=rows, bank=bank, width=width, kind=kind, dtype=dtype)


def _cases(effort: Effort, _: Settings) -> Iterator[Case]:
    points = chain(_quick(), _full()) if effort is Effort.FULL else _quick()
    for point in dict.fromkeys(points):
        yield make_case(point)


def _expected(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, Expected]:
    """Oracle, and the rounding of it.

    A score is a sum of ``width`` terms: it errs by the roundoff times root(width) times their
    length, and by that of narrower weights where they are declared. The softmax turns an error
    d_i of score i into ``sum_i share_i (c_i - mix) d_i``; the mix adds its own sum and one store.
    """
    bank, prefix = to_float64(inputs["bank"]), to_float64(inputs["prefix"])
    norm, proj = to_float64(inputs["norm"]), to_float64(inputs["proj"])
    mixed = attn_res(list(bank), prefix, norm=norm, proj=proj, eps=inputs["eps"])
    axes = ("row", "channel")
    if len(bank) == 0:
        return {"mixed": Expected(values=mixed, scale=np.zeros_like(mixed), axes=axes)}
    candidates = np.concatenate([bank, prefix[None]])
    terms = rms_norm(candidates, norm, eps=inputs["eps"]) * proj
    scores = np.sum(terms, axis=-1)
    share = np.exp(scores - np.max(scores, axis=0))
    share = share / np.sum(share, axis=0)
    sums = roundoff_of("float32")
    narrow = roundoff_of(inputs["prefix"]) if settings["weights"] == "input" else 0.0
    length = np.sqrt(np.sum(terms**2, axis=-1))
    off = (sums * (4.0 + np.sqrt(prefix.shape[-1])) + narrow) * length
    off = off + sums * (4.0 + np.abs(scores - np.max(scores, axis=0)))
    moved = share[..., None] * (candidates - mixed) * off[..., None]
    size = np.sum(share[..., None] * np.abs(candidates), axis=0)
    scale = np.sqrt(np.sum(moved**2, axis=0)) + 2.0 * sums * size
    scale = scale + roundoff_of(inputs["prefix"]) * np.abs(mixed) + TINY * (size > 0)
    return {"mixed": Expected(values=mixed, scale=scale, axes=axes)}


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    prefix = inputs["prefix"]
    return {"mixed": OutputSpec(shape=prefix.shape, dtype=prefix.dtype.name)}


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    return check_rows(case, call, lambda inputs: _expected(inputs, settings), rows=_ROWS)


def _shrink(case: Case) -> Iterator[Case]:
    for low in range(len(case.inputs["bank"])):
        fewer = np.delete(case.inputs["bank"], low, axis=0)
        axes = {**case.axes, "bank": len(fewer)}
        inputs = {**case.inputs, "bank": np.ascontiguousarray(fewer)}
        yield Case(id=f"{case.id}-without{low}", axes=axes, inputs=inputs)
    yield from shrunk_rows(
        case, rows={"prefix": 0, "bank": 1}, last=("prefix", "bank", "norm", "proj")
    )


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``attn_res``."""
