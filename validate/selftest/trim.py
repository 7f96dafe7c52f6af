"""Some prompts of a capture without what was drawn from them: what a cheap comparison needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from validate.capture.digest import prompt_set_digest
from validate.errors import InputError
from validate.schema import Manifest, Prompt, Side, Stream

__all__ = ["DRAWN", "Trimmed", "trim", "undrawn"]

DRAWN = "speculative"
"""Tag of prompts that are drawn from."""
_OF_DRAWN = "spec."
"""How the names of tensors begin that belong to drawn streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """The reading side of a part of another side; nothing is copied."""

    whole: Side
    manifest: Manifest
    """That of ``whole``, without what is left out and without a drafter."""
    prompts: Mapping[str, Prompt]
    streams: Mapping[str, Stream]

    @property
    def label(self) -> str:
        """Target name, for messages."""
        return self.whole.label

    @property
    def drawn(self) -> Mapping[str, Mapping[str, Stream]]:
        """Nothing is drawn."""
        return {}

    def names(self, prompt: str) -> tuple[str, ...]:
        """Sorted names of the tensors kept for ``prompt``."""
        return tuple(name for name in self.whole.names(prompt) if _kept(name))

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor in its stored dtype; a copy, in memory."""
        return self.whole.tensor(prompt, name)

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axis names of one tensor, in order."""
        return self.whole.axes(prompt, name)


def undrawn(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """The prompts without the tag that has them drawn from."""
    return tuple(
        prompt.model_copy(update={"tags": tuple(tag for tag in prompt.tags if tag != DRAWN)})
        for prompt in prompts
    )


def trim(whole: Side, kept: Sequence[str]) -> Trimmed:
    """The prompts ``kept`` of ``whole``, in the order given, without drawn streams.

    Raises:
        InputError: ``whole`` lacks one of them, or none is asked for.
    """
    missing = [name for name in kept if name not in whole.prompts]
    if missing or not kept:
        what = f"lacks {', '.join(missing)}" if missing else "is asked for no prompt at all"
        msg = f"{whole.label}: the capture {what}; it has {len(whole.prompts)} prompts"
        raise InputError(msg)
    prompts = {one.id: one for one in undrawn([whole.prompts[name] for name in kept])}
    told = whole.manifest
    artifacts = tuple(
        file.model_copy(
            update={
                "tensors": tuple(
                    entry
                    for entry in file.tensors
                    if entry.name.partition("/")[0] in prompts
                    and _kept(entry.name.partition("/")[2])
                )
            }
        )
        for file in told.artifacts
    )
    changes: dict[str, Any] = {
        "model": told.model.model_copy(update={"drafter_digest": None}),
        "prompt_digest": prompt_set_digest(prompts.values()),
        "batch_rows": {name: told.batch_rows[name] for name in prompts},
        "artifacts": artifacts,
        "digest": None,
    }
    return Trimmed(
        whole=whole,
        manifest=told.model_copy(update=changes),
        prompts=prompts,
        streams={name: whole.streams[name] for name in prompts if name in whole.streams},
    )


def _kept(name: str) -> bool:
    return not name.startswith(_OF_DRAWN)
