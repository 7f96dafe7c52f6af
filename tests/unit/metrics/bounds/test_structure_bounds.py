"""Structure search at its documented bounds: maps and profiles filled in by hand."""

import numpy as np
import pytest

from validate.metrics._positions import where_positions
from validate.metrics._structure import ErrorMap, add_rows, find_structure, new_map


def by_head(errors, ref2=None, *, along=None) -> ErrorMap:
    """A map whose heads have these relative errors; too few values to recognise heads by."""
    made = new_map(len(errors), buckets=1)
    made.ref2 = np.ones(len(errors)) if ref2 is None else np.asarray(ref2, float)
    made.err2 = np.asarray(errors, float) ** 2 * made.ref2
    if along is not None:
        made.along = np.asarray(along, float)
    return made


@pytest.mark.parametrize("none", ["heads", "buckets", "width"])
def test_a_map_holds_something(none):
    sizes = {"heads": 1, "buckets": 1, "width": 1}
    assert new_map(1, buckets=1, width=1).err2.tolist() == [0.0]

    sizes[none] = 0
    with pytest.raises(ValueError, match=f"{none}=0.*must be at least 1"):
        new_map(sizes["heads"], buckets=sizes["buckets"], width=sizes["width"])


class TestHeads:
    @pytest.mark.parametrize(
        ("error", "text"), [(4.0, None), (4.001, "head 1 wrong, others exact")]
    )
    def test_wrong_is_above_four_times_the_noise(self, error, text):
        assert find_structure(by_head([0.0, error]), noise=1.0) == text

    @pytest.mark.parametrize(
        ("clean", "text"), [(2.5, "head 1 wrong, others within 2.5"), (2.51, None)]
    )
    def test_wrong_heads_are_twice_as_wrong_as_every_clean_one(self, clean, text):
        assert find_structure(by_head([clean, 5.0]), noise=1.0) == text

    def test_a_factor_explains_small_heads_too(self):
        """ref^2 0.5 and cand = 2 ref: error^2 0.5, along 0.5."""
        made = by_head([1.0, 0.0], ref2=[0.5, 0.5], along=[0.5, 0.0])

        assert find_structure(made, noise=0.1) == "head 0 scaled by 2, others exact"

    def test_two_factors_are_a_range(self):
        """cand = 2 ref and cand = 3 ref: errors 1 and 2, along 1 and 2."""
        made = by_head([1.0, 2.0], along=[1.0, 2.0])

        assert find_structure(made, noise=0.1) == "all heads scaled by 2 to 3"

    @pytest.mark.parametrize(
        ("left2", "text"), [(0.15, "all heads scaled by 2"), (0.17, "all heads")]
    )
    def test_a_factor_must_leave_no_more_than_noise(self, left2, text):
        """Error^2 1 + left2 of which the factor 2 explains 1; the bar is 0.4^2 = 0.16."""
        made = by_head([np.sqrt(1 + left2)], along=[1.0])

        assert find_structure(made, noise=0.1) == text

    def test_a_head_without_a_reference_has_no_factor(self):
        made = by_head([1.0, 1.0], ref2=[1.0, 0.0], along=[1.0, 0.0])
        made.err2[:] = 1.0

        assert find_structure(made, noise=0.1) == "all heads"

    def test_undefined_heads_are_wrong(self):
        made = by_head([0.0, 1.0])
        made.err2[1] = np.nan

        assert find_structure(made, noise=0.1) == "head 1 wrong, others exact"


def swapped(*, own=1.0, values=8) -> ErrorMap:
    """Two heads, each at distance ``own`` from itself and 0.25 from the other."""
    made = by_head([own, own])
    made.cand2 = np.ones(2)
    made.cross = np.full((2, 2), 0.96875)  # 1 - 2 * 0.96875 + 1 = 0.0625 = 0.25^2
    made.values = values
    return made


