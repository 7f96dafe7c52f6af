"""A simulation of the speculative gates as Markdown."""

from validate.run.spec_alarms import SpecAlarms, SpecPower

__all__ = ["render_spec_alarms"]


def render_spec_alarms(found: SpecAlarms) -> str:
    """Alarms on right samplers, and the share of runs in which each wrong one is caught.

    Args:
        found: What was simulated.
    """
    return "\n".join(
        [
            f"# Speculative gates of the suite {found.suite}, simulated",
            "",
            "Streams come from samplers whose law is known, on a toy vocabulary; metrics and rules are the real ones.",
            f"The gates simulated here spend {found.share:.6g} of alpha {found.alpha:g}.",
            "",
            "## Right samplers",
            "",
            f"{found.streams} streams of 64 tokens of each kind a run.",
            "",
            "| sampler | runs | with an alarm | allowed | with a gate open | alarms by gate |",
            "|---|---|---|---|---|---|",
            *[
                f"| {one.title} | {one.runs} | **{one.alarms}** | {one.allowed} | {one.open} | "
                f"{_by_gate(one.by_gate)} |"
                for one in found.clean
            ],
            "",
            "*Allowed* is the 99 % quantile when each run alarms with the share of alpha above.",
            "",
            "## Wrong samplers: share of runs that FAIL, by tokens of each kind",
            "",
            *_power(found),
            "",
            f"Made by `{found.command}` (seed {found.seed}); suite {found.suite_digest[:12]}.",
            "",
        ]
    )


def _power(found: SpecAlarms) -> list[str]:
    sizes = sorted({one.tokens for one in found.power})
    rows = dict.fromkeys(one.sampler for one in found.power)
    lines = [
        f"| fault | {' | '.join(str(size) for size in sizes)} | caught first by |",
        f"|---|{'---|' * len(sizes)}---|",
    ]
    for name in rows:
        held = {one.tokens: one for one in found.power if one.sampler == name}
        cells = " | ".join(_cell(held.get(size)) for size in sizes)
        lines.append(f"| {name}: {next(iter(held.values())).title} | {cells} | {_first(held)} |")
    return lines


def _cell(one: SpecPower | None) -> str:
    return "-" if one is None else f"{100 * one.caught / one.runs:.0f} %"


def _first(held: dict[int, SpecPower]) -> str:
    """The gates that catch most at the smallest size at which anything is caught."""
    for size in sorted(held):
        by_gate = held[size].by_gate
        if by_gate and 2 * held[size].caught >= held[size].runs:
            ordered = sorted(by_gate, key=lambda name: -by_gate[name])[:2]
            return ", ".join(name.partition(".")[2] for name in ordered)
    return "-"


def _by_gate(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
