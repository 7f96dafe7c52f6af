"""What clean pairs measure: ref against its repeats, and the oracle on either side of each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from validate.errors import InputError
from validate.gates import noise_floor
from validate.run.measure import Bench
from validate.schema.measurement import Measurement
from validate.schema.pair import Side
from validate.schema.suite import CleanRule, GateSpec

__all__ = ["CleanPairs", "Ends", "ends_of", "measure_clean", "upper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPairs:
    """Measurements on clean pairs, by gate."""

    repeated: Mapping[str, tuple[Measurement, ...]]
    """Ref against each repeat."""
    truth: Mapping[str, tuple[Measurement, ...]]
    """The oracle against ref and against each repeat; empty without an oracle."""
    reverse: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)
    """Ref and each repeat against the oracle, in cand's place; of gates that ask for it."""

    def of(self, gate: GateSpec, rule: CleanRule) -> tuple[Measurement, ...]:
        """The measurements that ``rule`` rests on.

        Raises:
            InputError: There are none, or one is undefined or not finite.
        """
        found: tuple[Measurement, ...] = ()
        if "repeats" in rule.basis:
            found += self.repeated.get(gate.name, ())
        if "oracle" in rule.basis:
            found += self.truth.get(gate.name, ())
        if "reverse" in rule.basis:
            found += self.reverse.get(gate.name, ())
        if not found:
            msg = f"calibrate: {gate.name}: the basis {list(rule.basis)} leaves no clean pair"
            raise InputError(msg)
        for one in found:
            if one.value is None or not math.isfinite(one.value):
                why = one.why_undefined or f"it measures {one.value}"
                msg = f"calibrate: {gate.name} is undefined on a clean pair: {why}"
                raise InputError(msg)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Upper ends of what clean pairs measured, in the limit's unit."""

    value: float
    worst: float | None
    """The same for the worst row; None where it was not measured."""
    floor: float | None
    """Noise floor that values are divided by; None where the limit is in the metric's unit."""


def measure_clean(
    bench: Bench,
    *,
    ref: Side,
    repeats: Sequence[Side],
    gates: Sequence[GateSpec],
    settings: Mapping[str, float],
    reverse: Sequence[GateSpec] = (),
) -> CleanPairs:
    """Measure every clean pair once.

    Args:
        bench: Metrics, levels, oracle.
        ref: The reference.
        repeats: Its repeats.
        gates: What to measure; yardstick gates are measured against the oracle alone.
        settings: ``near_tie`` and ``route_gap``.
        reverse: Of ``gates``, those to measure with the oracle in cand's place too.
    """
    plain = [gate for gate in gates if gate.area != "yardstick"]
    pairs = [bench.pair(ref, repeat, **settings) for repeat in repeats]
    repeated = [
        bench.measure(pair, what=f"ref against {pair.cand.label}", gates=plain) for pair in pairs
    ]
    alone = [bench.pair(side, side, **settings) for side in (ref, *repeats)]
    differences = [gate for gate in gates if gate.kind != "three_way" and not gate.inside_cand]
    truth = [
        found
        for pair in alone
        if (found := bench.against_oracle(pair, gates=differences)) is not None
    ]
    turned = [
        bench.measure(
            replace(pair, cand=pair.oracle, _cache={}),
            what=f"{pair.ref.label} against oracle",
            gates=reverse,
        )
        for pair in alone
        if reverse and pair.oracle is not None
    ]
    return CleanPairs(
        repeated=_by_gate(repeated, plain),
        truth=_by_gate(truth, differences),
        reverse=_by_gate(turned, reverse),
    )


def ends_of(gate: GateSpec, rule: CleanRule, pairs: CleanPairs, *, dtype: str) -> Ends:
    """The clean upper ends of one gate.

    For ``noise_ratio`` each repeat is taken over the floor of the others and the oracle's
    pairs over the floor of all. For the other kinds the end is no less than any repeat,
    whatever the basis, for no gate PASSes below its own noise.

    Raises:
        InputError: A clean measurement or, where it is divided by, a floor is missing.
    """
    found = pairs.of(gate, rule)
    if gate.kind == "noise_ratio":
        return _ratio_ends(gate, rule, pairs, dtype=dtype)
    worsts = [one.worst_value for one in found if one.worst_value is not None]
    return Ends(
        value=max(map(upper, (*found, *pairs.repeated.get(gate.name, ())))),
        worst=max(worsts) if worsts else None,
        floor=None,
    )


def upper(found: Measurement) -> float:
    """The upper confidence limit, or the value of a deterministic measurement."""
    value = 0.0 if found.value is None else found.value
    high = None if found.interval is None else found.interval.high
    return max(value, high) if high is not None and math.isfinite(high) else value


def _by_gate(
    found: Sequence[Mapping[str, Measurement]], gates: Sequence[GateSpec]
) -> dict[str, tuple[Measurement, ...]]:
    return {gate.name: tuple(one[gate.name] for one in found) for gate in gates}


def _floors(
    found: Sequence[Measurement], *, dtype: str, roundoff: tuple[float, int] | None
) -> list[float | None]:
    """The floor over all repeats, then over all but each in turn."""
    values = [one.value for one in found if one.value is not None]
    without = [[v for j, v in enumerate(values) if j != i] for i in range(len(values))]
    return [noise_floor(kept, dtype=dtype, roundoff=roundoff).value for kept in (values, *without)]


def _ratio_ends(gate: GateSpec, rule: CleanRule, pairs: CleanPairs, *, dtype: str) -> Ends:
    floors = _floors(pairs.repeated[gate.name], dtype=dtype, roundoff=rule.roundoff)
    known = [floor for floor in floors if floor]
    if len(known) < len(floors):
        msg = (
            f"calibrate: {gate.name}: a floor over repeats is 0 or undefined, so no ratio to it can "
            "be calibrated; the repeats may all be one and the same run"
        )
        raise InputError(msg)
    whole, *others = known
    over = [
        upper(one) / floor for one, floor in zip(pairs.repeated[gate.name], others, strict=True)
    ]
    if "oracle" in rule.basis:
        over += [upper(one) / whole for one in pairs.truth[gate.name]]
    return Ends(value=max(over), worst=None, floor=whole)
