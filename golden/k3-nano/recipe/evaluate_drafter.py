"""Held-out acceptance of a drafter in the true loop: draft, verify, accept, commit.

`python evaluate_drafter.py --drafter build/dspark/weights.safetensors --target weights/seed1.safetensors --text build/text --out build/dspark/quality.json`

Every prompt is drafted for until it has ``--tokens`` tokens. A step's acceptance
length is the number of accepted drafts plus one (the bonus). Greedy and T = 1
(chain rejection); text and tasks; the whole drafter, and with its taps zeroed,
its Markov head off, its context unseen. Intervals are t intervals over prompts.
"""

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rows import Filler
from safetensors.torch import load_file
from scipy import stats
from tasks import addition, brackets, copying, recall, sorting
from torch import Tensor

from validate.models import PathOptions, Trace, forward, load_config, load_weights
from validate.models.dspark import (
    block_hidden,
    block_logits,
    context_features,
    context_kv,
    markov_bias,
)
from validate.schema import DraftConfig

HERE = Path(__file__).resolve().parent
BOS, SPACE = 256, 32
ABLATIONS = ("whole", "taps zeroed", "markov off", "context unseen")


class Loop:
    """Target and drafter over one batch of prompts of equal length."""

    def __init__(self, run: dict, draft: DraftConfig, weights: dict, *, ablation: str) -> None:
        self.run, self.draft, self.weights, self.ablation = run, draft, weights, ablation
        self.device, self.config = run["device"], run["config"]

    def _pass(self, tokens: Tensor, state, lengths: Tensor) -> tuple[Tensor, Tensor, object]:
        names = [f"prefill.hidden.{i}" for i in self.draft.taps]
        trace = Trace(wants=names.__contains__)
        logits, after = forward(
            self.run["target"],
            tokens,
            config=self.config,
            options=self.run["options"],
            state=state,
            lengths=lengths,
            trace=trace,
        )
        kept = trace.take()
        features = context_features(self.weights, [kept[n][0] for n in names], draft=self.draft)
        if self.ablation == "taps zeroed":
            features = torch.zeros_like(features)
        return logits.double(), features, after

    def drafted(
        self, anchor: Tensor, place: Tensor, features: Tensor, *, warm: bool, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draft ids (batch, block) and their laws (batch, block, vocab)."""
        draft, batch = self.draft, anchor.shape[0]
        tokens = features.shape[1]
        places = torch.arange(tokens, device=self.device).expand(batch, -1)
        context = context_kv(self.weights, features, places, draft=draft)
        seen = places < place.unsqueeze(1)
        if self.ablation == "context unseen":
            seen = torch.zeros_like(seen)
        own = torch.ones(batch, draft.block, dtype=torch.bool, device=self.device)
        hidden = block_hidden(
            self.weights,
            self.run["target"]["embed.weight"],
            anchor.unsqueeze(1),
            place.unsqueeze(1),
            context,
            torch.cat([seen, own], dim=1)[:, None, None],
            draft=draft,
        )[:, 0]
        base = block_logits(hidden, self.run["target"]["lm_head.weight"])
        ids, laws, previous = [], [], anchor
        for k in range(draft.block):
            logits = base[:, k]
            if self.ablation != "markov off":
                logits = logits + markov_bias(self.weights, previous)
            law = torch.softmax(logits.double(), -1)
            previous = torch.multinomial(law, 1, generator=rng)[:, 0] if warm else law.argmax(-1)
            ids.append(previous)
            laws.append(law)
        return torch.stack(ids, 1), torch.stack(laws, 1)

    def __call__(
        self, rows: Sequence[Sequence[int]], *, tokens: int, warm: bool, seed: int
    ) -> dict[str, np.ndarray]:
        """Steps and tokens by prompt; by draft index: reached, accepted, and where a space would do."""
        block, batch, length = self.draft.block, len(rows), len(rows[0])
        rng = torch.Generator(self.device).manual_seed(seed)
        ids = torch.tensor(rows, device=self.device)
        every = torch.full((batch,), length, device=self.device)
        logits, made, state = self._pass(ids, None, every)
        room = length + tokens + 2 * block + 2
        features = made.new_zeros(batch, room, made.shape[-1])
        features[:, :length] = made
        law = torch.softmax(logits[:, -1], -1)
        anchor = torch.multinomial(law, 1, generator=rng)[:, 0] if warm else law.argmax(-1)
        place, done = every.clone(), torch.ones(batch, dtype=torch.long, device=self.device)
        steps = torch.zeros_like(done)
        counts = torch.zeros(batch, 3, block, device=self.device)
        index = torch.arange(block, device=self.device)
        while bool((done < tokens).any()):
            live = done < tokens
            drafts, q = self.drafted(anchor, place, features, warm=warm, rng=rng)
            fed = torch.cat([anchor.unsqueeze(1), drafts], 1)
            logits, made, _ = self._pass(fed, state, torch.full_like(place, block + 1))
            p = torch.softmax(logits, -1)
            if warm:
                coin = torch.rand(batch, block, generator=rng, device=self.device)
                accept = coin * drawn(q, drafts) < drawn(p[:, :-1], drafts)
                space = torch.minimum(p[:, :-1], self.run["unigram"]).sum(-1)
            else:
                accept = drafts == p[:, :-1].argmax(-1)
                space = (p[:, :-1].argmax(-1) == SPACE).double()
            right = accept.long().cumprod(1)
            count = right.sum(1)
            reached = (index <= count.unsqueeze(1)) & live.unsqueeze(1)
            counts[:, 0] += reached
            counts[:, 1] += reached & accept
            counts[:, 2] += reached * space
            row = torch.arange(batch, device=self.device)
            final = p[row, count]
            if warm:
                left = (p[:, :-1] - q).clamp(min=0)[row, count.clamp(max=block - 1)]
                final = torch.where((count < block).unsqueeze(1), left, final)
                bonus = torch.multinomial(final, 1, generator=rng)[:, 0]
            else:
                bonus = final.argmax(-1)
            used = torch.where(live, count + 1, 0)
            _, _, state = self._pass(fed, state, used)
            for k in range(block + 1):
                keep = k < used
                features[row[keep], place[keep] + k] = made[keep, k]
            place, anchor = place + used, torch.where(live, bonus, anchor)
            done, steps = done + used, steps + live
        return {
            "length": ((done - 1) / steps).cpu().numpy(),
            "counts": counts.sum(0).cpu().numpy(),
        }


def drawn(law: Tensor, ids: Tensor) -> Tensor:
    """Probability (batch, block) of ``ids`` under ``law`` (batch, block, vocab)."""
    return law.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def interval(values: np.ndarray) -> dict[str, float]:
    """Mean over prompts with its 95 % t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return {
        "mean": round(float(values.mean()), 4),
        "low": round(float(values.mean() - half), 4),
        "high": round(float(values.mean() + half), 4),
        "prompts": len(values),
    }


def kinds(text: Path) -> dict[str, Callable[[random.Random], list[int]]]:
    """Makers of held-out prompts, each of 96 tokens."""
    books = (text / "heldout-books.bin").read_bytes()
    pages = (text / "heldout-pages.bin").read_bytes()
    filler = Filler(books, random.Random(7))
    tasks = (
        lambda r: addition(r, digits=3, held_out=True),
        lambda r: copying(r, length=16),
        sorting,
        brackets,
        lambda r: recall(r, filler, distance=64),
    )

    def text_of(data: bytes) -> Callable[[random.Random], list[int]]:
        def made(rng: random.Random) -> list[int]:
            at = rng.randrange(len(data) - 95)
            return [BOS, *data[at : at + 95]]

        return made

    def task(rng: random.Random) -> list[int]:
        make = rng.choice(tasks)
        row = b""
        while len(row) < 200:
            question = make(rng)
            row += (question.ask + question.answer).encode() + b"\n"
        last = make(rng).ask.encode()
        return [BOS, *(row + last)[-95:]]

    return {"books": text_of(books), "pages": text_of(pages), "tasks": task}


def main() -> None:
    """Measure and write one JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompts", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    config = load_config(HERE.parent / "config.json")
    draft = DraftConfig.model_validate_json((HERE.parent / "drafter.json").read_bytes())
    weights = {n: w.to(args.device) for n, w in load_file(args.drafter).items()}
    text = np.frombuffer((args.text / "train.bin").read_bytes(), np.uint8)
    unigram = np.bincount(text, minlength=config.vocab_size) / len(text)
    run = {
        "target": load_weights(args.target, config, dtype=torch.bfloat16, device=args.device),
        "options": PathOptions(dtype=torch.bfloat16),
        "config": config,
        "device": args.device,
        "unigram": torch.tensor(unigram, device=args.device),
    }
    result: dict = {
        "drafter": args.drafter.name,
        "target": args.target.name,
        "prompts_each": args.prompts,
        "tokens_each": args.tokens,
        "card": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "acceptance": {},
    }
    lengths: dict[tuple[str, str, bool], np.ndarray] = {}
    with torch.inference_mode():
        for warm in (False, True):
            for ablation in ABLATIONS:
                loop = Loop(run, draft, weights, ablation=ablation)
                for name, make in kinds(args.text).items():
                    rng = random.Random(11)
                    rows = [make(rng) for _ in range(args.prompts)]
                    got = loop(rows, tokens=args.tokens, warm=warm, seed=5)
                    lengths[ablation, name, warm] = got["length"]
                    reached, accepted, space = got["counts"]
                    entry = {"length": interval(got["length"])}
                    if ablation == "whole":
                        entry["by_index"] = [
                            {
                                "index": k + 1,
                                "reached": int(reached[k]),
                                "accepted": round(float(accepted[k] / max(reached[k], 1)), 4),
                                "unigram": round(float(space[k] / max(reached[k], 1)), 4),
                            }
                            for k in range(draft.block)
                        ]
                    else:
                        entry["drop"] = interval(lengths["whole", name, warm] - got["length"])
                    key = "T=1" if warm else "greedy"
                    result["acceptance"].setdefault(key, {}).setdefault(ablation, {})[name] = entry
                    print(key, ablation, name, json.dumps(entry), flush=True)
    for warm in (False, True):
        both = np.concatenate([lengths["whole", n, warm] for n in ("books", "pages", "tasks")])
        result["acceptance"]["T=1" if warm else "greedy"]["all"] = interval(both)
        print("T=1" if warm else "greedy", "all", interval(both), flush=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
