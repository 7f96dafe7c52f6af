"""Captures that live in dictionaries: what a metric needs of a ``Side``, without a disk."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.schema import (
    ArtifactFile,
    Manifest,
    ModelIdentity,
    Pair,
    PathProof,
    Prompt,
    Provenance,
    Side,
    Stream,
    TensorEntry,
)

Tensors = Mapping[str, Mapping[str, NDArray[Any]]]
"""Arrays by prompt id and tensor name, e.g. ``{"p-0": {"logits": array}}``."""
Streams = Mapping[str, Stream | Sequence[int]]

_AXES = {
    "logits": ("rows", "vocab"),
    "positions": ("rows",),
    "in": ("rows", "hidden"),
    "out": ("rows", "heads", "value"),
    "lse": ("rows", "heads"),
    "hidden": ("rows", "hidden"),
    "scores": ("rows", "experts"),
    "ids": ("rows", "choice"),
    "weights": ("rows", "choice"),
    "state.kda": ("heads", "key", "value"),
    "state.conv": ("qkv", "channels", "taps"),
    "state.kv": ("tokens", "latent"),
}


def digest(text: str) -> str:
    """A sha256 that says what it stands for."""
    return hashlib.sha256(text.encode()).hexdigest()


def axes_of(name: str) -> tuple[str, ...]:
    """Axis names of a tensor by the naming rules of a capture."""
    parts = name.split(".")
    if "logits" in parts[:-1] and parts[-1] != "positions":
        return ("rows", "choice") if "topk" in parts else ("rows",)
    if parts[0] == "spec":
        return ("rows",)
    if parts[0] == "state":
        return _AXES[f"state.{parts[2]}"]
    return _AXES["hidden" if "hidden" in parts else parts[-1]]


def artifact_of(name: str) -> str:
    """Artifact that a tensor belongs to."""
    if name.split(".")[0] == "state":
        return "state"
    return "logits" if name.startswith(("logits", "stream.logits")) else "tensors"


def make_manifest(
    label: str = "cuda", *, tensors: Tensors | None = None, **changes: Any
) -> Manifest:
    """A manifest as an honest k3-nano capture would carry it; ``changes`` replace fields."""
    by_artifact: dict[str, list[TensorEntry]] = {}
    for prompt, named in (tensors or {}).items():
        for name, array in named.items():
            entry = TensorEntry(
                name=f"{prompt}/{name}",
                dtype=array.dtype.name,
                shape=array.shape,
                axes=axes_of(name),
            )
            by_artifact.setdefault(artifact_of(name), []).append(entry)
    fields: dict[str, Any] = {
        "schema_version": 1,
        "target": label,
        "dtype": "bfloat16",
        "model": ModelIdentity(
            name="k3-nano",
            architecture="kimi-k3",
            config_digest=digest("config"),
            weights_digest=digest("seed1"),
            weights="seed1",
            tokenizer_digest=digest("bytes"),
            tokenizer_length=259,
            vocab_size=272,
        ),
        "prompt_set": "default",
        "prompt_digest": digest("prompts"),
        "options": {"batch": "4", "chunk": "64", "splits": "1"},
        "batch_rows": {prompt: row % 4 for row, prompt in enumerate(tensors or {})},
        "artifacts": tuple(
            ArtifactFile(
                artifact=artifact,
                path=f"{artifact}.safetensors",
                bytes=1,
                sha256=digest(artifact),
                tensors=tuple(entries),
            )
            for artifact, entries in by_artifact.items()
        ),
        "provenance": Provenance(
            created="2026-01-01T00:00:00Z",
            device="cpu",
            hardware="Fake Processor",
            arch="avx2",
            versions={"torch": "2.13.0", "python": "3.11"},
            threads=1,
        ),
        "path_proof": PathProof(path="reference", branches={"mla.decompressed": 3}),
        "evidence": "emulated",
        "sources_digest": digest("sources"),
    }
    return Manifest(**{**fields, **changes})


def make_prompt(
    prompt_id: str,
    token_ids: Sequence[int],
    *,
    prompt_length: int | None = None,
    tags: Sequence[str] = (),
) -> Prompt:
    """A prompt whose every position is scored."""
    return Prompt(
        id=prompt_id,
        token_ids=tuple(token_ids),
        prompt_length=len(token_ids) if prompt_length is None else prompt_length,
        tags=tuple(tags),
    )


def make_stream(
    prompt_id: str, token_ids: Sequence[int], *, finish_reason: str = "length", batch_row: int = 0
) -> Stream:
    """A greedy stream with unremarkable logprobs."""
    return Stream(
        prompt=prompt_id,
        kind="greedy",
        token_ids=tuple(token_ids),
        logprobs=tuple(-0.1 for _ in token_ids),
        finish_reason=finish_reason,
        batch_row=batch_row,
        batch_size=4,
    )


class FakeSide:
    """One side of a pair, backed by dictionaries; reads give copies, as captures do."""

    def __init__(
        self,
        label: str,
        tensors: Tensors,
        *,
        prompts: Mapping[str, Prompt] | None = None,
        streams: Streams | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        self.label = label
        self.manifest = make_manifest(label, tensors=tensors) if manifest is None else manifest
        self.streams: dict[str, Stream] = {
            key: value if isinstance(value, Stream) else make_stream(key, value)
            for key, value in (streams or {}).items()
        }
        self.prompts: dict[str, Prompt] = (
            {key: guess_prompt(key, named) for key, named in tensors.items()}
            if prompts is None
            else dict(prompts)
        )
        self._tensors = tensors
        self.drawn: dict[str, dict[str, Stream]] = {}
        self.reads: list[str] = []
        """``prompt/name`` of every tensor that was read, in order."""

    def names(self, prompt: str) -> tuple[str, ...]:
        return tuple(sorted(self._tensors.get(prompt, {})))

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        self.reads.append(f"{prompt}/{name}")
        return self._tensors[prompt][name].copy()

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        if name not in self._tensors[prompt]:
            raise KeyError(name)
        return axes_of(name)


def guess_prompt(prompt_id: str, tensors: Mapping[str, NDArray[Any]]) -> Prompt:
    """A prompt just long enough for its tensors: tokens 1, 2, 3, … within their vocabulary."""
    lengths = [
        int(array.max()) + 1
        for name, array in tensors.items()
        if name.endswith("positions") and array.size
    ]
    lengths += [len(tensors["logits"])] if "logits" in tensors else []
    length = max(lengths, default=4)
    vocab = min(
        [array.shape[-1] for name, array in tensors.items() if "logits" in name.split(".")[-1]],
        default=251,
    )
    return make_prompt(prompt_id, [(1 + i) % vocab for i in range(length)])


def make_pair(
    ref: Side | Tensors,
    cand: Side | Tensors,
    *,
    oracle: Side | Tensors | None = None,
    prompts: Mapping[str, Prompt] | None = None,
    ref_streams: Streams | None = None,
    cand_streams: Streams | None = None,
    **settings: Any,
) -> Pair:
    """A pair of fakes named ``cuda`` and ``rocm``; ``settings`` go to ``Pair`` (near_tie, …)."""

    def side(label: str, given: Side | Tensors, streams: Streams | None) -> Side:
        if isinstance(given, Mapping):
            return FakeSide(label, given, prompts=prompts, streams=streams)
        return given

    left = side("cuda", ref, ref_streams)
    return Pair(
        ref=left,
        cand=side("rocm", cand, cand_streams),
        oracle=None if oracle is None else side("oracle", oracle, None),
        prompts=tuple(left.prompts),
        **settings,
    )


def with_positions(logits: Mapping[str, Any]) -> dict[str, dict[str, NDArray[Any]]]:
    """Tensors of a capture that scores every position: ``logits`` and ``logits.positions``."""
    made: dict[str, dict[str, NDArray[Any]]] = {}
    for key, value in logits.items():
        array = np.asarray(value)
        made[key] = {
            "logits": array,
            "logits.positions": np.arange(len(array), dtype=np.int32),
        }
    return made
