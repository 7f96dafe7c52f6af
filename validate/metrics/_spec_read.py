"""Reading the ``speculative`` artifact of one side, and the reasons not to judge it."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._spec_books import (
    STEP_NAMES,
    TOKEN_NAMES,
    books_problem,
    columns_problem,
)
from validate.metrics._spec_streams import Drawn, SpecSide, Steps, Tokens, label_number
from validate.schema import Pair, Side, Stream

__all__ = ["KINDS", "spec_side"]

KINDS = ("sampled", "spec-greedy", "spec-sampled")
RELAXED = (
    "SGLANG_SIMULATE_ACC_LEN",
    "ATOM_ENABLE_RELAXED_MTP",
    "spec-decode-acceptance-length",
    "spec_decode_acceptance_length",
    "synthetic_acceptance",
    "synthetic-acceptance",
    "simulate_acc_len",
    "simulate-acc-len",
    "relaxed_acceptance",
    "typical_acceptance",
)
"""Settings that make acceptance up, or accept what the law forbids."""
THRESHOLDS = (
    "speculative_accept_threshold_single",
    "speculative-accept-threshold-single",
    "speculative_accept_threshold_acc",
    "speculative-accept-threshold-acc",
)
"""Settings that relax acceptance where they are below 1."""
OFF = ("", "0", "0.0", "off", "false", "none", "no")
EOS = 257
WRITTEN = 1e-4
"""Nats; streams are written with five decimals."""

SAME_LAW = 1e-3
"""Largest difference of a token's chance under two equal laws, rounded otherwise."""
FREE = 30.0
"""Nats of surprisal of a stream: another prompt draws the very same less than once in 10^13."""

Array = NDArray[Any]


class _Common(NamedTuple):
    """What all rows of a stream share."""

    place: int
    temperature: float
    group: int
    label: int
    batch_row: int


def spec_side(pair: Pair, side: Side) -> SpecSide:
    """The drawn streams of ``side`` on the pair's prompts, read once.

    Args:
        pair: Whose prompts.
        side: Ref or cand.
    """
    label = ",".join(pair.prompts)
    return pair.once_a_side(side, f"spec streams {label}", lambda: _read(pair.prompts, side))


def _read(prompts: Sequence[str], side: Side) -> SpecSide:
    manifest = side.manifest
    streams = getattr(side, "drawn", {})
    kinds: dict[str, Drawn] = {}
    why = _declared(side)
    for kind in KINDS:
        held = [p for p in prompts if f"spec.{kind}.tokens" in side.names(p)]
        if not held:
            continue
        if cut := columns_problem(side, kind, held):
            kinds, why = {}, cut
            break
        wanted = streams.get(kind, {})
        why = why or _unfit(side, kind, held, wanted)
        kinds[kind] = _kind(side, kind, tuple(prompts), held, wanted)
        why = why or _repeated(side.label, kind, kinds[kind], prompts)
    digest = manifest.digest or manifest.sources_digest
    return SpecSide(
        label=side.label,
        key=int(digest[:16], 16),
        prompts=tuple(prompts),
        kinds=kinds,
        rule=manifest.options.get("verifier", "chain"),
        refusal=why,
        vocab=manifest.model.vocab_size,
    )


def _repeated(label: str, kind: str, drawn: Drawn, prompts: Sequence[str]) -> str | None:
    """Two prompts whose draws are one and the same, though their laws are not."""
    seen: dict[tuple[int, ...], tuple[int, Array]] = {}
    for place in np.unique(drawn.tokens.prompt):
        mine = drawn.tokens.where(drawn.tokens.prompt == place)
        with np.errstate(divide="ignore", invalid="ignore"):
            surprisal = float(np.nansum(np.where(mine.p > 0, -np.log(mine.p), 0.0)))
        if not (surprisal >= FREE):
            continue
        ids = tuple(int(token) for token in mine.token)
        other, p = seen.setdefault(ids, (int(place), mine.p))
        if other != int(place) and not (float(np.max(np.abs(p - mine.p))) <= SAME_LAW):
            return (
                f"{label}: prompts {prompts[other]} and {prompts[int(place)]} hold the same "
                f"{len(ids)} tokens ({kind}) under unlike laws (chance below e^-{FREE:.0f}): "
                "samples must be independent; capture one of them again"
            )
    return None


def _declared(side: Side) -> str | None:
    """Acceptance that was simulated or relaxed, by the capture's own word."""
    made = side.manifest
    said = {**made.options, **made.provenance.engine_args, **made.provenance.environment}
    for name, value in said.items():
        bare = name.lstrip("-")
        if bare in RELAXED and str(value).lower() not in OFF:
            return (
                f"{side.label} ran with {name} = {value}: acceptance was simulated or relaxed, so "
                "its streams are no samples of the model; capture it without"
            )
        if bare in THRESHOLDS and _below_one(value):
            return (
                f"{side.label} ran with {name} = {value}: acceptance was relaxed, so its streams "
                "are no samples of the model; capture it with 1"
            )
    return None


def _below_one(value: str) -> bool:
    try:
        return not float(value) >= 1
    except ValueError:
        return True


