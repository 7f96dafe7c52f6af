"""What a report draws, aggregated from a pair that has been measured; nothing is judged by it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from validate.metrics._logit_rows import logit_rows
from validate.run.series_evals import flip_series
from validate.run.series_logits import Drift, drift_of, kl_series
from validate.run.series_speculative import acceptance_series, uniform_series
from validate.run.series_streams import survival_series
from validate.run.series_tensors import head_series, hidden_series, ratio_series
from validate.schema.measurement import Measurement
from validate.schema.pair import Pair
from validate.schema.series import Series

__all__ = ["FloorDrift", "series_of"]

RATIOS = ("attention.introduced_ratio", "attention.propagated_ratio")


@dataclass(slots=True)
class FloorDrift:
    """KL of ref's repeats, row by row, gathered while each repeat's pair is at hand."""

    drifts: list[Drift] = field(default_factory=list)

    def look(self, matched: Pair) -> None:
        """Keep what one repeat shows; nothing where its logits are undefined."""
        rows = logit_rows(matched)
        if rows.reason is None and rows.forced:
            self.drifts.append(drift_of(rows.forced))


def series_of(
    pair: Pair, *, measured: Mapping[str, Measurement], floor: FloorDrift
) -> tuple[Series, ...]:
    """Every series that the gates which ran have data for.

    Args:
        pair: Ref and cand, after ``measured`` was made from them: what that pass read is not
            read again.
        measured: Measurements by gate.
        floor: Ref against its repeats.

    Returns:
        In the order of areas. A gate that was left out or is undefined brings no series.
    """
    known = {name for name, found in measured.items() if found.value is not None}
    areas = {name.partition(".")[0] for name in known}
    made: list[Series] = []
    if "attention.head_rel_l2" in known:
        made += head_series(pair)
    if "attention.hidden_rel_l2" in known:
        made += hidden_series(pair)
    for name in RATIOS:
        if name in known:
            made += ratio_series(name, measured[name].breakdown)
    if any(name.startswith("logits.kl_") for name in known):
        made += kl_series(drift_of(logit_rows(pair).forced), floor.drifts)
    if "greedy" in areas:
        made += survival_series(pair)
    if "speculative.uniform" in known:
        made += uniform_series(pair)
    if "speculative.acceptance_z" in known:
        made += acceptance_series(pair)
    if "evals.score_drop" in known:
        made += flip_series(measured["evals.score_drop"].breakdown)
    return tuple(made)
