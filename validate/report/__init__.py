"""A ``Report`` in, text out; this room computes no number."""

from validate.report.console import render_console, render_gate
from validate.report.diff import Moved, diff_reports, render_diff
from validate.report.files import (
    RENDERERS,
    load_report,
    read_report,
    render_all,
    render_json,
    report_schema,
    write_reports,
)
from validate.report.html import render_html
from validate.report.junit import render_junit
from validate.report.markdown import render_markdown

__all__ = [
    "RENDERERS",
    "Moved",
    "diff_reports",
    "load_report",
    "read_report",
    "render_all",
    "render_console",
    "render_diff",
    "render_gate",
    "render_html",
    "render_json",
    "render_junit",
    "render_markdown",
    "report_schema",
    "write_reports",
]
