"""100,000 tokens from stored values: statistics within two seconds of one processor."""

from collections.abc import Iterator
from time import process_time

import jaxtyping
import numpy as np
import pytest

from validate.metrics import METRICS
from validate.metrics._spec_read import spec_side
from validate.run.spec_sampler import HONEST
from validate.run.spec_simulation import simulated_pair
from validate.schema import Levels

SECONDS = 2.0
NAMES = ("nonfinite", "support", "uniform", "surprisal", "serial", "acceptance_z", "health")


@pytest.fixture
def _unchecked() -> Iterator[None]:
    """Shapes go unchecked, as they do outside of tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.benchmark
@pytest.mark.usefixtures("_unchecked")
def test_statistics_of_100_000_tokens_take_two_seconds():
    pair = simulated_pair(HONEST[0], streams=782, tokens=64, rng=np.random.default_rng(0))
    levels = Levels(low=1 - 4e-4)

    start = process_time()
    for name in NAMES:
        METRICS[f"speculative.{name}"](pair, levels)
    taken = process_time() - start

    assert sum(len(d.tokens) for d in spec_side(pair, pair.cand).kinds.values()) >= 100_000
    assert taken <= SECONDS, f"{taken:.2f} s"
