"""``logits.err_ratio``: cand's logit error over ref's, both against the oracle."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._logit_rows import DECODE, FORCED, logit_rows
from validate.metrics._logit_values import bad_logits
from validate.metrics._quartile import third_quartile
from validate.metrics._reason import Reason, without_value
from validate.metrics._topk_rows import holds_topk, read_topk
from validate.numerics import centred_rms, exact_sum
from validate.schema import Levels, Measurement, Pair, Side, Worst
from validate.stats import geometric_ratio

__all__ = ["logits_err_ratio"]

NAME = "logits.err_ratio"


class _Place(NamedTuple):
    """One row of one section."""

    section: str
    row: int
    position: int


class _Errors(NamedTuple):
    """Centred RMS errors of one prompt's rows against the oracle, logits (nats)."""

    prompt: str
    places: list[_Place]
    ref: NDArray[np.float64]
    cand: NDArray[np.float64]

    @property
    def ref_rms(self) -> float:
        return float(np.sqrt(np.mean(self.ref**2)))

    @property
    def cand_rms(self) -> float:
        return float(np.sqrt(np.mean(self.cand**2)))


def logits_err_ratio(pair: Pair, levels: Levels) -> Measurement:
    """Third quartile over prompts of RMS error of cand over RMS error of ref, against the oracle.

    At 1 cand is as near to the truth as ref is. A prompt's error is the root mean square over its
    prefill rows and, where captured, its decode rows. The error of a row is the root mean square
    over the vocabulary of the logit difference less its mean: every id counts alike, so the
    number is the arithmetic noise of the logits and steady from prompt to prompt. The
    same weighted by probability would be ``sqrt(2 KL)``, which the KL gates already hold.

    Args:
        pair: Both sides' logits, and the oracle's.
        levels: Levels of the two limits.

    Returns:
        Measurement as a ratio, ``n`` = prompts, with order-statistic limits; the geometric mean
        is in the breakdown. ``worst_value`` is the
        worst row: its cand error over the largest of its own ref error, the
        prompt's ref RMS and the median prompt's ref RMS, so that a row or prompt where ref is
        right by luck does not count against cand. Undefined without an oracle, when a logit of any of the
        three is not finite, when tensors, shapes or positions differ, or when
        ref or cand equals the oracle exactly on a prompt.

    Source:
        ``validate.numerics.centred_rms`` and ``validate.stats.quantile_limits``.
    """
    found = _measure(pair)
    if isinstance(found, Reason):
        return without_value(NAME, found, unit="ratio", n_of="prompts")
    above, below = [one.cand_rms for one in found], [one.ref_rms for one in found]
    ratios = np.array(above) / np.array(below)
    quartile = third_quartile(ratios, levels=levels)
    mean = geometric_ratio(above, below)
    worst = _worst(found)
    return Measurement(
        metric=NAME,
        value=quartile.value,
        unit="ratio",
        n=len(found),
        n_of="prompts",
        interval=quartile.interval,
        worst=worst,
        worst_value=worst.value,
        breakdown={
            **({} if mean is None else {"geometric mean": mean}),
            "prompt.p50": float(np.median(ratios)),
            "prompt.max": float(ratios.max()),
            "ref_rms": exact_sum(below) / len(below),
            "cand_rms": exact_sum(above) / len(above),
        },
        n_needed=quartile.n_needed,
        pooled=len(found),
    )


def _measure(pair: Pair) -> list[_Errors] | Reason:
    """Errors of every prompt, or why there are none."""
    if pair.oracle is None:
        return Reason("no oracle capture to measure either side against")
    rows = logit_rows(pair)
    if rows.reason is not None:
        return rows.reason
    errors = []
    for prompt in pair.prompts:
        one = _errors(pair, pair.oracle, prompt)
        if isinstance(one, Reason):
            return one
        errors.append(one)
    return errors


def _errors(pair: Pair, oracle: Side, prompt: str) -> _Errors | Reason:
    """Errors over the prompt's own tokens: prefill rows, then decode rows where captured."""
    parts = []
    for section, positions in ((FORCED, "logits.positions"), (DECODE, "decode.positions")):
        held = section in pair.ref.names(prompt) or holds_topk(pair.ref, prompt, section)
        if section == FORCED or held:
            part = _section(pair, oracle, prompt, section, positions)
            if isinstance(part, Reason):
                return part
            parts.append(part)
    errors = _Errors(
        prompt,
        [place for part in parts for place in part.places],
        np.concatenate([part.ref for part in parts]),
        np.concatenate([part.cand for part in parts]),
    )
    for side, rms in ((pair.ref, errors.ref_rms), (pair.cand, errors.cand_rms)):
        if not rms > 0:
            return Reason(f"{side.label} equals the oracle exactly on prompt {prompt}: no ratio")
    return errors


def _section(
    pair: Pair, oracle: Side, prompt: str, section: str, positions: str
) -> _Errors | Reason:
    names = oracle.names(prompt) if prompt in oracle.prompts else ()
    if not {section, positions} <= set(names):
        return Reason(f"oracle '{oracle.label}' holds no {section} of prompt {prompt}", "unlike")
    truth, at = oracle.tensor(prompt, section), oracle.tensor(prompt, positions)
    ref = _every_id(pair.ref, prompt, section, truth.shape[-1])
    cand = _every_id(pair.cand, prompt, section, truth.shape[-1])
    if ref is None or cand is None:
        return Reason("top-k logits hold no error of every id: the ratio needs full logits")
    wanted = pair.ref.tensor(prompt, positions)
    if truth.shape != ref.shape or at.shape != wanted.shape or (at != wanted).any():
        why = f"oracle '{oracle.label}' prompt {prompt}: {section} {truth.shape} at other positions"
        return Reason(f"{why} than ref's {ref.shape}", "unlike")
    bad = bad_logits(truth, ref)
    if bad:
        where = f"prompt {prompt} {section}: {bad[0].text()}"
        return Reason(f"oracle '{oracle.label}' and ref '{pair.ref.label}' {where}")
    places = [_Place(section, row, int(position)) for row, position in enumerate(at)]
    return _Errors(prompt, places, centred_rms(truth, ref), centred_rms(truth, cand))


def _every_id(side: Side, prompt: str, section: str, vocab: int) -> NDArray[Any] | None:
    """Full rows, put in the order of ids where all of them are stored as top-k; None: some are not."""
    if not holds_topk(side, prompt, section):
        return side.tensor(prompt, section)
    held = read_topk(side, prompt, section)
    if held.ids.shape[1] != vocab:
        return None
    rows = np.full(held.logits.shape, np.nan)
    np.put_along_axis(rows, held.ids, held.logits, axis=1)
    return rows


def _worst(errors: list[_Errors]) -> Worst:
    """The row with the greatest ratio, its denominator no less than what ref usually errs by."""
    usual = float(np.median([one.ref_rms for one in errors]))
    places = []
    for one in errors:
        ratios = one.cand / np.maximum(one.ref, np.fmax(one.ref_rms, usual))
        row = int(np.argmax(ratios))
        places.append((float(ratios[row]), one, row))
    value, one, row = max(places, key=lambda place: place[0])
    return Worst(
        prompt=one.prompt,
        position=one.places[row].position,
        place=f"{one.places[row].section} row {one.places[row].row}",
        value=value,
        detail=f"error of cand {one.cand[row]:.4g}, of ref {one.ref[row]:.4g}; of ref over the "
        f"prompt {one.ref_rms:.4g}, over the median prompt {usual:.4g} (logits, RMS)",
    )
