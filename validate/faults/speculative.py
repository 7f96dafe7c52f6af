"""Faults of sampling and of speculative decoding, and the controls that must pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from validate.schema.fault import Expect, Fault

__all__ = [
    "SPECULATIVE_CONTROLS",
    "SPECULATIVE_FAULTS",
    "SPECULATIVE_SAMPLES",
    "Prompts",
    "Sample",
    "SpeculativeControl",
]

Prompts = Literal["default", "all", "random", "long"]


def _fault(
    fault: str, title: str, gates: tuple[str, ...], source: str, *, expect: Expect = "FAIL"
) -> Fault:
    return Fault(
        id=fault,
        title=title,
        where="cand",
        expect=expect,
        gates=tuple(f"speculative.{gate}" for gate in gates),
        source=source,
    )


_LAW = ("uniform", "surprisal")
"""Gates that see another law than the requested one."""
_SUPPORT = ("support",)
"""Sees tokens outside the requested law, however few."""
_COIN = ("acceptance_z",)
_DRAFTER = ("acceptance_delta",)
_STATE = ("audit",)

_SAMPLING = (
    _fault(
        "SA-01",
        "Verification commits the argmax at every temperature",
        (*_LAW, *_COIN),
        "sgl-project/sglang#31214 and #37134: the platform stands in the same condition as 'the "
        "batch is all greedy'. Planted where the target's law is handed to the verifier: every "
        "row's law is all on its largest logit. The branch that is proved stays the same, and "
        "every greedy stream stays right.",
    ),
    _fault(
        "VX-10",
        "Temperature not applied",
        _SUPPORT,
        "Sampler-order faults of sgl-project/sglang-jax#1563. Planted in the division of the "
        "logits: every sampled request runs at T = 1.",
    ),
    _fault(
        "VX-11",
        "Temperature applied twice",
        _SUPPORT,
        "Logits scaled before the sampler and once more inside it. Planted in the division.",
    ),
    _fault(
        "VX-12",
        "Top-k dropped",
        _SUPPORT,
        "The parameter does not reach the op (sgl-project/sglang#32569: an op bound to None). "
        "Planted where k is read: the whole vocabulary is kept.",
    ),
    _fault(
        "VX-13",
        "Top-p dropped",
        _SUPPORT,
        "As VX-12, for p; min_p under speculation was lost so in sgl-project/sglang#36173. "
        "Planted where p is read: 1.",
    ),
    _fault(
        "VX-14",
        "Ties at the edge kept by another rule than the one declared",
        _SUPPORT,
        "vllm-project/vllm#15478, pytorch#150012: threshold and topk keep other sets. Planted in "
        "the sparse build, which declares exactly k: entries that tie with the last stay.",
    ),
    _fault(
        "VX-19",
        "The same random number at every step",
        ("serial", *_LAW),
        "A captured graph that does not advance its generator. Planted in the counter of the "
        "request's numbers: it starts anew at every step.",
    ),
    _fault(
        "SA-13",
        "A request's seed is ignored when a batchmate has none",
        ("replay",),
        "vllm-project/vllm#51226. Planted where numbers are made: if any request of the batch "
        "has no seed, all draw from one generator; the law stays right.",
    ),
    _fault(
        "VX-20",
        "One seed shared by all requests of a batch",
        ("replay",),
        "A per-batch seed where one a request is asked for; close to SA-13. Planted where seeds "
        "are read: all are the first one's.",
    ),
    _fault(
        "VX-40",
        "The mask of greedy requests is left over from another batch",
        _LAW,
        "Close to SA-01, for a share of tokens: the condition is read from a buffer that was not "
        "written for this batch. Planted where the target's law is made: three rows in ten, "
        "whatever was asked for, have all mass on their largest logit, which is the effect that "
        "speculative.uniform must see.",
    ),
)

_DRAFTING = (
    _fault(
        "SP-02",
        "Draft block seeded one position early",
        _DRAFTER,
        "ikawrakow/ik_llama.cpp#2296: the position of the last committed feature, not of the "
        "newest token. Planted in the rotary positions of the block.",
    ),
    _fault(
        "SP-03",
        "Positions advanced before the draft pass, not after it",
        _DRAFTER,
        "sgl-project/sglang#25015. Planted in the rotary positions of the block: one late.",
    ),
    _fault(
        "SP-05",
        "Drafter fed another hidden stream",
        _DRAFTER,
        "vllm-project/vllm#56434: prefix sum and normed mixture mixed up on one platform. "
        "Planted in the taps: the mixture before attention in place of the running prefix.",
    ),
    _fault(
        "SP-06",
        "Drafter fed other layers",
        _DRAFTER,
        "vllm-project/vllm#50170: the heuristic (2, n/2, n-3) in place of the trained layers. "
        "Planted in the taps.",
    ),
    _fault(
        "SP-09",
        "Drafts drawn without the temperature that the ratio uses",
        ("surprisal",),
        "deepseek-ai/DeepSpec#31 and the review of mlx-node#11: the proposal's law and the q of "
        "the ratio come from different code. Planted where drafts are drawn: at T = 1.",
        expect="INCONCLUSIVE",
    ),
    _fault(
        "VX-22",
        "Drafts drawn from bfloat16 logits, the ratio computed in float32",
        ("support", *_COIN),
        "deepseek-ai/DeepSpec#31, literally. Planted where drafts are drawn: the total variation is "
        "about 0.01, but a draft at T = 0 that its law gives no chance is accepted.",
    ),
    _fault(
        "VX-21",
        "A confidence cut that reads the token it decides on",
        _COIN,
        "Confidence-scheduled verification is lossless only if the cut is predictable. Planted in "
        "the cut: the drafted token's own probability decides.",
    ),
)

_VERIFYING = (
    _fault(
        "SP-07",
        "A mismatch is answered by a fresh draw",
        ("surprisal",),
        "ml-explore/mlx-swift-lm#459. Planted in exact-match verification: on a mismatch the "
        "target's own draw is thrown away and another is taken.",
    ),
    _fault(
        "SP-10",
        "Row i gets row 0's runner-up",
        ("greedy_unexplained",),
        "antirez/ds4#358: the top n of one row asked for in place of the top 1 of n rows. "
        "Planted in the greedy requests' rows of the verify window.",
    ),
    _fault(
        "SP-11",
        "Log-probabilities under speculation are constant",
        ("logprob",),
        "ggml-org/llama.cpp#27972, vllm-project/vllm#17876. Planted where they are returned: 0.",
    ),
    _fault(
        "VX-15",
        "The residual is replaced by p",
        ("uniform",),
        "Close to SP-09: the replacement drawn from p counts the accepted part twice. Planted "
        "where the weights after a rejection are made.",
    ),
    _fault(
        "VX-16",
        "The bonus token is drawn from the row of the last draft",
        ("support", "greedy_unexplained"),
        "Off-by-one of the row index after a full block. Planted where the final row is read.",
    ),
)

_STATES = (
    _fault(
        "LA-05",
        "Recurrent state is not rolled back",
        _STATE,
        "ml-explore/mlx-lm#1109: trim is a no-op on caches that cannot be trimmed. Planted in "
        "the commit: state and history stay as after the whole window.",
    ),
    _fault(
        "VX-17",
        "Recurrent state rolled back to the wrong step",
        _STATE,
        "Snapshots counted from 0, accepted tokens from 1. Planted in the snapshot's index.",
    ),
    _fault(
        "LA-03",
        "Accepted count clamped to the conv history's length",
        _STATE,
        "xLLM-AI/xllm#2247. Planted in the commit: more than three committed tokens count as three.",
    ),
    _fault(
        "VX-18",
        "Conv history keeps the rejected drafts",
        _STATE,
        "Close to LA-05: only the recurrent state is rolled back. Planted in the history's index.",
    ),
    _fault(
        "SP-01",
        "Verify window wider than the write window",
        (*_STATE, "verify_kl"),
        "sgl-project/sglang#32183: a write plan for 4 rows under a window of 8. Planted in the "
        "commit of the latent caches: rows behind the fourth hold what lay there before.",
    ),
    _fault(
        "SP-14",
        "Draft tokens see the future in the verify mask",
        ("verify_kl",),
        "vllm-project/vllm#45227: metadata sized for one query. Planted in the mask: every row "
        "of a window has the bound of its last.",
    ),
)

SPECULATIVE_FAULTS: tuple[Fault, ...] = (*_SAMPLING, *_DRAFTING, *_VERIFYING, *_STATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a selftest draws to see a fault or to spare a control, where default captures differ."""

    tokens: int | None = None
    """Tokens of every sampled stream; None: the target's own number."""
    prompts: Prompts = "default"
    """``default``: those of the suite that are drawn from; ``all``: every prompt of the suite, drawn
    from; ``random``: prompts of random bytes; ``long``: prompts of 1,000 tokens. No golden holds the
    latter three, so ref runs here."""
    ref: str | None = None
    """What stands in for ref, run here."""
    effects: Mapping[str, float] = field(default_factory=dict)
    """Gate to the fault's own size in the gate's unit, where it is below what the suite states."""


