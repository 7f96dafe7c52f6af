"""Structure search on planted structures: each phrase names what was planted, noise has none."""

from typing import Any

import numpy as np
import pytest

from validate.metrics._structure import ErrorMap, add_lse, add_rows, find_structure, new_map
from validate.metrics._words import ranges, ratio

HEADS, VALUE = 12, 8
NOISE = 0.004


def filled(
    plant: Any, *, prompts: int = 4, rows: int = 16, noise: float = NOISE, heads: int = HEADS
) -> ErrorMap:
    """A map of prompts 0..n-1, each its own batch row; ``plant(row, ref, cand)`` gives cand."""
    rng = np.random.default_rng(7)
    errors = new_map(heads, buckets=rows)
    for row in range(prompts):
        ref = rng.normal(size=(rows, heads, VALUE))
        cand = ref * (1 + noise * rng.normal(size=ref.shape))
        add_rows(
            errors, ref, plant(row, ref, cand.copy()), batch_row=row, positions=np.arange(rows)
        )
    return errors


def found(plant: Any, **settings: Any) -> str | None:
    chunk = settings.pop("chunk", None)
    return find_structure(filled(plant, **settings), noise=NOISE, chunk=chunk)


def set_heads(*which: int) -> Any:
    def plant(_row, _ref, cand):
        cand[:, list(which)] += 1.0
        return cand

    return plant


def test_clean_noise_has_no_structure():
    assert found(lambda _row, _ref, cand: cand) is None


def test_equal_sides_have_no_structure():
    assert found(lambda _row, ref, _cand: ref, noise=0.0) is None


def test_a_head_that_is_small_in_a_short_prompt_is_not_wrong():
    """One token whose head 3 is a hundredth of its usual size, off by half of that.

    Relative to itself the head is off by 0.5, 31 times the bar of 4 x 0.004; relative to
    its mean square over all prompts by 0.005, which is within it.
    """
    errors = filled(lambda _row, _ref, cand: cand)
    ref = np.ones((1, HEADS, VALUE))
    ref[:, 3] = 0.01
    cand = ref.copy()
    cand[:, 3] += 0.005
    add_rows(errors, ref, cand, batch_row=9, positions=np.arange(1))

    assert find_structure(errors, noise=NOISE) is None


def test_single_noisy_rows_have_no_structure():
    """Three times the noise in one row of 16 is what a maximum over rows looks like."""

    def plant(_row, ref, cand):
        cand[5] = ref[5] + 3 * (cand[5] - ref[5])
        return cand

    assert found(plant) is None


@pytest.mark.parametrize(
    ("which", "text"),
    [
        ((8, 9, 10, 11), "heads 8-11 wrong, others within 0.00"),
        ((3, 7, 11), "heads 3,7,11 wrong, others within 0.00"),
        ((4,), "head 4 wrong, others within 0.00"),
    ],
    ids=["tail", "every-fourth", "one"],
)
def test_wrong_heads_are_named(which, text):
    assert str(found(set_heads(*which))).startswith(text)


def test_clean_heads_without_any_error_are_called_exact():
    assert found(set_heads(10, 11), noise=0.0) == "heads 10,11 wrong, others exact"


def test_unlike_heads_without_a_gap_are_not_named():
    """Errors that rise smoothly from head to head have no edge to name."""

    def plant(_row, ref, cand):
        return cand + ref * (0.002 * np.arange(HEADS))[None, :, None]

    assert found(plant) is None


def test_some_batch_rows_with_some_heads_and_no_gap_are_not_named():
    """What spills from a token sent to another expert: a few rows, heads hit unevenly."""

    def plant(row, ref, cand):
        if row in (1, 3):
            cand += ref * (0.003 * np.arange(HEADS))[None, :, None]
        return cand

    assert found(plant) is None


@pytest.mark.parametrize("k", [2, 4])
def test_prefix_read_of_repeated_heads_is_a_head_map(k):
    """Repeat each head k times, then read heads [:12]: cand head h is ref head h // k (VX-01)."""

    def plant(_row, ref, _cand):
        return np.repeat(ref, k, axis=1)[:, :HEADS]

    text = str(found(plant))

    assert text.startswith(
        f"heads permuted (cand head h equals ref head m = h // {k}, "
        "as a prefix read of repeated heads gives: 0→0, 1→0"
    )
    assert f"11→{11 // k})" in text


