"""Speculative streams against plain ones, and state after a commit against a replay."""

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import (
    F32,
    F64,
    SMALL,
    WEIGHTS,
    rocm,
    run_decode,
    run_prefill,
    state_arrays,
)
from tests.unit.models.speculation import (
    COLD,
    PROMPTS,
    WARM,
    drafter,
    good_drafts,
    plain_greedy,
    sampled_streams,
    spec_streams,
    target,
)
from validate.models import Trace
from validate.models.model import commit, forward_steps
from validate.models.speculate import speculate

VERIFIERS = ("chain", "target_only", "exact_match")
PATHS = {
    "reference-f64": F64,
    "reference-f32": F32,
    "rocm-f64": rocm(splits=2),
    "rocm-f32": rocm(dtype=torch.float32, splits=2),
}
TOKENS = 24
WINDOW = 8


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_greedy_speculation_emits_the_plain_greedy_stream(path, verifier):
    streams, _ = spec_streams(PATHS[path], [COLD] * 3, tokens=TOKENS, verifier=verifier)

    assert streams == plain_greedy(PATHS[path], TOKENS).tolist()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_greedy_speculation_with_good_drafts_emits_it_too(path, verifier, monkeypatch):
    truth = plain_greedy(PATHS[path], 3 * TOKENS + WINDOW)
    good_drafts(monkeypatch, truth, seed=1)

    streams, steps = spec_streams(PATHS[path], [COLD] * 3, tokens=3 * TOKENS, verifier=verifier)

    assert streams == truth[:, : 3 * TOKENS].tolist()
    counts = {int(c) for s in steps for c, live in zip(s.count, s.live, strict=True) if live}
    assert len(counts) > 4, "drafts of every quality were judged"


@pytest.mark.parametrize("options", [F64, rocm(splits=2)], ids=["reference", "rocm"])
@pytest.mark.parametrize("accepted", range(WINDOW))
def test_state_after_a_commit_is_that_of_the_committed_tokens(options, accepted):
    window = torch.randint(
        0, SMALL.vocab_size, (3, WINDOW), generator=torch.Generator().manual_seed(2)
    )
    _, before = run_prefill(PROMPTS, options)
    _, made = forward_steps(WEIGHTS, window, config=SMALL, options=options, state=before)

    state = commit(made, torch.full((3,), accepted + 1))

    replayed = window[:, : accepted + 1].tolist()
    _, expected = run_decode(replayed, before, options)
    assert state.lengths.tolist() == expected.lengths.tolist()
    for row, prompt in enumerate(PROMPTS):
        tokens = len(prompt) + accepted + 1
        found, wanted = (state_arrays(s, row, tokens) for s in (state, expected))
        for name in wanted:
            assert_measured(found[name], wanted[name], atol=1e-12, rtol=1e-11)


def test_a_row_that_commits_nothing_keeps_its_state():
    window = torch.ones(3, WINDOW, dtype=torch.long)
    _, before = run_prefill(PROMPTS)
    _, made = forward_steps(WEIGHTS, window, config=SMALL, options=F64, state=before)

    state = commit(made, torch.tensor([0, 3, 8]))

    assert state.lengths.tolist() == [8, 6, 13]
    found, wanted = state_arrays(state, 0, 8), state_arrays(before, 0, 8)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("accepted", range(WINDOW))
def test_decoding_goes_on_from_a_rolled_back_state(accepted):
    window = torch.randint(
        0, SMALL.vocab_size, (3, WINDOW), generator=torch.Generator().manual_seed(4)
    )
    _, before = run_prefill(PROMPTS)
    _, made = forward_steps(WEIGHTS, window, config=SMALL, options=F64, state=before)
    state = commit(made, torch.full((3,), accepted + 1))

    found, _ = run_decode([[5, 6]] * 3, state)

    whole = [[*p, *w[: accepted + 1].tolist(), 5, 6] for p, w in zip(PROMPTS, window, strict=True)]
    expected, _ = run_prefill(whole)
    for row, ids in enumerate(whole):
        wanted = expected[row, len(ids) - 2 : len(ids)]
        assert_measured(found[row], wanted, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_no_batchmate_moves_a_requests_tokens(verifier):
    params = (WARM[0], COLD, WARM[2])
    together, _ = spec_streams(F64, params, tokens=TOKENS, verifier=verifier)

    alone = [
        spec_streams(F64, [one], tokens=TOKENS, rows=[row], verifier=verifier)[0][0]
        for one, row in zip(params, PROMPTS, strict=True)
    ]
    reverse, _ = spec_streams(
        F64, params[::-1], tokens=TOKENS, rows=PROMPTS[::-1], verifier=verifier
    )

    assert together == alone
    assert together == reverse[::-1]


def test_exact_match_emits_the_plain_draws_of_the_same_seeds():
    speculative, _ = spec_streams(F64, WARM, tokens=TOKENS, verifier="exact_match")

    assert speculative == sampled_streams(F64, WARM, tokens=TOKENS)


def test_another_seed_gives_other_tokens():
    other = [one.model_copy(update={"seed": (one.seed or 0) + 100}) for one in WARM]

    first, second = (spec_streams(F64, params, tokens=TOKENS)[0] for params in (WARM, other))

    assert all(a != b for a, b in zip(first, second, strict=True))
    assert first == spec_streams(F64, WARM, tokens=TOKENS)[0]


def test_one_hot_proposals_are_the_argmax_whatever_the_temperature():
    _, steps = spec_streams(F64, WARM, tokens=TOKENS, proposal="greedy")

    for step in steps:
        assert torch.equal(step.drafts, step.draft_logits.argmax(-1))


def test_a_cut_verifies_no_draft_that_is_unlikely_to_be_reached():
    _, steps = spec_streams(F64, WARM, tokens=TOKENS, cut=0.3)

    for step in steps:
        likely = (step.confidence.cumprod(1) >= 0.3).sum(1)
        assert torch.equal(step.limit, likely)
        assert bool((step.count <= step.limit).all())


def test_a_chunked_prompt_gives_the_same_stream():
    made = [
        speculate(target(F64), drafter(), PROMPTS, [COLD] * 3, tokens=6, device="cpu", chunk=chunk)
        for chunk in (0, 3)
    ]

    assert torch.equal(made[0][1], made[1][1])
    for a, b in zip(made[0][2], made[1][2], strict=True):
        assert_measured(a.draft_logits, b.draft_logits, atol=1e-9, rtol=1e-8)


def test_the_branches_that_ran_are_counted():
    trace = Trace(wants=lambda _: False)
    _, _, steps = speculate(
        target(rocm(splits=2)),
        drafter(verifier="target_only", build="sparse"),
        PROMPTS,
        WARM,
        tokens=6,
        device="cpu",
        trace=trace,
    )

    for name in ("draft.block", "verify.target_only", "sampler.sparse"):
        assert trace.branches[name] == len(steps)
