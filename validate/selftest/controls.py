"""Candidates that differ legitimately: no gate may flag them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from validate.schema.fault import Where

__all__ = ["EVAL_CONTROLS", "MODEL_CONTROLS", "Control"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A path or a capture that is right, though other than the reference's."""

    id: str
    """``OK-n`` of the public list, else ``OK-VX-nn``."""
    title: str
    target: str
    """What is compared with the reference."""
    source: str
    where: Where = "cand"
    options: Mapping[str, str] = field(default_factory=dict)
    """Keys of the path that targets do not have."""


MODEL_CONTROLS: tuple[Control, ...] = (
    Control(
        id="OK-1",
        title="A row moves by an ulp or two with its batchmates",
        target="rocm",
        source="deepseek-ai/FlashMLA#212: batches of three in place of eight.",
        options={"batch": "3"},
    ),
    Control(
        id="OK-5",
        title="Query heads padded by copies from 12 to 16 and cut back",
        target="rocm:pad=tile",
        source="vllm-project/vllm#50371, #50578: exact per head, whatever the padding holds.",
    ),
    Control(
        id="OK-6",
        title="Ties at the k-th value are all kept, as on CUDA",
        target="rocm:renorm=all",
        source="vllm-project/vllm#15478, pytorch#150012; the other rule is the path's own.",
    ),
    Control(
        id="OK-8",
        title="Recurrent state in bfloat16, declared",
        target="rocm:state=bf16",
        source="LA-08 as a declared deviation: a budget of its own, shown on the first page.",
    ),
    Control(
        id="OK-9",
        title="Log-probabilities are returned where ref stores logits",
        target="rocm",
        source="TV-16: a convention that differs by one number a row, which no law depends on. "
        "Planted in a capture as a server returns them: every id of a row as top-k, in float32, "
        "log-sum-exp 0.",
        where="capture",
    ),
    Control(
        id="OK-VX-90",
        title="Repeated heads, read back from every fourth",
        target="rocm:pad=repeat",
        source="The right form of VX-01.",
    ),
    Control(
        id="OK-VX-91",
        title="Attention in seven parts, merged by natural log-sum-exps",
        target="rocm:splits=7",
        source="The right form of LC-01.",
    ),
    Control(
        id="OK-VX-92",
        title="Prompts prefilled five tokens at a time",
        target="rocm",
        source="The right form of LA-01 and LA-14.",
        options={"chunk": "5"},
    ),
)
"""Controls of attention, state, logits, greedy streams and filtered rows."""

EVAL_CONTROLS: tuple[Control, ...] = (
    Control(
        id="OK-VX-93",
        title="Another server whose log-likelihoods move by two hundredths of a nat",
        target="folder",
        source="One model behind two servers: near-ties fall either way, scores stay.",
        where="evals",
    ),
)
"""Controls of downstream evals."""
