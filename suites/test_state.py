"""Release gates on recurrent, convolution and latent state."""

import pytest

pytestmark = pytest.mark.validate_gates("state")


def test_gate(gate):
    gate.check()
