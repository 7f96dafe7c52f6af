"""Backend of the ``oracle`` golden: the float64 model over a prompt set, stored as float32."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from validate.capture.format import Tensor
from validate.capture.writer import CaptureWriter
from validate.errors import InputError
from validate.oracle import check_weights, load_weights, run_prompt
from validate.schema import CaptureHeader, Manifest, ModelConfig, PathProof, Prompt, Stream

__all__ = ["record"]


def record(
    *,
    weights_path: Path,
    config: ModelConfig,
    prompts: Sequence[Prompt],
    out: Path,
    header: CaptureHeader,
    stream_tokens: int = 16,
    chunk: int = 8,
    resume: bool = False,
    command: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Run the oracle over ``prompts``, one at a time, and write the capture.

    Args:
        weights_path: Safetensors file of the model.
        config: Its architecture.
        prompts: The prompt set; each prompt's tags say what is captured of it.
        out: Folder of the capture.
        header: All of the manifest that is known up front; ``header.dtype`` is
            ``float64`` and ``header.options["chunk"]`` is ``chunk``.
        stream_tokens: Length of every greedy stream; no token stops it.
        chunk: Tokens a chunk of the chunked prefill (state of how ``chunked``).
        resume: Take up an interrupted recording; finished prompts are not run again.
        command: The command that takes it up, as ``resume_command`` wants it; None: not known.
        progress: Called with the id of every prompt that is done, also of those found done.

    Returns:
        The manifest. Its path proof counts the forward passes by kind, as
        ``oracle.prefill``, ``oracle.chunk`` and ``oracle.decode``.

    Raises:
        InputError: The weights cannot be read or do not fit ``config``, a length
            is below 1, a token id is outside the vocabulary, or the header says
            something else than what would be recorded.
        CaptureError: The capture cannot be written.
    """
    _check(header, config=config, stream_tokens=stream_tokens, chunk=chunk)
    weights = load_weights(weights_path)
    check_weights(weights, config)
    passes: Counter[str] = Counter()
    start = time.perf_counter()
    with CaptureWriter(out, header=header, resume=resume, command=command) as writer:
        stored = writer.done
        for prompt in prompts:
            if prompt.id not in stored:
                run = run_prompt(prompt, weights, config, stream_tokens=stream_tokens, chunk=chunk)
                passes.update({f"oracle.{kind}": count for kind, count in run.passes.items()})
                writer.add(
                    prompt,
                    {name: Tensor(*tensor) for name, tensor in run.tensors.items()},
                    stream=Stream(
                        prompt=prompt.id,
                        kind="greedy",
                        token_ids=run.stream,
                        logprobs=run.logprobs,
                        finish_reason="length",
                        batch_row=0,
                        batch_size=1,
                    ),
                    batch_row=0,
                    proof=_proof(passes),
                )
            if progress is not None:
                progress(prompt.id)
        return writer.close(
            path_proof=_proof(passes), timing={"record_seconds": time.perf_counter() - start}
        )


def _proof(passes: Counter[str]) -> PathProof:
    return PathProof(path="oracle", branches=dict(passes))


def _check(header: CaptureHeader, *, config: ModelConfig, stream_tokens: int, chunk: int) -> None:
    """Refuse what would make the manifest say something that did not happen."""
    for name, value in (("stream_tokens", stream_tokens), ("chunk", chunk)):
        if value < 1:
            msg = f"oracle recording: {name}={value}; at least 1 token is needed"
            raise InputError(msg)
    claims = {
        "dtype": (header.dtype, "float64"),
        "options.chunk": (header.options.get("chunk", str(chunk)), str(chunk)),
        "model.vocab_size": (str(header.model.vocab_size), str(config.vocab_size)),
        "fault": (str(header.fault), "None"),
    }
    for name, (claimed, actual) in claims.items():
        if claimed != actual:
            msg = f"oracle recording: the header's {name} is {claimed}, but the oracle records {actual}"
            raise InputError(msg)