SPECULATIVE_SAMPLES: Mapping[str, Sample] = {
    # One token in 500 falls outside the law; 4,096 tokens of a kind hold one but for e^-8.
    "VX-12": Sample(tokens=256),
    # One token in 4,000.
    "VX-14": Sample(tokens=512),
    # 0.14 of the tokens drawn from the argmax, 0.11 and 0.17 of the inverse temperature.
    "VX-19": Sample(tokens=256),
    # 0.09 of the tokens drawn from the argmax, 0.10 of the inverse temperature.
    "SP-07": Sample(tokens=512),
    # 0.035 of the inverse temperature over 16,384 tokens, their sign by the request's temperature.
    "SP-09": Sample(effects={"speculative.surprisal": 0.035}),
    # The error grows with the position: 0.002 of a rotated vector at 10, 0.04 at 94, 0.4 at 1,000.
    "LC-07": Sample(tokens=32, prompts="long"),
    # Sixteen prompts are too few for a median of this spread.
    **dict.fromkeys(
        ("SP-02", "SP-03", "SP-05", "SP-06", "SP-12", "ND-04"), Sample(tokens=32, prompts="all")
    ),
}
"""Faults that a default capture is too short or too narrow for, with what is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeControl:
    """A path that differs legitimately; every gate of the area must pass it."""

    id: str
    """``OK-n`` of the public list, else ``VX-nn``."""
    title: str
    target: str
    """What is compared with the reference."""
    source: str
    sample: Sample = field(default_factory=Sample)


SPECULATIVE_CONTROLS: tuple[SpeculativeControl, ...] = (
    SpeculativeControl(
        id="OK-2",
        title="Greedy streams part at near-ties under batched verification",
        target="rocm",
        source="antirez/ds4#658: a window of eight rows sums in another order than one row.",
    ),
    SpeculativeControl(
        id="OK-3",
        title="Exact-match verification that emits the target's own draw",
        target="rocm:verifier=exact_match",
        sample=Sample(tokens=32, prompts="all"),
        source="See SP-07: low acceptance, exact law.",
    ),
    SpeculativeControl(
        id="OK-4",
        title="One-hot proposals",
        target="rocm:draft=onehot",
        sample=Sample(tokens=32, prompts="all", ref="reference:draft=onehot"),
        source="vllm-project/vllm#16899 and #40651: accepted with p(x), else p without x.",
    ),
    SpeculativeControl(
        id="OK-10",
        title="Low acceptance that comes from the prompts",
        target="rocm",
        sample=Sample(tokens=32, prompts="random"),
        source="vllm-project/vllm#42704: random data lowers acceptance on both sides.",
    ),
    SpeculativeControl(
        id="VX-23",
        title="A cut by confidence that looks at the prefix and earlier drafts alone",
        target="rocm:cut=0.3",
        source="Confidence-scheduled verification of DSpark; the right form of VX-21.",
    ),
    SpeculativeControl(
        id="VX-24",
        title="Verification by the target's probability alone",
        target="rocm:verifier=target_only",
        source="Accept with p(x), else p without x: SGLang's threshold-free target-only rule.",
    ),
)
