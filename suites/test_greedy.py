"""Release gates on greedy streams."""

import pytest

pytestmark = pytest.mark.validate_gates("greedy")


def test_gate(gate):
    gate.check()
