"""Release gates on teacher-forced logits."""

import pytest

pytestmark = pytest.mark.validate_gates("logits")


def test_gate(gate):
    gate.check()
