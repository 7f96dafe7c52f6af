"""Sampled and speculative streams of a prompt set, run when they are first asked for."""

import time
from collections.abc import Sequence

from validate.capture.backends.torch_speculative import Made, Speculation, speculative_artifact
from validate.schema import Prompt

__all__ = ["SPECULATIVE", "Drawn"]

SPECULATIVE = "speculative"
"""Tag of the prompts that get sampled and speculative streams."""
_DRAWN_BATCHES = 2
"""Batches of the other artifacts whose prompts share one batch of drawn streams."""


class Drawn:
    """Sampled and speculative streams, run a batch at a time when a prompt of it is first asked for."""

    def __init__(
        self,
        run: Speculation | None,
        prompts: Sequence[Prompt],
        *,
        batch: int,
        stored: frozenset[str],
    ) -> None:
        self._run, self._made = run, dict[str, Made]()
        chosen = [p for p in prompts if SPECULATIVE in p.tags and run is not None]
        size = _DRAWN_BATCHES * batch
        groups = (chosen[start : start + size] for start in range(0, len(chosen), size))
        self._groups = {p.id: g for g in map(tuple, groups) for p in g if p.id not in stored}
        self.seconds = 0.0

    def of(self, prompt: Prompt) -> Made:
        """What the prompt gets; nothing for a prompt without the tag."""
        group = self._groups.get(prompt.id)
        if group is None or self._run is None:
            return Made({}, ())
        if prompt.id not in self._made:
            began = time.perf_counter()
            self._made |= speculative_artifact(self._run, group)
            self.seconds += time.perf_counter() - began
        return self._made.pop(prompt.id)
