"""Decodes of ours with one step replaced: what planted faults and controls of MLA decode are made of."""

from collections.abc import Callable
from typing import Any

__all__ = ["Function", "folded", "padded", "with_steps"]

Function = Callable[..., Any]


def with_steps(**steps: Any) -> Function:
    """The split decode with some steps replaced."""
    from functools import partial

    from validate.conformance.engines._decode import DecodeSteps, decode_with

    return partial(decode_with, DecodeSteps(**steps))


def padded(rule: Any, **steps: Any) -> Function:
    """The padded decode with some steps replaced."""
    from dataclasses import replace
    from functools import partial

    from validate.conformance.engines._decode import DecodeSteps, decode_with

    return partial(decode_with, replace(DecodeSteps.padded(rule), **steps))


def folded(**steps: Any) -> Function:
    """The folded decode with some steps replaced."""
    from functools import partial

    from validate.conformance.engines._decode import DecodeSteps, folded_decode

    return partial(folded_decode, DecodeSteps(**steps))
