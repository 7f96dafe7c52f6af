"""Release gates on streams drawn at T > 0, with and without drafts."""

import pytest

pytestmark = pytest.mark.validate_gates("speculative")


def test_gate(gate):
    gate.check()
