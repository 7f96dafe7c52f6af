"""Release gates on the yardstick: is the reference, with its repeats and proofs, fit to judge by?."""

import pytest

pytestmark = pytest.mark.validate_gates("yardstick")


def test_gate(gate):
    gate.check()
