"""Captures made while a gate is explained: few prompts, one switch, gone afterwards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from validate.capture.digest import prompt_set_digest
from validate.capture.reader import CaptureReader, open_capture
from validate.capture.resolve import record_path
from validate.capture.subset import Subset, subset
from validate.errors import InputError
from validate.run.measure import Progress
from validate.schema.pair import Side
from validate.schema.prompts import Prompt

__all__ = ["NO_SITE", "Studio", "batch_of", "retagged", "seen_as"]

NO_SITE = "has no site here"
"""What a backend says of a planted fault that the other options leave no place."""
ROCM_ONLY = ("pad", "prefill", "kernels")
"""Options that the reference path does not read."""
DRAWN = "speculative"
"""Tag of prompts that are drawn from."""
INSIDE = ("tensors", "state")
"""Tags of prompts that are looked inside of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """Where and how cand, and what stands for ref beside it, are captured again."""

    folder: Path
    """Holds every capture made here; its owner takes it away."""
    path: str
    """Cand's path."""
    options: Mapping[str, str]
    """Cand's options, as its target names them."""
    ref_options: Mapping[str, str]
    """Options of the reference path that stands for ref."""
    device: str
    progress: Progress
    numbers: Iterator[int] = field(default_factory=count, repr=False)
    held: dict[str, CaptureReader] = field(default_factory=dict, repr=False)
    """What was captured already, by all that it was made of."""

    def ref(self, prompts: Sequence[Prompt], options: Mapping[str, str]) -> CaptureReader:
        """The reference path on these prompts, with further options."""
        return self._record("reference", {**self.ref_options, **options}, prompts)

    def cand(
        self, prompts: Sequence[Prompt], options: Mapping[str, str], *, path: str | None = None
    ) -> tuple[CaptureReader, str | None]:
        """Cand with some options set otherwise.

        Returns:
            The capture, and a sentence where a planted fault had to be left out of it.

        Raises:
            InputError: The options do not go together.
        """
        asked = {**self.options, **options}
        if path == "reference":
            asked = {key: value for key, value in asked.items() if key not in ROCM_ONLY}
        try:
            return self._record(path or self.path, asked, prompts), None
        except InputError as error:
            if NO_SITE not in str(error) or "fault" not in asked:
                raise
        fault = asked.pop("fault")
        told = f"the planted fault {fault} has no site there and is left out"
        return self._record(path or self.path, asked, prompts), told

    def _record(
        self, path: str, options: Mapping[str, str], prompts: Sequence[Prompt]
    ) -> CaptureReader:
        told = ",".join(f"{key}={value}" for key, value in sorted(options.items()))
        label = f"{path}:{told}" if told else path
        known = "\n".join([label, *(prompt.model_dump_json() for prompt in prompts)])
        if known not in self.held:
            self.held[known] = self._capture(path, options, prompts, label)
        return self.held[known]

    def _capture(
        self, path: str, options: Mapping[str, str], prompts: Sequence[Prompt], label: str
    ) -> CaptureReader:
        out = self.folder / f"{next(self.numbers)}"
        record_path(
            path,
            options=options,
            label=label,
            prompts=prompts,
            prompt_set="explain",
            out=out,
            device=self.device if path == self.path else "cpu",
            resume=False,
            progress=lambda done, total, _what: self.progress(
                f"explain: {label} captured, {done} of {total} prompts"
            ),
        )
        return open_capture(out, label=label)


def batch_of(side: Side, prompt: str) -> tuple[str, ...]:
    """The prompts that shared a batch with ``prompt``, in their order.

    A batch ends where the number of the row does not rise; a side that says nothing of rows had
    each prompt alone.
    """
    rows = side.manifest.batch_rows
    batch: list[str] = []
    for name in side.prompts:
        row = rows.get(name, 0)
        if batch and row <= rows.get(batch[-1], 0):
            if prompt in batch:
                return tuple(batch)
            batch = []
        batch.append(name)
    return tuple(batch) if prompt in batch else (prompt,)


def retagged(
    prompts: Sequence[Prompt], *, drawn: bool, inside: bool | None = None
) -> tuple[Prompt, ...]:
    """Prompts that are captured for one purpose alone.

    Args:
        prompts: As the suite has them.
        drawn: Keep the tag that has them drawn from.
        inside: True to look inside of all; None to leave that as it is.
    """
    made = []
    for prompt in prompts:
        tags = tuple(tag for tag in prompt.tags if drawn or tag != DRAWN)
        if inside:
            tags = (*INSIDE, *(tag for tag in tags if tag not in INSIDE))
        made.append(prompt.model_copy(update={"tags": tags}))
    return tuple(made)


def seen_as(side: Side, prompts: Sequence[Prompt]) -> Subset:
    """Some prompts of a stored side, with the tags that those captured again have.

    Raises:
        InputError: The side lacks one of them.
    """
    part = subset(side, [prompt.id for prompt in prompts])
    by_id = {prompt.id: prompt for prompt in prompts}
    ordered = {name: by_id[name] for name in part.prompts}
    manifest = part.manifest.model_copy(
        update={"prompt_digest": prompt_set_digest(ordered.values())}
    )
    return replace(part, prompts=ordered, manifest=manifest)
