"""Which requests share a pass: by their tokens alone, each exactly once."""

from validate.capture.backends.lm_eval_batches import MAX_ROWS, MIN_SHARED, Ask, plan

HEAD = tuple(range(40))


def test_every_request_comes_once_however_they_share() -> None:
    asks = [Ask((*HEAD, *range(100, 100 + n)), 41) for n in range(1, 6)]
    asks += [Ask((200 + n,), 1) for n in range(7)]

    batches = plan(asks)

    assert sorted(row for batch in batches for row in batch.rows) == list(range(12))


def test_rows_that_begin_alike_share_that_beginning_and_no_more() -> None:
    asks = [Ask((*HEAD, 7, 8), 42), Ask((*HEAD, 9, 8), 42), Ask((3, 4), 2)]

    shared = [batch for batch in plan(asks) if batch.prefixes]

    assert [batch.prefixes for batch in shared] == [(HEAD,)]
    assert sorted(shared[0].rows) == [0, 1]


def test_equal_prompts_leave_the_last_given_token_to_each_row() -> None:
    asks = [Ask(HEAD, 40), Ask(HEAD, 40)]

    (batch,) = plan(asks)

    assert batch.prefixes == (HEAD[:-1],)


def test_short_beginnings_are_not_shared() -> None:
    head = HEAD[: MIN_SHARED - 1]

    (batch,) = plan([Ask((*head, 77, 1), 17), Ask((*head, 78, 1), 17)])

    assert batch.prefixes == ()


def test_no_batch_has_more_rows_than_the_limit() -> None:
    alike = [Ask((*HEAD, n % 250), 41) for n in range(3 * MAX_ROWS)]
    unlike = [Ask((n,), 1) for n in range(3 * MAX_ROWS)]

    assert all(len(batch.rows) <= MAX_ROWS for batch in plan(alike + unlike))


def test_each_row_begins_with_its_own_prefix() -> None:
    heads = [tuple(range(start, start + 40)) for start in (0, 50, 100)]
    asks = [Ask((*head, 9, n), 42) for head in heads for n in range(4)]

    for batch in plan(asks):
        for row, which in zip(batch.rows, batch.prefix_of, strict=True):
            prefix = batch.prefixes[which]
            assert asks[row].tokens[: len(prefix)] == prefix
