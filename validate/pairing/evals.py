"""Evals of two sides, joined item by item: by document and prompt hash, never by row number."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from validate.pairing._reasons import cut
from validate.schema import Pair, Side
from validate.schema.evals import EvalItem, EvalMatch, EvalPair, EvalSet, EvalTask, evals_of

__all__ = ["match_evals", "pair_evals"]

Key = tuple[object, ...]
UNSET = "(unset)"
CUT = 60
"""Letters shown of a setting; configurations can be long."""
ALL_ITEMS = "run all tasks without --limit, or both sides with the same --limit"


def pair_evals(
    ref: Side,
    cand: Side,
    *,
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    near_tie: float,
    route_gap: float,
) -> Pair:
    """Match two sides by their evals alone, for suites that judge nothing else.

    Prompts, tensors and streams are not looked at: an lm-eval folder has none.

    Args:
        ref: The run compared against.
        cand: The run under judgement.
        oracle: Ignored, as weights and config are; the signature is that of ``pair``.
        weights: Ignored.
        config: Ignored.
        near_tie: Passed through.
        route_gap: Passed through.

    Returns:
        A pair without prompts.
    """
    del oracle, weights, config
    return Pair(
        ref=ref,
        cand=cand,
        prompts=(),
        near_tie=near_tie,
        route_gap=route_gap,
        evals=match_evals(ref, cand),
    )


def match_evals(ref: Side, cand: Side) -> EvalMatch:
    """Join the evals of two sides.

    An item is known by document and prompt hash, and by doc_id where either side's samples lack
    hashes. Items that a data set holds twice are joined in the order of their doc_ids.

    Args:
        ref: The run compared against.
        cand: The run under judgement.

    Returns:
        The pairs, or every reason why there are none.
    """
    sides = [(role, side, evals_of(side)) for role, side in (("ref", ref), ("cand", cand))]
    without = [f"{role} '{side.label}'" for role, side, held in sides if held is None]
    if without:
        missing = f"no evals in {' and '.join(without)}; next: validate eval"
        return EvalMatch(missing=missing)
    a, b = sides[0][2], sides[1][2]
    if a is None or b is None:  # for the type checker; ``without`` has named them
        return EvalMatch(missing="no evals")
    reasons = _setting_reasons(a, b) + _task_reasons(a, b)
    if reasons:
        return EvalMatch(reasons=tuple(reasons))
    pairs: list[EvalPair] = []
    held = _by_task(a), _by_task(b)
    for name, task in a.tasks.items():
        for label in task.filters:
            one, two = held[0][name, label], held[1][name, label]
            if a is b:
                same = tuple(one)
                pairs.append(EvalPair(task=task, filter=label, ref=same, cand=same))
            else:
                pairs += _join(task, label, one, two, reasons.append)
    if reasons:
        return EvalMatch(reasons=tuple(reasons))
    return EvalMatch(pairs=tuple(pairs), same=a is b)


def _by_task(evals: EvalSet) -> Mapping[tuple[str, str], list[EvalItem]]:
    held: dict[tuple[str, str], list[EvalItem]] = defaultdict(list)
    for item in evals.items:
        held[item.task, item.filter].append(item)
    return held


def _setting_reasons(ref: EvalSet, cand: EvalSet) -> list[str]:
    a, b = ref.settings, cand.settings
    return [
        f"{key}: ref {a.get(key, UNSET)}, cand {b.get(key, UNSET)}"
        for key in sorted({*a, *b})
        if a.get(key) != b.get(key)
    ]


def _task_reasons(ref: EvalSet, cand: EvalSet) -> list[str]:
    reasons = []
    for one, other, role in ((ref, cand, "ref"), (cand, ref, "cand")):
        alone = [name for name in one.tasks if name not in other.tasks]
        if alone:
            reasons.append(f"tasks only in {role}: {cut(alone)}")
    both = [(task, cand.tasks[name]) for name, task in ref.tasks.items() if name in cand.tasks]
    uneven = [task.name for task, other in both if task.docs != other.docs]
    for task, second in both:
        reasons += _differences(task, second, told=task.name not in uneven[:1])
    return reasons


def _differences(ref: EvalTask, cand: EvalTask, *, told: bool) -> list[str]:
    """What one task was run with on either side, where it differs; the next step unless ``told``."""
    facts: list[tuple[str, object, object]] = [
        ("version", ref.version, cand.version),
        ("few-shot count", ref.fewshot, cand.fewshot),
        ("filters", ", ".join(sorted(ref.filters)), ", ".join(sorted(cand.filters))),
        ("output type", ref.output_type, cand.output_type),
        ("metrics", ", ".join(sorted(ref.metrics)), ", ".join(sorted(cand.metrics))),
        ("number of items", ref.docs, cand.docs if told else f"{cand.docs} (do next: {ALL_ITEMS})"),
    ]
    facts += [
        (
            f"generation argument {key}",
            ref.generation.get(key, UNSET),
            cand.generation.get(key, UNSET),
        )
        for key in sorted({*ref.generation, *cand.generation})
    ]
    facts += _directions(ref, cand)
    if ref.config and cand.config:
        facts += [
            (key, *_cut_both(ref.config.get(key, UNSET), cand.config.get(key, UNSET)))
            for key in sorted({*ref.config, *cand.config})
        ]
    return [
        f"task {ref.name}, {what}: ref {one}, cand {two}" for what, one, two in facts if one != two
    ]


def _directions(ref: EvalTask, cand: EvalTask) -> list[tuple[str, object, object]]:
    """Of each metric whether higher is better; what is not said counts as higher."""
    words = {True: "true", False: "false", None: UNSET}
    return [
        (f"metric {name}, higher_is_better", words[better], words[other])
        for name, better in sorted(ref.metrics.items())
        for other in [cand.metrics.get(name, better)]
        if (better is False) != (other is False)
    ]


def _cut_both(ref: str, cand: str) -> tuple[str, str]:
    """Two texts cut short, around the place where they part."""
    if ref == cand or max(len(ref), len(cand)) <= CUT:
        return ref, cand
    part = next((at for at, (a, b) in enumerate(zip(ref, cand, strict=False)) if a != b), 0)
    start = part - CUT // 4
    one, two = [
        f"{'…' if start > 0 else ''}{text[max(0, start) : start + CUT]}"
        f"{'…' if len(text) > start + CUT else ''}"
        for text in (ref, cand)
    ]
    return one, two


def _join(
    task: EvalTask,
    label: str,
    ref: Sequence[EvalItem],
    cand: Sequence[EvalItem],
    tell: Callable[[str], None],
) -> list[EvalPair]:
    """The two columns of one task in one order; reasons go to ``tell``."""
    where = f"task {task.name}" if label == "none" else f"task {task.name}, filter {label}"
    hashed = all(item.doc_hash and item.prompt_hash for side in (ref, cand) for item in side)
    key = _by_hash if hashed else _by_row
    held = _keyed(cand, key)
    first = _keyed(ref, key)
    only_ref = [item for name, item in first.items() if name not in held]
    only_cand = [item for name, item in held.items() if name not in first]
    if only_ref or only_cand:
        tell(f"{where}: {_unpaired(only_ref, only_cand)}")
        return []
    second = [held[name] for name in first]
    told = _item_reasons(where, list(first.values()), second)
    for reason in told:
        tell(reason)
    if told:
        return []
    return [EvalPair(task=task, filter=label, ref=tuple(first.values()), cand=tuple(second))]


def _by_hash(item: EvalItem) -> Key:
    return (item.doc_hash, item.prompt_hash)


def _by_row(item: EvalItem) -> Key:
    return (item.doc_id,)


def _keyed(items: Iterable[EvalItem], key: Callable[[EvalItem], Key]) -> dict[Key, EvalItem]:
    """Items by key; the second of a kind has a number more in its key."""
    found: dict[Key, EvalItem] = {}
    for item in items:
        name = key(item)
        again = 1
        while name in found:
            again += 1
            name = (*key(item), again)
        found[name] = item
    return found


def _unpaired(only_ref: Sequence[EvalItem], only_cand: Sequence[EvalItem]) -> str:
    """Items without a partner: another prompt of the same document, or another document."""
    prompts = {item.doc_hash: item for item in only_cand if item.doc_hash is not None}
    asked = [item for item in only_ref if item.doc_hash in prompts]
    if asked:
        first = asked[0]
        return (
            f"{len(asked)} documents were asked with another prompt, e.g. doc_id {first.doc_id} "
            f"(prompt hash ref {first.prompt_hash}, cand {prompts[str(first.doc_hash)].prompt_hash}): "
            "other few-shot examples, another template or other seeds"
        )
    parts = [
        f"{len(items)} items only in {role}, e.g. doc_id {items[0].doc_id}"
        for role, items in (("ref", only_ref), ("cand", only_cand))
        if items
    ]
    return "; ".join(parts)


def _item_reasons(where: str, ref: Sequence[EvalItem], cand: Sequence[EvalItem]) -> list[str]:
    """Targets and generation arguments that differ between paired items."""
    both = list(zip(ref, cand, strict=True))
    told = _unhashed(where, both)
    hashed = [] if told else both
    for what, differ in (
        ("another target", [(a, b) for a, b in hashed if a.target_hash != b.target_hash]),
        (
            "other generation arguments (stop strings, token budget, temperature)",
            [(a, b) for a, b in both if a.arguments != b.arguments],
        ),
        (
            "another number of requests",
            [(a, b) for a, b in both if len(a.loglikelihoods) != len(b.loglikelihoods)],
        ),
    ):
        if differ:
            told.append(
                f"{where}: {len(differ)} of {len(both)} items have {what}, e.g. doc_id "
                f"{differ[0][0].doc_id}"
            )
    return told


def _unhashed(where: str, both: Sequence[tuple[EvalItem, EvalItem]]) -> list[str]:
    """Hashes that one side's samples lack: its targets cannot be compared, equal or not."""
    lacking = {
        "ref": sum(a.target_hash is None and b.target_hash is not None for a, b in both),
        "cand": sum(b.target_hash is None and a.target_hash is not None for a, b in both),
    }
    return [
        f"{where}: {role} has no hashes for {count} of {len(both)} items that the other side has, so "
        f"prompts and targets cannot be compared (do next: run {role} once more with --log_samples by "
        "an lm-eval that writes doc_hash, prompt_hash and target_hash)"
        for role, count in lacking.items()
        if count
    ]
