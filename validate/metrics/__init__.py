"""One pair in, one ``Measurement`` out; one metric a file."""

from collections.abc import Callable, Mapping

from validate.schema import Levels, Measurement, Pair

__all__ = ["METRICS", "Metric"]

Metric = Callable[[Pair, Levels], Measurement]
"""A metric measures one pair; ``Levels`` are the confidence levels of its interval."""

METRICS: Mapping[str, Metric] = {}
"""Every metric by its name ``area.metric``."""
