"""Mutation check: bend the code one place at a time and see whether the unit tests notice.

python -m tests.mutation run --rooms gates,metrics --jobs 16 --time-limit 500 --out FILE
python -m tests.mutation report FILE [FILE ...] --write golden/reports
"""

import argparse
import os
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 1 when a survivor has no explanation."""
    asked = _parser().parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from tests.mutation.report import read, survivors_explained, tell, write_report

    if asked.verb == "run":
        _run(asked)
        files = [asked.out]
    else:
        files = asked.files
    results = read(files)
    sys.stdout.write(tell(results))
    if asked.verb == "report" and asked.write is not None:
        write_report(results, asked.write)
    unexplained = [r for r in results.survivors if r["key"] not in survivors_explained()]
    return 1 if unexplained or results.unjudged else 0


def _run(asked: argparse.Namespace) -> None:
    from tests.mutation.engine import Plan, run
    from tests.mutation.report import survivors_explained
    from tests.mutation.session import settings_file

    plan = Plan(
        rooms=tuple(asked.rooms.split(",")),
        sample=asked.sample,
        seed=asked.seed,
        jobs=asked.jobs,
        time_limit=asked.time_limit,
        only=asked.only,
        measured=not asked.quick,
        skipped=frozenset(survivors_explained()) if asked.quick else frozenset(),
    )
    run(plan, out=asked.out, settings_in=settings_file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="try mutants")
    run.add_argument("--rooms", default="gates,metrics,stats,pairing,numerics,oracle")
    run.add_argument("--sample", type=int, help="so many mutants, drawn by the seed")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--only", default="", help="part of a module's name")
    run.add_argument("--jobs", type=int, default=2)
    run.add_argument("--time-limit", type=float, help="seconds, then stop with what there is")
    run.add_argument("--quick", action="store_true", help="for few mutants: no honest run before")
    run.add_argument("--out", type=Path, required=True, help="a line of JSON for each mutant")
    report = verbs.add_parser("report", help="score and survivors")
    report.add_argument("files", type=Path, nargs="+")
    report.add_argument("--write", type=Path, help="folder for mutation.json and mutation.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
