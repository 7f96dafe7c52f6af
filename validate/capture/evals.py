"""Downstream evals in a capture: a head in JSON lines, and small columns a task in one shard.

``evals.jsonl`` says in its first line what the run was, then one task a line.
Tensors are named ``evals/N.COLUMN``, N the place of the task in that file. A
column with one entry holds for every item.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from validate.capture.format import DTYPES
from validate.capture.jsontext import compact, parse, parse_record
from validate.capture.messages import Fault
from validate.capture.shard import Part
from validate.schema import TensorEntry
from validate.schema.evals import HASH_DIGITS, EvalItem, EvalRequests, EvalSet, EvalTask, Finish

__all__ = ["OWNER", "EvalHead", "encode_head", "encode_parts", "read_evals"]

OWNER = "evals"
"""What stands where a prompt id stands in other tensor names."""

Load = Callable[[str], NDArray[Any] | None]
_HASHES = ("doc_hash", "prompt_hash", "target_hash", "prompt_tokens_hash", "arguments")
_FINISHES: tuple[Finish | None, ...] = (None, "stop", "length")
_ABSENT, _AS_RESPONSE = -1, -2
_UNKNOWN = 2


class EvalHead(BaseModel):
    """First line of ``evals.jsonl``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    requests: EvalRequests | None = None
    bos_expected: int | None = None
    settings: dict[str, str] = {}
    lost: tuple[str, ...] = ()


class _Block(NamedTuple):
    """One task on its way: its items by filter, in one order of documents."""

    task: EvalTask
    docs: list[EvalItem]
    """Through the first filter."""
    by_filter: list[list[EvalItem]]


def encode_head(evals: EvalSet) -> list[bytes]:
    """The lines of ``evals.jsonl``."""
    head = EvalHead(
        model=evals.model,
        requests=evals.requests,
        bos_expected=evals.bos_expected,
        settings=dict(evals.settings),
        lost=evals.lost,
    )
    tasks = [
        task.model_dump(mode="json", exclude=None if task.config else {"config"})
        for task in evals.tasks.values()
    ]
    return [compact(record).encode() + b"\n" for record in (head.model_dump(mode="json"), *tasks)]


def encode_parts(evals: EvalSet) -> list[Part]:
    """The tensors of every task.

    Raises:
        Fault: A filter holds other documents than the first one, or an item belongs to no task.
    """
    parts = []
    for place, block in enumerate(_blocks(evals)):
        for name, array in _columns(block):
            stored = np.ascontiguousarray(array, DTYPES[array.dtype.name].dtype)
            entry = TensorEntry(
                name=f"{OWNER}/{place}.{name}",
                dtype=array.dtype.name,
                shape=array.shape,
                axes=("filters", "metrics", "items")[-array.ndim :],
            )
            parts.append(Part(entry, stored))
    return parts


def _blocks(evals: EvalSet) -> Iterator[_Block]:
    held: dict[tuple[str, str], list[EvalItem]] = {}
    for item in evals.items:
        held.setdefault((item.task, item.filter), []).append(item)
    for task in evals.tasks.values():
        by_filter = [held.pop((task.name, name), []) for name in task.filters]
        docs = by_filter[0]
        for name, items in zip(task.filters, by_filter, strict=True):
            if [_document(item) for item in items] != [_document(item) for item in docs]:
                msg = (
                    f"task '{task.name}': filter '{name}' and filter '{task.filters[0]}' hold "
                    "other documents, or the same in another order"
                )
                raise Fault(msg)
        yield _Block(task, docs, by_filter)
    if held:
        owner, name = next(iter(held))
        msg = f"items of task '{owner}', filter '{name}', which the evals do not list"
        raise Fault(msg)


def _document(item: EvalItem) -> EvalItem:
    """What must be equal through every filter."""
    return item._replace(filter="", scores={}, answer=None)


def _columns(block: _Block) -> Iterator[tuple[str, NDArray[Any]]]:
    docs = block.docs
    if [item.doc_id for item in docs] != list(range(len(docs))):
        yield "doc_id", _whole([item.doc_id for item in docs])
    rows = [[_bits(getattr(item, name)) for item in docs] for name in _HASHES]
    for name, row in zip(_HASHES, rows, strict=True):
        if any(row):
            yield name, _same(np.array(row, np.uint64).view(np.int64))
    yield "scores", _scores(block)
    yield "requests", _whole([len(item.loglikelihoods) for item in docs])
    values = [value for item in docs for value in item.loglikelihoods]
    if values:
        yield "loglikelihoods", np.array(values, np.float32)
    greedy = [flag for item in docs for flag in item.greedy]
    if greedy:
        yield "greedy", _whole([int(flag) for flag in greedy])
    yield from _texts("response", [item.response for item in docs])
    yield from _texts("target", [item.target for item in docs])
    for place, items in enumerate(block.by_filter):
        yield from _texts(
            f"answer.{place}",
            [item.answer for item in items],
            responses=[item.response for item in items],
        )
    ids = [item.token_ids for item in docs]
    if any(given is not None for given in ids):
        yield "tokens.count", _whole([_ABSENT if g is None else len(g) for g in ids])
        yield "tokens", _whole([token for given in ids for token in given or ()], fold=False)
    yield "finish", _whole([_FINISHES.index(item.finish) for item in docs])
    yield "prompt_tokens", _whole([_or_absent(item.prompt_tokens) for item in docs])
    yield "bos", _whole([_or_absent(item.bos) for item in docs])
    yield (
        "truncated",
        _whole([_UNKNOWN if item.truncated is None else int(item.truncated) for item in docs]),
    )


