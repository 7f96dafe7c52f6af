"""Measurements, limits and floors for the tests of gates, made by hand."""

from typing import Any

from validate.gates import judge
from validate.schema.measurement import Interval, Measurement
from validate.schema.suite import GateSpec
from validate.schema.verdict import Limit, NoiseFloor, Verdict

SHARE = 0.0025


def measured(value: float | None, **changes: Any) -> Measurement:
    """A measurement of 40 prompts in nats."""
    fields: dict[str, Any] = {
        "metric": "logits.kl_p90",
        "value": value,
        "unit": "nats",
        "n": 40,
        "n_of": "prompts",
    }
    return Measurement(**{**fields, **changes})


def interval(low: float | None, high: float | None, **changes: Any) -> Interval:
    """An interval at exactly the levels that a share of 0.0025 asks for."""
    fields: dict[str, Any] = {
        "low": low,
        "low_level": 1 - SHARE,
        "high": high,
        "high_level": 0.95,
        "method": "order statistic",
    }
    return Interval(**{**fields, **changes})


def limit(value: float, **changes: Any) -> Limit:
    """A derived limit."""
    fields: dict[str, Any] = {
        "source": "derived",
        "pointer": "golden/tolerances.toml#logits.kl_p90.bfloat16",
    }
    return Limit(value=value, **{**fields, **changes})


def floor(value: float | None, **changes: Any) -> NoiseFloor:
    """A floor from four repeats that all measured it."""
    fields: dict[str, Any] = {"repeats": 4, "values": () if value is None else (value,) * 4}
    return NoiseFloor(value=value, **{**fields, **changes})


def spec(kind: str, name: str = "logits.kl_p90", **changes: Any) -> GateSpec:
    """A gate of one kind."""
    return GateSpec(name=name, kind=kind, **changes)


def verdict(
    kind: str,
    measurement: Measurement,
    at: Limit,
    *,
    noise: NoiseFloor | None = None,
    name: str = "logits.kl_p90",
    **changes: Any,
) -> Verdict:
    """Judge; a gate with an interval has the share that its interval was made for."""
    share = 0.0 if measurement.interval is None else SHARE
    fields: dict[str, Any] = {"alpha_share": share, "rerun": "validate compare"}
    return judge(
        spec(kind, name), measurement=measurement, limit=at, noise=noise, **{**fields, **changes}
    )
