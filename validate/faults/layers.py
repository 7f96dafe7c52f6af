"""Faults inside a layer, of the drafter's arithmetic, and of the reference itself."""

from validate.schema.fault import Expect, Fault, Where

__all__ = ["LAYER_FAULTS"]


def _fault(
    fault: str,
    title: str,
    gates: tuple[str, ...],
    source: str,
    *,
    where: Where = "cand",
    expect: Expect = "FAIL",
) -> Fault:
    return Fault(id=fault, title=title, where=where, expect=expect, gates=gates, source=source)


_DECODE = ("attention.head_rel_l2", "attention.lse_abs", "greedy.unexplained")
_STATE = ("state.kda_rel_l2", "attention.head_rel_l2", "logits.kl_max")

LAYER_FAULTS = (
    _fault(
        "HD-08",
        "Decode of a layer without rotation drops the dimensions that rotation would take",
        _DECODE,
        "sgl-project/sglang#19324: absorbed decode of NoPE layers is lossy, prefill is right. Planted "
        "in the query of absorbed decode: its last dimensions are 0.",
    ),
    _fault(
        "QU-06",
        "The scale of a quantised key cache is applied to one that is not",
        _DECODE,
        "sgl-project/sglang#18396: scores times 0.06. Planted in the scale of absorbed decode.",
    ),
    _fault(
        "LA-01",
        "Recurrent state is read transposed from the second chunk on",
        _STATE,
        "vllm-project/vllm#41292: key and value widths are equal, so shape and norm are right. Planted "
        "where a chunk of prefill reads the state that the chunk before it left.",
    ),
    _fault(
        "LA-14",
        "Every piece of a chunked prefill starts from a recurrent state of zeros",
        ("state.kda_rel_l2", "state.chunked_oneshot", "logits.kl_max"),
        "vllm-project/vllm#52909, lablup/mlxcel#1749. Planted in the state that a pass of prefill "
        "reads: prompts within one pass are right.",
    ),
    _fault(
        "ND-06",
        "Rows that fill up a batch step the recurrent state of the request they were given",
        ("state.kda_rel_l2", "greedy.unexplained"),
        "local-inference-lab/vllm#621: one request alone is right. Planted in the mask of real tokens.",
    ),
    _fault(
        "ND-13",
        "The last slot of the residual bank is scratch after a prefix was put there",
        ("logits.kl_max", "logits.top1_flips"),
        "local-inference-lab/vllm#467. Planted behind the layer that fills the slot, in prefill: what "
        "stands before it is exact.",
    ),
    _fault(
        "MO-01",
        "The router's correction bias is stored in bfloat16",
        ("attention.routing_mismatch",),
        "sgl-project/sglang#31213, #37133: biases of about 7, where bfloat16 has steps of 1/32. "
        "Planted where the bias is read, raised by 7 as public ones are.",
    ),
    _fault(
        "MO-02",
        "Each of eight ranks adds the shared expert before the sum over ranks",
        ("attention.hidden_rel_l2", "logits.kl_max"),
        "sgl-project/sglang#31476, #35535, #26845. Planted in the sum of routed and shared output.",
    ),
    _fault(
        "QU-05",
        "Gate and up of the experts are stored in turns and read one after the other",
        ("attention.hidden_rel_l2", "logits.kl_max"),
        "sgl-project/sglang#26884, ROCm/ATOM#632. Planted in the rows of the experts' weights; the "
        "shared expert is right.",
    ),
    _fault(
        "SP-12",
        "The drafter's last residual is dropped before its final norm",
        ("speculative.acceptance_delta",),
        "vllm-project/vllm#14464, #14649. Planted in the last layer of the drafter's backbone.",
    ),
    _fault(
        "ND-04",
        "Drafts start from the token of the step before",
        ("speculative.acceptance_delta",),
        "sgl-project/sglang#28410: a cast races with its producer. Planted in the anchors that are "
        "handed to the drafter.",
    ),
    _fault(
        "LC-07",
        "The drafter's rotary angle is formed in bfloat16",
        ("speculative.acceptance_delta",),
        "sgl-project/sglang#29729, kekzl/imp#1325: the error grows with the position. Planted in the "
        "angle, for keys and queries alike; the target has no rotation.",
        expect="INCONCLUSIVE",
    ),
    _fault(
        "TV-12",
        "The reference's own top-k swaps the last two experts of one token in seven",
        ("yardstick.aa",),
        "intel/intel-xpu-backend-for-triton#7458: the device that served as the truth was wrong. "
        "Planted in the reference path, nothing in the candidate: the yardstick is blamed, for ref's "
        "experts are not those of ref's own scores.",
        where="ref",
        expect="INCOMPARABLE",
    ),
)
