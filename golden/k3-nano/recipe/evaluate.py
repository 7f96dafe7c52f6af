"""Held-out quality of rounded weights: nats per byte of unseen text, exact answers on tasks.

`python evaluate.py --weights build/seed1/weights.safetensors --text build/text --out build/seed1/quality.json`
"""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

import torch
from rows import Filler
from tasks import Question, addition, brackets, copying, recall, sorting

from validate.models import DTYPES, PathOptions, greedy, load_config, load_weights, prefill

HERE = Path(__file__).resolve().parent
BOS, WINDOW = 256, 512


def nats_per_byte(data: bytes, model: dict, *, batch: int = 64) -> float:
    """Mean negative log-likelihood over all windows of ``WINDOW`` bytes, each after a begin mark."""
    windows = [data[i : i + WINDOW] for i in range(0, len(data), WINDOW)]
    windows = [w for w in windows if len(w) == WINDOW]
    total = 0.0
    for i in range(0, len(windows), batch):
        rows = [[BOS, *w] for w in windows[i : i + batch]]
        logits, _ = prefill(model["weights"], rows, **model["run"])
        logp = torch.log_softmax(logits[:, :-1].double(), -1)
        target = torch.tensor(rows, device=logits.device)[:, 1:]
        total -= float(logp.gather(-1, target.unsqueeze(-1)).sum())
    return total / (len(windows) * WINDOW)


def exact(
    make: Callable[[random.Random], Question],
    model: dict,
    *,
    count: int,
    seed: int,
    batch: int = 250,
) -> float:
    """Share of questions whose whole answer comes out greedily, after two solved examples of the kind."""
    rng = random.Random(seed)
    right = 0
    for start in range(0, count, batch):
        questions = [make(rng) for _ in range(min(batch, count - start))]
        rows = [[BOS, *q.ask.encode()] for q in questions]
        steps = max(len(q.answer) for q in questions)
        ids = greedy(model["weights"], rows, steps=steps, **model["run"]).ids.tolist()
        right += sum(
            bytes(min(i, 255) for i in got[: len(q.answer)]) == q.answer.encode()
            for got, q in zip(ids, questions, strict=True)
        )
    return right / count


def main() -> None:
    """Measure and write one JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    config = load_config(HERE.parent / "config.json")
    dtype = DTYPES[args.dtype]
    model = {
        "weights": load_weights(args.weights, config, dtype=dtype, device=args.device),
        "run": {"config": config, "options": PathOptions(dtype=dtype), "device": args.device},
    }
    books = (args.text / "heldout-books.bin").read_bytes()
    pages = (args.text / "heldout-pages.bin").read_bytes()
    filler = Filler(books, random.Random(7))
    kinds = {
        "addition-2-digits": lambda r: addition(r, digits=2, held_out=True),
        "addition-3-digits": lambda r: addition(r, digits=3, held_out=True),
        "copy-16": lambda r: copying(r, length=16),
        "sort": sorting,
        "brackets": brackets,
        "recall-64": lambda r: recall(r, filler, distance=64),
        "recall-384": lambda r: recall(r, filler, distance=384),
    }
    result = {
        "weights": args.weights.name,
        "dtype": args.dtype,
        "questions_each": args.count,
        "card": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "nats_per_byte": {
            "books": nats_per_byte(books, model),
            "pages": nats_per_byte(pages, model),
        },
        "exact": {
            name: exact(make, model, count=args.count, seed=11) for name, make in kinds.items()
        },
    }
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
