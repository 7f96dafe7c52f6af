"""Faults of padded attention heads and of split attention."""

from validate.schema.fault import Fault

__all__ = ["ATTENTION_FAULTS"]

ATTENTION_FAULTS = (
    Fault(
        id="VX-01",
        title="Repeated heads unpadded by prefix: heads [:12] of 48 are read, not every fourth",
        where="cand",
        expect="FAIL",
        gates=(
            "attention.head_rel_l2",
            "attention.row_rel_l2",
            "attention.scale",
            "attention.lse_abs",
            "attention.introduced_ratio",
            "attention.propagated_ratio",
            "attention.routing_weight",
            "state.kda_rel_l2",
            "state.conv_rel_l2",
            "state.prefill_decode",
            "greedy.unexplained",
            "greedy.unexplained_rate",
        ),
        source=(
            "Stride-unpad and prefix-unpad mixed up: sglang pads by repeat_interleave in an older "
            "and by tile in a newer version, and the unpad must match "
            "(sgl-project/sglang#36356, vllm-project/vllm#51647). Planted in the unpad of "
            "pad=repeat in decode: real head h is read from column h, which holds head h // 4."
        ),
    ),
    Fault(
        id="LC-01",
        title="Base-2 log-sum-exp fed to the base-e merge of split attention",
        where="cand",
        expect="FAIL",
        gates=("attention.head_rel_l2", "attention.scale", "attention.lse_abs"),
        source=(
            "sgl-project/sglang#40903 and #35045, vllm-project/vllm#52796. Planted where the "
            "parts of a split are merged: each part's log-sum-exp is lse / ln 2, so that merge "
            "weights are raised to the power 1.4427 and the larger part wins too much."
        ),
    ),
    Fault(
        id="VX-02",
        title="A [B,16,D] attention output read with a 12-head stride",
        where="cand",
        expect="FAIL",
        gates=(
            "attention.head_rel_l2",
            "attention.row_rel_l2",
            "attention.scale",
            "attention.lse_abs",
            "attention.introduced_ratio",
            "attention.propagated_ratio",
            "attention.routing_mismatch",
            "attention.routing_weight",
            "state.kda_rel_l2",
            "state.conv_rel_l2",
            "state.kv_rel_l2",
            "state.prefill_decode",
            "greedy.unexplained",
            "greedy.unexplained_rate",
        ),
        source=(
            "Close relative of HD-05 (vllm-project/vllm-omni#5716), and of the non-contiguous "
            "slice read as packed (sgl-project/sglang#34007). Planted in the unpad of pad=zero: "
            "batch row 0 stays exact, every head of later rows is another row's or head's, so a "
            "test at batch size 1 passes."
        ),
    ),
)
