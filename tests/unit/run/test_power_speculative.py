"""Power of the speculative gates that have a share of alpha: models that are the metrics' own numbers."""

import dataclasses

import numpy as np
import pytest

from tests.unit.metrics.spec_made import drafted, fair, pair, side
from tests.unit.run.made import suite
from validate.metrics import METRICS
from validate.run.measure import Bench
from validate.run.power_cases import Clean, cases_of
from validate.run.power_models import MODELS, differs, measurement_of
from validate.schema import Levels
from validate.schema.suite import GateSpec

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"
N = 12


def drafts(shift: float):
    """Streams whose expected acceptance is half, moved by ``shift`` times a prompt's own number."""
    return {
        f"p-{at}": drafted([1, 0] * 10, expected=0.5 + shift * (at - 4) / 20) for at in range(N)
    }


def replayed(parts: int):
    """Streams whose first ``parts`` prompts come out otherwise among other batchmates."""
    streams = drafts(0.0)
    extra = {}
    for at, (prompt, x) in enumerate(streams.items()):
        again = x["tokens"][:12].copy()
        again[5] += at < parts
        extra[prompt] = {f"spec.{KIND}.replay": again}
    return side({KIND: streams}, extra=extra)


@pytest.mark.parametrize(
    ("metric", "cand"),
    [
        ("speculative.acceptance_delta", side({KIND: drafts(1.0)})),
        ("speculative.acceptance_delta", side({KIND: drafts(0.0)})),
        ("speculative.replay", replayed(0)),
        ("speculative.replay", replayed(3)),
        ("speculative.replay", replayed(N)),
    ],
)
def test_a_model_gives_the_metrics_own_numbers(metric, cand):
    """From one number a prompt, each measured on that prompt alone."""
    both = pair(cand, side({KIND: drafts(0.0)}, label="cuda"))
    whole = METRICS[metric](both, LEVELS)
    alone = [
        MODELS[metric].of_prompt(
            METRICS[metric](dataclasses.replace(both, prompts=(prompt,), _cache={}), LEVELS)
        )
        for prompt in both.prompts
    ]

    made = measurement_of(MODELS[metric], np.array(alone, np.float64), like=whole, levels=LEVELS)

    assert len(alone) == whole.n == N
    assert differs(made, whole) is None


def test_a_lossless_gate_says_what_it_would_see():
    """No simulation: its own measurement of ref's repeats tells the effect."""
    gate = GateSpec(
        name="speculative.surprisal", kind="lossless", weight=1.0, effect=0.1, effect_of="of 1/T"
    )
    both = pair(side({"sampled": fair(60)}))
    found = METRICS[gate.name](both, LEVELS)
    assert found.detection is not None
    clean = Clean(itself=both, pairs=(both,), repeated=({gate.name: found},))

    cases, _, why = cases_of(
        [gate],
        clean=clean,
        bench=Bench(gates=(gate,), levels={gate.name: LEVELS}),
        suite=suite(gate),
        shares={},
        limits={},
        tell=print,
    )

    assert not cases
    assert why[gate.name] == (
        f"speculative.surprisal tells its power itself: {found.detection.effect:.3g} of its effect "
        "is seen with 95 % in every repeat, the suite states 0.1 (docs/power.md, Samplers)"
    )
