"""A false-alarm simulation as Markdown."""

from validate.run.alarm_report import FalseAlarms

__all__ = ["render_alarms"]


def render_alarms(found: FalseAlarms) -> str:
    """Counts in a table, with what they mean.

    Args:
        found: What was simulated.
    """
    rows = [
        f"| {name} | {share:.3g} | {found.clean.by_gate.get(name, 0)} | "
        f"{found.at_limit.by_gate.get(name, 0)} |"
        for name, share in found.shares.items()
    ]
    clean, limit = found.clean, found.at_limit
    others = found.gates - len(found.shares)
    rows.append(
        f"| the {others} deterministic gates | 0 | {_others(clean.by_gate, found)} | "
        f"{_others(limit.by_gate, found)} |"
    )
    return "\n".join(
        [
            f"# False alarms of the suite {found.suite}",
            "",
            (
                f"{found.runs} simulated clean runs of the whole suite, each of {found.gates} gates "
                f"through their real intervals and rules; alpha {found.alpha:g}."
            ),
            (
                f"At most {found.allowed} alarms are allowed: the 99 % quantile when each run alarms "
                f"with probability {found.alpha:g}."
            ),
            "",
            "| | clean | at the limit |",
            "|---|---|---|",
            f"| runs with an alarm | **{clean.alarms}** | **{limit.alarms}** |",
            f"| runs without, but with a gate open | {clean.open} | {limit.open} |",
            "",
            (
                f"*Clean*: one of {found.repeats} repeats of ref stands in cand's place, the others "
                "make the noise floor; prompts are drawn anew with replacement."
            ),
            (
                "*At the limit*: the measured prompts themselves, unsmoothed, moved so that the true value of "
                "every gate with a share of alpha lies exactly at its limit, all at once: the hardest "
                "case in which no FAIL is deserved. Few such runs PASS, nor should they."
            ),
            (
                "Deterministic gates are judged on each repeat as it was measured; the worst case over "
                "a redrawn prompt set could only be smaller."
            ),
            "",
            "| gate | share of alpha | alarms, clean | alarms, at the limit |",
            "|---|---|---|---|",
            *rows,
            "",
            (
                f"Made by `{found.command}` (seed {found.seed}); suite {found.suite_digest[:12]}, "
                f"limits {found.limits_digest[:12]}."
            ),
            "",
        ]
    )


def _others(by_gate: dict[str, int], found: FalseAlarms) -> int:
    return sum(count for name, count in by_gate.items() if name not in found.shares)
