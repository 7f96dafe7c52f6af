"""Score and survivors of a run, as text, JSON and Markdown."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutation.mutants import ROOT

__all__ = ["Results", "read", "survivors_explained", "tell", "write_report"]

EXPLAINED = ROOT / "tests/mutation/survivors.toml"
KILLED = ("killed", "timeout")
STATES = ("killed", "timeout", "survived", "invalid", "unjudged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """One run, perhaps written in several sittings."""

    head: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]

    @property
    def survivors(self) -> list[Mapping[str, Any]]:
        """By place."""
        found = [line for line in self.lines if line["status"] == "survived"]
        return sorted(found, key=lambda line: (line["module"], line["line"], line["key"]))

    @property
    def unjudged(self) -> list[Mapping[str, Any]]:
        """Mutants of which the run says nothing."""
        return [line for line in self.lines if line["status"] == "unjudged"]

    def rooms(self) -> dict[str, Counter[str]]:
        """States counted by room."""
        found = {room: Counter[str]() for room in self.head["rooms"]}
        for line in self.lines:
            found[line["module"].split(".")[1]][line["status"]] += 1
        return found


def read(files: Iterable[Path]) -> Results:
    """The results in ``files``, all of the same code; of a mutant the later line counts.

    What a file tells of some of a room's mutants counts beside a file of all of them: so those
    whom a new test kills are tried again alone.
    """
    head: dict[str, Any] = {}
    lines: dict[str, Mapping[str, Any]] = {}
    for file in files:
        first, *rest = (json.loads(text) for text in file.read_text(encoding="utf-8").splitlines())
        head = _joined(head, first, file)
        lines |= {line["key"]: line for line in rest}
    if not head:
        raise SystemExit("no file of results was given. Next: python -m tests.mutation run")
    return Results(head=head, lines=list(lines.values()))


def _joined(head: dict[str, Any], other: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Both heads as one; that of a run over some mutants counts none of those of all."""
    if not head:
        return dict(other)
    known = head["code"]
    for room, digest in other["code"].items():
        if known.get(room, digest) != digest:
            told = f"{file}: its mutants are of other code of {room} ({digest[:16]}, before {known[room][:16]})"
            raise SystemExit(f"{told}. Next: run the mutants of one state of the code.")
    some = bool(other["only"]) or other["sample"] is not None
    joined = {
        **head,
        "rooms": [*head["rooms"], *(r for r in other["rooms"] if r not in head["rooms"])],
        "code": {**known, **other["code"]},
        "date": max(head["date"], other["date"]),
    }
    for name in ("tool", "python", "numpy"):
        said = head[name].split(", ")
        joined[name] = ", ".join([*said, *([] if other[name] in said else [other[name]])])
    for name in ("mutants", "left_out"):
        joined[name] = {**other[name], **head[name]} if some else {**head[name], **other[name]}
    joined["failed_on_honest_code"] = {
        **head.get("failed_on_honest_code", {}),
        **other.get("failed_on_honest_code", {}),
    }
    return joined


@cache
def survivors_explained() -> Mapping[str, str]:
    """Key of a mutant that may survive, and why."""
    told = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {entry["key"]: entry["why"] for entry in told.get("survivor", [])}


@cache
def equivalents() -> frozenset[str]:
    """Keys of mutants that behave as the honest code for every input."""
    told = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    return frozenset(e["key"] for e in told.get("survivor", []) if e.get("equivalent", False))


def _equivalent(results: Results, room: str) -> int:
    mine = [r for r in results.survivors if r["module"].split(".")[1] == room]
    return sum(line["key"] in equivalents() for line in mine)


def score(states: Counter[str], *, spared: int = 0) -> float | None:
    """Share of killed among killed and survived, ``spared`` survivors left out; None of none."""
    killed = sum(states[name] for name in KILLED)
    every = killed + states["survived"] - spared
    return killed / every if every else None


