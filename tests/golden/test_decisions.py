"""What a decision rests on, on the shipped goldens: its own data alone, and enough of it.

Both sides are taken as they were recorded: ``cuda`` against one of its repeats needs no
model, so a run takes seconds.
"""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from validate.capture.reader import open_capture

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.golden, pytest.mark.slow]


@cache
def compared(*more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and gates by name of `validate compare --ref cuda --cand cuda-repeat-2 ...`."""
    command = [sys.executable, "-c", "from validate.cli import main; raise SystemExit(main())"]
    done = subprocess.run(
        [
            *command,
            "compare",
            "--ref",
            "cuda",
            "--cand",
            "cuda-repeat-2",
            "--format",
            "json",
            *more,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "default", "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, {gate["name"]: gate for gate in json.loads(done.stdout)["gates"]}


def first(count: int) -> str:
    """The ids of the first prompts of the golden, for --prompt."""
    prompts = open_capture(ROOT / "golden/k3-nano/cuda", label="cuda").prompts
    return ",".join(list(prompts)[:count])


@pytest.mark.long
def test_only_logits_gives_each_logits_gate_the_verdict_of_the_full_run():
    """Outcome, reason, number, interval at its levels, share, limit and floor."""
    _, full = compared()
    _, part = compared("--only", "logits")
    logits = [name for name in full if name.startswith("logits.")]

    assert len(logits) >= 7
    assert [name for name in part if not name.startswith("yardstick.")] == logits
    for name in logits:
        assert part[name] == full[name]


def test_too_few_prompts_are_inconclusive_with_a_number_and_that_number_passes():
    """kl_p90 needs 29 prompts for an upper limit at 95 %: 0.9^28 > 0.05 > 0.9^29."""
    _, full = compared()
    code, few = compared("--only", "logits.kl_p90", "--prompt", first(12))
    reason = few["logits.kl_p90"]["reason"]
    needed = re.search(r"\(n = 12 prompts; about (\d+) needed\)", reason)
    assert needed is not None
    number = int(needed.group(1))
    enough, then = compared("--only", "logits.kl_p90", "--prompt", first(number))
    short, before = compared("--only", "logits.kl_p90", "--prompt", first(number - 1))

    assert full["logits.kl_p90"]["outcome"] == "PASS"
    assert (code, few["logits.kl_p90"]["outcome"], number) == (3, "INCONCLUSIVE", 29)
    assert (short, before["logits.kl_p90"]["outcome"]) == (3, "INCONCLUSIVE")
    assert (enough, then["logits.kl_p90"]["outcome"]) == (0, "PASS")
    assert few["logits.kl_p90"]["measurement"]["n_needed"] == 29


def test_no_gate_of_a_few_prompts_is_open_without_a_next_step():
    """Every INCONCLUSIVE gate of 3 prompts names a number, or what must be captured."""
    code, few = compared("--prompt", first(3))
    reasons = [gate["reason"] for gate in few.values() if gate["outcome"] == "INCONCLUSIVE"]

    assert code == 3
    assert reasons
    for reason in reasons:
        assert re.search(r"\d+ needed|capture prompts tagged ", reason), reason
