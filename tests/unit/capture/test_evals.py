"""Evals as columns: what goes in comes out, and columns that do not fit are refused."""

import math
from typing import Any

import numpy as np
import pytest

from validate.capture.evals import encode_head, encode_parts, read_evals
from validate.capture.messages import Fault
from validate.schema.evals import EvalItem, EvalRequests, EvalSet, EvalTask

HASH = "0123456789abcdef"


def made() -> EvalSet:
    """A generated task through two filters, choices, and rolled text; values exact in float32."""
    written = [
        EvalItem(
            task="add",
            filter=name,
            doc_id=doc,
            doc_hash=f"{doc + 1:016x}",
            prompt_hash=HASH,
            target_hash="f" * 16,
            scores={"exact_match": float(doc == 0)},
            response=("7", "8 é")[doc],
            answer=("7", "[invalid]" if name == "strict" else "8")[doc],
            target=("7", "9")[doc],
            token_ids=((55, 10), (56, 32, 300))[doc],
            finish=("stop", "length")[doc],
            prompt_tokens=5 + doc,
            prompt_tokens_hash=HASH,
            bos=1,
            truncated=False,
            arguments=HASH,
        )
        for name in ("strict", "loose")
        for doc in range(2)
    ]
    chosen = [
        EvalItem(
            task="choose",
            filter="none",
            doc_id=10 + doc,
            doc_hash=None,
            prompt_hash=None,
            target_hash=None,
            scores={"acc": math.inf, "acc_norm": 0.5},
            loglikelihoods=(-1.5, -0.25, -7.0)[: 2 + doc],
            greedy=(False, True, False)[: 2 + doc],
        )
        for doc in range(2)
    ]
    rolled = EvalItem("text", "none", 0, HASH, HASH, HASH, {}, (-33.5,), target="in the")
    tasks = {
        "add": EvalTask(
            name="add",
            version="1.0",
            fewshot=0,
            output_type="generate_until",
            filters=("strict", "loose"),
            metrics={"exact_match": True},
            docs=2,
            generation={"until": '["\\n"]'},
        ),
        "choose": EvalTask(
            name="choose",
            version="1.0",
            fewshot=2,
            filters=("none",),
            metrics={"acc": True, "acc_norm": True},
            docs=2,
            chance=0.4,
        ),
        "text": EvalTask(
            name="text", version="1.0", fewshot=0, filters=("none",), metrics={}, docs=1
        ),
    }
    return EvalSet(
        model="rocm",
        tasks=tasks,
        items=(*written, *chosen, rolled),
        requests=EvalRequests(asked=7, sent=5, cached=2, cache_key="a" * 64),
        bos_expected=1,
        settings={"chat_template": "none"},
        lost=("nothing of note",),
    )


def columns(evals: EvalSet) -> dict[str, Any]:
    return {part.entry.name.removeprefix("evals/"): part.array for part in encode_parts(evals)}


def test_what_goes_in_comes_out() -> None:
    evals = made()

    assert read_evals(b"".join(encode_head(evals)), columns(evals).get) == evals


def test_five_hundred_like_items_take_few_bytes() -> None:
    """Three hashes of 8 bytes are most of an item; equal columns have one entry."""
    items = tuple(
        EvalItem(
            "t", "none", n, f"{n + 1:016x}", f"{n + 7:016x}", HASH, {"acc": 1.0}, (-0.5,), (True,)
        )
        for n in range(500)
    )
    task = EvalTask(
        name="t", version="1", fewshot=0, filters=("none",), metrics={"acc": True}, docs=500
    )
    evals = EvalSet(model="m", tasks={"t": task}, items=items)

    assert sum(array.nbytes for array in columns(evals).values()) <= 500 * (8 + 8 + 4 + 1) + 64


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("0.scores", np.zeros((2, 1, 3), np.uint8), r"scores have the shape \(2, 1, 3\)"),
        ("0.tokens", np.zeros(9, np.int16), "5 entries are counted, 9 are there"),
        ("0.response.bytes", np.array([-5, 1], np.int16), "do not fit together"),
        ("0.finish", np.array([7], np.uint8), "do not fit together"),
        ("0.response", np.array([255, 1, 2, 3, 4], np.uint8), "do not fit together"),
        ("1.requests", np.array([2, 2], np.uint8), "4 entries are counted, 5 are there"),
        ("1.scores", None, "tensor evals/1.scores is missing"),
    ],
    ids=["items", "tokens", "negative", "finish", "utf8", "requests", "missing"],
)
def test_columns_that_do_not_fit_are_refused(name: str, array: Any, message: str) -> None:
    evals = made()
    held = columns(evals) | {name: array}

    with pytest.raises(Fault, match=message):
        read_evals(b"".join(encode_head(evals)), held.get)


def test_a_task_that_claims_more_items_than_it_holds_is_refused_before_it_is_sized() -> None:
    evals = made()
    tasks = {n: t.model_copy(update={"docs": 10**15}) for n, t in evals.tasks.items()}
    head = encode_head(EvalSet(model="m", tasks=tasks, items=evals.items))

    with pytest.raises(Fault, match="filters, metrics, items are"):
        read_evals(b"".join(head), columns(evals).get)


def test_filters_of_other_documents_are_refused() -> None:
    evals = made()
    first = evals.items[0]._replace(doc_id=5)

    with pytest.raises(Fault, match="'loose' and filter 'strict' hold other documents"):
        encode_parts(EvalSet(model="m", tasks=evals.tasks, items=(first, *evals.items[1:])))


def test_a_head_cut_short_is_refused() -> None:
    head = b"".join(encode_head(made()))

    with pytest.raises(Fault, match="cut short"):
        read_evals(head[:-5], columns(made()).get)
