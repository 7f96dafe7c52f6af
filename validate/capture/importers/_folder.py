"""The side that an lm-eval folder is, and the manifest that claims nothing for it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from validate.capture.importers._samples import digest_of
from validate.capture.messages import capture_error
from validate.errors import CaptureError
from validate.schema import Manifest, ModelIdentity, PathProof, Prompt, Provenance, Stream
from validate.schema.evals import EvalSet

__all__ = ["MODEL", "UNTOLD", "EvalFolder", "manifest_of"]

MODEL = "lm-eval"
"""``ModelIdentity.name`` of a folder: it names no model that this package knows."""
DTYPE = "bfloat16"
"""Dtype by which limits of evals are looked up; they depend on none."""
UNTOLD = "not told"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFolder:
    """The reading side of one lm-eval run: evals, and nothing else."""

    label: str
    path: Path
    digest: str
    """SHA-256 over the results and sample files."""
    manifest: Manifest
    evals: EvalSet
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    """None, like streams: an eval folder holds no prompts of ours."""
    streams: Mapping[str, Stream] = field(default_factory=dict)
    drawn: Mapping[str, Mapping[str, Stream]] = field(default_factory=dict)

    def names(self, prompt: str) -> tuple[str, ...]:
        """Names of tensors: there are none.

        Raises:
            CaptureError: Always; there is no such prompt.
        """
        raise self._nothing(prompt)

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor: there are none.

        Raises:
            CaptureError: Always.
        """
        raise self._nothing(prompt, name)

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axes of one tensor: there are none.

        Raises:
            CaptureError: Always.
        """
        raise self._nothing(prompt, name)

    def _nothing(self, *what: str) -> CaptureError:
        return capture_error(
            self.label,
            self.path,
            f"an lm-eval folder holds no tensors, so no {'/'.join(what)}",
            do_next="compare it with --suite suites/evals.toml",
        )


def manifest_of(head: Mapping[str, Any], evals: EvalSet, *, label: str, digest: str) -> Manifest:
    """A manifest that claims nothing: unproven, of an unknown card."""
    config = head.get("config") or {}
    name = hashlib.sha256(evals.model.encode()).hexdigest()
    nothing = hashlib.sha256(b"").hexdigest()
    return Manifest(
        schema_version=1,
        target=label,
        dtype=DTYPE,
        model=ModelIdentity(
            name=MODEL,
            architecture=UNTOLD,
            config_digest=nothing,
            weights_digest=name,
            weights=evals.model,
            tokenizer_digest=nothing,
            tokenizer_length=0,
            vocab_size=0,
        ),
        prompt_set="lm-eval tasks",
        prompt_digest=_asked(evals),
        artifacts=(),
        provenance=Provenance(
            created=str(head.get("date", UNTOLD)),
            device=str(config.get("device") or UNTOLD),
            hardware=UNTOLD,
            arch=UNTOLD,
            versions={
                key.removesuffix("_version"): str(head[key])
                for key in ("lm_eval_version", "transformers_version")
                if head.get(key)
            },
        ),
        path_proof=PathProof(path=f"lm-eval {config.get('model', UNTOLD)}"),
        evidence="unproven",
        sources_digest=nothing,
        digest=digest,
    )


def _asked(evals: EvalSet) -> str:
    """SHA-256 of what was asked: tasks, versions, few-shot counts."""
    asked = sorted((t.name, t.version, t.fewshot) for t in evals.tasks.values())
    return hashlib.sha256(digest_of(asked).encode()).hexdigest()
