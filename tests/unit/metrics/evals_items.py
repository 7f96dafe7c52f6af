"""Items of evals and pairs of them without any folder, to hold single rules against single numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes import FakeSide, digest, make_manifest
from validate.schema import Pair
from validate.schema.evals import EvalItem, EvalMatch, EvalPair, EvalSet, EvalTask

Changes = Mapping[str, Any]


def item(doc: int = 0, **changes: Any) -> EvalItem:
    """One item of task t: right, without text or log-likelihoods."""
    held = {
        "task": "t",
        "filter": "none",
        "doc_id": doc,
        "doc_hash": f"d{doc}",
        "prompt_hash": f"p{doc}",
        "target_hash": f"g{doc}",
        "scores": {"acc": 1.0},
        **changes,
    }
    return EvalItem(**held)


def items(columns: Sequence[Changes]) -> tuple[EvalItem, ...]:
    """One item a column, documents in order."""
    return tuple(item(doc, **changes) for doc, changes in enumerate(columns))


def eval_pair(
    ref: Sequence[Changes],
    cand: Sequence[Changes],
    *,
    name: str = "t",
    through: str = "none",
    **task: Any,
) -> EvalPair:
    """One task through one filter; ``task`` changes its head."""
    head = {
        "name": name,
        "version": "1",
        "fewshot": 0,
        "filters": (through,),
        "metrics": {"acc": True},
        "docs": len(ref),
        **task,
    }
    return EvalPair(task=EvalTask(**head), filter=through, ref=items(ref), cand=items(cand))


def eval_side(label: str, *, weights: str = "seed1", **changes: Any) -> FakeSide:
    """A side with evals alone, of any weights; ``changes`` are its ``EvalSet``'s."""
    manifest = make_manifest(label)
    model = manifest.model.model_copy(update={"weights_digest": digest(weights)})
    made = FakeSide(label, {}, manifest=manifest.model_copy(update={"model": model}))
    fields = {"model": label, "tasks": {}, "items": (), **changes}
    object.__setattr__(made, "evals", EvalSet(**fields))
    return made


def matched(*pairs: EvalPair, ref: Any = None, cand: Any = None) -> Pair:
    """Paired evals; two sides of the same weights where none are given."""
    made = Pair.__new__(Pair)
    fields: dict[str, Any] = {
        "evals": EvalMatch(pairs=pairs),
        "_cache": {},
        "ref": ref or eval_side("cuda"),
        "cand": cand or eval_side("rocm"),
    }
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made
