"""The report of ``make smollm`` as Markdown."""

from validate.run.smollm_record import Comparison, Gate, SmolReport

__all__ = ["render_smollm"]

_ROLES = {
    "padding": "padded heads",
    "fault": "planted fault",
    "floor": "noise floor",
    "yardstick": "yardstick",
}


def render_smollm(report: SmolReport) -> str:
    """Tables of what was compared, with what they mean.

    Args:
        report: The record.
    """
    lines = [
        "# SmolLM2-135M with padded heads",
        "",
        *_summary(report),
        "",
        f"Made by `{report.command}` on {report.date}; sides as they were run: {_versions(report)}.",
        f"Hardware: {report.hardware}, {report.threads} thread(s) a side.",
        "Evidence of every side with padded heads: `emulated`.",
        "",
        "## Verdicts",
        "",
        "| comparison (cand against ref) | evidence | gate | value | 95 % upper limit | limit | n | outcome |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in report.comparisons:
        lines += [_gate(one, gate) for gate in one.gates]
    lines += [
        "",
        (
            "Each gate is a bound: FAIL if the lower limit (alpha 1 % over the three gates) exceeds the limit, "
            "PASS if the 95 % upper limit is inside."
        ),
        f"Limits come from the reference alone: {report.limit_rule}",
        (
            "`loglik_delta_p90` is the p90 over items of |delta log-likelihood|, mean over an item's requests; "
            "`kl_p90` the p90 over prompts of the mean KL(ref‖cand) of a row; both with order statistics."
        ),
        "`bits_per_byte_delta` is the absolute mean paired difference over the items of smollm_gsm8k, with Student's t.",
        "",
        "## Log-likelihoods, item by item",
        "",
        "Items are paired by document and prompt hash, and read the same prompt tokens.",
        "",
        (
            "| comparison | evidence | task | items | requests | of them identical | mean abs. delta, nats | largest, nats "
            "| paired delta of an item, nats (95 % each way) | score | ref | cand | flips |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in report.comparisons:
        lines += _tasks(one)
    lines += [
        "",
        (
            "Accuracy is shown, not gated: at 135M parameters and this few items it is near chance "
            "(0.25 on HellaSwag) and blind to all but gross faults."
        ),
        "",
        "## Logits, row by row",
        "",
        f"Teacher-forced: {report.texts}.",
        "",
        (
            "| comparison | evidence | prompts | rows | logits with the same bits | largest difference | KL mean, nats | p50 | p90 "
            "| max | first choices that differ |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *[_logits(one) for one in report.comparisons],
        "",
        "## What it does not show",
        "",
        *[f"- {line}" for line in report.not_shown],
        "",
        "## Sides",
        "",
        "| side | evidence | dtype | attention | planted fault | branches (calls of the last process) |",
        "|---|---|---|---|---|---|",
        *[
            f"| {s.name} | emulated | {s.dtype} | {s.attention} | {s.fault or '-'} | {_branches(s.branches)} |"
            for s in report.sides
        ],
        "",
    ]
    return "\n".join(lines)


def _summary(report: SmolReport) -> list[str]:
    lines = []
    for number, one in enumerate(report.comparisons, start=1):
        same = sum(task.identical for task in one.tasks)
        asked = sum(task.requests for task in one.tasks)
        outcome = f": {one.outcome}" if one.outcome else ""
        lines.append(
            f"{number}. {_ROLES[one.role]}, {one.name} (`emulated`){outcome}. "
            f"{same} of {asked} log-likelihoods and {one.logits.identical:,} of "
            f"{one.logits.values:,} logits are identical; "
            f"mean KL {one.logits.kl_mean:.3g} nats over {one.logits.prompts} prompts."
        )
    return lines


def _gate(one: Comparison, gate: Gate) -> str:
    high = "-" if gate.high is None else f"{gate.high:.3g}"
    return (
        f"| {one.name} | emulated | {gate.name} | {gate.value:.3g} {gate.unit} | {high} | "
        f"{gate.limit:.3g} | {gate.n} {gate.n_of} | {gate.outcome} |"
    )


def _tasks(one: Comparison) -> list[str]:
    rows = []
    for t in one.tasks:
        between = "-"
        if t.delta_low is not None and t.delta_high is not None:
            between = f"{t.delta:+.3g} ({t.delta_low:+.3g} to {t.delta_high:+.3g})"
        rows.append(
            f"| {one.name} | emulated | {t.task} | {t.items} | {t.requests} | {t.identical} | "
            f"{t.mean_abs_delta:.3g} | {t.max_abs_delta:.3g} | {between} | {t.score} | "
            f"{t.score_ref:.4f} | {t.score_cand:.4f} | {'-' if t.flips is None else t.flips} |"
        )
    return rows


def _logits(one: Comparison) -> str:
    found = one.logits
    return (
        f"| {one.name} | emulated | {found.prompts} | {found.rows:,} | {found.identical:,} of {found.values:,} | "
        f"{found.max_abs_delta:.3g} | {found.kl_mean:.3g} | {found.kl_p50:.3g} | "
        f"{found.kl_p90:.3g} | {found.kl_max:.3g} | {found.top1_flips} |"
    )


def _versions(report: SmolReport) -> str:
    return ", ".join(f"{name} {number}" for name, number in report.versions.items())


def _branches(branches: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in branches.items()) or "-"
