"""Does the tool catch what it must, and leave alone what it must? Planted faults and controls."""

from validate.selftest.operations import conformance_selftest

__all__ = ["conformance_selftest"]
