"""Downstream evals item by item: what one side answered, scored by lm-eval and by nobody else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "HASH_DIGITS",
    "SIDECAR",
    "EvalItem",
    "EvalMatch",
    "EvalPair",
    "EvalRequests",
    "EvalSet",
    "EvalTask",
    "Finish",
    "OutputType",
    "evals_of",
]

HASH_DIGITS = 16
"""Leading hexadecimal digits that are kept of every SHA-256: 8 bytes, a uint64 on disk."""

SIDECAR = "validate"
"""Key of a sample line under which our own runs keep what lm-eval does not: ``prompt_tokens``,
``prompt_tokens_hash``, ``bos``, ``truncated``, ``token_ids``, ``finish_reason``. Foreign files lack it."""

Finish = Literal["stop", "length"]
OutputType = Literal[
    "generate_until", "loglikelihood", "loglikelihood_rolling", "multiple_choice", "unknown"
]


class EvalItem(NamedTuple):
    """One document of one task through one filter; a named tuple, for there are 100,000 of them."""

    task: str
    filter: str
    """lm-eval's filter key: ``none``, ``strict-match``, ``flexible-extract``."""
    doc_id: int
    """Row of the data set; never what items are paired by where there are hashes."""
    doc_hash: str | None
    """First ``HASH_DIGITS`` digits, as all hashes here; None where the file lacks it."""
    prompt_hash: str | None
    """Of the prompt's text, few-shot examples included."""
    target_hash: str | None
    scores: Mapping[str, float]
    """Metric to value, NaN where the file holds no number (``"N/A"``)."""
    loglikelihoods: tuple[float, ...] = ()
    """In nats, one a request (choice); empty for generation."""
    greedy: tuple[bool, ...] = ()
    """Whether each continuation is the greedy one; as long as ``loglikelihoods``."""
    response: str | None = None
    """What was generated, before any filter; None for log-likelihoods."""
    answer: str | None = None
    """What the filter made of it."""
    target: str | None = None
    token_ids: tuple[int, ...] | None = None
    """Of the response; None where they were not kept."""
    finish: Finish | None = None
    prompt_tokens: int | None = None
    prompt_tokens_hash: str | None = None
    """Of the prompt's token ids, as int32 little-endian bytes; requests of one item one after another."""
    bos: int | None = None
    """BOS tokens that the prompt starts with."""
    truncated: bool | None = None
    """Whether the prompt was cut to fit."""
    arguments: str | None = None
    """Hash of the generation arguments; None for log-likelihoods."""


class EvalTask(BaseModel):
    """What all items of a task share; one line of ``evals.jsonl``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    version: str
    fewshot: Annotated[int, Field(ge=0)]
    output_type: OutputType = "unknown"
    filters: Annotated[tuple[str, ...], Field(min_length=1)]
    metrics: dict[str, bool | None]
    """Metric to whether higher is better; None: not said."""
    docs: Annotated[int, Field(ge=0)]
    """Documents that were run, as the head of the results says: what the items must add up to."""
    chance: Annotated[float, Field(ge=0, le=1)] | None = None
    """Score of a guess; None: not known."""
    generation: dict[str, str] = Field(default_factory=dict)
    """Generation arguments as JSON texts: ``until``, ``max_gen_toks``, ``temperature``."""
    config: dict[str, str] = Field(default_factory=dict)
    """What makes prompts and scores, as JSON texts: ``doc_to_text``, ``filter_list``,
    ``metric_list``, ``fewshot_config``. Empty where the source has no configuration."""


class EvalRequests(BaseModel):
    """How many answers came from where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asked: Annotated[int, Field(ge=0)]
    sent: Annotated[int, Field(ge=0)]
    """Run through the model."""
    cached: Annotated[int, Field(ge=0)]
    """Taken from a cache."""
    cache_key: str | None = None
    """What the cache is keyed by beside the request: a digest of the model and its path, other for
    unlike runs. None: no cache, or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSet:
    """All evals of one side."""

    model: str
    """What the run calls its model."""
    tasks: Mapping[str, EvalTask]
    items: tuple[EvalItem, ...]
    """Grouped by task and filter, in the order of the files."""
    requests: EvalRequests | None = None
    """None where nobody counted."""
    bos_expected: int | None = None
    """BOS tokens that the tokenizer puts before a prompt: 1 or 0; None: not known."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What must be equal beside the tasks: ``chat_template``, ``system_instruction``, as digests."""
    lost: tuple[str, ...] = ()
    """What the source does not hold and which check is lost by it, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPair:
    """One task through one filter: the same items on both sides, in one order."""

    task: EvalTask
    filter: str
    ref: tuple[EvalItem, ...]
    cand: tuple[EvalItem, ...]

    @property
    def name(self) -> str:
        """Task, and filter where it is not ``none``."""
        return self.task.name if self.filter == "none" else f"{self.task.name} ({self.filter})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalMatch:
    """What pairing found of two sides' evals."""

    pairs: tuple[EvalPair, ...] = ()
    """Empty where there is a reason or something is missing."""
    missing: str | None = None
    """Which side holds no evals, with the next step; None: both do."""
    reasons: tuple[str, ...] = ()
    """Every difference that forbids a comparison."""
    same: bool = False
    """Whether both sides are one object: ref against itself."""


def evals_of(side: object) -> EvalSet | None:
    """The evals of a side, or None: the attribute ``evals`` is not part of ``Side``."""
    found: EvalSet | None = getattr(side, "evals", None)
    return found
