"""Captures in, a ``Report`` out; and limits from reference captures."""

from validate.run.calibrate import calibrate
from validate.run.compare import compare
from validate.run.since_golden import golden_path

__all__ = ["calibrate", "compare", "golden_path"]
