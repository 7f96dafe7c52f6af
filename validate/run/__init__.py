"""Captures in, a ``Report`` out; and limits from reference captures."""

from validate.run.compare import compare

__all__ = ["compare"]
