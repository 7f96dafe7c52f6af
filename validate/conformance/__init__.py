"""Bring your own kernel: a callable against the oracle over the sweeps that catch real faults."""

from validate.conformance.calls import check

__all__ = ["check"]
