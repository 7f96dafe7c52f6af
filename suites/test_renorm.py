"""Release gates on top-k and top-p of probability rows."""

import pytest

pytestmark = pytest.mark.validate_gates("renorm")


def test_gate(gate):
    gate.check()
