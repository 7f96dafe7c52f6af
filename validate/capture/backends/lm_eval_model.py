"""The torch model as a language model of lm-eval: batched, resumable, with one BOS before a prompt."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows
from torch import Tensor

from validate.capture.backends.lm_eval_batches import Ask, Batch, plan
from validate.capture.backends.lm_eval_cache import Answers
from validate.capture.backends.torch_batch import Runner
from validate.errors import InputError
from validate.models import empty_state, forward, right_padded
from validate.models.model import State, take_rows

__all__ = ["MAX_LENGTH", "CaptureLM", "Note"]

BOS, EOS, BYTES = 256, 257, 256
MAX_LENGTH = 2048
"""Tokens of prompt and answer together; a longer prompt loses its beginning and is said to."""
MAX_GENERATED = 64
"""Tokens generated where a task states no ``max_gen_toks``."""

Progress = Callable[[int, int, str], None]


class Note(NamedTuple):
    """What lm-eval does not keep of one request."""

    tokens: tuple[int, ...]
    """As they were sent: the prompt, and what was scored behind it."""
    truncated: bool
    generated: tuple[int, ...] | None = None
    finish: str | None = None


class _Job(NamedTuple):
    """One request on its way: what is fed, and what its answer depends on."""

    ask: Ask
    key: str


class CaptureLM(TemplateLM):  # type: ignore[misc]  # lm-eval carries no types
    """Answers lm-eval's requests with one path of the torch model.

    Args:
        runner: Path, weights, device and chunk length.
        answers: Where answers are kept and found again.
        name: What the results call the model: its target.
        progress: Told (requests done, requests in all, one line).

    Numerics:
        Log-softmax of the logits in float64; the greedy token is the lowest id
        among equals. Generation takes one token a pass, without drafts, which
        the branch ``lm_eval.greedy`` of the path proof says.
    """

    tokenizer_name = "bytes"

    def __init__(self, runner: Runner, answers: Answers, *, name: str, progress: Progress) -> None:
        super().__init__()
        self.name = name
        self.runner, self.answers, self.progress = runner, answers, progress
        self.notes: dict[tuple[str, int], list[Note]] = {}
        """By task and document: one note a request, in the order of the requests."""

    @property
    def eot_token_id(self) -> int:
        """Id that ends a text."""
        return EOS

    @property
    def prefix_token_id(self) -> int:
        """Id that begins every text."""
        return BOS

    @property
    def max_length(self) -> int:
        """Tokens of prompt and answer together."""
        return MAX_LENGTH

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,  # noqa: FBT001  lm-eval calls it so
        **_: Any,
    ) -> list[int]:
        """Bytes of the UTF-8 text, one BOS before them unless ``add_special_tokens`` is False."""
        ids = list(string.encode("utf-8"))
        return ids if add_special_tokens is False else [BOS, *ids]

    def tok_decode(self, tokens: Sequence[int]) -> str:
        """Text of bytes; a token that is no byte reads as the replacement character."""
        parts = [bytes([t]) if t < BYTES else "\ufffd".encode() for t in tokens]
        return b"".join(parts).decode("utf-8", "replace")

    def loglikelihood(
        self,
        requests: list[Instance],
        disable_tqdm: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities of each continuation, and whether it is the greedy one."""
        pairs = []
        for request in requests:
            context, continuation = request.args
            if context:
                pairs.append(self._encode_pair(context, continuation))
            else:
                pairs.append(([BOS], self.tok_encode(continuation, add_special_tokens=False)))
        made = self._score(pairs)
        for request, (context, continuation), (_, _, cut) in zip(
            requests, pairs, made, strict=True
        ):
            self._note(request, Note((*context, *continuation), cut))
        return [(value, greedy) for value, greedy, _ in made]

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """As ``loglikelihood``, of token ids."""
        made = self._score([(context, rest) for _, context, rest in requests])
        return [(value, greedy) for value, greedy, _ in made]

    def loglikelihood_rolling(
        self,
        requests: list[Instance],
        disable_tqdm: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> list[float]:
        """Log-probability of each whole text behind one BOS, in windows of ``MAX_LENGTH``."""
        pairs: list[tuple[list[int], list[int]]] = []
        spans = []
        for request in requests:
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            windows = [
                (fed[: len(fed) - len(scored) + 1], scored)
                for fed, scored in get_rolling_token_windows(ids, BOS, MAX_LENGTH, 1)
            ]
            spans.append((len(pairs), len(pairs) + len(windows)))
            pairs += windows
            self._note(request, Note((BOS, *ids), truncated=False))
        made = self._score(pairs)
        return [sum(value for value, _, _ in made[start:end]) for start, end in spans]

    def generate_until(
        self,
        requests: list[Instance],
        disable_tqdm: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> list[str]:
        """Greedy text of each prompt up to the first stop text, end mark or token limit."""
        jobs, rules, cut = [], [], []
        for request in requests:
            rule = _rule(request.args[1])
            whole = self.tok_encode(request.args[0])
            room = MAX_LENGTH - rule.at_most
            kept = tuple(whole[-room:])
            cut.append(len(kept) < len(whole))
            asked = {"kind": "greedy", "tokens": list(kept), **rule._asdict()}
            jobs.append(_Job(Ask(kept, len(kept)), Answers.key(asked)))
            rules.append(rule)
        answers = self._run(jobs, lambda batch: self._generate(batch, jobs, rules))
        texts = []
        for request, job, rule, was_cut, ids in zip(
            requests, jobs, rules, cut, answers, strict=True
        ):
            text, stopped = self._until(ids, rule)
            finish = "stop" if stopped else "length"
            self._note(request, Note(job.ask.tokens, was_cut, tuple(ids), finish))
            texts.append(text)
        return texts

    def get_model_info(self) -> dict[str, Any]:
        """What ``results_*.json`` says of the model."""
        return {"model": self.name, "model_args": {"digest": self.answers.model}}

    def _note(self, request: Instance, note: Note) -> None:
        place = (str(request.task_name), int(request.doc_id))
        self.notes.setdefault(place, []).append(note)

    def _score(
        self, pairs: Sequence[tuple[list[int], list[int]]]
    ) -> list[tuple[float, bool, bool]]:
        """Of each (given, scored): log-likelihood, greedy or not, cut or not."""
        jobs, cut = [], []
        for context, scored in pairs:
            fed = [*context, *scored[:-1]]
            kept = fed[-MAX_LENGTH:]
            lost = len(fed) - len(kept)
            cut.append(lost > 0)
            given = max(1, len(context) - lost)
            asked = {"kind": "loglikelihood", "tokens": [*kept, *scored[-1:]], "given": given}
            jobs.append(_Job(Ask(tuple(kept), given), Answers.key(asked)))
        answers = self._run(jobs, lambda batch: self._likelihoods(batch, jobs, pairs))
        return [
            (math.nan if value is None else value, bool(greedy), lost)
            for (value, greedy), lost in zip(answers, cut, strict=True)
        ]

    def _run(self, jobs: Sequence[_Job], run: Callable[[Batch], list[Any]]) -> list[Any]:
        """Every answer; a batch that lacks one runs again as a whole."""
        done = 0
        for batch in plan([job.ask for job in jobs]):
            keys = [jobs[row].key for row in batch.rows]
            if not all(self.answers.get(key) is not None for key in keys):
                before = dict(self.runner.trace.branches)
                found = dict(zip(keys, run(batch), strict=True))
                ran = self.runner.trace.branches
                self.answers.add(found, {n: c - before.get(n, 0) for n, c in ran.items()})
            self.answers.count(keys)
            done += len(keys)
            self.progress(done, len(jobs), "evals: requests")
        return [self.answers.get(job.key) for job in jobs]

    @torch.inference_mode()
    def _feed(self, batch: Batch, jobs: Sequence[_Job]) -> tuple[Tensor, Tensor, State]:
        """Logits behind each row's own tokens, where each row's begin, and the state after them.

        Returns:
            Logits (rows, longest rest, vocab), tokens of each row that its prefix holds, state.
        """
        runner = self.runner
        rows = [jobs[row].ask.tokens for row in batch.rows]
        if batch.prefixes:
            _, state = runner.prefill(batch.prefixes)
            state = take_rows(state, torch.tensor(batch.prefix_of, device=runner.device))
            runner.trace.branch("lm_eval.prefix.shared")
        else:
            state = empty_state(
                runner.config, runner.options, batch=len(rows), device=runner.device
            )
        before = state.lengths
        rests = [row[start:] for row, start in zip(rows, before.tolist(), strict=True)]
        tokens, lengths = right_padded(rests, device=runner.device)
        step = runner.chunk or tokens.shape[1]
        made = []
        for start in range(0, tokens.shape[1], step):
            part = tokens[:, start : start + step]
            logits, state = forward(
                runner.weights,
                part,
                config=runner.config,
                options=runner.options,
                state=state,
                lengths=(lengths - start).clamp(0, part.shape[1]),
                trace=runner.trace,
            )
            made.append(logits)
        return torch.cat(made, dim=1), before, state

    @torch.inference_mode()
    def _likelihoods(
        self, batch: Batch, jobs: Sequence[_Job], pairs: Sequence[tuple[list[int], list[int]]]
    ) -> list[Any]:
        logits, before, _ = self._feed(batch, jobs)
        starts = before.tolist()
        answers: list[Any] = []
        for place, row in enumerate(batch.rows):
            ask, scored = jobs[row].ask, pairs[row][1]
            first = ask.given - 1 - starts[place]
            rows = logits[place, first : len(ask.tokens) - starts[place]].to(torch.float64)
            wanted = torch.tensor(scored[-len(rows) :], device=rows.device)
            logprobs = torch.log_softmax(rows, dim=-1)
            value = logprobs.gather(1, wanted.unsqueeze(1)).sum()
            greedy = bool((_lowest_argmax(rows) == wanted).all())
            told = float(value)
            answers.append([told if math.isfinite(told) else None, greedy])  # JSON has no NaN
        self.runner.trace.branch("lm_eval.loglikelihood")
        return answers

    @torch.inference_mode()
    def _generate(
        self, batch: Batch, jobs: Sequence[_Job], rules: Sequence["_Rule"]
    ) -> list[list[int]]:
        """Token ids of each row, the one that stopped it included; finished rows leave."""
        runner = self.runner
        logits, before, state = self._feed(batch, jobs)
        made: list[list[int]] = [[] for _ in batch.rows]
        left = list(range(len(batch.rows)))
        ends = torch.tensor(
            [len(jobs[row].ask.tokens) - 1 for row in batch.rows], device=runner.device
        )
        row = logits[torch.arange(len(left), device=runner.device), ends - before]
        while True:
            for place, token in zip(left, _lowest_argmax(row).tolist(), strict=True):
                made[place].append(token)
            alive = [
                place
                for place, held in enumerate(left)
                if not self._ended(made[held], rules[batch.rows[held]])
            ]
            if not alive:
                break
            if len(alive) < len(left):
                left = [left[place] for place in alive]
                state = take_rows(state, torch.tensor(alive, device=runner.device))
            fed = torch.tensor([[made[place][-1]] for place in left], device=runner.device)
            logits, state = forward(
                runner.weights,
                fed,
                config=runner.config,
                options=runner.options,
                state=state,
                decode=True,
                trace=runner.trace,
            )
            row = logits[:, 0]
        runner.trace.branch("lm_eval.greedy")
        return made

    def _ended(self, ids: Sequence[int], rule: "_Rule") -> bool:
        return len(ids) >= rule.at_most or self._until(ids, rule)[1]

    def _until(self, ids: Sequence[int], rule: "_Rule") -> tuple[str, bool]:
        """Text before the first stop, and whether there was one."""
        text = self.tok_decode([token for token in ids if token != EOS])
        places = [place for stop in rule.until if stop and (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text, bool(places) or EOS in ids


class _Rule(NamedTuple):
    """When a generation ends."""

    until: tuple[str, ...]
    at_most: int
    """Tokens."""


def _rule(given: Mapping[str, Any]) -> _Rule:
    """Read generation arguments; whatever would not be greedy is refused.

    Raises:
        InputError: Names the argument.
    """
    known = {"until", "max_gen_toks", "do_sample", "temperature"}
    unknown = sorted(set(given) - known)
    wanted = json.dumps(dict(given), default=str)
    if unknown or given.get("do_sample") or float(given.get("temperature") or 0) != 0:
        msg = (
            f"generation arguments {wanted}: only greedy generation runs here, with "
            f"{', '.join(sorted(known))}\n  do next: leave out "
            f"{', '.join(unknown) or 'do_sample and temperature'} in the task's generation_kwargs"
        )
        raise InputError(msg)
    until = given.get("until") or []
    texts = (until,) if isinstance(until, str) else tuple(until)
    return _Rule(texts, int(given.get("max_gen_toks") or MAX_GENERATED))


def _lowest_argmax(rows: Tensor) -> Tensor:
    """(rows,) ids of the largest entry, the lowest among equals."""
    return (rows == rows.amax(-1, keepdim=True)).int().argmax(-1)


def token_digest(notes: Sequence[Note]) -> str:
    """SHA-256 of the token ids of all requests of an item, as int32 little-endian bytes."""
    ids = np.concatenate([np.asarray(note.tokens, "<i4") for note in notes])
    return hashlib.sha256(ids.tobytes()).hexdigest()
