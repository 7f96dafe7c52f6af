"""Build `default.jsonl`: `python suites/prompts/build.py --text build/text` (see the recipe's text.py).

Every prompt is a begin mark and bytes. `tensors` prompts are short: a series at
lengths around the chunk of 8 and the KDA chunk of 16, then pieces of verses of
different books and a task, so that an interval over prompts has more than the eight it needs.
`state` prompts are longer than a chunk of 8, or chunked would be one shot. The others cover text of books
that training never saw, tasks with checkable answers, unicode, chunk boundary
lengths and long recall. The continuation that follows each prompt is forced,
so that logits are scored on it.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "golden/k3-nano/recipe"))

import rows
import tasks

BOS, SEED = 256, 20_260_730
INSIDE = (1, 2, 8, 9, 17)
"""Tokens of the prompts whose tensors are captured, begin mark included."""
WITH_STATE = (9, 17)
MORE_SEED = SEED + 1
"""The prompts of `more_inside` have a generator of their own: what is drawn after them stays."""
VERSES = {
    "ruth": (0.02, 4),
    "esther": (0.4, 4),
    "jonah": (0.5, 3),
    "hosea": (0.7, 4),
    "james": (0.97, 3),
}
"""Where in the held-out text the book stands, and tokens of its prompt."""
SPECULATIVE = (
    *("inside-09", "inside-17", "inside-06-sum", "add3-0", "copy-0", "unicode-5", "unicode-1"),
    *("brackets-2", "unicode-3", "recall-64-1", "text-00", "text-01", "text-02", "text-03"),
    *("text-04", "boundary-65"),
)
"""Prompts that get sampled and speculative streams: few, for every stream is stored whole.

Most tokens of a task can hardly be others and say nothing of a sampler, so texts that the model
is unsure of are among them: power rests on the entropy of what is drawn.
"""
BOUNDARY = (31, 32, 33, 63, 64, 65)
UNICODE = {
    1: ("Привет, мир: 3 × 4", 1),
    5: ("copy 日本語>日本語\n", 1),
    3: ("emoji 🙂 and ∑ᵢ xᵢ ≤ ∞", 1),
}
"""Number: text, score stride; in the order of the set.

Training saw no byte above 127, so a text of such bytes alone is noise to the
model: its continuation rests on ties between experts, and repeats of one path
on one card differ there by a hundred times what they differ by elsewhere. Such
prompts (0, 2 and 4, no longer in the set) measured the tie and not the path.
5 has characters of three bytes in the task of copying. 1 and 3 keep texts that are foreign from end to end.
"""


def prompt(
    name: str, head: str | bytes, forced: str | bytes, tags: tuple[str, ...], stride: int = 1
) -> dict:
    """One record of the prompt set."""
    first, rest = (t if isinstance(t, bytes) else t.encode() for t in (head, forced))
    return {
        "id": name,
        "token_ids": [BOS, *first, *rest],
        "prompt_length": 1 + len(first),
        "tags": list(tags),
        "score_stride": stride,
    }


def inside(filler: rows.Filler) -> Iterator[dict]:
    """Short prompts that are looked inside of."""
    for n in INSIDE:
        text = filler.raw(n - 1)
        tags = ("tensors", "state", "text") if n in WITH_STATE else ("tensors", "text")
        head = (n + 1) // 2
        yield prompt(f"inside-{n:02d}", text[: max(head - 1, 0)], text[max(head - 1, 0) :], tags)


def more_inside(rng: random.Random, text: bytes) -> Iterator[dict]:
    """Short prompts of other texts, and a task."""
    for book, (place, n) in VERSES.items():
        verse = text.index(b"\n", int(place * len(text)))
        second = text.index(b" ", verse) + 1  # half of all verses begin with "And "
        data = text[second : second + n - 1]
        head = (n + 1) // 2 - 1
        yield prompt(f"inside-{n:02d}-{book}", data[:head], data[head:], ("tensors", "text"))
    sums = (tasks.addition(rng, digits=1) for _ in range(100))
    question = next(q for q in sums if len(q.answer) == len("7\n"))
    yield prompt("inside-06-sum", question.ask, question.answer[:-1], ("tensors", "task"))


def answered(rng: random.Random, filler: rows.Filler) -> Iterator[dict]:
    """Tasks with their right answers forced."""
    kinds = {
        "add2": (4, lambda: tasks.addition(rng, digits=2, held_out=True)),
        "add3": (4, lambda: tasks.addition(rng, digits=3, held_out=True)),
        "copy": (6, lambda: tasks.copying(rng, length=16)),
        "sort": (4, lambda: tasks.sorting(rng)),
        "brackets": (4, lambda: tasks.brackets(rng)),
        "recall-64": (4, lambda: tasks.recall(rng, filler, distance=64)),
    }
    for name, (count, make) in kinds.items():
        for i in range(count):
            question = make()
            stride = 4 if name in {"recall-64", "copy"} else 1
            tags = (name.split("-")[0].rstrip("23"), "task")
            yield prompt(f"{name}-{i}", question.ask, question.answer, tags, stride)
    for i in range(3):
        question = tasks.recall(rng, filler, distance=384)
        yield prompt(
            f"recall-384-{i}", question.ask, question.answer, ("recall", "task", "long"), 16
        )


def texts(filler: rows.Filler) -> Iterator[dict]:
    """Held-out text, unicode and boundary lengths."""
    for i in range(16):
        data = filler.raw(48)
        yield prompt(f"text-{i:02d}", data[:32], data[32:], ("text",), 4)
    for i, (text, stride) in UNICODE.items():
        data = text.encode()
        yield prompt(f"unicode-{i}", data[:-8], data[-8:], ("unicode",), stride)
    for n in BOUNDARY:
        data = filler.raw(n - 1)
        yield prompt(f"boundary-{n}", data[:-8], data[-8:], ("text", "boundary"), 4)


def main() -> None:
    """Write the prompt set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True)
    args = parser.parse_args()
    rng = random.Random(SEED)
    text = (args.text / "heldout-books.bin").read_bytes()
    filler = rows.Filler(text, rng)
    more = more_inside(random.Random(MORE_SEED), text)
    made = [*inside(filler), *more, *answered(rng, filler), *texts(filler)]
    for one in made:
        if one["id"] in SPECULATIVE:
            one["tags"].append("speculative")
    path = Path(__file__).with_name("default.jsonl")
    path.write_text("".join(json.dumps(p) + "\n" for p in made))
    scored = sum(
        sum(
            1
            for q in range(len(p["token_ids"]))
            if q % p["score_stride"] == 0 or q >= len(p["token_ids"]) - 16
        )
        for p in made
    )
    print(len(made), "prompts", sum(len(p["token_ids"]) for p in made), "tokens", scored, "scored")


if __name__ == "__main__":
    main()
