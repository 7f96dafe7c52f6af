"""How long streams are drawn where a command line asks for more tokens than a capture has."""

import dataclasses
import math
from collections.abc import Sequence

from validate.capture.targets import Target
from validate.schema import Prompt

__all__ = ["draw_enough"]

KEY = "tokens"
"""Of a target: tokens of every sampled stream."""


def draw_enough(
    target: Target, tokens: int, *, held: Sequence[Prompt], ids: Sequence[str]
) -> Target:
    """The target with streams long enough for ``tokens`` sampled tokens of each kind in all.

    A stored capture has the streams it has, and a target that names its own number keeps it.

    Args:
        target: The candidate.
        tokens: Asked for.
        held: Prompts that a capture made here would hold.
        ids: Prompts that count; empty: all.
    """
    from validate.capture.backends.torch_model import SPECULATIVE
    from validate.capture.backends.torch_speculative import TOKENS

    drawn = [p for p in held if SPECULATIVE in p.tags and (not ids or p.id in ids)]
    if target.path is None or KEY in target.options or not drawn:
        return target
    each = math.ceil(tokens / len(drawn))
    if each <= TOKENS["spec-sampled"]:
        return target
    text = f"{target.text}{',' if target.options else ':'}{KEY}={each}"
    return dataclasses.replace(target, options={**target.options, KEY: str(each)}, text=text)
