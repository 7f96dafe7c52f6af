"""What stands in for the judge of ``validate compare`` in the processes that tests start."""

import datetime as dt
from pathlib import Path
from typing import Any

from tests.unit.run.made import repeats, run, side
from validate.errors import CaptureError
from validate.schema.report import Report
from validate.schema.suite import Waiver

WAIVER = Waiver(
    gate="state.kda_rel_l2", reason="known", issue="#7", expires=dt.date.max, cand="rocm*"
)
REPORTS = {
    "rocm": lambda: run(side("rocm", 0.1)),
    "rocm:pad=tile": lambda: run(side("rocm", 3.0)),
    "rocm:pad=repeat": lambda: run(side("rocm", 0.1), repeats=repeats(0.1, 0.1)),
    "rocm:splits=2": lambda: run(side("rocm", 0.1), oracle=side("oracle", 9.0)),
    "rocm:splits=3": lambda: run(side("rocm", 3.0), waivers=(WAIVER,)),
}


def judge(asked: Any, _progress: Any) -> Report:
    """The report of a made-up candidate; notes that it was asked."""
    with Path("measured.log").open("a", encoding="utf-8") as log:
        log.write(f"{asked.cand} {','.join(asked.only)}\n")
    if asked.cand not in REPORTS:
        msg = f"{asked.cand}: shards/0.safetensors: the digest differs"
        raise CaptureError(msg)
    return REPORTS[asked.cand]()
