"""Which branch of a path proof produces which declared deviation."""

from collections.abc import Mapping

__all__ = ["DEVIATION_BRANCHES"]

DEVIATION_BRANCHES: Mapping[str, str] = {
    "prefill-fp8": "mla.prefill.fp8.float8_e4m3fn",
    "prefill-fp8-fnuz": "mla.prefill.fp8.float8_e4m3fnuz",
    "state-bf16": "kda.state.bfloat16",
}
"""By id of the deviation. A declaration counts only where the branch ran, and a branch that ran
must be declared."""
