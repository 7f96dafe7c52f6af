"""``three_way``: cand is no further from the oracle than ref, in the bulk and at its worst row."""

from validate.errors import SuiteError
from validate.gates import bound
from validate.gates.outcome import Finding
from validate.schema.measurement import Measurement
from validate.schema.verdict import Limit, NoiseFloor

__all__ = ["decide"]


def decide(measurement: Measurement, *, limit: Limit, noise: NoiseFloor | None) -> Finding:
    """Judge the ratio err(cand)/err(ref) and, apart from it, the worst row.

    Args:
        measurement: Defined, finite ratio; ``worst_value`` is the same quantity at
            its worst row, in whatever unit ``limit.worst`` is given.
        limit: ``value`` bounds the ratio, ``worst`` the worst row.
        noise: The ratio of ref repeats; see ``bound``.

    Raises:
        SuiteError: The limit has no ``worst``: half a gate would pass as a whole.
    """
    if limit.worst is None:
        msg = f"{limit.pointer}: a three_way limit needs 'worst' beside 'value'"
        raise SuiteError(msg)
    return bound.decide(measurement, limit=limit, noise=noise)
