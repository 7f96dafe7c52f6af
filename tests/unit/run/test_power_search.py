"""Smallest detectable effects on cases whose answer is known by hand."""

import math

import numpy as np
import pytest

from validate.run.power_effects import added, factor, first_flips, flips, interpolated, quadrature
from validate.run.power_exact import crossing, rate, rate_of
from validate.run.power_models import MODELS, differs, measurement_of
from validate.run.power_search import (
    Case,
    critical,
    detectable,
    make_draws,
    power_at,
    stopped,
    units,
)
from validate.schema.measurement import Levels, Measurement
from validate.schema.suite import GateSpec
from validate.schema.verdict import Limit, NoiseFloor

LEVELS = Levels(low=0.999, high=0.95)
NOTE = "made by hand"


def entry(value: float, worst: float | None = None) -> Limit:
    return Limit(value=value, worst=worst, source="derived", pointer="t.toml#x")


def case(
    metric: str,
    clean: list[list[float]],
    *,
    kind: str = "bound",
    limit: float = 1.0,
    worst: float | None = None,
    floor: float | None = None,
) -> Case:
    values = np.array(clean)
    model = MODELS[metric]
    blank = Measurement(metric=metric, value=0.0, unit="u", n=1, n_of="prompts", worst_value=1.0)
    return Case(
        gate=GateSpec.model_validate({"name": metric, "kind": kind, "weight": 1.0}),
        model=model,
        limit=entry(limit, worst),
        floor=None if floor is None else NoiseFloor(value=floor, repeats=3),
        share=0.001,
        beta=0.05,
        levels=LEVELS,
        clean=values,
        like=tuple(
            measurement_of(model, row, like=blank, levels=LEVELS, worst=1.0) for row in values
        ),
    )


def test_without_noise_a_mean_is_caught_just_above_its_limit() -> None:
    still = case("attention.rel_l2", [[0.0] * 8] * 3, kind="noise_ratio", limit=3.0, floor=0.5)
    effect = added("shift", "u", np.ones(8), largest=100.0, note=NOTE)
    draws = make_draws(still, n=8, draws=20, seed=[1])

    low, high = detectable(still, effect, draws, powers=(0.8, 0.95), guess=40.0)

    for found in (low, high):  # every draw is the same, up to the bisection's 1 %
        assert found is not None
        assert 1.5 < found <= 1.5 * 1.011


def test_effect_beyond_what_was_tried_is_none_never_a_number() -> None:
    still = case("attention.rel_l2", [[0.0] * 8] * 3, limit=3.0)
    effect = added("shift", "u", np.ones(8), largest=2.0, note=NOTE)
    draws = make_draws(still, n=8, draws=5, seed=[1])

    assert detectable(still, effect, draws, powers=(0.8,), guess=1.0) == [None]
    assert units(still, effect, 2.0, power=0.8, draws=5, seed=[1]) is None


def test_log_ratio_is_caught_at_the_log_of_the_limit_or_at_the_worst_row() -> None:
    bulk = case("logits.err_ratio", [[1.0] * 8] * 3, kind="three_way", limit=2.0, worst=50.0)
    row = case("logits.err_ratio", [[1.0] * 8] * 3, kind="three_way", limit=2.0, worst=1.5)
    effect = factor("log-ratio", "ln", largest=8.0, note=NOTE)
    draws = make_draws(bulk, n=8, draws=3, seed=[1])

    found = detectable(bulk, effect, draws, powers=(0.8,), guess=1.0)
    by_row = detectable(row, effect, draws, powers=(0.8,), guess=1.0)

    assert found[0] is not None
    assert by_row[0] is not None
    assert math.log(2) < found[0] <= math.log(2) * 1.011
    assert math.log(1.5) < by_row[0] <= math.log(1.5) * 1.011


def test_more_prompts_detect_less_and_the_power_found_is_the_power_there() -> None:
    rng = np.random.default_rng(7)
    noisy = case("logits.nll_delta", rng.normal(0, 0.4, (4, 60)).tolist(), limit=0.5)
    effect = added("shift", "nats", np.ones(60), largest=50.0, note=NOTE)
    found: dict[int, list[float]] = {}
    for n in (60, 240):
        draws = make_draws(noisy, n=n, draws=60, seed=[3, n])
        sizes = detectable(noisy, effect, draws, powers=(0.8, 0.95), guess=1.0)
        found[n] = [size for size in sizes if size is not None]
        for power, size in zip((0.8, 0.95), found[n], strict=True):
            assert power <= power_at(noisy, effect, size, draws) <= power + 0.1

    assert found[240][0] < found[60][0] < found[60][1]


def test_what_is_not_passed_is_less_than_what_fails() -> None:
    rng = np.random.default_rng(8)
    noisy = case("logits.nll_delta", rng.normal(0, 0.4, (4, 60)).tolist(), limit=0.5)
    effect = added("shift", "nats", np.ones(60), largest=50.0, note=NOTE)
    draws = make_draws(noisy, n=60, draws=60, seed=[3])

    (fails,) = detectable(noisy, effect, draws, powers=(0.95,), guess=1.0)
    (open_to,) = detectable(noisy, effect, draws, powers=(0.95,), test=stopped, guess=1.0)

    assert fails is not None
    assert open_to is not None
    assert open_to < fails


