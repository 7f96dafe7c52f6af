"""Kept sets and laws from a partition or one sort are bit for bit those of a full stable sort."""

import numpy as np
from hypothesis import given, settings, strategies as st

from validate.oracle import lossless_rows, top_k_kept, top_p_kept
from validate.oracle.lossless import Asked, fall, surprisal_moments
from validate.oracle.lossless_rows import AskedRows, falls, requested_laws, surprisal_moments_of

few = settings(max_examples=60, deadline=None)
RULES = st.sampled_from(["all", "exactly_k"])


def first(law, count, ties):
    """The slow form: sort everything, lowest id first among equals."""
    order = np.argsort(-law, kind="stable")
    if ties == "all":
        return law >= law[order[count - 1]]
    kept = np.zeros(len(law), bool)
    kept[order[:count]] = True
    return kept


def divided(law, kept):
    left = np.where(kept, law, 0.0)
    return left / np.sum(left)


def slow_law(row, one, ties):
    """``requested_law`` of a row at T > 0, filter by filter."""
    scaled = row / one.temperature
    law = np.exp(scaled - np.max(scaled))
    law = law / np.sum(law)
    if 0 < one.top_k < len(law):
        law = divided(law, first(law, one.top_k, ties))
    if one.top_p < 1:
        reached = np.cumsum(-np.sort(-law))
        enough = reached >= one.top_p * np.sum(law)
        count = int(np.argmax(enough)) + 1 if enough.any() else len(law)
        law = divided(law, first(law, count, ties))
    if one.min_p > 0:
        law = divided(law, law >= one.min_p * np.max(law))
    return law


@st.composite
def cases(draw):
    """Rows that tie or do not, with -inf among them, and parameters at their edges."""
    vocab, rows = draw(st.integers(2, 60)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    logits = rng.normal(size=(rows, vocab)) * draw(st.sampled_from([0.0, 0.5, 3.0, 30.0]))
    if draw(st.booleans()):
        logits = np.round(logits)
    logits[:, 1:][rng.random((rows, vocab - 1)) < draw(st.sampled_from([0.0, 0.5]))] = -np.inf
    asked = [
        Asked(
            temperature=float(rng.choice([0.5, 1.0, 1.7])),
            top_k=int(rng.choice([0, 1, 2, vocab - 1, vocab, vocab + 3])),
            top_p=float(rng.choice([0.0, 1e-9, 0.3, 0.9, 1 - 1e-16, 1.0])),
            min_p=float(rng.choice([0.0, 0.1, 1.0])),
        )
        for _ in range(rows)
    ]
    return logits, asked


@few
@given(case=cases(), ties=RULES, part=st.sampled_from([1, 64, 1 << 17]))
def test_laws_are_bit_for_bit_those_of_a_full_sort(case, ties, part):
    """However many rows are worked on at a time."""
    logits, asked = case
    was, lossless_rows.PART = lossless_rows.PART, part
    try:
        found = requested_laws(logits, AskedRows.of(asked, ties=ties))
    finally:
        lossless_rows.PART = was

    for row, one in enumerate(asked):
        assert np.array_equal(found[row], slow_law(logits[row], one, ties))


@few
@given(case=cases(), ties=RULES)
def test_kept_sets_of_the_filters_are_those_of_a_full_sort(case, ties):
    """``top_k_kept`` and ``top_p_kept`` of one row each."""
    logits, asked = case
    for row, one in enumerate(asked):
        law = slow_law(logits[row], Asked(temperature=1.0), ties)
        k = int(np.clip(one.top_k, 1, len(law)))
        enough = np.cumsum(np.sort(law)[::-1]) >= one.top_p * np.sum(law)
        count = int(np.argmax(enough)) + 1 if enough.any() else len(law)

        by_k = top_k_kept(law[None], k, ties=ties)[0]
        by_p = top_p_kept(law[None], one.top_p, ties=ties)[0]

        assert np.array_equal(by_k, first(law, k, ties))
        assert np.array_equal(
            by_p, np.full(len(law), True) if one.top_p == 1 else first(law, count, ties)
        )


@few
@given(case=cases(), seed=st.integers(0, 10**6))
def test_falls_and_moments_are_those_of_one_row(case, seed):
    """Places in falling order of the law, and entropy and variance."""
    logits, asked = case
    law = requested_laws(logits, AskedRows.of(asked, ties="all"))
    ids = np.random.default_rng(seed).integers(0, law.shape[1], len(law))

    below = falls(law, ids, key=law)
    moments = surprisal_moments_of(law)

    for row, x in enumerate(ids.tolist()):
        one = fall(law[row], x, order="falling_p", p=law[row])
        assert (below[row, 0], below[row, 1]) == one
        entropy, variance = surprisal_moments(law[row])
        assert (moments.entropy[row], moments.variance[row]) == (entropy, variance)
