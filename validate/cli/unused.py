"""Options that a command would not look at are refused: they would look heeded."""

from collections.abc import Mapping

from validate.errors import InputError

__all__ = ["refuse_unused"]


def refuse_unused(flag: str, given: Mapping[str, object], *, why: str) -> None:
    """Refuse options that mean nothing beside ``flag``.

    Args:
        flag: The option that leaves the others without a meaning.
        given: The others by name; None and False were not given.
        why: What ``flag`` does, and what goes with it.

    Raises:
        InputError: One of them was given.
    """
    unused = [name for name, value in given.items() if value not in (None, False)]
    if unused:
        msg = f"{flag} with {', '.join(unused)}: {why}"
        raise InputError(msg)
