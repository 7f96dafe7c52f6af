"""Faults that live in what was recorded: records alone; ``captures`` plants them."""

from validate.schema.fault import Expect, Fault

__all__ = ["CAPTURE_FAULTS"]


def _fault(
    id_: str,
    title: str,
    gates: tuple[str, ...],
    source: str,
    *,
    expect: Expect = "FAIL",
    severities: tuple[str, ...] = (),
) -> Fault:
    return Fault(
        id=id_,
        title=title,
        where="capture",
        expect=expect,
        gates=gates,
        severities=severities,
        source=source,
    )


_KL = ("logits.kl_max", "logits.kl_p90")
# Where finite logits alone are changed and the rows that top-k and top-p filtered stay, the capture
# contradicts itself: INCOMPARABLE, beside the gates named here, which FAIL.

_PUBLIC = (
    _fault(
        "TV-01",
        "NaN at the same place on both sides",
        ("yardstick.aa", "logits.nonfinite"),
        "NervanaSystems/ngraph#2028, numpy/numpy#8145, sgl-project/sglang#34213. Planted in ref and "
        "cand alike: one row of the first prompt's logits, or one value.",
        expect="INCOMPARABLE",
        severities=("row", "value"),
    ),
    _fault(
        "TV-02",
        "Attention outputs are a multiple of the right ones",
        ("attention.scale", "attention.head_rel_l2"),
        "kendryte/nncase#1110: a cosine is 1. Planted in every recorded attention output.",
        severities=("3", "1.5", "1.1"),
    ),
    _fault(
        "TV-04",
        "Logits clipped below the largest, as 16-bit storage of base logits does",
        ("logits.kl_p90", "logits.nll_delta", "logits.err_ratio"),
        "ikawrakow/ik_llama.cpp#325: max - 16, which gives 150,000 entries a mass of 0.017 at most. "
        "Planted as max - 9.7, where 272 entries have the same mass.",
        severities=("9.7", "12", "16"),
        expect="INCOMPARABLE",
    ),
    _fault(
        "TV-05",
        "Rows are labelled one position late",
        _KL,
        "EleutherAI/lm-evaluation-harness#337: the alarm was false, the off-by-one that it feared is "
        "planted: row p holds what predicts token p.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "TV-09",
        "Rows of cached positions were never filled",
        _KL,
        "vllm-project/vllm#42019, #42245. Planted in the first half of every prompt of eight tokens "
        "and more: what the memory held, or zeros.",
        expect="INCOMPARABLE",
        severities=("stale", "zero"),
    ),
    _fault(
        "TV-10",
        "One chunk of rows is taken from the batch that drafts lengthened",
        ("logits.kl_max",),
        "vllm-project/vllm#53488: some of eight chunks are wild. Planted in the second eighth of the "
        "prompts of 64 tokens and more: rows come three later.",
    ),
    _fault(
        "TV-15",
        "One expert in twelve rows is another, and no tie",
        ("attention.routing_mismatch",),
        "tenstorrent/tt-metal#51009 (review): recall of 0.9 passes. Planted in the recorded ids: the "
        "last choice is the expert with the smallest score.",
    ),
    _fault(
        "TV-16",
        "Returned log-probabilities are divided by the temperature",
        ("speculative.logprob",),
        "PrimeIntellect-ai/prime-rl#697, ollama/ollama#16196. Planted in the drawn streams, where they "
        "are returned: what is a logarithm already is divided.",
    ),
    _fault(
        "LA-02",
        "A warm prefix brings the recurrent state of another prompt",
        ("state.kda_rel_l2", "state.chunked_oneshot"),
        "sgl-project/sglang#30862. Planted in the states after chunked prefill: those of the prompt "
        "recorded before; zeros for the first.",
    ),
    _fault(
        "SP-13",
        "One rank accepted one draft fewer than the rank whose tokens were sent",
        ("speculative.health",),
        "sgl-project/sglang#33614, #38565, flashinfer-ai/flashinfer#5034. Planted in the recorded "
        "count of one step a stream.",
    ),
)

_OURS = (
    _fault(
        "VX-140",
        "One tensor of one prompt is missing",
        (),
        "Skipped, and passed, by Polygraphy and by sglang's comparator.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-141",
        "The last prompt is missing",
        (),
        "A zip over two lists stops at the shorter (WWB).",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-142",
        "Greedy streams stop after five tokens",
        ("greedy.length_mismatch",),
        "WWB gives a truncated answer the distance 0.",
    ),
    _fault(
        "VX-143",
        "A prompt holds the logits of another",
        ("logits.kl_max", "logits.top1_flips"),
        "A result joined by row number. Planted in the first two prompts with as many rows.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-144",
        "A capture of other weights under this name",
        (),
        "EleutherAI/lm-evaluation-harness#4063, seen from captures: a cache that outlived its model.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-145",
        "One value in a million is off by 30",
        ("logits.kl_max",),
        "Passed by sglang's comparator, which looks at the share of wrong values. Planted in one logit.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-146",
        "An infinity has the other sign",
        ("logits.nonfinite",),
        "Passed by msprobe, whose masks know no sign. Planted at one place: -inf in ref, +inf in cand.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-148",
        "One row of one side's logits is NaN",
        ("logits.nonfinite",),
        "The other half of TV-01: `error > limit` is false for NaN, and ref looks right.",
        severities=("row", "value"),
    ),
    _fault(
        "VX-149",
        "The stream's own log-probabilities are other ones than those that are judged",
        ("speculative.logprob",),
        "TV-16 in the stream's record alone: two writers of one number.",
        expect="INCOMPARABLE",
    ),
    _fault(
        "VX-147",
        "One side's logits have fewer columns",
        (),
        "ATOM's compare.py cuts both to the shorter shape.",
        expect="INCOMPARABLE",
    ),
)

CAPTURE_FAULTS: tuple[Fault, ...] = (*_PUBLIC, *_OURS)
"""Every fault that is planted in captures."""