def test_swapped_heads_are_a_head_map():
    def plant(_row, _ref, cand):
        return cand[:, [0, 2, 1, *range(3, HEADS)]]

    text = str(found(plant))

    assert text.startswith("heads permuted (cand head h equals ref head m: 0→0, 1→2, 2→1, 3→3")


def test_rotated_and_reversed_heads_name_their_rule():
    rotated = found(lambda _row, _ref, cand: np.roll(cand, -1, axis=1))
    backward = found(lambda _row, _ref, cand: cand[:, ::-1].copy())

    assert "= (h + 1) mod 12: 0→1" in str(rotated)
    assert "= reversed: 0→11" in str(backward)


def test_heads_are_recognised_by_lse_where_the_output_was_projected():
    """In absorbed decode the wrong latent passes head h's own value projection; the LSE does not."""
    rng = np.random.default_rng(3)
    errors = filled(set_heads(*range(1, HEADS)))
    ref = rng.normal(size=(20, HEADS))
    add_lse(errors, ref, np.repeat(ref, 4, axis=1)[:, :HEADS])

    text = str(find_structure(errors, noise=NOISE))

    assert "ref head m = h // 4" in text
    assert text.endswith("11→2), told by their LSE")


def test_too_few_rows_do_not_make_a_head_map_from_lse():
    errors = filled(set_heads(*range(1, HEADS)))
    ref = np.arange(12.0)[None]
    add_lse(errors, ref, np.repeat(ref, 4, axis=1)[:, :HEADS])

    assert "permuted" not in str(find_structure(errors, noise=NOISE))


def test_packed_read_of_padded_decode_rows_spares_batch_row_0():
    """[B,16,D] read with a 12-head stride (VX-02): row 0 exact, every head of rows >= 1 wrong."""
    rng = np.random.default_rng(5)
    batch, steps = 4, 6
    ref = rng.normal(size=(steps, batch, 12, VALUE))
    padded = np.concatenate([ref, np.zeros((steps, batch, 4, VALUE))], axis=2)
    packed = padded.reshape(steps, -1)[:, : batch * 12 * VALUE].reshape(ref.shape)
    errors = new_map(12, buckets=16)
    for row in range(batch):
        add_rows(
            errors, ref[:, row], packed[:, row], batch_row=row, positions=np.arange(8, 8 + steps)
        )

    assert find_structure(errors, noise=NOISE) == (
        "all heads, only batch rows >= 1 wrong (row 0 exact)"
    )


def test_wrong_heads_of_some_batch_rows_name_both():
    def plant(row, _ref, cand):
        if row in (1, 3):
            cand[:, 8:] += 1.0
        return cand

    text = str(found(plant))

    assert text.startswith("heads 8-11 wrong, others within")
    assert ", only batch rows 1,3 wrong (rows 0,2 within 0.00" in text


def test_packed_read_in_prefill_spares_the_first_token_row():
    """Prefill rows of a batch lie flat: only row 0 of batch row 0 is where it belongs."""
    rng = np.random.default_rng(5)
    ref = rng.normal(size=(2, 8, 12, VALUE))
    padded = np.concatenate([ref, np.zeros((2, 8, 4, VALUE))], axis=2)
    packed = padded.reshape(-1)[: ref.size].reshape(ref.shape)
    errors = new_map(12, buckets=8)
    for row in range(2):
        add_rows(errors, ref[row], packed[row], batch_row=row, positions=np.arange(8))

    assert find_structure(errors, noise=NOISE) == (
        "all heads, only token rows >= 1 wrong (row 0 of batch row 0 exact)"
    )


def test_one_prompt_names_token_rows():
    def plant(_row, _ref, cand):
        cand[1:] += 1.0
        return cand

    text = str(found(plant, prompts=1))

    assert text.startswith("all heads, only token rows >= 1 wrong (row 0 within 0.00")


def test_error_from_a_position_on():
    def plant(_row, _ref, cand):
        cand[5:] += 1.0
        return cand

    assert found(plant) == "all heads, from position 5 on"
    assert found(plant, chunk=5) == "all heads, from position 5 on, a chunk boundary"


def test_error_that_starts_at_a_chunk_boundary_and_decays():
    """LA-01: state of the last chunk is lost, and its share fades within the next chunk."""

    def plant(_row, ref, cand):
        fade = np.where(np.arange(32) >= 8, 0.5 ** (np.arange(32) % 8 - 1.0), 0.0)
        return cand + fade[:, None, None] * np.roll(ref, 1, axis=0)

    text = found(plant, rows=32, chunk=8)

    assert text == "all heads, starts at chunk boundary 8 and decays"


