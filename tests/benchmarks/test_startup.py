"""``validate --help`` answers within 0.3 seconds of an idle core.

    pytest -m benchmark -s tests/benchmarks/test_startup.py

The least of five starts, each a program of its own. That nothing heavy is imported is a unit
test (``tests/unit/cli/test_app.py``); here it is timed.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("validate")
MOST_SECONDS = 0.3


@pytest.mark.benchmark
def test_help_answers_at_once() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([PROGRAM, "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)

    sys.stdout.write(f"validate --help: {min(times):.3f} s, the least of {len(times)}\n")
    assert min(times) <= MOST_SECONDS, times