def _or_absent(value: int | None) -> int:
    return _ABSENT if value is None else value


def _bits(digits: str | None) -> int:
    """Eight bytes of a hash; 0 stands for none."""
    return 0 if digits is None else int(digits[:HASH_DIGITS], 16)


def _whole(values: Sequence[int], *, fold: bool = True) -> NDArray[Any]:
    """Whole numbers in the narrowest dtype of the format."""
    array = np.array(values, np.int64)
    kinds: tuple[type[Any], ...] = (np.uint8, np.int16, np.int32, np.int64)
    for kind in kinds:
        if len(array) == 0 or (
            array.min() >= np.iinfo(kind).min and array.max() <= np.iinfo(kind).max
        ):
            array = array.astype(kind)
            break
    return _same(array) if fold else array


def _same(array: NDArray[Any]) -> NDArray[Any]:
    """One entry where all are equal."""
    return array[:1] if len(array) > 1 and bool((array == array[0]).all()) else array


def _scores(block: _Block) -> NDArray[Any]:
    """(filters, metrics, items), metrics by name; a missing one is NaN; bytes where all are 0 or 1."""
    names = sorted(block.task.metrics)
    made = np.array(
        [
            [[item.scores.get(n, np.nan) for item in items] for n in names]
            for items in block.by_filter
        ],
        np.float32,
    ).reshape(len(block.by_filter), len(names), len(block.docs))
    return made.astype(np.uint8) if bool(((made == 0) | (made == 1)).all()) else made


def _texts(
    name: str, texts: Sequence[str | None], *, responses: Sequence[str | None] = ()
) -> Iterator[tuple[str, NDArray[Any]]]:
    """UTF-8 one after another, and how many bytes each takes; -1 for none, -2 for the response."""
    if not any(text is not None for text in texts):
        return
    sizes, data = [], bytearray()
    for place, text in enumerate(texts):
        if text is None:
            sizes.append(_ABSENT)
        elif responses and text == responses[place]:
            sizes.append(_AS_RESPONSE)
        else:
            raw = text.encode("utf-8", "surrogatepass")
            sizes.append(len(raw))
            data += raw
    yield f"{name}.bytes", _whole(sizes)
    yield name, np.frombuffer(bytes(data), np.uint8)


def read_evals(head: bytes, load: Load) -> EvalSet:
    """The evals of a capture.

    Args:
        head: The bytes of ``evals.jsonl``.
        load: Gives the tensor ``N.COLUMN``, or None where there is none.

    Raises:
        Fault: A line or a column does not fit.
    """
    if not head.endswith(b"\n"):
        msg = "the last line has no end; the file is cut short"
        raise Fault(msg)
    first, *rest = head.split(b"\n")[:-1]
    parse(first)
    said = parse_record(EvalHead, first, "line 1 is no head of evals")
    tasks: dict[str, EvalTask] = {}
    items: list[EvalItem] = []
    for place, line in enumerate(rest):
        task = parse_record(EvalTask, line, f"line {place + 2} is no task")
        if task.name in tasks:
            msg = f"line {place + 2}: task '{task.name}' is there already"
            raise Fault(msg)
        tasks[task.name] = task
        try:
            items += _Columns(task, f"{place}.", load).items()
        except (ValueError, TypeError, IndexError, OverflowError) as err:
            msg = f"task '{task.name}': its columns do not fit together: {err}"
            raise Fault(msg) from err
    return EvalSet(
        model=said.model,
        tasks=tasks,
        items=tuple(items),
        requests=said.requests,
        bos_expected=said.bos_expected,
        settings=said.settings,
        lost=said.lost,
    )


