"""Which pairs and groups the serial tests are made of, counted by plain loops over tokens."""

import math
from collections import defaultdict
from dataclasses import fields

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.metrics._spec_streams import Drawn, SpecSide, Steps, Tokens
from validate.metrics.speculative_serial import _coins, _finals, _lag, _shared

PLAIN, ACCEPTED, RESAMPLED, BONUS = range(4)


def made(record, n, **columns):
    """A record whose other columns are zeros."""
    return record(**{f.name: np.asarray(columns.get(f.name, np.zeros(n))) for f in fields(record)})


def correlation(pairs):
    """Sum of (a - 1/2)(b - 1/2), over its standard deviation sqrt(n) / 12."""
    return 12 * math.fsum((a - 0.5) * (b - 0.5) for a, b in pairs) / math.sqrt(len(pairs))


def dispersion(named):
    """Number of groups of two or more, and the sum of 12 S^2 / size over them."""
    groups = defaultdict(list)
    for name, value in named:
        groups[name].append(value - 0.5)
    large = [values for values in groups.values() if len(values) > 1]
    return len(large), math.fsum(12 * sum(v) ** 2 / len(v) for v in large)


def holds(test, n, statistic):
    assert test.n == n
    assert test.n_of in ("pairs", "groups")
    assert_measured(test.statistic, statistic, atol=1e-9, rtol=1e-9)


@pytest.fixture
def streams():
    """Eight streams of 30 tokens, the last with a gap in its index, and a number for each token."""
    rows = [(p, i + (i > 12) * (p == 7)) for p in range(8) for i in range(30)]
    tokens = made(
        Tokens,
        len(rows),
        prompt=[p for p, _ in rows],
        index=[i for _, i in rows],
        position=[5 + i + p // 2 for p, i in rows],
    )
    return tokens, np.random.default_rng(11).random(len(rows))


@pytest.mark.parametrize("lag", [1, 2])
def test_neighbours_stand_at_the_distance_in_one_stream(streams, lag):
    tokens, u = streams
    at = {(p, i): v for p, i, v in zip(tokens.prompt, tokens.index, u, strict=True)}
    pairs = [(v, at[p, i - lag]) for (p, i), v in at.items() if (p, i - lag) in at]

    name, test = _lag(tokens, u, "sampled", lag)

    assert name == f"sampled, neighbours at distance {lag}"
    # A gap of one token parts two neighbours, and leaves two pairs at distance 2, of which one
    # is no longer next but one in the table: 8 x 29 - 1, and 8 x 28 - 2.
    assert len(pairs) == {1: 231, 2: 223}[lag]
    if lag == 1:
        holds(test, 231, correlation(pairs))
    else:
        assert test.n == 222


def test_groups_are_streams_positions_and_indices(streams):
    tokens, u = streams
    stream, position, token = (test for _, test in _shared(tokens, u, "sampled"))

    holds(stream, *dispersion(zip(tokens.prompt, u, strict=True)))
    holds(position, *dispersion(zip(tokens.position, u, strict=True)))
    holds(token, *dispersion(zip(tokens.index, u, strict=True)))
    assert stream.n == 8


def test_final_tokens_are_those_that_ended_a_step():
    """Six streams; each step accepts one draft and ends with a resampled or a bonus token.

    The first token of a stream is no step's; stream 2 lacks step 3.
    """
    rows = []
    for p in range(6):
        rows.append((p, -1, PLAIN))
        for s in range(8):
            if (p, s) != (2, 3):
                rows += [(p, s, ACCEPTED), (p, s, RESAMPLED if s % 2 else BONUS)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    tokens = made(Tokens, len(rows), prompt=columns[0], step=columns[1], outcome=columns[2])
    u = np.random.default_rng(5).random(len(rows))
    ends = {(p, s): v for (p, s, o), v in zip(rows, u, strict=True) if o in (RESAMPLED, BONUS)}
    pairs = [(v, ends[p, s - 1]) for (p, s), v in ends.items() if (p, s - 1) in ends]

    (_, next_one), (_, one_step) = _finals(tokens, u, "spec-sampled")

    assert len(pairs) == 6 * 7 - 2
    holds(next_one, 40, correlation(pairs))
    holds(one_step, *dispersion((s, v) for (_, s), v in ends.items()))
    assert one_step.n == 8


class TestCoins:
    BLOCK = 3

    def steps(self):
        """Six streams of ten steps of three drafts; stream 4 lacks step 6."""
        rows = [(p, s) for p in range(6) for s in range(10) if (p, s) != (4, 6)]
        count = np.array([(7 * p + 3 * s) % 4 for p, s in rows])
        limit = np.array([2 + (p + s) % 2 for p, s in rows])
        count = np.minimum(count, limit)
        chance = np.array(
            [
                [(0.3, 0.9, 1.0, 0.0, 0.5, 0.7)[(p + 2 * s + r) % 6] for r in range(3)]
                for p, s in rows
            ]
        )
        n = len(rows)
        return made(
            Steps,
            n,
            prompt=[p for p, _ in rows],
            step=[s for _, s in rows],
            place=[5 + 2 * s + p for p, s in rows],
            accepts=(np.arange(3) < count[:, None]).astype(int),
            count=count,
            limit=limit,
            drafted_p=chance / 2,
            drafted_q=np.full((n, 3), 0.5),
            label=[10 + p for p, _ in rows],
        )

    def told(self, steps):
        """Coins of rows that were reached and could have fallen either way, by (stream, step, row)."""
        coins = steps.coins(5, "chain")
        found = {}
        for at in range(len(steps)):
            for row in range(self.BLOCK):
                reached = row < min(steps.count[at] + 1, steps.limit[at])
                if reached and 0 < steps.drafted_p[at, row] < 0.5:
                    found[int(steps.prompt[at]), int(steps.step[at]), row] = coins[at, row]
        return found

    def judged(self, steps):
        side = SpecSide(label="rocm", key=5, prompts=(), kinds={}, rule="chain", vocab=2)
        drawn = Drawn(kind="spec-sampled", tokens=made(Tokens, 0), steps=steps, groups=())
        return [test for _, test in _coins(side, drawn)]

    def test_pairs_and_groups(self):
        steps = self.steps()
        told = self.told(steps)
        inside = [(v, told[p, s, r - 1]) for (p, s, r), v in told.items() if (p, s, r - 1) in told]
        across = [(v, told[p, s - 1, r]) for (p, s, r), v in told.items() if (p, s - 1, r) in told]
        next_one, next_step, stream, position, aligned = self.judged(steps)

        holds(next_one, len(inside), correlation(inside))
        holds(next_step, len(across), correlation(across))
        holds(stream, *dispersion((p, v) for (p, _, _), v in told.items()))
        holds(position, *dispersion((5 + 2 * s + p + 1 + r, v) for (p, s, r), v in told.items()))
        holds(aligned, *dispersion(((s, r), v) for (_, s, r), v in told.items()))

    def test_without_steps_there_is_nothing_to_test(self):
        assert self.judged(None) == []
        assert self.judged(self.steps().where(slice(0, 0))) == []
