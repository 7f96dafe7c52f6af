"""The ``renorm`` artifact: probabilities in, per-row parameters, probabilities out.

For a batch of prompts, after their teacher-forced pass::

    made = renorm_artifact(prompts, logits, rule=rule, fault=options.fault, trace=runner.trace)
    for tensors, more in zip(found, made, strict=True):
        tensors.update(more)

``logits`` is [batch, tokens, vocab] as ``Runner.prefill`` gives it; ``rule`` is the target's key
``renorm``, else ``RENORM_RULE[path]``, and must stand in the manifest's ``options`` under
``renorm``: that is how a side declares what it does with ties. All rows of the batch go through
one call, so that rows with different parameters are neighbours; the parameters of a row depend
on its prompt alone, so that a repeat with another batch size has the same. The branch
``renorm.RULE`` is counted. A prompt gets, besides its other tensors:

- ``renorm.positions`` int32 [rows]: where the rows come from (at most ``ROWS``);
- ``renorm.in`` float32 [rows, vocab]: softmax of the logits, in float32;
- ``renorm.top_k`` int32 [rows], ``renorm.top_p`` float32 [rows];
- ``renorm.out`` float32 [rows, vocab];
- ``renorm.in_after_sha256`` uint8 [32]: SHA-256 of the bytes of the input, read again after the
  call; the same as of ``renorm.in`` unless the call wrote into it.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor as TorchTensor

from validate.capture.format import Tensor
from validate.models import Silent, Trace
from validate.models.renorm import TieRule, renorm
from validate.schema import Prompt

__all__ = ["GRID", "RENORM_RULE", "ROWS", "renorm_artifact", "renorm_positions"]

RENORM_RULE: Mapping[str, TieRule] = {"reference": "all", "rocm": "exactly_k"}
"""Tie rule of each path where the target names none."""
ROWS = 2
"""Rows a prompt at most; two of vocabulary 272 are 4.4 kB."""
_OFF = 2**30
"""The k that engines pass for a row without top-k."""
GRID: tuple[tuple[int, float], ...] = (
    (4, 0.82),
    (_OFF, 0.9),
    (1, 1.0),
    (20, 0.95),
    (_OFF, 1.0),
    (5, 0.5),
    (50, 1.0),
    (2, 0.9),
    (272, 0.7),
    (40, 0.99),
    (3, 1.0),
    (_OFF, 0.3),
    (8, 0.9),
)
"""(k, p) that rows take in turn: either filter off, both on, both binding."""


def renorm_positions(prompt: Prompt) -> tuple[int, ...]:
    """Positions whose rows are filtered: where the answer starts, and the last."""
    return tuple(sorted({prompt.prompt_length - 1, len(prompt.token_ids) - 1}))[-ROWS:]


@torch.inference_mode()
def renorm_artifact(
    prompts: Sequence[Prompt],
    logits: TorchTensor,
    *,
    rule: TieRule,
    fault: str | None = None,
    trace: Trace | Silent,
) -> list[dict[str, Tensor]]:
    """Filter a few rows of every prompt in one call.

    Args:
        prompts: The batch.
        logits: [batch, tokens, vocab], teacher-forced, on the path's device.
        rule: What the path does with ties.
        fault: Id of a planted fault; those of other places change nothing here.
        trace: Counts the branch.

    Returns:
        The tensors of each prompt, by name.
    """
    at = [renorm_positions(prompt) for prompt in prompts]
    rows = [logits[row, list(positions)] for row, positions in enumerate(at)]
    probs = torch.softmax(torch.cat(rows).to(torch.float32), dim=1)
    pairs = [
        pair for prompt, places in zip(prompts, at, strict=True) for pair in _of(prompt, places)
    ]
    top_k = np.asarray([k for k, _ in pairs], np.int32)
    top_p = np.asarray([p for _, p in pairs], np.float32)
    before = probs.to("cpu", copy=True).numpy()
    out = renorm(
        probs,
        torch.from_numpy(top_k).to(probs.device),
        torch.from_numpy(top_p).to(probs.device),
        rule=rule,
        fault=fault,
    )
    trace.branch(f"renorm.{rule}")
    after, given = probs.to("cpu").numpy(), out.to("cpu").numpy()
    made, start = [], 0
    for positions in at:
        cut = slice(start, start + len(positions))
        start = cut.stop
        digest = hashlib.sha256(np.ascontiguousarray(after[cut]).tobytes()).digest()
        made.append(
            {
                "renorm.positions": Tensor(np.asarray(positions, np.int32), ("rows",)),
                "renorm.in": Tensor(before[cut], ("rows", "vocab")),
                "renorm.top_k": Tensor(top_k[cut], ("rows",)),
                "renorm.top_p": Tensor(top_p[cut], ("rows",)),
                "renorm.out": Tensor(given[cut], ("rows", "vocab")),
                "renorm.in_after_sha256": Tensor(np.frombuffer(digest, np.uint8), ("bytes",)),
            }
        )
    return made


def _of(prompt: Prompt, positions: Sequence[int]) -> list[tuple[int, float]]:
    """The parameters of a prompt's rows, by its id alone."""
    first = int.from_bytes(hashlib.sha256(prompt.id.encode()).digest()[:4], "big")
    return [GRID[(first + 5 * row) % len(GRID)] for row in range(len(positions))]