class _Columns:
    """The columns of one task, checked against each other while they are read."""

    def __init__(self, task: EvalTask, prefix: str, load: Load) -> None:
        self.task, self.prefix, self._load = task, prefix, load
        self.count = task.docs

    def items(self) -> Iterator[EvalItem]:
        """Items by filter, then by document."""
        count, task = self.count, self.task
        scores, metrics = self.scores()
        ids = self.load("doc_id")
        hashes = {name: self.hashes(name) for name in _HASHES}
        values, greedy = self.likelihoods()
        response, target = self.texts("response"), self.texts("target")
        tokens = self.tokens()
        finish, sent = self.column("finish"), self.column("prompt_tokens")
        bos, cut = self.column("bos"), self.column("truncated")
        for which, name in enumerate(task.filters):
            answer = self.texts(f"answer.{which}", responses=response)
            for doc in range(count):
                yield EvalItem(
                    task=task.name,
                    filter=name,
                    doc_id=doc if ids is None else int(ids[doc]),
                    doc_hash=hashes["doc_hash"][doc],
                    prompt_hash=hashes["prompt_hash"][doc],
                    target_hash=hashes["target_hash"][doc],
                    scores={
                        metric: float(value)
                        for metric, value in zip(metrics, scores[which, :, doc], strict=True)
                    },
                    loglikelihoods=values[doc],
                    greedy=greedy[doc],
                    response=response[doc],
                    answer=answer[doc],
                    target=target[doc],
                    token_ids=tokens[doc],
                    finish=_FINISHES[finish[doc]],
                    prompt_tokens=None if sent[doc] < 0 else sent[doc],
                    prompt_tokens_hash=hashes["prompt_tokens_hash"][doc],
                    bos=None if bos[doc] < 0 else bos[doc],
                    truncated=None if cut[doc] == _UNKNOWN else bool(cut[doc]),
                    arguments=hashes["arguments"][doc],
                )

    def scores(self) -> tuple[NDArray[Any], list[str]]:
        """(filters, metrics, items), and the metrics' names; checked before anything is sized by it."""
        found, metrics = self.required("scores"), sorted(self.task.metrics)
        wanted = (len(self.task.filters), len(metrics), self.count)
        if found.shape != wanted:
            msg = f"scores have the shape {found.shape}; filters, metrics, items are {wanted}"
            raise ValueError(msg)
        return found, metrics

    def load(self, name: str) -> NDArray[Any] | None:
        """A tensor, or None."""
        return self._load(self.prefix + name)

    def required(self, name: str) -> NDArray[Any]:
        """A tensor that must be there."""
        found = self.load(name)
        if found is None:
            msg = f"tensor {OWNER}/{self.prefix}{name} is missing"
            raise ValueError(msg)
        return found

    def column(self, name: str) -> list[int]:
        """Whole numbers, one an item."""
        found = self.required(name)
        if found.shape not in ((1,), (self.count,)):
            msg = f"column {name} has the shape {found.shape} for {self.count} items"
            raise ValueError(msg)
        numbers: list[int] = found.tolist()
        return numbers * self.count if len(numbers) == 1 else numbers

    def hashes(self, name: str) -> list[str | None]:
        """Hexadecimal digits, None where there are none."""
        if self.load(name) is None:
            return [None] * self.count
        made = (value & (2**64 - 1) for value in self.column(name))
        return [f"{value:016x}" if value else None for value in made]

    def likelihoods(self) -> tuple[list[tuple[float, ...]], list[tuple[bool, ...]]]:
        """Log-likelihoods and greedy flags of each item."""
        counts = self.column("requests")
        values, greedy = self.load("loglikelihoods"), self.load("greedy")
        found = _cut([] if values is None else values.tolist(), counts)
        if greedy is None:
            return found, [()] * self.count
        flags = greedy.tolist()
        flags = flags * sum(counts) if len(flags) == 1 else flags
        return found, [tuple(map(bool, held)) for held in _cut(flags, counts)]

    def tokens(self) -> list[tuple[int, ...] | None]:
        """Token ids of each response."""
        if self.load("tokens.count") is None:
            return [None] * self.count
        counts = self.column("tokens.count")
        made = _cut(self.required("tokens").tolist(), [max(0, count) for count in counts])
        return [None if n < 0 else ids for n, ids in zip(counts, made, strict=True)]

    def texts(self, name: str, *, responses: Sequence[str | None] = ()) -> list[str | None]:
        """Texts of each item; -2 says that it is the response."""
        if self.load(f"{name}.bytes") is None:
            return [None] * self.count
        sizes = self.column(f"{name}.bytes")
        data = self.required(name).tobytes()
        made = _cut(data, [max(0, size) for size in sizes])
        texts: list[str | None] = []
        for doc, size in enumerate(sizes):
            if size == _AS_RESPONSE:
                texts.append(responses[doc])
            elif size == _ABSENT:
                texts.append(None)
            else:
                texts.append(bytes(made[doc]).decode("utf-8", "surrogatepass"))
        return texts


def _cut(flat: Sequence[Any], counts: Sequence[int]) -> list[tuple[Any, ...]]:
    """Split ``flat`` into runs of ``counts``.

    Raises:
        ValueError: A count is negative, or they do not add up.
    """
    if any(count < 0 for count in counts) or sum(counts) != len(flat):
        msg = f"{sum(counts)} entries are counted, {len(flat)} are there"
        raise ValueError(msg)
    ends = list(accumulate(counts))
    return [tuple(flat[end - count : end]) for end, count in zip(ends, counts, strict=True)]
