"""Plain words for what failing points share; expected texts are written by hand."""

import itertools

from validate.conformance.pattern import Point, find_patterns
from validate.conformance.records import Breach


def point(fails: bool, number: int = 0, clause: str = "value", wrong=None, **axes) -> Point:
    breach = Breach(clause=clause, what="", wrong=wrong or {})
    return Point(id=str(number), axes=axes, breaches=(breach,) if fails else ())


def cross(fails, **axes) -> list[Point]:
    """Every combination of the axes; those that ``fails`` fail."""
    points = []
    for values in itertools.product(*axes.values()):
        here = dict(zip(axes, values, strict=True))
        points.append(point(fails(**here), **here))
    return points


HEADS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def test_nothing_failed_has_no_pattern() -> None:
    assert find_patterns([point(False, heads=4)]) == ()
    assert find_patterns([]) == ()


def test_every_point_failed() -> None:
    assert find_patterns([point(True, 1, heads=4), point(True, 2, heads=8)]) == (
        "every sweep point (2 of 2)",
    )


def test_threshold_along_an_axis() -> None:
    points = cross(lambda heads, splits: heads >= 12, heads=HEADS, splits=(1, 2))

    assert find_patterns(points) == ("only when heads >= 12",)


def test_more_than_one() -> None:
    points = cross(lambda heads, splits: splits > 1, heads=HEADS, splits=(1, 2, 5))

    assert find_patterns(points) == ("only when splits > 1",)


def test_flags_read_as_with_and_without() -> None:
    with_ties = cross(lambda ties, k: ties, ties=(True, False), k=(1, 2, 3, 5, 9, 17))
    without = cross(lambda ties, k: not ties, ties=(True, False), k=(1, 2, 3, 5, 9, 17))

    assert find_patterns(with_ties) == ("only when with ties",)
    assert find_patterns(without) == ("only when without ties",)


def test_fold_of_sixteen_is_two_conditions_on_heads() -> None:
    # HD-01 fails where heads fold into passes of 16: 32, 48, ... and neither 16 nor 40.
    points = cross(
        lambda heads, dtype: heads % 16 == 0 and heads > 16,
        heads=(*HEADS, 40),
        dtype=("bfloat16", "float32"),
    )

    assert find_patterns(points) == ("only when heads >= 32 and heads is a multiple of 16",)


def test_conditions_join_until_they_separate() -> None:
    points = cross(
        lambda heads, splits, dtype: heads % 16 != 0 and splits > 1,
        heads=HEADS,
        splits=(1, 2, 3),
        dtype=("bfloat16", "float32"),
    )

    assert find_patterns(points) == ("only when heads is not a multiple of 16 and splits > 1",)


def test_random_failures_have_no_pattern_along_axes() -> None:
    # One failing point of six: any value would separate it, by chance 1 in 6.
    points = [point(number == 3, number, heads=number) for number in range(6)]

    assert find_patterns(points) == ()


def test_names_are_listed_when_few() -> None:
    points = cross(
        lambda form, rows: form in {"fp8", "fp4"},
        form=("bf16", "fp8", "fp4", "f32", "f64"),
        rows=(1, 2, 3, 4),
    )

    assert find_patterns(points) == ("only when form in {fp4, fp8}",)


def test_clauses_apart_when_together_they_share_nothing() -> None:
    points = [
        *(point(heads > 9, heads, heads=heads, splits=1) for heads in range(4, 16)),
        *(
            point(heads < 9, heads + 100, clause="lse", heads=heads, splits=2)
            for heads in range(4, 16)
        ),
    ]

    assert find_patterns(points) == (
        "value: only when heads >= 10 and splits = 1",
        "lse: only when heads <= 8 and splits > 1",
    )


def test_wrong_coordinates() -> None:
    late = [point(True, n, wrong={"head": tuple(range(12, 12 + n))}, heads=16) for n in (1, 2, 4)]
    rows = [point(True, n, wrong={"row": tuple(range(1, n))}, batch=n) for n in (2, 3, 5)]

    assert find_patterns(late)[0] == "only heads >= 12"
    assert find_patterns(rows)[0] == "only rows >= 1"


def test_start_after_a_boundary() -> None:
    points = [
        point(True, n, wrong={"token": tuple(range(start, start + 7))})
        for n, start in enumerate((64, 128, 64, 192))
    ]

    assert find_patterns(points)[0] == "tokens after a boundary of 64 (first at 64)"


def test_first_row_alone() -> None:
    assert find_patterns([point(True, wrong={"row": (0,)}, batch=3)]) == ("only row 0",)
    assert find_patterns([point(True, wrong={"row": (0,)}, batch=1)]) == ()
