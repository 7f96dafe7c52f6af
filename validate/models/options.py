"""Which of the two paths runs, in which form; all switches of a forward pass."""

from dataclasses import dataclass
from typing import Literal

import torch

from validate.errors import InputError
from validate.models.renorm import RENORM_FAULTS

__all__ = ["DTYPES", "FAULTS", "REFERENCE_FAULTS", "SPECULATIVE_FAULTS", "PathOptions"]

DTYPES: dict[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}

SPECULATIVE_FAULTS = (
    *("SA-01", "VX-10", "VX-11", "VX-12", "VX-13", "VX-14", "VX-19", "SA-13", "VX-20"),
    *("SP-02", "SP-03", "SP-05", "SP-06", "SP-09", "VX-22", "VX-21"),
    *("SP-12", "ND-04", "LC-07"),
    *("VX-40", "SP-07", "SP-10", "SP-11", "VX-15", "VX-16"),
    *("LA-03", "LA-05", "VX-17", "VX-18", "SP-01", "SP-14"),
)
"""Faults of sampling and speculation; SA-05 has a second site there."""
LAYER_FAULTS = ("HD-08", "QU-06", "LA-01", "LA-14", "ND-06", "ND-13", "MO-01", "MO-02", "QU-05")
"""Faults inside a layer, whatever the padding."""
REFERENCE_FAULTS = ("TV-12",)
"""Faults of the reference path, which alone has them."""
FAULTS = (
    *("VX-01", "LC-01", "VX-02"),
    *RENORM_FAULTS,
    *SPECULATIVE_FAULTS,
    *LAYER_FAULTS,
    *REFERENCE_FAULTS,
)
"""Faults with a switch in this room; described in ``validate.faults``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOptions:
    """The form of one path.

    ``reference`` is decompressed MLA with a plain softmax; ``rocm`` is padded
    heads in prefill and absorbed, padded, split-KV attention in decode.
    """

    path: Literal["reference", "rocm"] = "reference"
    dtype: torch.dtype = torch.bfloat16
    prefill_pad: Literal["zero", "tile"] = "zero"
    """How q, k and v heads are padded for the prefill kernel (rocm)."""
    decode_pad: Literal["zero", "tile", "repeat"] = "zero"
    """How q heads are padded for the absorbed decode kernel (rocm)."""
    prefill: Literal["bf16", "fp8", "fp8-fnuz"] = "bf16"
    """Operand format of the prefill kernel; ``fp8`` forms are declared deviations."""
    state: Literal["fp32", "bf16"] = "fp32"
    """Storage of the KDA recurrent state; ``bf16`` is a declared deviation."""
    splits: int = 1
    """Contiguous parts the keys are split into, merged by log-sum-exp."""
    kda_chunk: int = 16
    """Tokens per chunk of the KDA prefill; at most 16, so that exp(5 * chunk) stays in float32."""
    fault: str | None = None

    def __post_init__(self) -> None:
        """Refuse combinations that no kernel offers, and switches that the path does not read."""
        if self.splits < 1:
            msg = f"splits={self.splits}: at least 1 part of the keys is needed"
            raise InputError(msg)
        if not 1 <= self.kda_chunk <= 16:  # noqa: PLR2004  16 * |lower bound| = 80 < log(float32 max)
            msg = f"kda_chunk={self.kda_chunk}: must be within 1..16"
            raise InputError(msg)
        if self.fault is not None and self.fault not in FAULTS:
            msg = f"fault={self.fault}: the torch model plants {', '.join(FAULTS)}"
            raise InputError(msg)
        if self.path == "reference":
            self._refuse_rocm_switches()
        elif self.fault in REFERENCE_FAULTS:
            msg = (
                f"fault={self.fault}: path 'rocm' has no site for it; it is planted in the reference\n"
                "  do next: take path 'reference'"
            )
            raise InputError(msg)

    def _refuse_rocm_switches(self) -> None:
        plain = {"prefill_pad": "zero", "decode_pad": "zero", "prefill": "bf16", "fault": None}
        for name, value in plain.items():
            if name == "fault" and self.fault in REFERENCE_FAULTS:
                continue
            if getattr(self, name) != value:
                msg = (
                    f"{name}={getattr(self, name)}: path 'reference' has no padded heads, no "
                    "float8 prefill and no planted fault; it would run as if this were not set\n"
                    f"  do next: leave out {name}, or take path 'rocm'"
                )
                raise InputError(msg)

    @property
    def accumulate(self) -> torch.dtype:
        """Dtype of sums, norms, softmax and recurrent state: float32 under bfloat16."""
        return torch.float32 if self.dtype is torch.bfloat16 else self.dtype
