"""Contract of ``float8_e4m3fn``: OCP's eight-bit float, bias 7, largest 448, NaN at 0x7F."""

from validate.conformance.ops._float8 import float8_operation

__all__ = ["OPERATION"]

OPERATION = float8_operation(
    "float8_e4m3fn", title="Encode and decode float8_e4m3fn (OCP; gfx950, CUDA) with a scale a row"
)
