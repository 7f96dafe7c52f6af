"""Write the calibration table: ``python -m validate.stats.calibrate_table --out golden/reports``."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from validate.stats.calibration import LEVELS, SPREAD, Cell, as_rows, calibrate, decide_n_min

SEED = 20261130
COMMAND = "python -m validate.stats.calibrate_table --out golden/reports"


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, write ``calibration.json`` and ``calibration.md``, return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the two files")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    cells = calibrate(seed=options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    content = {
        "schema_version": 1,
        "command": COMMAND,
        "seed": options.seed,
        "levels": {"low": LEVELS.low, "high": LEVELS.high},
        "n_min": decide_n_min(cells),
        "cells": as_rows(cells),
    }
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    (options.out / "calibration.json").write_text(text, "utf-8")
    (options.out / "calibration.md").write_text(markdown(cells), "utf-8")
    seconds = time.perf_counter() - start
    sys.stderr.write(f"{len(cells)} cells in {seconds:.0f} s, in {options.out}\n")
    return 0


def markdown(cells: list[Cell]) -> str:
    """The table for a reader."""
    failed = sum(cell.fails for cell in cells)
    lines = [
        "# Calibration of interval methods",
        "",
        f"Made by `{COMMAND}`; do not edit.",
        "`coverage` is the share of draws in which the upper limit, stated at 95 %, held.",
        "`false PASS` is the share in which it lay below the truth; stated 5 %.",
        "`false FAIL` is the share in which the lower limit, at 97.5 %, lay above it; stated 2.5 %.",
        "`none` is the share with a limit missing, which neither passes nor fails.",
        f"A cell FAILS where a rate exceeds the stated one by over {SPREAD} standard errors.",
        f"{failed} of {len(cells)} cells do.",
        "",
        "| method | data | n | coverage | false PASS | false FAIL | none | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| {c.method} | {c.data} | {c.n} | {c.coverage:.1%} | {c.false_pass:.1%} | "
        f"{c.false_fail:.1%} | {c.undefined:.0%} | {'**FAILS**' if c.fails else ''} |"
        for c in cells
    ]
    lines += [
        "",
        "## Smallest n",
        "",
        "Prompts from which no cell of the class fails; `never` where the largest measured one does.",
        "Light: normal, clustered. Heavy: lognormal, zero-inflated.",
        "A t limit on the logarithm sees the logarithms of the lognormal laws, which are light.",
        "What holds its level for heavy tails is taken to hold it for light ones.",
        "",
        "| method | light tails | heavy tails |",
        "|---|--:|--:|",
    ]
    lines += [
        f"| {method} | {found['light'] or 'never'} | {found['heavy'] or 'never'} |"
        for method, found in decide_n_min(cells).items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