def tell(results: Results) -> str:
    """For a terminal: a line a room, then the survivors nobody has explained."""
    lines = []
    for room, states in results.rooms().items():
        found = score(states)
        share = "no mutant judged" if found is None else f"{found:.1%} killed"
        spared = _equivalent(results, room)
        if spared:
            share += f", {score(states, spared=spared):.1%} without {spared} equivalent"
        counted = ", ".join(f"{states[name]} {name}" for name in STATES if states[name])
        of = results.head["mutants"][room]
        lines.append(f"{room}: {share} ({counted or 'none'}; {sum(states.values())} of {of} tried)")
    for line in results.survivors:
        why = survivors_explained().get(line["key"])
        if why is None:
            lines.append(_place(line))
    lines += [f"unjudged: {_place(line)}: {line.get('how')}" for line in results.unjudged]
    failed = results.head.get("failed_on_honest_code", {})
    lines += [f"fails on honest code, so judges nothing: {name}" for name in failed]
    return "\n".join(lines) + "\n"


def _place(line: Mapping[str, Any]) -> str:
    where = f"{line['module']}:{line['line']} in {line['function'] or 'the module'}"
    return f"survived {line['key']} {where} ({line['operator']})\n{line.get('change', '')}"


def write_report(results: Results, folder: Path) -> None:
    """``mutation.json`` and ``mutation.md``."""
    explained = survivors_explained()
    rooms = {
        room: {
            "mutants": results.head["mutants"][room],
            "tried": sum(states.values()),
            **{name: states[name] for name in STATES},
            "score": score(states),
            "equivalent": _equivalent(results, room),
            "score_without_equivalent": score(states, spared=_equivalent(results, room)),
        }
        for room, states in results.rooms().items()
    }
    survivors = [
        {name: line.get(name) for name in ("key", "module", "function", "operator", "change")}
        | {"why": explained.get(line["key"]), "equivalent": line["key"] in equivalents()}
        for line in results.survivors
    ]
    names = ("date", "tool", "python", "numpy", "code", "seed", "left_out")
    told = {name: results.head[name] for name in names} | {
        "failed_on_honest_code": results.head.get("failed_on_honest_code", {}),
        "rooms": rooms,
        "survivors": survivors,
    }
    text = json.dumps(told, indent=1, ensure_ascii=False)
    (folder / "mutation.json").write_text(text + "\n", encoding="utf-8")
    (folder / "mutation.md").write_text(_markdown(told), encoding="utf-8")


def _markdown(told: Mapping[str, Any]) -> str:
    from tests.mutation.choice import EXCLUSIONS

    parts = [
        "# Mutation check\n",
        ", ".join(
            (told["date"], told["tool"], f"Python {told['python']}", f"NumPy {told['numpy']}")
        ),
        f"Seed {told['seed']}. Code: {', '.join(f'{r} `{d[:12]}`' for r, d in told['code'].items())}.\n",
        "| Room | Mutants | Tried | Killed | Stopped by time | Survived | Score | Without equivalent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for room, row in told["rooms"].items():
        scores = (row["score"], row["score_without_equivalent"])
        share = " | ".join("none" if one is None else f"{one:.1%}" for one in scores)
        cells = (row["mutants"], row["tried"], row["killed"], row["timeout"], row["survived"])
        parts.append(f"| {room} | {' | '.join(map(str, cells))} | {share} |")
    parts += ["", "## Left out by rule\n"]
    for rule, why in EXCLUSIONS.items():
        count = sum(room.get(rule, 0) for room in told["left_out"].values())
        parts.append(f"- {rule} ({count}): {why}")
    parts += ["", "## Survivors\n"]
    for line in told["survivors"]:
        where = f"`{line['module']}`, {line['function'] or 'module level'}"
        parts.append(f"- {where}, {line['operator']}: {line['why'] or 'not explained yet'}")
        parts += [f"  {text}" for text in ("```diff", *str(line["change"]).splitlines(), "```")]
    return "\n".join(parts) + "\n"
