"""``manifest.json``: what a capture says of itself. Written last, so its presence means whole."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "SCHEMA_VERSION",
    "ArtifactFile",
    "CaptureHeader",
    "Deviation",
    "Evidence",
    "Manifest",
    "ModelIdentity",
    "PathProof",
    "Provenance",
    "TensorEntry",
    "supported_evidence",
]

SCHEMA_VERSION = 1
Evidence = Literal["hardware", "emulated", "unproven"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorEntry(_Record):
    """One tensor of a shard."""

    name: str
    """``<prompt id>/<tensor name>``."""
    dtype: Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "uint8"]
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    axes: tuple[str, ...]
    """One name per dimension, e.g. ``("positions", "heads", "value")``."""


class ArtifactFile(_Record):
    """One file of the capture."""

    artifact: Literal[
        "prompts",
        "logits",
        "tensors",
        "state",
        "renorm",
        "speculative",
        "streams",
        "timing",
        "evals",
    ]
    path: str
    """Relative to the capture, forward slashes, no ``..``."""
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256
    tensors: tuple[TensorEntry, ...] = ()
    """Empty for JSON files."""


class ModelIdentity(_Record):
    """Which model, by digest."""

    name: str
    """Architecture and size, e.g. ``k3-nano``."""
    architecture: str
    config_digest: Sha256
    weights_digest: Sha256
    weights: str
    """Name of the weights, e.g. ``seed1``; where the oracle looks them up."""
    tokenizer_digest: Sha256
    tokenizer_length: int
    vocab_size: int
    drafter_digest: Sha256 | None = None
    """Digest of the drafter's weights; None where nothing was drafted."""


class Provenance(_Record):
    """Where and with what the capture was made."""

    created: str
    """ISO 8601, UTC."""
    device: str
    """``cpu`` or ``cuda`` or ``rocm``."""
    hardware: str
    """Card or processor, by the vendor's name."""
    arch: str
    """``sm_90``, ``gfx950``, or the CPU capability that torch reports."""
    driver: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """torch, cuda, hip, numpy, python, engine."""
    engine_args: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables that change numerics and were set."""
    threads: int | None = None
    source_commit: str | None = None
    patch_digest: str | None = None


class PathProof(_Record):
    """Which branches really ran, with counts."""

    path: str
    """``reference``, ``rocm`` or ``oracle``."""
    branches: dict[str, int] = Field(default_factory=dict)
    kernels: dict[str, int] = Field(default_factory=dict)
    """Vendor kernels by name; AITER kernels make a ROCm capture ``hardware``."""


class Deviation(_Record):
    """A difference that is there by intent, with an expected size."""

    id: str
    """E.g. ``prefill-fp8``."""
    title: str
    expected: str
    """Expected size in words and numbers."""


class Manifest(_Record):
    """The whole manifest."""

    schema_version: Literal[1]
    target: str
    """The target string that asked for this capture, e.g. ``rocm:pad=tile``."""
    dtype: str
    """Working dtype of the path, by full name."""
    model: ModelIdentity
    declared_weights: bool = False
    """True when the target itself named other weights (key ``weights``)."""
    prompt_set: str
    prompt_digest: Sha256
    """Digest over ids, token ids, lengths and strides of every prompt."""
    sampling: dict[str, str] = Field(default_factory=dict)
    options: dict[str, str] = Field(default_factory=dict)
    """Batch size, chunk length, split count, pad: all that may differ between repeats."""
    batch_rows: dict[str, int] = Field(default_factory=dict)
    """Row of each prompt in the batch it ran in."""
    artifacts: tuple[ArtifactFile, ...]
    provenance: Provenance
    path_proof: PathProof
    evidence: Evidence
    deviations: tuple[Deviation, ...] = ()
    fault: str | None = None
    """Id of a planted fault; None for an honest capture."""
    sources_digest: Sha256
    """Digest of the source files of ``models`` and ``capture`` that made it."""
    digest: Sha256 | None = None
    """SHA-256 of the canonical JSON of all other fields; on disk never None."""


class CaptureHeader(_Record):
    """All of a manifest that is known before the first prompt runs.

    Every field means what the field of the same name in ``Manifest`` means. A
    resumed capture must bring an equal header; only ``provenance.created`` may
    differ, and the stored one stays.
    """

    target: str
    dtype: str
    model: ModelIdentity
    declared_weights: bool = False
    prompt_set: str
    prompt_digest: Sha256
    sampling: dict[str, str] = Field(default_factory=dict)
    options: dict[str, str] = Field(default_factory=dict)
    provenance: Provenance
    evidence: Evidence
    """What the caller claims; the writer stores what ``supported_evidence`` leaves of it."""
    deviations: tuple[Deviation, ...] = ()
    fault: str | None = None
    sources_digest: Sha256


def supported_evidence(claimed: Evidence, *, device: str, proof: PathProof) -> Evidence:
    """Evidence that a path proof can carry: the claim, or less.

    Args:
        claimed: What the maker of the capture says.
        device: ``Provenance.device``.
        proof: The branches and kernels that ran.

    Returns:
        ``unproven`` without any branch or kernel; ``emulated`` for a claim of
        ``hardware`` on the CPU, or on ROCm without an AITER kernel; else the claim.

    Example:
        >>> supported_evidence("hardware", device="rocm", proof=PathProof(path="rocm"))
        'unproven'
    """
    if sum(proof.branches.values()) + sum(proof.kernels.values()) <= 0:
        return "unproven"
    if claimed != "hardware":
        return claimed
    aiter = any("aiter" in name.lower() and count > 0 for name, count in proof.kernels.items())
    on_card = device == "cuda" or (device == "rocm" and aiter)
    return "hardware" if on_card else "emulated"
