"""Output formats that commands offer."""

from enum import StrEnum

__all__ = ["ReportFormat", "TextOrJson", "Things"]


class TextOrJson(StrEnum):
    """What ``list`` and ``doctor`` print."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """What ``compare`` prints."""

    CONSOLE = "console"
    JSON = "json"
    MARKDOWN = "markdown"


class Things(StrEnum):
    """What ``list`` prints."""

    TARGETS = "targets"
    METRICS = "metrics"
    GATES = "gates"
    LIMITS = "limits"
    FAULTS = "faults"
    ENGINES = "engines"
    IMPORTERS = "importers"
