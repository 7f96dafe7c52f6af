"""Captures: what one path produced on one machine for one prompt set, on disk."""

from validate.capture.digest import (
    capture_digest,
    file_sha256,
    json_sha256,
    prompt_set_digest,
)
from validate.capture.format import Tensor, artifact_of
from validate.capture.reader import CaptureReader, open_capture
from validate.capture.writer import CaptureWriter

__all__ = [
    "CaptureReader",
    "CaptureWriter",
    "Tensor",
    "artifact_of",
    "capture_digest",
    "file_sha256",
    "json_sha256",
    "open_capture",
    "prompt_set_digest",
]
