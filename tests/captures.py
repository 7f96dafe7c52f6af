"""Small captures on disk for tests: header, prompts and tensors that differ in every way that counts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from validate.capture import CaptureWriter, Tensor, prompt_set_digest
from validate.schema import (
    CaptureHeader,
    ModelIdentity,
    PathProof,
    Prompt,
    Provenance,
    Stream,
)

PROOF = PathProof(path="reference", branches={"mla.decompressed": 3}, kernels={})
TIMING = {"prefill_seconds": 0.25, "decode_seconds": 1.5}


def make_prompt(number: int, tokens: int = 5) -> Prompt:
    ids = tuple((7 * number + t) % 256 for t in range(tokens))
    return Prompt(
        id=f"p-{number:03d}", token_ids=ids, prompt_length=max(1, tokens - 2), tags=("short",)
    )


def make_stream(prompt: Prompt, row: int = 0, tokens: Sequence[int] = (65, 66, 257)) -> Stream:
    logprobs = (-0.5, None, *(-1.0 for _ in tokens[2:]))[: len(tokens)]
    return Stream(
        prompt=prompt.id,
        kind="greedy",
        token_ids=tuple(tokens),
        logprobs=logprobs,
        finish_reason="stop",
        batch_row=row,
        batch_size=row + 1,
    )


def make_header(prompts: Sequence[Prompt], **changes: Any) -> CaptureHeader:
    fields: dict[str, Any] = {
        "target": "rocm:pad=tile",
        "dtype": "bfloat16",
        "model": ModelIdentity(
            name="k3-nano",
            architecture="kimi-k3",
            config_digest="1" * 64,
            weights_digest="2" * 64,
            weights="seed1",
            tokenizer_digest="3" * 64,
            tokenizer_length=259,
            vocab_size=320,
        ),
        "prompt_set": "default",
        "prompt_digest": prompt_set_digest(prompts),
        "options": {"chunk": "64", "batch": "4"},
        "provenance": Provenance(
            created="2026-01-02T03:04:05+00:00",
            device="cpu",
            hardware="Test CPU",
            arch="AVX2",
            versions={"torch": "2.13.0"},
        ),
        "evidence": "emulated",
        "sources_digest": "4" * 64,
    }
    return CaptureHeader(**{**fields, **changes})


def make_tensors(prompt: Prompt, seed: int = 0) -> dict[str, Tensor]:
    """One tensor of each artifact, of three dtypes, one of them empty and one a scalar."""
    rng = np.random.default_rng([seed, *prompt.token_ids])
    rows = len(prompt.token_ids)
    logits = rng.standard_normal((rows, 11)).astype(ml_dtypes.bfloat16)
    return {
        "logits": Tensor(logits, ("rows", "vocab")),
        "logits.positions": Tensor(np.arange(rows, dtype=np.int32), ("rows",)),
        "prefill.mla.3.out": Tensor(
            rng.standard_normal((rows, 3, 4)).astype(ml_dtypes.bfloat16), ("rows", "heads", "value")
        ),
        "prefill.mla.3.lse": Tensor(
            rng.standard_normal((rows, 3)).astype(np.float32), ("rows", "heads")
        ),
        "state.decode.kv.3": Tensor(np.zeros((0, 6), np.float32), ("tokens", "latent")),
        "state.scale": Tensor(np.array(rng.standard_normal()), ()),
    }


def write_capture(
    path: Path,
    prompts: Sequence[Prompt] | None = None,
    *,
    header: CaptureHeader | None = None,
    tensors: Mapping[str, Mapping[str, Tensor]] | None = None,
    stop_after: int | None = None,
    **options: Any,
) -> Any:
    """Write the prompts that are not there yet and give the manifest; ``stop_after``: stop unfinished."""
    prompts = [make_prompt(n) for n in range(3)] if prompts is None else prompts
    with CaptureWriter(path, header=header or make_header(prompts), **options) as writer:
        for count, prompt in enumerate(prompts):
            if count == stop_after:
                return None
            if prompt.id not in writer.done:
                held = make_tensors(prompt) if tensors is None else tensors[prompt.id]
                stream = make_stream(prompt, row=count % 4)
                writer.add(prompt, held, stream=stream, batch_row=count % 4)
        return writer.close(path_proof=PROOF, timing=TIMING)


def files_of(path: Path) -> dict[str, bytes]:
    """Content of every file under ``path`` by relative name."""
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
