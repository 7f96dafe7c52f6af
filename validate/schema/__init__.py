"""Frozen records that cross rooms or reach disk."""

from validate.schema.draft_config import DraftConfig
from validate.schema.manifest import (
    SCHEMA_VERSION,
    ArtifactFile,
    CaptureHeader,
    Deviation,
    Evidence,
    Manifest,
    ModelIdentity,
    PathProof,
    Provenance,
    TensorEntry,
    supported_evidence,
)
from validate.schema.measurement import Interval, Levels, Measurement, Worst
from validate.schema.model_config import ModelConfig
from validate.schema.pair import Pair, Side
from validate.schema.prompts import PROMPT_ID, Prompt
from validate.schema.sampling import SamplingParams
from validate.schema.streams import DRAWN_KINDS, Stream
from validate.schema.verdict import EXIT_CODES, GateKind, Limit, NoiseFloor, Outcome, Verdict

__all__ = [
    "DRAWN_KINDS",
    "EXIT_CODES",
    "PROMPT_ID",
    "SCHEMA_VERSION",
    "ArtifactFile",
    "CaptureHeader",
    "Deviation",
    "DraftConfig",
    "Evidence",
    "GateKind",
    "Interval",
    "Levels",
    "Limit",
    "Manifest",
    "Measurement",
    "ModelConfig",
    "ModelIdentity",
    "NoiseFloor",
    "Outcome",
    "Pair",
    "PathProof",
    "Prompt",
    "Provenance",
    "SamplingParams",
    "Side",
    "Stream",
    "TensorEntry",
    "Verdict",
    "Worst",
    "supported_evidence",
]
