"""Text of captures for a page: nothing steers, nothing hides, nothing is endless."""

from validate.report.wording import clean

__all__ = ["MOST_TEXT", "visible"]

MOST_TEXT = 2_000
"""Characters of one text; what is longer is cut, and the count of what is left out stands there."""


def visible(text: str, *, most: int = MOST_TEXT) -> str:
    r"""``text`` with control, format and bidi characters spelled out, of bounded length.

    Args:
        text: Anything, lone surrogates included.
        most: Characters that are kept.

    Example:
        >>> print(visible("a\x1b[2Jb\u202ec"), visible("x" * 9, most=4))
        a\x1b[2Jb\u202ec xxxx ... (5 more characters)
    """
    kept = clean(text[:most])
    rest = len(text) - most
    return kept if rest <= 0 else f"{kept} ... ({rest:,} more characters)"
