"""Answers to a golden's tasks, given again: what moves speaks against today's source."""

import math
from typing import Any

import pytest

from validate.cli.verify_evals import eval_problems
from validate.schema.evals import EvalItem, EvalSet
from validate.schema.suite import Limits
from validate.schema.verdict import Limit

HASH = "0123456789abcdef"


def limit(value: float) -> Limit:
    return Limit(value=value, source="measured", pointer="test")


LIMITS = Limits(
    entries={
        "evals.loglik_delta.bfloat16": limit(0.05),
        "evals.score_drop.bfloat16": limit(2.0),
    },
    path="tolerances.toml",
)


def chosen(doc: int, **changes: Any) -> EvalItem:
    """An item of a task by log-likelihood: -1 and -3 nats."""
    item = EvalItem(
        task="copy",
        filter="none",
        doc_id=doc,
        doc_hash=f"{doc:016x}",
        prompt_hash=HASH,
        target_hash=None,
        scores={"acc": 1.0},
        loglikelihoods=(-1.0, -3.0),
        greedy=(True, False),
        prompt_tokens=5,
        prompt_tokens_hash=HASH,
        bos=1,
        truncated=False,
    )
    return item._replace(**changes)


def written(doc: int, score: float = 1.0) -> EvalItem:
    """An item of a generated task."""
    return chosen(
        doc, task="add", loglikelihoods=(), greedy=(), response="7", scores={"exact_match": score}
    )


def evals(*items: EvalItem) -> EvalSet:
    return EvalSet(model="k3", tasks={}, items=items)


GOLDEN = evals(*(chosen(n) for n in range(3)), *(written(n) for n in range(100)))


def told(*items: EvalItem) -> list[str]:
    return list(eval_problems(GOLDEN, evals(*items), limits=LIMITS, dtype="bfloat16"))


def test_the_same_answers_to_some_documents_hold():
    assert told(chosen(1), written(4), written(7)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"prompt_tokens_hash": "f" * 16},
            "prompt_tokens_hash is ffffffffffffffff, 0123456789abcdef",
        ),
        ({"bos": 2}, "bos is 2, 1 in the golden"),
        ({"truncated": True}, "truncated is True, False in the golden"),
        ({"doc_hash": "f" * 16}, "not in the golden"),
    ],
)
def test_what_no_rounding_moves_is_equal(changes: dict[str, Any], said: str):
    (problem,) = told(chosen(1, **changes))

    assert problem.startswith("evals: copy, document 1: ")
    assert said in problem


@pytest.mark.parametrize(
    ("moved", "holds"), [(0.04, True), (0.06, False), (math.nan, False), (-0.06, False)]
)
def test_log_likelihoods_stay_within_the_limit_of_their_metric(moved: float, *, holds: bool):
    """The limit is 0.05 nats on the sum over the choices of the median document."""
    problems = told(chosen(1, loglikelihoods=(-1.0 + moved, -3.0)))

    assert (problems == []) == holds
    assert holds or problems[0].startswith("evals.loglik_delta: ")


def test_scores_move_by_no_more_points_than_their_limit():
    """One of 60 documents is 1.67 points, two are 3.33; the limit is 2."""
    right = [written(n) for n in range(2, 60)]

    assert told(written(0, 0.0), written(1), *right) == []
    assert told(written(0, 0.0), written(1, 0.0), *right) == ["evals.score_drop: 3.333 is beyond 2"]


@pytest.mark.parametrize("fresh", [None, evals()])
def test_no_answer_at_all_speaks_against_the_source(fresh: EvalSet | None):
    found = eval_problems(GOLDEN, fresh, limits=LIMITS, dtype="bfloat16")

    assert list(found) == ["evals: no document was answered again"]


def test_a_dtype_without_a_limit_is_beyond_every_limit():
    fresh = evals(chosen(1))

    found = list(eval_problems(GOLDEN, fresh, limits=LIMITS, dtype="float16"))

    assert found == ["evals.loglik_delta: 0 is beyond no limit"]