class TestPermuted:
    TEXT = "heads permuted (cand head h equals ref head m = (h + 1) mod 2: 0→1, 1→0)"

    @pytest.mark.parametrize(
        ("own", "permuted"), [(1.0, True), (0.99, False)], ids=["four times", "less"]
    )
    def test_another_head_is_four_times_nearer(self, own, permuted):
        assert (find_structure(swapped(own=own), noise=0.0625) == self.TEXT) is permuted

    @pytest.mark.parametrize(("values", "permuted"), [(8, True), (7, False)])
    def test_eight_values_tell_a_head(self, values, permuted):
        assert (find_structure(swapped(values=values), noise=0.0625) == self.TEXT) is permuted

    def test_the_nearer_one_must_itself_be_within_the_bar(self):
        """Bar 0.24, nearest 0.25."""
        assert find_structure(swapped(), noise=0.06) == "all heads"

    @pytest.mark.parametrize(("count", "permuted"), [(16, True), (15, False)])
    def test_by_lse(self, count, permuted):
        """Spread 32 - 16^2 / 16 = 16; off the diagonal sqrt(0.5 * 2 / 16) = 0.25, on it 1."""
        made = by_head([1.0, 1.0])
        made.lse_gap2 = np.array([[8.0, 0.5], [0.5, 8.0]])
        made.lse_sums = np.array([count, 16.0, 16 + 256 / count])

        text = find_structure(made, noise=0.0625)

        assert (text == f"{self.TEXT}, told by their LSE") is permuted

    def test_lse_without_spread_tells_nothing(self):
        made = by_head([1.0, 1.0])
        made.lse_gap2 = np.array([[8.0, 0.0], [0.0, 8.0]])
        made.lse_sums = np.array([16.0, 16.0, 16.0])

        assert find_structure(made, noise=0.0625) == "all heads"

    @pytest.mark.parametrize(
        ("source", "rule"),
        [
            ([h // 3 for h in range(12)], "h // 3, as a prefix read of repeated heads gives"),
            ([h // 6 for h in range(12)], "h // 6, as a prefix read of repeated heads gives"),
            ([h // 8 for h in range(12)], "h // 8, as a prefix read of repeated heads gives"),
            ([h % 5 for h in range(12)], "h mod 5"),
            ([0] * 12, "h mod 1"),
            ([h % 11 for h in range(12)], "h mod 11"),
            ([(h + 11) % 12 for h in range(12)], "(h + 11) mod 12"),
            ([(h + 2) % 12 for h in range(12)], "(h + 2) mod 12"),
        ],
    )
    def test_the_rule_of_a_head_map(self, source, rule):
        """ref heads are unit vectors, orthogonal: distance 0 from the source, sqrt(2) from others."""
        made = by_head([np.sqrt(2.0) * (h != m) for h, m in enumerate(source)])
        made.cand2 = np.ones(12)
        made.cross = np.eye(12)[source]
        made.values = 12

        assert f"equals ref head m = {rule}: 0→{source[0]}, " in str(
            find_structure(made, noise=0.1)
        )


@pytest.mark.parametrize(("value", "permuted"), [(7, False), (8, True)])
def test_values_are_counted_from_none(value, permuted):
    """Two swapped heads of one row; seven numbers a head are too few to tell."""
    ref = np.ones((1, 2, value))
    ref[:, 1] = -1.0
    errors = new_map(2, buckets=1)
    add_rows(errors, ref, ref[:, ::-1].copy(), batch_row=0, positions=np.zeros(1, np.int64))

    text = str(find_structure(errors, noise=0.01))

    assert text.startswith("heads permuted" if permuted else "all heads")


class TestBatchRows:
    def rows(self, *errors) -> ErrorMap:
        """One head; each batch row with reference 1 and this relative error."""
        made = by_head([np.sqrt(np.mean(np.square(errors)))], ref2=[float(len(errors))])
        made.cells = {r: (np.array([e * e]), np.ones(1)) for r, e in enumerate(errors)}
        made.rows = dict.fromkeys(range(len(errors)), 1)
        return made

    @pytest.mark.parametrize(
        ("errors", "text"),
        [
            ((0.0, 5.0), "all heads, only batch rows >= 1 wrong (row 0 exact)"),
            ((4.0, 5.0), "all heads, only batch rows >= 1 wrong (row 0 within 4)"),
            ((5.0, 0.0), "all heads, only batch rows 0 wrong (row 1 exact)"),
            ((0.0, 5.0, 0.0), "all heads, only batch rows 1 wrong (rows 0,2 exact)"),
            ((0.0, 0.5, 5.0), "all heads, only batch rows >= 2 wrong (rows 0,1 within 0.5)"),
            ((5.0, 5.0), "all heads"),
        ],
    )
    def test_wrong_rows_are_named_beside_clean_ones(self, errors, text):
        assert find_structure(self.rows(*errors), noise=1.0) == text

    def test_a_row_is_held_to_the_mean_of_all(self):
        """Row 1: error^2 16 over its own 0.25 would be 8; over a third of 3 it is 4: clean."""
        made = self.rows(0.0, 4.0, 0.0)
        made.cells[1] = (np.array([16.0]), np.array([0.25]))

        assert find_structure(made, noise=1.0) is None

    def test_the_share_of_a_row_is_by_its_tokens(self):
        """Row 1 gave 3 of 4 tokens: 3/4 of 4 is 3; error^2 50 over 3 is 4.08^2: wrong."""
        made = self.rows(0.0, 4.0)
        made.ref2, made.rows = np.array([4.0]), {0: 1, 1: 3}
        made.cells[1] = (np.array([50.0]), np.array([0.5]))
        assert find_structure(made, noise=1.0) == (
            "all heads, only batch rows >= 1 wrong (row 0 exact)"
        )

        made.cells[1] = (np.array([48.0]), np.array([0.5]))
        assert find_structure(made, noise=1.0) is None


def where(*errors, width=1, chunk=None, limit=1.0):
    """Text for one batch row whose positions have these relative errors, the reference 1."""
    profile = {0: (np.square(np.asarray(errors, float)), np.ones(len(errors)))}
    return where_positions(profile, width=width, limit=limit, chunk=chunk)


class TestPositions:
    def test_nothing_to_say(self):
        assert where_positions({}, width=1, limit=1.0, chunk=None) is None
        assert where(0, 0, 0) is None
        assert where(1, 1, 1) is None
        assert where(0, 1, 1) is None
        assert where(2, 2, 2) is None
        assert where(2, 2, 2, 2, 0) is None

    def test_from_a_position_on(self):
        assert where(0, 0, 0, 0, 2, 2) == "from position 4 on"
        assert where(0, 0, 0, 0, 2, 2, width=3) == "from position 12 on"
        assert where(0, 1.01, 1.01, width=2) == "from position 2 on"

    def test_four_of_five_after_the_start_are_all(self):
        assert where(0, 0, 2, 2, 0, 2, 2) == "from position 2 on"
        assert where(0, 0, 2, 2, 0, 2) is None

    def test_chunk_boundaries_are_said(self):
        assert where(0, 0, 0, 0, 2, 2, chunk=4) == "from position 4 on, a chunk boundary"
        assert where(0, 0, 0, 0, 2, 2, chunk=3) == "from position 4 on"
        assert where(0, 0, 2, 2, chunk=4, width=2) == "from position 4 on, a chunk boundary"

    def test_the_first_row_alone_is_right(self):
        assert where(0, 2, 2, 2) == "only token rows >= 1 wrong (row 0 exact)"
        assert where(0.5, 2, 2, 2) == "only token rows >= 1 wrong (row 0 within 0.5)"

    def test_a_decay_falls_to_a_third_over_eight_positions(self):
        start = (0, 0)
        assert where(*start, 6, 6, 3, 3, 3, 3, 2, 2) == "starts at position 2 and decays"
        assert where(*start, 6, 6, 3, 3, 3, 3, 2, 2.1) == "from position 2 on"
        assert where(*start, 6, 3, 3, 3, 3, 2, 2) == "from position 2 on"

    def test_a_decay_is_between_quarters(self):
        """First two (9 + 3) / 2 = 6, last two (3 + 1.01) / 2 = 2.005: less than three times."""
        assert where(0, 0, 9, 3, 3, 3, 3, 3, 3, 1.01) == "from position 2 on"

    def test_a_decay_begins_with_three_wrong_positions(self):
        assert where(0, 0, 9, 9, 1, 3, 3, 3, 3, 2, 2, 2) == "from position 2 on"
        assert where(0, 0, 9, 9, 2, 1, 3, 3, 3, 2, 2, 2) == "starts at position 2 and decays"

    def test_a_decay_ends_with_its_chunk(self):
        chunk = (6, 6, 3, 3, 3, 3, 2, 2)
        clean = (0,) * 8
        assert where(*clean, *chunk, *chunk, chunk=8) == ("starts at chunk boundary 8 and decays")
        assert where(*clean, *chunk, *chunk, chunk=None) == "from position 8 on"
        assert where(*clean, *chunk, *chunk, chunk=16, width=2) == (
            "starts at chunk boundary 16 and decays"
        )

    def test_single_positions_stand_out_four_times(self):
        assert where(0, 0, 0, 4.1, 0, 0, 0, 0, 0, 0) == "only position 3 (1 of 10)"
        assert where(0, 0, 0, 4.0, 0, 0, 0, 0, 0, 0) is None
        assert where(5, 0, 0, 0, 0, 0, 0, 0, 0, 0) == "only position 0 (1 of 10)"
        assert where(0, 0, 0, 5, 0, 0, 0, 0, 0, 0, width=4) == "only position 12 (1 of 10)"

    def test_up_to_a_fifth_are_listed(self):
        assert where(0, 0, 5, 0, 5, 0, 0, 0, 0, 0) == "only positions 2,4 (2 of 10)"
        assert where(0, 0, 5, 0, 5, 0, 5, 0, 0, 0) is None

    def test_five_are_listed_and_the_rest_counted(self):
        errors = np.zeros(35)
        errors[[1, 3, 5, 7, 9]] = 5
        assert where(*errors) == "only positions 1,3,5,7,9 (5 of 35)"
        errors[[11, 13]] = 5
        assert where(*errors) == "only positions 1,3,5,7,9 and 2 more (7 of 35)"

    def test_a_tiny_row_is_held_to_the_mean_and_empty_ones_are_no_data(self):
        """Position 1: error^2 0.5 over its own 0.01 would be 7; over the mean 0.75 it is clean."""
        err2 = np.array([0.0, 0.5, 0.0, 0.0, 0.0])
        ref2 = np.array([1.0, 0.01, 1.0, 0.99, 0.0])
        assert where_positions({0: (err2, ref2)}, width=1, limit=1.0, chunk=None) is None

        err2[2] = 100.0
        assert where_positions({0: (err2, ref2)}, width=1, limit=1.0, chunk=None) is None

    def test_batch_rows_are_pooled(self):
        """Each alone 1.0, the bar; together as well: sqrt(2 / 2)."""
        line = np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4)
        profile = {0: line, 1: line}

        assert where_positions(profile, width=1, limit=1.0, chunk=None) is None
        assert where_positions(profile, width=1, limit=0.99, chunk=None) == "from position 2 on"

    def test_the_first_token_of_the_flattened_batch_alone_is_right(self):
        first = np.array([0.0, 4.0, 4.0, 4.0, 4.0, 4.0]), np.ones(6)
        other = np.full(6, 4.0), np.ones(6)
        text = "only token rows >= 1 wrong (row 0 of batch row 3 exact)"

        assert where_positions({3: first, 4: other}, width=1, limit=1.0, chunk=None) == text
        assert where_positions({2: other, 3: first}, width=1, limit=1.0, chunk=None) is None
        first[0][5] = 1.0  # four of five are wrong
        assert where_positions({3: first, 4: other}, width=1, limit=1.0, chunk=None) == text
        other[0][:2] = 0.0  # two of six are right
        other[0][2:] = 9.0
        first[0][:2] = 0.9, 9.0
        assert where_positions({3: first, 4: other}, width=1, limit=0.5, chunk=None) is None
