"""From a gate that is not PASS to its cause: pass, layer, module, head, and the switch behind it."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from validate.errors import InputError, ValidateError
from validate.pairing import pair
from validate.run.explain_capture import batch_of, retagged, seen_as
from validate.run.explain_find import find_places, groups, inside_prompts, tally
from validate.run.explain_streams import AUDIT, audit_places, stream_rungs
from validate.run.explain_switches import shows, try_switches
from validate.run.explain_words import (
    cause_words,
    gate_rungs,
    is_state,
    place_rungs,
    some,
    switch_summary,
    switch_words,
)
from validate.run.measure import Progress, silent
from validate.schema.explained import Explained, FoundPlace, Rung, SwitchTried
from validate.schema.model_config import ModelConfig
from validate.schema.pair import Pair, Side
from validate.schema.prompts import Prompt
from validate.schema.report import GateReport, MeasurementReport, Report
from validate.schema.suite import GateSpec
from validate.schema.verdict import Outcome

__all__ = ["AREAS", "Again", "Retake", "Scene", "attach", "check_gate", "crashed", "explain"]

AREAS = ("attention", "state", "logits", "greedy", "speculative", "renorm")
"""Areas whose gates can be explained."""
LOCAL = ("attention", "state", "logits", "greedy")
"""Those that are followed down to a layer."""
MOST_DRAWN = 8
"""Prompts that are drawn from when a switch is tried."""
DRAWN_TOKENS = "40"
"""Tokens of each of their streams."""
MOST_TOKENS = 100
"""Longest prompt that is captured again only to have enough of them."""

Again = Callable[[Side, Side, Side | None], Report]
"""Compares two sides by the gate alone, with the oracle where there is one."""


@runtime_checkable
class Retake(Protocol):
    """Captures the two sides again, some prompts and switches at a time."""

    def ref(self, prompts: Sequence[Prompt], options: Mapping[str, str]) -> Side:
        """What stands for ref."""
        ...

    def cand(
        self, prompts: Sequence[Prompt], options: Mapping[str, str], *, path: str | None = None
    ) -> tuple[Side, str | None]:
        """Cand with some options set otherwise, and a note where a planted fault was left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a comparison leaves for its explanation."""

    ref: Side
    cand: Side
    prompts: tuple[str, ...]
    """That were compared."""
    weights: Mapping[str, NDArray[Any]] | None = None
    config: Mapping[str, Any] | None = None
    oracle: Side | None = None
    studio: Retake | None = None
    """Where cand is captured again; None: it cannot be."""
    why_stored: str = ""
    """Why not."""
    again: Again | None = None
    progress: Progress = silent


def check_gate(name: str, gates: Sequence[GateSpec], *, known: Sequence[str]) -> None:
    """Refuse a gate that cannot be explained, before anything is captured.

    Args:
        name: What the user asked for.
        gates: The gates that this run judges.
        known: All gates of the suite.

    Raises:
        InputError: There is no such gate, it is not judged here, or it tells of no layer.
    """
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        msg = f"--explain {name}: the suite has no such gate{hint}\n  do next: validate list gates"
        raise InputError(msg)
    if name.partition(".")[0] not in AREAS:
        msg = (
            f"--explain {name}: only gates of {', '.join(AREAS)} are followed to a cause; what else "
            "fails is told in the report itself\n  do next: --explain all"
        )
        raise InputError(msg)
    if name not in {gate.name for gate in gates}:
        msg = (
            f"--explain {name}: this run leaves the gate out (--only or --skip)\n"
            f"  do next: add it with --only {name}"
        )
        raise InputError(msg)


def attach(report: Report, found: Explained) -> Report:
    """The report with an explanation; every verdict stays as it is."""
    return report.model_copy(update={"explained": found})


def crashed(report: Report, name: str, error: BaseException) -> Explained:
    """What stands in the report where the explanation itself broke off.

    Args:
        report: The comparison, which stands.
        name: The gate.
        error: Why.
    """
    why = " ".join(str(error).split()) or "(no message)"
    return Explained(
        gate=name,
        outcome=_gate(report, name).outcome,
        status="crashed",
        summary=f"the explanation broke off with {type(error).__name__}: {why}; no cause is named",
    )


def _gate(report: Report, name: str) -> GateReport:
    return next(gate for gate in report.gates if gate.name == name)


def explain(report: Report, name: str, *, scene: Scene) -> Explained:
    """Explain one gate of a comparison.

    Each captured operation of cand is held against the float64 operation on cand's own inputs, so
    that what went wrong before it does not count. Then cand is captured again, a few prompts, with
    one switch at a time as ref has it.

    Args:
        report: The comparison; its verdicts are not touched.
        name: Which gate, checked by ``check_gate``.
        scene: The captures.

    Raises:
        Exception: Whatever goes wrong; an explanation that breaks off names no cause.
    """
    gate = _gate(report, name)
    if gate.outcome is Outcome.PASS:
        why = f"{name} PASSes: there is nothing to explain"
        return Explained(gate=name, outcome=gate.outcome, status="nothing to explain", summary=why)
    if gate.outcome is Outcome.INCOMPARABLE:
        why = f"{name} is INCOMPARABLE, so nothing may be said of cand: {gate.reason}"
        return Explained(gate=name, outcome=gate.outcome, status="not explained", summary=why)
    found = _Found(gate, scene)
    found.locate()
    found.switch()
    return found.told()


class _Found:
    """One explanation in the making."""

    def __init__(self, gate: GateReport, scene: Scene) -> None:
        self.gate, self.scene = gate, scene
        self.area = gate.name.partition(".")[0]
        self.streams: tuple[Rung, ...] = ()
        self.looked = False
        self.notes: list[str] = []
        self.places: tuple[FoundPlace, ...] = ()
        self.tried: tuple[SwitchTried, ...] = ()
        self.prompts: tuple[str, ...] = ()
        self.baseline: MeasurementReport | None = None
        self.config = None if scene.config is None else ModelConfig.model_validate(scene.config)
        if gate.waiver is not None:
            self.notes.append(f"the gate is WAIVED and does not count: {gate.waiver}")
        if gate.outcome is Outcome.INCONCLUSIVE:
            self.notes.append(f"the gate did not FAIL, it is INCONCLUSIVE: {gate.reason}")

    def locate(self) -> None:
        """Down to pass, layer, module and head, or to kind, draft and stratum of a stream."""
        scene = self.scene
        if self.area == "speculative":
            self.streams = tuple(stream_rungs(self.gate, self._pair()))
        if self.gate.name == AUDIT and self.gate.limit is not None:
            self.places = audit_places(
                scene.cand, scene.prompts, config=self.config, limit=self.gate.limit.value
            )
        if self.area not in LOCAL:
            return
        if scene.weights is None or self.config is None:
            self.notes.append(
                "no float64 weights of ref's model are at hand, so no operation could be held "
                "against the exact one; put them where the manifest names them"
            )
            return
        sides = self._inside()
        if sides is not None:
            self.looked = True
            self.places = self._places(*sides, weights=scene.weights, config=self.config)

    def _pair(self) -> Pair:
        """Ref and cand as the gate saw them."""
        made = pair(self.scene.ref, self.scene.cand, near_tie=0.0, route_gap=0.0)
        return replace(made, prompts=self.scene.prompts, _cache={})

    def _inside(self) -> tuple[Side, Side, tuple[str, ...]] | None:
        """Two sides that show their insides, of the failing prompt where that can be had."""
        scene, worst = self.scene, self._worst()
        held = inside_prompts(scene.cand, scene.prompts)
        inner = self.area in ("attention", "state")
        if held and (inner or worst is None or worst in held):
            return scene.ref, scene.cand, held
        if scene.studio is not None:
            names = self._worst_batch()
            if worst is not None and len(scene.cand.prompts[worst].token_ids) > MOST_TOKENS:
                names = (worst,)
            prompts = retagged(self._of(names), drawn=False, inside=True)
            cand, _ = scene.studio.cand(prompts, {})
            self.notes.append(
                f"looked inside of {some(names)}, captured again for that; ref's own errors are "
                "those of the reference path run here"
            )
            return scene.studio.ref(prompts, {}), cand, tuple(names)
        if held:
            self.notes.append(
                f"prompt {worst} was captured without `tensors`; what stands here was found in "
                f"{some(held)}"
            )
            return scene.ref, scene.cand, held
        self.notes.append(
            f"cand was captured without `tensors` ({scene.why_stored}), so it cannot be followed to "
            "a layer; capture prompts tagged 'tensors' and 'state'"
        )
        return None

    def _places(
        self,
        ref: Side,
        cand: Side,
        prompts: tuple[str, ...],
        *,
        weights: Mapping[str, NDArray[Any]],
        config: ModelConfig,
    ) -> tuple[FoundPlace, ...]:
        mine, theirs = (
            tally(
                side,
                inside_prompts(side, prompts),
                weights=weights,
                config=config,
                progress=self.scene.progress,
            )
            for side in (cand, ref)
        )
        return find_places(theirs, mine, sides=(ref, cand))

    def _worst(self) -> str | None:
        """The prompt that the gate's measurement names."""
        found = self.gate.measurement
        name = None if found is None or found.worst is None else found.worst.prompt
        return name if name in self.scene.prompts else None

    def _of(self, names: Sequence[str]) -> list[Prompt]:
        return [self.scene.cand.prompts[name] for name in names]

    def _worst_batch(self) -> tuple[str, ...]:
        """The batch of the worst prompt; without one the first that is not long."""
        cand, worst = self.scene.cand, self._worst()
        batch = batch_of(cand, worst or next(iter(self._short()), self.scene.prompts[0]))
        return tuple(name for name in batch if name in self.scene.prompts)

    def _few(self) -> tuple[str, ...]:
        """Prompts that are enough to show the failure, few enough to take seconds."""
        scene = self.scene
        tags = {name: scene.cand.prompts[name].tags for name in scene.prompts}
        if self.area == "speculative":
            drawn = [name for name in scene.prompts if "speculative" in tags[name]]
            inside = [name for name in drawn if "tensors" in tags[name]]
            worst = [name for name in (self._worst(),) if name in drawn]
            kept = list(dict.fromkeys([*worst, *inside[:2], *drawn]))[:MOST_DRAWN]
            return tuple(name for name in scene.prompts if name in kept)
        if self.area == "attention":
            return tuple(name for name in scene.prompts if "tensors" in tags[name])
        if self.area == "state":
            states = [name for name in scene.prompts if "state" in tags[name]]
            kept = [one for name in states for one in batch_of(scene.cand, name)]
            return tuple(dict.fromkeys(kept))
        return self._worst_batch()

    def _short(self) -> tuple[str, ...]:
        """All prompts that are not long."""
        held = self.scene.cand.prompts
        return tuple(
            name for name in self.scene.prompts if len(held[name].token_ids) <= MOST_TOKENS
        )

    def switch(self) -> None:
        """Try the switches, once the failure shows on prompts captured again."""
        scene = self.scene
        if scene.studio is None or scene.again is None:
            self.notes.append(f"no switch was tried: {scene.why_stored}")
            return
        for names in dict.fromkeys((self._few(), self._short())):
            if not names:
                continue
            self.prompts = names
            try:
                self.baseline, _ = self._measured({}, None)
            except ValidateError as error:
                self.notes.append(f"no switch was tried: {str(error).splitlines()[0]}")
                return
            if shows(self.gate, self.baseline):
                break
        else:
            self.notes.append(
                f"no switch was tried: on {some(self.prompts)} captured again beside the reference "
                f"path run here, {self.gate.name} does not show what it shows against ref"
            )
            return
        self.tried = try_switches(
            self.gate,
            ref=scene.ref.manifest,
            cand=scene.cand.manifest,
            measure=self._measured,
        )

    def _measured(
        self, options: Mapping[str, str], path: str | None
    ) -> tuple[MeasurementReport | None, str | None]:
        """The gate's measurement of cand with some options set otherwise, beside the reference path.

        Raises:
            ValidateError: The options do not go together, or the captures do not match.
        """
        scene = self.scene
        if scene.studio is None or scene.again is None:
            return None, scene.why_stored
        drawn = self.area == "speculative"
        prompts = retagged(self._of(self.prompts), drawn=drawn)
        amount = {"tokens": DRAWN_TOKENS} if drawn else {}
        # Streams of other kinds than cand's would not be matched.
        kinds = {key: value for key, value in options.items() if key == "draft"}
        ref = scene.studio.ref(prompts, {**amount, **kinds})
        cand, note = scene.studio.cand(prompts, {**amount, **options}, path=path)
        oracle = None if scene.oracle is None else seen_as(scene.oracle, prompts)
        report = scene.again(ref, cand, oracle)
        return _gate(report, self.gate.name).measurement, note

    def told(self) -> Explained:
        """The whole, in words."""
        kept = sorted(
            groups(self.places), key=lambda group: self.area == "state" and not is_state(group[0])
        )
        vanishing = [one for one in self.tried if one.found == "vanishes"]
        rungs = [*gate_rungs(self.gate), *self.streams]
        rungs += [rung for group in kept[:1] for rung in place_rungs(group)]
        rungs += [Rung(level="switch", text=switch_words(one)) for one in vanishing]
        cause = cause_words(self.gate, kept, streams=self.streams, looked=self.looked)
        parts = (cause, switch_summary(self.tried))
        done = bool(self.places or self.streams or vanishing)
        return Explained(
            gate=self.gate.name,
            outcome=self.gate.outcome,
            status="explained" if done else "not explained",
            summary="; ".join(part for part in parts if part),
            rungs=tuple(rungs),
            places=self.places,
            switches=self.tried,
            baseline=None if self.baseline is None else self.baseline.value,
            unit="" if self.gate.measurement is None else self.gate.measurement.unit,
            prompts=self.prompts,
            notes=tuple(self.notes),
        )