def test_decay_without_a_known_chunk_names_the_position():
    def plant(_row, ref, cand):
        fade = np.where(np.arange(16) >= 6, 0.5 ** (np.arange(16) - 6.0), 0.0)
        return cand + fade[:, None, None] * np.roll(ref, 1, axis=0)

    assert found(plant) == "all heads, starts at position 6 and decays"


def test_a_lone_wrong_position_is_listed():
    def plant(_row, _ref, cand):
        cand[9] += 2.0
        return cand

    assert str(found(plant)).endswith("only position 9 (1 of 16)")
    assert str(found(plant, rows=32)).endswith("only position 9 (1 of 32)")


def test_all_heads_of_all_rows_scaled():
    text = found(lambda _row, ref, _cand: 1.125 * ref)

    assert text == "all heads scaled by 1.125"


def test_one_head_scaled_twice():
    """MO-09, QU-03: a factor applied twice shows as a scale, not as noise."""

    def plant(_row, ref, cand):
        cand[:, 4] = 2.0 * ref[:, 4]
        return cand

    assert str(found(plant)).startswith("head 4 scaled by 2, others within")


def test_all_heads_of_all_rows_without_a_rule():
    rng = np.random.default_rng(11)

    assert found(lambda _row, ref, _cand: rng.normal(size=ref.shape)) == "all heads"


def test_buckets_name_their_first_position():
    errors = new_map(2, buckets=4, width=8)
    ref = np.ones((32, 2, 4))
    cand = ref.copy()
    cand[16:] = 3.0
    add_rows(errors, ref, cand, batch_row=0, positions=np.arange(32))

    assert find_structure(errors, noise=NOISE) == "all heads, from position 16 on"


def test_sums_are_those_of_the_definition():
    """Two rows, two heads, one value; by hand: diffs 1, 0, 2, -1 on refs 1, 2, 2, 4."""
    errors = new_map(2, buckets=2)
    ref = np.array([[[1.0], [2.0]], [[2.0], [4.0]]])
    cand = np.array([[[2.0], [2.0]], [[4.0], [3.0]]])
    err2, ref2 = add_rows(errors, ref, cand, batch_row=3, positions=np.array([0, 1]))

    assert err2.tolist() == [[1.0, 0.0], [4.0, 1.0]]
    assert ref2.tolist() == [[1.0, 4.0], [4.0, 16.0]]
    assert errors.err2.tolist() == [5.0, 1.0]
    assert errors.ref2.tolist() == [5.0, 20.0]
    assert errors.along.tolist() == [1.0 + 4.0, -4.0]
    assert errors.cand2.tolist() == [20.0, 13.0]
    assert errors.cross.tolist() == [[2.0 + 8.0, 4.0 + 16.0], [2.0 + 6.0, 4.0 + 12.0]]
    assert errors.cells[3][0].tolist() == [5.0, 1.0]
    assert errors.profile[3][0].tolist() == [1.0, 5.0]


def test_nan_never_counts_as_clean():
    errors = filled(lambda _row, _ref, cand: cand)
    errors.err2[3] = np.nan
    for err2, _ref2 in errors.cells.values():
        err2[3] = np.nan

    assert str(find_structure(errors, noise=NOISE)).startswith("head 3 wrong, others within 0.00")


def test_heads_wrong_in_one_batch_row_alone_are_not_diluted():
    """0.03 in one of four rows is 0.015 over all of them, below four times the noise of 0.004."""

    def plant(row, ref, cand):
        if row == 2:
            cand[:, 8:] = 1.03 * ref[:, 8:]
        return cand

    text = str(found(plant, noise=0.001))

    assert text.startswith("heads 8-11 wrong, others within 0.001")
    assert ", only batch rows 2 wrong (rows 0,1,3 within 0.001" in text


def test_empty_map_is_refused():
    with pytest.raises(ValueError, match="heads=0, buckets=4 and width=1 must be at least 1"):
        new_map(0, buckets=4)


def test_ratio_never_divides_by_zero():
    made = ratio(np.array([0.0, 4.0, 9.0, np.nan]), np.array([0.0, 16.0, 0.0, 1.0]))

    assert made[:3].tolist() == [0.0, 0.5, np.inf]
    assert np.isnan(made[3])


def test_ranges_of_nothing():
    assert ranges([]) == ""
