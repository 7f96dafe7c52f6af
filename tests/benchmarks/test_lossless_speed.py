"""100,000 tokens from stored values: statistics within two seconds."""

from time import perf_counter

import numpy as np
import pytest

from validate.metrics import METRICS
from validate.metrics._spec_read import spec_side
from validate.run.spec_sampler import HONEST
from validate.run.spec_simulation import simulated_pair
from validate.schema import Levels

SECONDS = 2.0
NAMES = ("nonfinite", "support", "uniform", "surprisal", "serial", "acceptance_z", "health")


@pytest.mark.benchmark
def test_statistics_of_100_000_tokens_take_two_seconds():
    pair = simulated_pair(HONEST[0], streams=782, tokens=64, rng=np.random.default_rng(0))
    levels = Levels(low=1 - 4e-4)

    start = perf_counter()
    for name in NAMES:
        METRICS[f"speculative.{name}"](pair, levels)
    taken = perf_counter() - start

    assert sum(len(d.tokens) for d in spec_side(pair, pair.cand).kinds.values()) >= 100_000
    assert taken <= SECONDS, f"{taken:.2f} s"
