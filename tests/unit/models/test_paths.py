"""Every way of running the same tokens gives the same numbers, in float64."""

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import (
    CPU,
    F64,
    ROWS,
    SMALL,
    WEIGHTS,
    real,
    rocm,
    run_decode,
    run_prefill,
    state_arrays,
    whole_trace,
)
from validate.models import (
    PathOptions,
    decode_forced,
    empty_state,
    forward,
    generate,
    greedy,
    right_padded,
)

FEW_FORMS = [
    pytest.param(PathOptions(dtype=torch.float64), id="reference"),
    pytest.param(rocm(prefill_pad="tile", decode_pad="repeat", splits=3), id="rocm"),
]
"""For tests that run each row alone."""

CLOSE = {"atol": 1e-12, "rtol": 1e-10}
"""The forms differ by 3e-14 in values up to 4."""

ROCM_FORMS = [
    pytest.param(rocm(prefill_pad=prefill, decode_pad=decode, splits=splits), id=name)
    for name, prefill, decode, splits in (
        ("zero-1", "zero", "zero", 1),
        ("zero-2", "zero", "zero", 2),
        ("tile-3", "tile", "tile", 3),
        ("repeat-1", "zero", "repeat", 1),
        ("repeat-4", "tile", "repeat", 4),
    )
]


def assert_states(actual, expected, rows=ROWS):
    for b, row in enumerate(rows):
        ours, theirs = (state_arrays(s, b, len(row)) for s in (actual, expected))
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_measured(ours[name], theirs[name], **CLOSE)
    assert actual.lengths.tolist() == [len(row) for row in rows]


def half_and_half(options, *, chunk=0, trace=None):
    """Prefill of about half of each row, then the rest token by token; logits of the rest."""
    halves = [len(row) // 2 for row in ROWS]
    more = {} if trace is None else {"trace": trace}
    _, state = run_prefill(
        [row[:h] for row, h in zip(ROWS, halves, strict=True)], options, chunk=chunk, **more
    )
    rest = [row[h:] for row, h in zip(ROWS, halves, strict=True)]
    logits, state = run_decode(rest, state, options, **more)
    return rest, halves, logits, state


@pytest.fixture(scope="module")
def oneshot():
    return run_prefill(ROWS)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 7, 64])
def test_chunked_prefill_is_one_shot_prefill(oneshot, chunk):
    logits, state = run_prefill(ROWS, chunk=chunk)

    assert_measured(real(logits, ROWS), real(oneshot[0], ROWS), **CLOSE)
    assert_states(state, oneshot[1])


def test_decode_token_by_token_from_nothing_is_one_shot_prefill(oneshot):
    empty = empty_state(SMALL, F64, batch=len(ROWS), device=CPU)

    logits, state = run_decode(ROWS, empty)

    assert_measured(real(logits, ROWS), real(oneshot[0], ROWS), **CLOSE)
    assert_states(state, oneshot[1])


@pytest.mark.parametrize("options", [pytest.param(F64, id="reference"), *ROCM_FORMS])
@pytest.mark.parametrize("chunk", [0, 2])
def test_prefill_then_decode_is_one_shot_prefill(oneshot, options, chunk):
    rest, halves, logits, state = half_and_half(options, chunk=chunk)

    tails = [
        oneshot[0][b, h : len(row)] for b, (row, h) in enumerate(zip(ROWS, halves, strict=True))
    ]
    assert_measured(real(logits, rest), torch.cat(tails), **CLOSE)
    assert_states(state, oneshot[1])


@pytest.mark.parametrize("options", ROCM_FORMS)
def test_rocm_prefill_is_reference_prefill_inside_too(options):
    ours, theirs = whole_trace(), whole_trace()

    run_prefill(ROWS, options, chunk=4, trace=ours)
    run_prefill(ROWS, F64, chunk=4, trace=theirs)

    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, passes in theirs.tensors.items():
        actual = real(torch.cat(ours.tensors[name], dim=1), ROWS)
        assert_measured(actual, real(torch.cat(passes, dim=1), ROWS), **CLOSE)


@pytest.mark.parametrize("options", ROCM_FORMS)
def test_rocm_decode_is_reference_decode_inside_too(options):
    ours, theirs = whole_trace(), whole_trace()

    rest, *_ = half_and_half(options, trace=ours)
    half_and_half(F64, trace=theirs)

    names = [name for name in theirs.tensors if name.startswith("decode.")]
    assert (
        len(names) == 2 * 5 + 5 + 2 + 3 * 4
    )  # in, hidden; out; lse of MLA; router from layer 1 on
    for name in names:
        actual = real(torch.cat(ours.tensors[name], dim=1), rest)
        assert_measured(actual, real(torch.cat(theirs.tensors[name], dim=1), rest), **CLOSE)


@pytest.mark.parametrize("splits", [2, 3, 4, 9])
def test_split_keys_of_the_reference_change_nothing(oneshot, splits):
    options = PathOptions(dtype=torch.float64, splits=splits)

    logits, state = run_prefill(ROWS, options)

    assert_measured(real(logits, ROWS), real(oneshot[0], ROWS), **CLOSE)
    assert_states(state, oneshot[1])


@pytest.mark.parametrize("options", FEW_FORMS)
@pytest.mark.parametrize("chunk", [0, 4])
def test_a_ragged_row_is_its_solo_run(options, chunk):
    together, state = run_prefill(ROWS, options, chunk=chunk)

    for b, row in enumerate(ROWS):
        alone, alone_state = run_prefill([row], options, chunk=chunk)
        assert_measured(together[b, : len(row)], alone[0], **CLOSE)
        ours, theirs = state_arrays(state, b, len(row)), state_arrays(alone_state, 0, len(row))
        for name in theirs:
            assert_measured(ours[name], theirs[name], **CLOSE)