def test_clopper_pearson_units_needed_by_hand() -> None:
    """Every prompt is hit, so n of n must exceed 0.9 at 0.999: 0.9^n < 0.001 from n = 66."""
    all_hit = case("greedy.divergence_rate", [[0.0] * 10] * 3, limit=0.9)
    effect = flips("flipped tokens", "per 1,000", np.full(10, 1e9), note=NOTE)

    found = units(all_hit, effect, 400.0, power=0.8, draws=5, seed=[1])

    assert found is not None
    assert 66 <= found <= 66 * 1.1


def test_critical_finds_a_threshold_from_either_side() -> None:
    for guess in (0.01, 2.0, 90.0):
        found = critical(lambda size: size >= 3.0, guess=guess, largest=100.0)
        assert 3.0 <= found <= 3.0 * 1.011
    assert critical(lambda _: True, guess=1.0, largest=2.0) == 0.0
    assert critical(lambda _: False, guess=1.0, largest=2.0) == math.inf


def test_effects_by_hand() -> None:
    clean, chosen, luck = np.array([3.0, 0.0]), np.array([1, 0]), np.array([0.09, 0.11])
    profile = np.array([0.5, 2.0])

    shift = added("a", "u", profile, largest=9.0, note=NOTE)
    square = quadrature("q", "u", profile, largest=9.0, note=NOTE)
    hits = flips("f", "per 1,000", np.array([1.0, 1.0]), note=NOTE)

    assert shift.apply(2.0, clean, chosen, luck).tolist() == [7.0, 1.0]
    assert square.apply(2.0, clean, chosen, luck).tolist() == [5.0, 1.0]
    assert hits.apply(100.0, np.zeros(2), chosen, luck).tolist() == [1.0, 0.0]
    assert hits.apply(0.0, np.array([1.0, 0.0]), chosen, luck).tolist() == [1.0, 0.0]


def test_first_flip_ends_the_exposure_by_hand() -> None:
    """At 500 in 1,000 luck 0.6 flips the 2nd token (1/2 < 0.6 < 3/4), 0.9 the 4th, 0.1 the 1st."""
    effect = first_flips("f", "per 1,000", note=NOTE)
    clean = np.array([8.0, 3.0, -5.0, -1.0])
    luck = np.array([0.6, 0.9, 0.1, 0.6])

    made = effect.apply(500.0, clean, np.arange(4), luck)

    assert made.tolist() == [-2.0, 3.0, -1.0, -1.0]
    assert MODELS["greedy.flips_per_1000"].value(made) == 1000 * 3 / 7
    assert effect.apply(0.0, clean, np.arange(4), luck).tolist() == clean.tolist()


def test_interpolation_is_exact_where_the_law_is_a_power_and_at_the_sizes_measured() -> None:
    sizes = np.array([2.0, 8.0, 32.0])
    cubic = sizes[:, None] ** 2 * (1 + np.array([[0.0, 0.1]]) * sizes[:, None])
    effect = interpolated("i", "%", sizes, cubic, order=2, note=NOTE)
    none, both = np.zeros(2), np.array([0, 1])

    assert effect.apply(8.0, none, both, none).tolist() == pytest.approx([64.0, 64 * 1.8])
    assert effect.apply(5.0, none, both, none).tolist() == pytest.approx([25.0, 25 * 1.5])
    assert effect.apply(1.0, none, both, none).tolist() == pytest.approx([1.0, 1.2])


def test_model_that_is_not_the_metric_s_is_noticed() -> None:
    made = case("attention.rel_l2", [[1.0, 2.0, 4.0]]).like[0]
    other = case("logits.kl_p50", [[1.0, 2.0, 4.0]]).like[0]

    assert differs(made, made) is None
    assert "value" in str(differs(made, other))


def test_rates_by_the_rule_of_three() -> None:
    """1 - (1 - r)^n: for n = 1,000 a rate of 2.991 in 1,000 is seen with 95 % (Hanley 1983: 3/n)."""
    assert f"{rate_of(1000, 0.95):.3f}" == "2.991"
    found = rate(Measurement(metric="m.x", value=0.0, unit="flips", n=1000, n_of="positions"))
    assert (found.needed_80, found.needed_95) == (1609, 2995)
    assert [reach.n for reach in found.reaches] == [1000, 2000, 4000]


def test_certain_size_is_the_limit_plus_what_noise_may_take_away() -> None:
    clean = [
        Measurement(metric="attention.scale", value=value, unit="|a|", n=4, n_of="heads")
        for value in (0.25, 0.125)
    ]
    gate = GateSpec(name="attention.scale", kind="bound")

    found = crossing(gate, entry(1.0), clean)

    assert [reach.detected_95 for reach in found.reaches] == [1.25, 1.25, 1.25]
    assert found.effect == "one-head scale error"
