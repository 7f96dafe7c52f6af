"""Contract of ``float8_e4m3fnuz``: bias 8, largest 240, NaN at 0x80 alone, one zero."""

from validate.conformance.ops._float8 import float8_operation

__all__ = ["OPERATION"]

OPERATION = float8_operation(
    "float8_e4m3fnuz", title="Encode and decode float8_e4m3fnuz (gfx942) with a scale a row"
)
