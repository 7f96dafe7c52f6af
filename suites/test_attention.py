"""Release gates on attention outputs, hidden states and expert sets."""

import pytest

pytestmark = pytest.mark.validate_gates("attention")


def test_gate(gate):
    gate.check()
