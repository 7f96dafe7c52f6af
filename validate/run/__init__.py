"""Captures in, a ``Report`` out; and limits from reference captures."""

from validate.run.calibrate import calibrate
from validate.run.compare import compare

__all__ = ["calibrate", "compare"]
