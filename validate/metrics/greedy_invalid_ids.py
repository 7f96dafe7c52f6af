"""``greedy.invalid_ids``: emitted ids that no tokenizer can decode."""

from validate.metrics._divergence import stream_pairs
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["greedy_invalid_ids"]

NAME = "greedy.invalid_ids"


def greedy_invalid_ids(pair: Pair, levels: Levels) -> Measurement:
    """Count of emitted token ids below 0 or at or above the tokenizer's length, on both sides.

    The rows of the vocabulary above the tokenizer's length are padding that was never
    trained; a mask or a shard offset that is off by a little emits them.

    Args:
        pair: Both sides' greedy streams; the length is each side's own ``manifest.model``.
        levels: Not used: a count is deterministic.

    Returns:
        Measurement in tokens, ``n`` = emitted tokens of both sides; ``worst`` is the first one, of cand
        if cand has any. Undefined when a stream is missing or all are empty.

    Source:
        ``ModelIdentity.tokenizer_length``.
    """
    del levels
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return without_value(NAME, streams.reason, unit="tokens", n_of="tokens")
    found: dict[str, list[Worst]] = {"cand": [], "ref": []}
    for name, side in (("ref", pair.ref), ("cand", pair.cand)):
        length = side.manifest.model.tokenizer_length
        for one in streams.pairs:
            tokens = one.ref if name == "ref" else one.cand
            found[name] += [
                Worst(
                    prompt=one.prompt,
                    position=one.start + step,
                    place=f"stream step {step}, {name}",
                    value=float(token),
                    detail=f"{side.label} emitted {token}, tokenizer length {length}",
                )
                for step, token in enumerate(tokens)
                if not 0 <= token < length
            ]
    every = found["cand"] + found["ref"]
    return Measurement(
        metric=NAME,
        value=float(len(every)),
        unit="tokens",
        n=sum(len(one.ref) + len(one.cand) for one in streams.pairs),
        n_of="tokens",
        worst=every[0] if every else None,
        breakdown={name: float(len(places)) for name, places in found.items()},
    )
