"""Shapes and types are checked at run time in unit and property tests, and not in whole runs.

A test that is marked ``slow`` or ``golden`` runs the program as its users do, without the checks,
in half of the time; every function that it reaches has unit tests with them.
"""

from collections.abc import Generator

import jaxtyping
import pytest

WHOLE = ("slow", "golden", "statistical")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Around set-up too, since that is where the whole runs of a module are made."""
    whole = any(item.get_closest_marker(name) for name in WHOLE)
    jaxtyping.config.update("jaxtyping_disable", whole)
    try:
        return (yield)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
