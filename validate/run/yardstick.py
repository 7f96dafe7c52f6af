"""The yardstick's own measurements: A/A, noise floors, path proofs."""

from collections.abc import Mapping, Sequence

from validate.gates import MIN_REPEATS, noise_floor
from validate.run.sides import deviation_gaps, proof_gaps
from validate.schema.measurement import Measurement, Worst
from validate.schema.pair import Side
from validate.schema.suite import GateSpec
from validate.schema.verdict import Limit, NoiseFloor

__all__ = ["aa", "floor_of", "floors_known", "no_oracle", "path_proof", "same_tensors"]

NO_TENSORS = ("prompts", "streams", "timing")


def aa(found: Mapping[str, Measurement], gates: Sequence[GateSpec]) -> Measurement:
    """How many gates measure anything but their exact value on ref against ref.

    Args:
        found: Measurements on the pair (ref, ref), by gate.
        gates: The gates that run.

    Returns:
        A count of gates; undefined when none of them could be measured.
    """
    defined = {
        gate.name: (value, gate.on_self)
        for gate in gates
        if gate.on_self is not None and (value := found[gate.name].value) is not None
    }
    if not defined:
        return Measurement(
            metric="yardstick.aa",
            value=None,
            unit="gates",
            n=0,
            n_of="gates",
            why_undefined="no gate could be measured on ref against ref",
        )
    off = {name: value for name, (value, wanted) in defined.items() if value != wanted}
    first = next(iter(off), None)
    return Measurement(
        metric="yardstick.aa",
        value=float(len(off)),
        unit="gates",
        n=len(defined),
        n_of="gates",
        worst=None if first is None else Worst(place=first, value=off[first]),
        breakdown=off,
    )


def floor_of(
    gate: GateSpec, found: Sequence[Measurement], *, dtype: str, limit: Limit
) -> NoiseFloor:
    """The noise floor of one gate from its measurements between ref and each repeat.

    Only ``noise_ratio`` gates take the stand-in from unit roundoff: the others are
    not divided by it, so a floor of 0 stays what was measured.
    """
    between = sum(one.upper is not None and one.upper != one.value for one in found)
    if between and gate.kind == "noise_ratio":
        why = f"{between} of {len(found)} repeats measure no exact value: store full logits of ref"
        return NoiseFloor(value=None, repeats=len(found), why_undefined=why)
    values = [measurement.value for measurement in found if measurement.value is not None]
    roundoff = limit.roundoff if gate.kind == "noise_ratio" else None
    floor = noise_floor(values, dtype=dtype, roundoff=roundoff)
    missing = [m.why_undefined for m in found if m.value is None]
    if floor.value is not None or not missing:
        return floor
    why = f"{floor.why_undefined}; {len(missing)} of {len(found)} undefined: {missing[0]}"
    return NoiseFloor(value=None, repeats=floor.repeats, values=floor.values, why_undefined=why)


def floors_known(
    floors: Mapping[str, NoiseFloor], gates: Sequence[GateSpec], *, repeats: int
) -> Measurement:
    """Whether the floors that gates divide by are measured: 0 missing, or undefined.

    Args:
        floors: Noise floors by gate.
        gates: The gates that run.
        repeats: Repeats that floors rest on.
    """
    missing = {
        gate.name: floors[gate.name].why_undefined
        for gate in gates
        if gate.kind == "noise_ratio" and floors[gate.name].value is None
    }
    why = None
    if repeats < MIN_REPEATS:
        why = f"{repeats} repeats of ref, at least {MIN_REPEATS} needed"
    elif missing:
        name, reason = next(iter(missing.items()))
        why = f"{len(missing)} floors are not measured; {name}: {reason}"
    return Measurement(
        metric="yardstick.floor",
        value=0.0 if why is None else None,
        unit="missing floors",
        n=repeats,
        n_of="repeats",
        why_undefined=why,
        n_needed=MIN_REPEATS if repeats < MIN_REPEATS else None,
    )


def path_proof(ref: Side, cand: Side) -> Measurement:
    """How much of what the two targets' names promise and their manifests declare is not proven."""
    gaps = tuple(
        gap
        for role, side in (("ref", ref), ("cand", cand))
        for gap in (*proof_gaps(role, side), *deviation_gaps(role, side))
    )
    return Measurement(
        metric="yardstick.path_proof",
        value=float(len(gaps)),
        unit="gaps",
        n=2,
        n_of="captures",
        worst=Worst(detail="; ".join(gaps)) if gaps else None,
    )


def same_tensors(ref: Side, cand: Side) -> tuple[str, ...]:
    """A sentence that says aloud that cand's shards are ref's, whatever its JSON files say.

    A manifest, a prompt or a stream can be written anew without any tensor being computed anew.
    """
    held = [
        sorted(file.sha256 for file in side.manifest.artifacts if file.artifact not in NO_TENSORS)
        for side in (ref, cand)
    ]
    if not held[0] or held[0] != held[1]:
        return ()
    streams = (
        "and the same streams" if dict(ref.streams) == dict(cand.streams) else "not the streams"
    )
    told = (
        f"cand '{cand.label}' holds byte for byte the tensors that ref '{ref.label}' holds "
        f"({len(held[0])} shards), {streams}: what is measured on them differs by 0 by "
        "construction and says nothing about another path"
    )
    return (told,)


def no_oracle(gate: GateSpec) -> Measurement:
    """The measurement of ref's own error where there is no oracle to hold it against."""
    return Measurement(
        metric=gate.measures,
        value=None,
        unit="",
        n=0,
        n_of="prompts",
        why_undefined="there is no oracle capture to hold ref against",
    )
