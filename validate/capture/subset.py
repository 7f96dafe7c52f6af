"""Some prompts of a capture, seen as a capture of their own."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from validate.capture.digest import prompt_set_digest
from validate.errors import InputError
from validate.schema import Manifest, Prompt, Side, Stream

__all__ = ["Subset", "subset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The reading side of some prompts of another side; nothing is copied."""

    whole: Side
    manifest: Manifest
    """That of ``whole``, with the prompts, rows and tensors of the others left out."""
    prompts: Mapping[str, Prompt]
    streams: Mapping[str, Stream]
    drawn: Mapping[str, Mapping[str, Stream]]

    @property
    def label(self) -> str:
        """Target name, for messages."""
        return self.whole.label

    def names(self, prompt: str) -> tuple[str, ...]:
        """Sorted names of the tensors captured for ``prompt``."""
        return self.whole.names(prompt)

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor in its stored dtype; a copy, in memory."""
        return self.whole.tensor(prompt, name)

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axis names of one tensor, in order."""
        return self.whole.axes(prompt, name)


def subset(whole: Side, kept: Collection[str]) -> Subset:
    """The prompts ``kept`` of ``whole``, in the order of ``whole``.

    Raises:
        InputError: ``kept`` is empty or names a prompt that ``whole`` lacks.
    """
    missing = sorted(set(kept) - set(whole.prompts))
    if missing or not kept:
        what = f"lacks {', '.join(missing)}" if missing else "is asked for no prompt at all"
        msg = f"{whole.label}: the capture {what}; it has {len(whole.prompts)} prompts"
        raise InputError(msg)
    prompts = {name: prompt for name, prompt in whole.prompts.items() if name in kept}
    manifest = whole.manifest
    artifacts = tuple(
        file.model_copy(
            update={
                "tensors": tuple(
                    entry for entry in file.tensors if entry.name.partition("/")[0] in prompts
                )
            }
        )
        for file in manifest.artifacts
    )
    changes: dict[str, Any] = {
        "prompt_digest": prompt_set_digest(prompts.values()),
        "batch_rows": {k: row for k, row in manifest.batch_rows.items() if k in prompts},
        "artifacts": artifacts,
        "digest": None,
    }
    return Subset(
        whole=whole,
        manifest=manifest.model_copy(update=changes),
        prompts=prompts,
        streams={name: stream for name, stream in whole.streams.items() if name in prompts},
        drawn={
            kind: {name: stream for name, stream in held.items() if name in prompts}
            for kind, held in whole.drawn.items()
        },
    )