def _unfit(side: Side, kind: str, held: Sequence[str], streams: Any) -> str | None:
    """What makes a right sampler fail: a shared seed, a stripped stop token, a dropped position."""
    seen: dict[int, str] = {}
    for prompt in held:
        stream = streams.get(prompt)
        if stream is None or stream.params is None:
            what = "no stream of that kind" if stream is None else "its stream has no params"
            return (
                f"{side.label} holds {prompt}/spec.{kind} and {what}, so neither "
                "seed nor parameters are known"
            )
        seed = stream.params.seed
        if seed is not None and seed in seen:
            return (
                f"{side.label}: prompts {seen[seed]} and {prompt} share the seed {seed} "
                f"({kind}); samples must be independent, so give each its own"
            )
        if seed is not None:
            seen[seed] = prompt
        if why := _cut(side, kind, prompt, stream):
            return why
    return None


def _cut(side: Side, kind: str, prompt: str, stream: Stream) -> str | None:
    tokens = side.tensor(prompt, f"spec.{kind}.tokens")
    if len(tokens) != len(stream.token_ids):
        return (
            f"{side.label}: {prompt}/spec.{kind}.tokens holds {len(tokens)} tokens, its stream "
            f"{len(stream.token_ids)}: a position was dropped; write both from one array"
        )
    unlike = np.flatnonzero(tokens != np.asarray(stream.token_ids))
    if unlike.size:
        at = int(unlike[0])
        return (
            f"{side.label}: {prompt}/spec.{kind}.tokens holds {int(tokens[at])} at token {at}, its "
            f"stream {stream.token_ids[at]} ({unlike.size} of {len(tokens)} tokens differ): write "
            "both from one array"
        )
    if stream.finish_reason == "stop" and (not len(tokens) or int(tokens[-1]) != EOS):
        return (
            f"{side.label}: the {kind} stream of {prompt} stopped and its stop token is not there; "
            "stripping it makes a right sampler fail: capture with ignore_eos, or keep it"
        )
    return books_problem(side, kind, prompt) or _told_twice(side, kind, prompt, stream)


def _told_twice(side: Side, kind: str, prompt: str, stream: Stream) -> str | None:
    """A log-probability that was returned is the one that is judged, but for decimals in JSON."""
    name = f"spec.{kind}.logprob"
    if name not in side.names(prompt) or not stream.logprobs:
        return None
    judged = side.tensor(prompt, name).astype(np.float32)
    told = np.array([np.nan if x is None else x for x in stream.logprobs], np.float32)
    if len(told) != len(judged):
        return (
            f"{side.label}: {prompt} {kind}: {len(told)} log-probabilities in the stream, "
            f"{len(judged)} in {name}: write both from one array"
        )
    with np.errstate(invalid="ignore"):
        same = (np.abs(told - judged) <= WRITTEN) | (np.isnan(told) & ~np.isfinite(judged))
    if same.all():
        return None
    at = int(np.flatnonzero(~same)[0])
    return (
        f"{side.label}: {prompt} {kind}: token {at} was returned with the log-probability "
        f"{told[at]:.6g}, and {name} holds {judged[at]:.6g}: one of them is no log-probability of "
        "this path; write both from one array"
    )


def _kind(
    side: Side, kind: str, prompts: tuple[str, ...], held: Sequence[str], streams: Any
) -> Drawn:
    params = {p: _params(streams.get(p)) for p in held}
    groups = tuple(dict.fromkeys(words for _, words in params.values()))
    tokens, steps = [], []
    for prompt in held:
        place, (temperature, words) = prompts.index(prompt), params[prompt]
        row = streams[prompt].batch_row if prompt in streams else 0
        common = _Common(
            place, temperature, groups.index(words), label_number(f"{prompt}/{kind}"), row
        )
        tokens.append(_tokens(side, kind, prompt, common))
        if f"spec.{kind}.count" in side.names(prompt):
            steps.append(_steps(side, kind, prompt, common))
    return Drawn(
        kind=kind,
        tokens=Tokens(**_joined(tokens)),
        steps=Steps(**_joined(steps)) if steps else None,
        groups=groups,
    )


def _params(stream: Stream | None) -> tuple[float, str]:
    """Temperature, and all parameters but the seed in words."""
    if stream is None or stream.params is None:
        return float("nan"), "not known"
    said = stream.params.model_dump(exclude={"seed"}, exclude_defaults=True)
    said["temperature"] = stream.params.temperature
    return stream.params.temperature, json.dumps(said, sort_keys=True)


def _joined(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _tokens(side: Side, kind: str, prompt: str, common: "_Common") -> dict[str, Array]:
    ids = side.tensor(prompt, f"spec.{kind}.tokens").astype(np.int64)
    found = {"token": ids, **_tensors(side, kind, prompt, TOKEN_NAMES)}
    index = np.arange(len(ids))
    return {
        **found,
        **_common(common, len(ids)),
        "index": index,
        "position": index + side.prompts[prompt].prompt_length,
    }


def _steps(side: Side, kind: str, prompt: str, common: "_Common") -> dict[str, Array]:
    found = _tensors(side, kind, prompt, STEP_NAMES)
    count = len(found["count"])
    return {
        **found,
        **_common(common, count),
        "step": np.arange(count),
        "batch_row": np.full(count, common.batch_row),
    }


def _common(common: "_Common", rows: int) -> dict[str, Array]:
    return {
        "prompt": np.full(rows, common.place),
        "temperature": np.full(rows, common.temperature),
        "group": np.full(rows, common.group),
        "label": np.full(rows, common.label),
    }


def _tensors(side: Side, kind: str, prompt: str, names: Sequence[str]) -> dict[str, Array]:
    found = {}
    for name in names:
        array = side.tensor(prompt, f"spec.{kind}.{name}")
        wide = np.float64 if array.dtype.kind == "f" else np.int64
        found[name] = array.astype(wide)
    return found
