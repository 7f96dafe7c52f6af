"""The table of rules on simulated eval runs as Markdown."""

from validate.run.evals_power import EvalsPower, RuleRow

__all__ = ["render_evals_power"]


def render_evals_power(found: EvalsPower) -> str:
    """Alarms of each rule by true drop and discordance.

    Args:
        found: What was simulated.
    """
    return "\n".join(
        [
            "# What rules for eval scores can see, simulated",
            "",
            (
                f"{found.runs:,} pairs of runs a row, {found.n:,} items each (GSM8K's test split), ref right "
                f"on {100 * found.ref_score:g} %; every rule judges the same pairs. Cells are percent of runs."
            ),
            "*Discordance* is the share of items that only one side answers right.",
            "",
            (
                "| true drop, points | discordance, % | ours: FAIL | ours: not PASS | exact McNemar | lm-eval z "
                "| TensorRT-LLM | fixed 0.08 | smallest drop seen, points |"
            ),
            "|---|---|---|---|---|---|---|---|---|",
            *[_line(row) for row in found.rows],
            "",
            "The rules:",
            "",
            (
                f"- *ours*: `evals.score_drop` of the suite {found.suite}, margin {found.margin:g} point"
                f"{'' if found.margin == 1 else 's'}, at its share {found.alpha_share:.3g} of alpha. FAIL: the drop is "
                "shown to be beyond the margin; PASS: shown to be inside it; between them INCONCLUSIVE. "
                "A drop equal to the margin may FAIL in no more than that share of runs and PASS in no more than 5 %."
            ),
            (
                "- *exact McNemar*: one-sided p at most 5 %: some drop, of whatever size; the report shows it "
                "for every task, plain and by Holm."
            ),
            (
                "- *lm-eval z*: `scripts/model_comparator.py`, two-sided z of two means taken as independent, "
                "p at most 5 %."
            ),
            "- *TensorRT-LLM*: cand below ref - z(95 %) sqrt(2 sigma^2 / n) with sigma = 50 points.",
            "- *fixed 0.08*: scores that differ by more than eight points.",
            "- *smallest drop seen*: by exact McNemar with power 80 %, by the normal law.",
            "",
            "What it shows:",
            "",
            *_shows(found),
            "",
            (
                f"Made by `{found.command}` (seed {found.seed}); suite {found.suite_digest[:12]}. A share of p percent "
                f"has a standard error of sqrt(p (100 - p) / {found.runs:,})."
            ),
            "",
        ]
    )


def _line(row: RuleRow) -> str:
    shares = (row.fails, row.not_passed, row.mcnemar, row.lm_eval, row.trt_llm, row.fixed)
    cells = " | ".join(f"{share:.1f}" for share in shares)
    return f"| {row.drop:g} | {row.discordant:g} | {cells} | {row.smallest:.2f} |"


def _shows(found: EvalsPower) -> list[str]:
    """Sentences made of the numbers of the table."""
    clean = [row for row in found.rows if row.drop == 0]
    two, five = found.rows[-2:]
    return [
        (
            f"- With nothing wrong ours FAILs in {_span(clean, 'fails')} % of runs and stays INCONCLUSIVE in "
            f"{_span(clean, 'not_passed')} %: a margin of one point needs more items where 5 % differ."
        ),
        (
            f"- A drop of 2 points at 5 % discordance is not passed in {two.not_passed:.1f} % of runs, is seen by exact "
            f"McNemar in {two.mcnemar:.1f} %, by lm-eval's z in {two.lm_eval:.1f} %, by the rule of TensorRT-LLM in "
            f"{two.trt_llm:.1f} %, and by the fixed tolerance in {two.fixed:.1f} %."
        ),
        (
            f"- A drop of 5 points FAILs in {five.fails:.1f} % of runs; the fixed tolerance lets it pass in "
            f"{100 - five.fixed:.1f} %."
        ),
    ]


def _span(rows: list[RuleRow], name: str) -> str:
    values = sorted(getattr(row, name) for row in rows)
    return f"{values[0]:.1f} to {values[-1]:.1f}"
