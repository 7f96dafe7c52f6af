"""Output formats that commands offer."""

from enum import StrEnum

__all__ = ["ConformanceFormat", "Device", "ReportFormat", "TextOrJson", "Things"]


class TextOrJson(StrEnum):
    """What ``list`` and ``doctor`` print."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """What ``compare`` prints."""

    CONSOLE = "console"
    JSON = "json"
    MARKDOWN = "markdown"


class ConformanceFormat(StrEnum):
    """What ``conformance`` prints."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


class Device(StrEnum):
    """Where an implementation runs; a ROCm card answers to torch's ``cuda`` as well."""

    CPU = "cpu"
    CUDA = "cuda"


class Things(StrEnum):
    """What ``list`` prints."""

    TARGETS = "targets"
    METRICS = "metrics"
    GATES = "gates"
    LIMITS = "limits"
    FAULTS = "faults"
    ENGINES = "engines"
    IMPORTERS = "importers"