@pytest.mark.parametrize("options", FEW_FORMS)
def test_a_ragged_row_of_decode_is_its_solo_run(options):
    first = [row[:1] for row in ROWS]
    rest = [row[1:] for row in ROWS]
    together, state = run_decode(rest, run_prefill(first, options)[1], options)

    for b, row in enumerate(rest):
        alone, alone_state = run_decode([row], run_prefill([first[b]], options)[1], options)
        assert_measured(together[b, : len(row)], alone[0], **CLOSE)
        ours = state_arrays(state, b, len(ROWS[b]))
        for name, expected in state_arrays(alone_state, 0, len(ROWS[b])).items():
            assert_measured(ours[name], expected, **CLOSE)


@pytest.mark.parametrize("filler", [1, 18])
@pytest.mark.parametrize("options", FEW_FORMS)
def test_the_id_that_fills_ragged_rows_never_matters(monkeypatch, options, filler):
    def run():
        logits, state = run_prefill(ROWS, options, chunk=4)
        more, state = run_decode([row[::-1] for row in ROWS], state, options)
        found = [state_arrays(state, b, 2 * len(row)) for b, row in enumerate(ROWS)]
        return real(logits, ROWS), real(more, ROWS), found

    zeros = run()
    monkeypatch.setattr(generate, "PAD_ID", filler)
    tokens, _ = right_padded(ROWS, device=CPU)
    poisoned = run()

    assert tokens[1].tolist() == [8, 9, 7, *[filler] * 8]
    assert np.array_equal(zeros[0], poisoned[0])
    assert np.array_equal(zeros[1], poisoned[1])
    for ours, theirs in zip(poisoned[2], zeros[2], strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_row_that_has_nothing_yet_is_untouched_by_its_neighbours():
    """``lengths`` 0 for a row: its state stays empty, and it can start later."""
    tokens = torch.tensor([[3, 1, 4], [0, 0, 0]])

    _, state = forward(WEIGHTS, tokens, config=SMALL, options=F64, lengths=torch.tensor([3, 0]))
    logits, state = run_decode([(1,), (8, 9, 7)], state)
    alone, _ = run_prefill([(8, 9, 7)])

    assert_measured(logits[1], alone[0], **CLOSE)
    assert state.lengths.tolist() == [4, 3]


def test_greedy_takes_what_a_forced_pass_says(oneshot):
    made = greedy(WEIGHTS, ROWS, steps=5, config=SMALL, options=F64, device=CPU)

    for b, row in enumerate(ROWS):
        ids = made.ids[b].tolist()
        logits, _ = run_prefill([[*row, *ids[:-1]]])
        rows = torch.log_softmax(logits[0, len(row) - 1 :], dim=-1)
        assert ids == rows.argmax(-1).tolist()
        assert_measured(made.logprobs[b], rows.amax(-1), **CLOSE)


def test_greedy_takes_the_lowest_id_among_equals():
    """Ids 4 and 11 share the row of the head that wins by far: a tie of equal numbers."""
    best = int(run_prefill(ROWS[:1])[0][0, -1].argmax())
    weights = dict(WEIGHTS)
    head = weights["lm_head.weight"].clone()
    head[[4, 11]] = head[best] * 3
    weights["lm_head.weight"] = head

    made = greedy(weights, ROWS[:1], steps=1, config=SMALL, options=F64, device=CPU)

    assert made.ids.tolist() == [[4]]


def test_greedy_of_logits_that_are_no_numbers_says_so():
    weights = WEIGHTS | {"lm_head.weight": torch.full_like(WEIGHTS["lm_head.weight"], torch.nan)}

    made = greedy(weights, ROWS[:1], steps=2, config=SMALL, options=F64, device=CPU)

    assert torch.isnan(made.logprobs).all()


def test_streams_do_not_depend_on_chunk_or_batch():
    whole = greedy(WEIGHTS, ROWS, steps=4, config=SMALL, options=F64, device=CPU)

    for b, row in enumerate(ROWS):
        alone = greedy(WEIGHTS, [row], steps=4, config=SMALL, options=F64, device=CPU, chunk=3)
        assert alone.ids[0].tolist() == whole.ids[b].tolist()


def test_decode_form_takes_several_tokens_at_once(oneshot):
    """A verify window: the decode form on 3 tokens at a time, causal inside the window."""
    state = empty_state(SMALL, F64, batch=1, device=CPU)
    row = torch.tensor(ROWS[:1])
    made = []
    for start in range(0, row.shape[1], 3):
        logits, state = forward(
            WEIGHTS,
            row[:, start : start + 3],
            config=SMALL,
            options=rocm(splits=2),
            state=state,
            decode=True,
        )
        made.append(logits)

    assert_measured(torch.cat(made, dim=1)[0], oneshot[0][0], **CLOSE)


def test_decoding_leaves_the_state_that_it_was_given(oneshot):
    """A pass returns a new state; the old one can be branched from again."""
    _, state = run_prefill([ROWS[0][:5]])
    before = {n: x.copy() for n, x in state_arrays(state, 0, 5).items()}

    decode_forced(WEIGHTS, [ROWS[0][5:]], state, config=SMALL, options=F64, device=CPU)

    assert all(np.array_equal(before[n], x) for n, x in state_arrays(state, 0, 5).items())
