"""Write the eval tasks of k3-nano: data as JSON lines, and one lm-eval YAML a task.

    python suites/tasks/build.py --text build/text

``build/text`` is what ``golden/k3-nano/recipe/text.py`` writes; of it only the
held-out books and pages are read. The same text and seeds give the same bytes.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "golden/k3-nano/recipe"))

import tasks as questions

Doc = dict[str, object]
Maker = Callable[[random.Random], questions.Question]
ITEMS = 500
SHOTS = 8
"""Examples that a few-shot task draws its first ones from."""
KEYS = 10
"""Keys set in one context of a recall task, each asked once; training set at most 12."""
VARIANTS = ("k3_add3_fewshot1", "k3_add3_fewshot4", "k3_recall128", "k3_recall320", "k3_continue")
"""Tasks that stand in a folder of their own: more shots, longer prompts, more choices."""
CONTEXT, CHOICE = 40, 16
"""Bytes of a multiple-choice context and of each of its four continuations."""
PIECE = 20
"""Bytes of a piece of text whose bits per byte are counted."""


class Text:
    """Held-out text as lines of printable ASCII, drawn from."""

    def __init__(self, folder: Path) -> None:
        parts = [folder / f"heldout-{name}.bin" for name in ("books", "pages")]
        self.parts = [p.read_bytes().decode("ascii", "ignore").replace("\n", " ") for p in parts]

    def draw(self, rng: random.Random, size: int) -> str:
        """``size`` characters that neither begin nor end with a space, books and pages alike often."""
        while True:
            part = rng.choice(self.parts)
            start = rng.randrange(len(part) - size)
            found = part[start : start + size]
            if found == found.strip() and "  " not in found and found.isprintable():
                return found


def asked(make: Maker, rng: random.Random, count: int) -> Iterator[Doc]:
    """Distinct questions with their answers, the end mark left off."""
    seen: set[str] = set()
    while len(seen) < count:
        question = make(rng)
        if question.ask not in seen:
            seen.add(question.ask)
            yield {"ask": question.ask, "answer": question.answer.removesuffix("\n")}


def recalled(text: Text, rng: random.Random, *, distance: int) -> Iterator[Doc]:
    """Contexts of ``KEYS`` keys, then ``distance`` bytes of text; each key asked in a document of its own."""
    for _ in range(ITEMS // KEYS):
        pairs: dict[str, str] = {}
        while len(pairs) < KEYS:
            key, value = questions.key_and_value(rng)
            pairs[key] = value
        head = "".join(f"set {key}={value};\n" for key, value in pairs.items())
        body = text.draw(rng, distance)
        for key in rng.sample(sorted(pairs), KEYS):
            yield {"ask": f"{head}{body}\nget {key}=", "answer": f"{pairs[key]};"}


def continued(text: Text, rng: random.Random) -> Iterator[Doc]:
    """The start of a passage and four continuations, of which one is the real one."""
    for _ in range(ITEMS):
        whole = text.draw(rng, CONTEXT + CHOICE)
        while whole[CONTEXT - 1].isspace():
            whole = text.draw(rng, CONTEXT + CHOICE)
        choices = [whole[CONTEXT:]]
        while len(choices) < 4:
            other = text.draw(rng, CHOICE + 8)[8:]
            if other not in choices:
                choices.append(other)
        rng.shuffle(choices)
        yield {
            "ask": whole[:CONTEXT],
            "choices": choices,
            "gold": choices.index(whole[CONTEXT:]),
        }


def pieces(text: Text, rng: random.Random) -> Iterator[Doc]:
    """Distinct pieces of text."""
    seen: set[str] = set()
    while len(seen) < ITEMS:
        piece = text.draw(rng, PIECE)
        if piece not in seen:
            seen.add(piece)
            yield {"text": piece}


def add_three(rng: random.Random) -> questions.Question:
    """A sum of two numbers of three digits that training never saw."""
    return questions.addition(rng, digits=3, held_out=True)


def shown(rng: random.Random) -> questions.Question:
    """A sum of two digits that training may have seen: an example, not a question."""
    return questions.addition(rng, digits=2)


COMMON = """\
dataset_path: json
dataset_kwargs:
  data_files:
    test: suites/tasks/data/{data}.jsonl
