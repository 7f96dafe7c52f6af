"""Benchmarks run by command (``pytest -m benchmark``) and never by chance."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "benchmark" in str(config.getoption("markexpr")):
        return
    skip = pytest.mark.skip(reason="run by command: pytest -m benchmark tests/benchmarks")
    for item in items:
        if item.get_closest_marker("benchmark") is not None:
            item.add_marker(skip)
