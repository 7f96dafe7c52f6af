"""From what the user asked for to a report."""

import datetime as dt
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from validate.capture.digest import prompt_set_digest
from validate.capture.resolve import Progress
from validate.capture.targets import did_you_mean
from validate.cli.cast import choose_suite, gather
from validate.cli.drawn import draw_enough
from validate.cli.explaining import Law, explained
from validate.cli.lengths import Lengths, choose_prompts, parse_lengths
from validate.cli.session import open_project, read_target
from validate.errors import InputError
from validate.report import load_report
from validate.run import compare, golden_path
from validate.run.drawn import shorten
from validate.run.evals_alone import evals_alone
from validate.run.explain import check_gate
from validate.run.selftest_summary import load_summary
from validate.schema import Prompt, Side
from validate.schema.evals import evals_of
from validate.schema.report import Report
from validate.schema.suite import Suite, Waiver
from validate.suite import (
    check_waivers,
    load_limits,
    load_prompts,
    load_suite,
    load_waivers,
    select_gates,
)

__all__ = ["Asked", "judge", "other_prompts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for, lists taken apart."""

    ref: str
    cand: str
    suite: Path | None
    only: tuple[str, ...]
    skip: tuple[str, ...]
    prompts: tuple[str, ...]
    tokens: str | None
    fresh: bool
    explain: str | None = None
    """The gate to follow to its cause."""

    def command(self) -> str:
        """The command line that judges the same captures again, up to ``--only``."""
        words = ["validate", "compare", "--ref", self.ref, "--cand", self.cand]
        words += ["--suite", str(self.suite)] if self.suite else []
        words += ["--prompt", ",".join(self.prompts)] if self.prompts else []
        words += ["--tokens", self.tokens] if self.tokens else []
        return shlex.join(words)


def judge(asked: Asked, progress: Progress) -> Report:
    """Check every argument, gather the captures and compare them.

    Raises:
        ValidateError: Whatever stands in the way of a verdict.
    """
    progress(0, 0, "reading the suite, its limits and the golden report")
    project = open_project()
    sides = read_target(asked.ref, project), read_target(asked.cand, project)
    if asked.fresh and all(side.folder is not None for side in sides):
        msg = (
            f"--fresh: {asked.ref} and {asked.cand} are stored captures, which are not made here\n"
            "  do next: leave --fresh out, or validate golden record"
        )
        raise InputError(msg)
    suite = load_suite(choose_suite(asked.suite, sides, project))
    limits = load_limits(project.root / suite.limits)
    gates = select_gates(suite, only=asked.only, skip=asked.skip)
    if asked.explain is not None:
        check_gate(asked.explain, gates, known=[gate.name for gate in suite.gates])
    waivers = _waivers(suite, project.root)
    golden = load_report(project.root / golden_path(suite.name))
    lengths = None if asked.tokens is None else parse_lengths(asked.tokens)
    held = load_prompts(project.root / suite.prompts)
    if any(side.folder is None for side in sides):
        _check_prompts(asked, lengths, held)
    drawn = None if lengths is None else lengths.drawn
    if drawn is not None:
        sides = sides[0], draw_enough(sides[1], drawn, held=held, ids=asked.prompts)
    cast = gather(
        *sides, project=project, suite=suite, gates=gates, fresh=asked.fresh, progress=progress
    )
    prompts = choose_prompts(cast.ref.prompts, ids=asked.prompts, lengths=lengths)
    alone = not prompts and evals_alone(cast.ref, cast.cand, suite=suite, gates=gates) is not None
    other = () if alone else other_prompts(cast.ref, cast.cand, suite=suite, held=held)
    report = compare(
        ref=cast.ref,
        cand=cast.cand if drawn is None else shorten(cast.cand, drawn, prompts=prompts),
        suite=suite,
        limits=limits,
        repeats=cast.repeats,
        oracle=cast.oracle,
        weights=cast.weights,
        config=cast.config,
        only=asked.only,
        skip=(*asked.skip, *inapplicable(cast.ref, cast.cand, suite=suite, only=asked.only)),
        prompts=prompts,
        reused=cast.reused,
        blocked=(*cast.blocked, *other),
        waivers=waivers,
        golden=golden,
        selftest=load_summary(project.root),
        command=asked.command(),
        progress=lambda what: progress(0, 0, what),
    )
    if asked.explain is None:
        return report
    law = Law(suite=suite, limits=limits, project=project)
    return explained(
        report,
        asked.explain,
        sides=sides,
        cast=cast,
        law=law,
        prompts=prompts or tuple(cast.ref.prompts),
        progress=progress,
    )


def inapplicable(ref: Side, cand: Side, *, suite: Suite, only: Sequence[str]) -> tuple[str, ...]:
    """Gates of a suite of evals alone that have nothing to look at on either side.

    Such a gate is left out and named under what was not tested: answers by log-likelihood have no
    length, generated ones no log-likelihood. With ``only`` none is left out.
    """
    both = [evals for side in (ref, cand) if (evals := evals_of(side)) is not None]
    if only or not suite.evals_only or not both:
        return ()
    items = [item for evals in both for item in evals.items]
    absent = []
    if not any(item.response is not None for item in items):
        absent.append("evals.length")
    if not any(item.loglikelihoods for item in items):
        absent.append("evals.loglik_delta")
    return tuple(name for name in absent if suite.gate(name) is not None)


def other_prompts(
    ref: Side, cand: Side, *, suite: Suite, held: Sequence[Prompt]
) -> tuple[str, ...]:
    """Why the sides answer other questions than the suite asks; empty when they do not.

    Args:
        ref: The side compared against; that cand has its prompts is asked of every pair, so of
            cand only a capture without any is told here.
        cand: The side under judgement.
        suite: Whose prompt set.
        held: The prompts of that set.
    """
    if suite.evals_only:
        return ()
    sides = (("ref", ref), ("cand", cand))
    bare = tuple(_no_prompts(role, side) for role, side in sides if not side.prompts)
    if bare:
        return bare
    digest, captured = prompt_set_digest(held), ref.manifest.prompt_digest
    if digest == captured:
        return ()
    why = (
        f"ref {ref.label} was captured on other prompts than the suite's: "
        f"'{ref.manifest.prompt_set}' ({len(ref.prompts)} prompts, digest {captured[:12]}), "
        f"{suite.path} names {suite.prompts} ({len(held)} prompts, digest {digest[:12]}); capture "
        "anew, or name a suite of those prompts with --suite"
    )
    return (why,)


def _no_prompts(role: str, side: Side) -> str:
    held = evals_of(side)
    if held is None:
        return f"{role} {side.label} holds no prompts and no evals; capture it anew"
    return (
        f"{role} {side.label} holds evals of {len(held.tasks)} tasks and no prompts, so nothing else "
        "can be compared; --only evals judges its evals alone, validate eval --whole captures both"
    )


def _waivers(suite: Suite, root: Path) -> tuple[Waiver, ...]:
    """The waivers in the suite and in the file it names, refused when they are out of date."""
    filed = () if suite.waivers_file is None else load_waivers(root / suite.waivers_file)
    waivers = (*suite.waivers, *filed)
    check_waivers(waivers, suite=suite, today=dt.datetime.now(dt.UTC).date())
    return waivers


def _check_prompts(asked: Asked, lengths: Lengths | None, held: Sequence[Prompt]) -> None:
    """Refuse prompts that a capture made now would not hold, before it is made."""
    by_id = {prompt.id: prompt for prompt in held}
    for name in asked.prompts:
        if name not in by_id:
            msg = (
                f"--prompt {name}: the suite's prompt set has no such prompt"
                f"{did_you_mean(name, by_id)}"
            )
            raise InputError(msg)
    choose_prompts(by_id, ids=asked.prompts, lengths=lengths)
