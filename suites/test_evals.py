"""Release gates on eval scores, item by item."""

import pytest

pytestmark = pytest.mark.validate_gates("evals")


def test_gate(gate):
    gate.check()