test_split: test
target_delimiter: ""
"""
GENERATE = """\
output_type: generate_until
doc_to_text: "{{{{ask}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: {tokens}
  do_sample: false
filter_list:
  - name: strict-match
    filter:
      - {{function: regex, regex_pattern: '^({strict})$'}}
      - {{function: take_first}}
  - name: flexible-extract
    filter:
      - {{function: regex, regex_pattern: '({loose})'}}
      - {{function: take_first}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""
FEWSHOT = """\
num_fewshot: {shots}
fewshot_delimiter: "\\n"
fewshot_config:
  sampler: first_n
  samples: {samples}
"""
LIKELIHOOD = """\
output_type: loglikelihood
doc_to_text: "{{ask}}"
doc_to_target: "{{answer}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
CHOICES = """\
output_type: multiple_choice
doc_to_text: "{{ask}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
ROLLING = """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}
"""
VERSION = "metadata:\n  version: 1.0\n"


def generate(tokens: int, strict: str, loose: str) -> str:
    """The part of a task whose answer is generated."""
    return GENERATE.format(tokens=tokens, strict=strict, loose=loose)


def fewshot(count: int, seed: int) -> str:
    """The part of a task that shows ``count`` sums before the one it asks."""
    samples = list(asked(shown, random.Random(seed), SHOTS))[:count]
    return FEWSHOT.format(shots=count, samples=json.dumps(samples))


def build(text: Text) -> dict[str, tuple[str, str, list[Doc]]]:
    """Task name to the name of its data, its YAML and its documents; order and seeds are fixed."""
    digits = generate(6, "[0-9]+", "[0-9]+")
    letters = generate(10, "[a-z]+", "[a-z]+")
    marks = r"[\]\)\}}>]+".replace("}}", "}")
    close = generate(10, marks, marks)
    made: dict[str, tuple[str, str, list[Doc]]] = {}

    def put(name: str, yaml: str, docs: Iterator[Doc], *, data: str | None = None) -> None:
        made[name] = (data or name, yaml, list(docs))

    put("k3_add3", digits, asked(add_three, random.Random(101), ITEMS))
    for shots in (1, 4):
        name, yaml = f"k3_add3_fewshot{shots}", digits + fewshot(shots, 110)
        put(name, yaml, asked(add_three, random.Random(101), ITEMS), data="k3_add3")
    put(
        "k3_sort",
        letters,
        asked(lambda rng: questions.sorting(rng, length=6), random.Random(103), ITEMS),
    )
    put(
        "k3_brackets",
        close,
        asked(lambda rng: questions.brackets(rng, depth=6), random.Random(104), ITEMS),
    )
    put(
        "k3_copy",
        LIKELIHOOD,
        asked(lambda rng: questions.copying(rng, length=6), random.Random(105), ITEMS),
    )
    for seed, distance in ((106, 24), (107, 128), (108, 320)):
        docs = recalled(text, random.Random(seed), distance=distance)
        put(f"k3_recall{distance}", LIKELIHOOD, docs)
    put("k3_continue", CHOICES, continued(text, random.Random(109)))
    put("k3_text", ROLLING, pieces(text, random.Random(111)))
    return made


def main(text: Path, out: Path) -> None:
    """Write every task into ``out``, the variants into a folder there."""
    for folder_name in ("data", "variants"):
        (out / folder_name).mkdir(parents=True, exist_ok=True)
    for name, (data, yaml, docs) in build(Text(text)).items():
        lines = "".join(json.dumps(doc, ensure_ascii=True) + "\n" for doc in docs)
        (out / "data" / f"{data}.jsonl").write_text(lines, "utf-8")
        body = f"task: {name}\n{COMMON.format(data=data)}{yaml}{VERSION}"
        place = out / "variants" if name in VARIANTS else out
        (place / f"{name}.yaml").write_text(body, "utf-8")
        print(f"{name}: {len(docs)} documents")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    main(given.text, given.out)
