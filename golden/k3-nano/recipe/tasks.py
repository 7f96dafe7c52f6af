"""Tasks with checkable answers, as bytes: training rows and held-out questions from one generator.

Every question is a line `name argument<separator>answer`; the answer follows
from the bytes before it, so that a model can learn it and a check can read it.
"""

import random
import string
from collections.abc import Callable
from typing import NamedTuple

IDENTIFIER = string.ascii_letters + string.digits
BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}
HELD_OUT_ONE_IN = 20
"""Share of addition pairs that training never sees."""


class Question(NamedTuple):
    """A line up to its answer, and the answer with its end mark."""

    ask: str
    answer: str


def held_out_pair(a: int, b: int) -> bool:
    """Whether the sum a + b belongs to the held-out questions (a fixed hash of the pair)."""
    return (a * 2_654_435_761 + b * 40_503) % 1_000_003 % HELD_OUT_ONE_IN == 0


def addition(rng: random.Random, *, digits: int | None = None, held_out: bool = False) -> Question:
    """`37+845=882`; operands of ``digits`` digits (default 1 to 3 each)."""
    while True:
        sizes = [digits or rng.choice((1, 2, 2, 3, 3, 3)) for _ in range(2)]
        a, b = (rng.randrange(10 ** (s - 1) if s > 1 else 0, 10**s) for s in sizes)
        if held_out_pair(a, b) == held_out:
            return Question(f"{a}+{b}=", f"{a + b}\n")


def copying(rng: random.Random, *, length: int | None = None) -> Question:
    """`copy k3Jd...>k3Jd...`: an identifier of 4 to 20 characters."""
    n = length or rng.choice((4, 8, 12, 16, 16, 16, 20))
    text = "".join(rng.choices(IDENTIFIER, k=n))
    return Question(f"copy {text}>", f"{text}\n")


def sorting(rng: random.Random, *, length: int | None = None) -> Question:
    """`sort dbca>abcd`: 3 to 8 letters into alphabetical order."""
    letters = rng.choices(string.ascii_lowercase, k=length or rng.randint(3, 8))
    return Question(f"sort {''.join(letters)}>", f"{''.join(sorted(letters))}\n")


def brackets(rng: random.Random, *, depth: int | None = None) -> Question:
    """`close ([{<>}>])`: opened brackets, some closed again; the answer closes the rest."""
    text: list[str] = []
    stack: list[str] = []
    for _ in range(depth or rng.randint(2, 10)):
        if stack and rng.random() < 0.35:
            text.append(BRACKETS[stack.pop()])
        else:
            stack.append(rng.choice("([{<"))
            text.append(stack[-1])
    if not stack:
        stack.append("(")
        text.append("(")
    return Question(f"close {''.join(text)} ", "".join(BRACKETS[s] for s in reversed(stack)) + "\n")


def key_and_value(rng: random.Random) -> tuple[str, str]:
    """A key of three letters and a value of four digits."""
    return "".join(rng.choices(string.ascii_lowercase, k=3)), "".join(
        rng.choices(string.digits, k=4)
    )


def recall(rng: random.Random, filler: Callable[[int], str], *, distance: int) -> Question:
    """`set abc=1234;`, then ``distance`` bytes of text, then `get abc=`."""
    key, value = key_and_value(rng)
    return Question(f"set {key}={value};\n{filler(distance)}\nget {key}=", f"{value};\n")


SMALL = (addition, copying, sorting, brackets)


class Row(NamedTuple):
    """One training row: bytes, and which of them are worth learning."""

    data: bytes
    scored: bytes
    """1 where the byte follows from what stands before it, else 0; as long as ``data``."""


def _piece(question: Question) -> Row:
    ask, answer = question.ask.encode(), question.answer.encode()
    return Row(ask + answer, bytes(len(ask)) + b"\1" * len(answer))


def _join(pieces: list[Row]) -> Row:
    return Row(b"".join(p.data for p in pieces), b"".join(p.scored for p in pieces))


def small_row(rng: random.Random, size: int) -> Row:
    """Short questions back to back; now and then all of one kind."""
    kinds = SMALL if rng.random() < 0.5 else (rng.choice(SMALL),)
    pieces: list[Row] = []
    while sum(len(p.data) for p in pieces) < size:
        pieces.append(_piece(rng.choice(kinds)(rng)))
    return _join(pieces)


def recall_row(rng: random.Random, filler: Callable[[int], str], size: int) -> Row:
    """Keys set, text and other questions between, keys asked again; near and far."""
    known: dict[str, str] = {}
    pieces: list[Row] = []
    spread = rng.choice((0, 8, 40, 120, 300))
    most = rng.choice((1, 2, 4, 12))
    while sum(len(p.data) for p in pieces) < size:
        draw = rng.random()
        if not known or (draw < 0.35 and len(known) < most):
            key, value = key_and_value(rng)
            known[key] = value
            text = f"set {key}={value};\n".encode()
            pieces.append(Row(text, bytes(len(text))))
        elif draw < 0.75 or not spread:
            key = rng.choice(list(known))
            pieces.append(_piece(Question(f"get {key}=", f"{known[key]};\n")))
        elif draw < 0.9:
            text = (filler(rng.randint(1, spread)) + "\n").encode()
            pieces.append(Row(text, b"\1" * len(text)))
        else:
            pieces.append(_piece(rng.choice(SMALL)(rng)))
    return _join(pieces)


def far_row(rng: random.Random, filler: Callable[[int], str], size: int) -> Row:
    """One to three keys, one long stretch of text, then every key asked: distance up to the row."""
    pairs = [key_and_value(rng) for _ in range(rng.randint(1, 3))]
    head = "".join(f"set {k}={v};\n" for k, v in pairs).encode()
    tail = [_piece(Question(f"get {k}=", f"{v};\n")) for k, v in pairs for _ in range(2)]
    rng.shuffle(tail)
    room = size - len(head) - sum(len(t.data) for t in tail) - 1
    text = (filler(rng.randint(min(60, room), room)) + "\n").encode()
    body = [Row(head, bytes(len(head))), Row(text, b"\1" * len(text)), *tail]
    rest = size - sum(len(p.data) for p in body)
    if rest > 0:
        body.append(small_row(rng, rest))
    return _join(body)
