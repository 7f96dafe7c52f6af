"""Statistics of drawn streams: from stored values, and from raw rows of a large vocabulary.

Shares of processor time, never of the clock: the first against two seconds for 100,000 tokens, the
second against the same laws by a full stable sort of every row.
"""

from collections.abc import Iterator
from time import process_time

import jaxtyping
import numpy as np
import pytest

from validate.capture.backends._speculative_rows import _of_tokens
from validate.metrics import METRICS
from validate.metrics._spec_read import spec_side
from validate.oracle.lossless import Asked
from validate.oracle.lossless_rows import AskedRows, requested_laws
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


VOCAB, ROWS, ALL_ROWS = 163_840, 28, 2000
RAW_SECONDS = 20.0
BLOCK = 7
"""Rows of a verify window."""
GRID = [
    Asked(temperature=t, top_k=k, top_p=p, min_p=m)
    for t, k, p, m in (
        (1.0, 0, 1.0, 0.0),
        (0.7, 0, 0.9, 0.0),
        (1.0, 8, 0.8, 0.0),
        (1.3, 0, 1.0, 0.0),
        (0.8, 20, 1.0, 0.0),
        (1.0, 0, 1.0, 0.1),
        (1.2, 50, 0.95, 0.02),
    )
]


def numbers(logits: np.ndarray, drafts: np.ndarray, asked: AskedRows) -> dict[str, np.ndarray]:
    """What a capture stores of tokens that follow both orders and their outcome's law."""
    p = requested_laws(logits, asked)
    q = requested_laws(drafts, asked.unfiltered())
    outcomes = np.arange(len(logits)) % 4
    return _of_tokens(
        logits,
        p,
        q,
        logits.argmax(axis=1),
        outcomes=outcomes,
        temperature=asked.temperature,
        rule="chain",
    )


@pytest.mark.benchmark
@pytest.mark.usefixtures("_unchecked")
def test_2_000_raw_rows_of_a_large_vocabulary_take_twenty_seconds_of_two_cores():
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((ROWS, VOCAB))
    drafts = logits + rng.standard_normal((ROWS, VOCAB))
    asked = AskedRows.of(GRID * (ROWS // len(GRID)), ties="all")

    blocks, sorts = [], []
    for at in range(0, ROWS, BLOCK):
        part = np.arange(at, at + BLOCK)
        start = process_time()
        numbers(logits[part], drafts[part], asked.take(part))
        blocks.append(process_time() - start)
        start = process_time()
        for row in logits[part]:
            np.argsort(-row, kind="stable")
        sorts.append(process_time() - start)

    taken, sorting = min(blocks), min(sorts)
    seconds = taken * ALL_ROWS / BLOCK
    told = (
        f"{seconds:.1f} s for {ALL_ROWS} rows; sorting each takes {sorting / taken:.1f} times that"
    )
    assert seconds <= RAW_SECONDS, told
    assert sorting > taken, told
