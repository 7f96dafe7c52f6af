"""Quantiles of the binomial law, against scipy's own."""

import pytest
from scipy import stats

from validate.errors import InputError
from validate.stats import binomial_quantile


@pytest.mark.parametrize("q", [1e-6, 0.005, 0.05, 0.43, 0.975, 0.999999])
@pytest.mark.parametrize("n", [0, 1, 7, 200, 100_000])
@pytest.mark.parametrize("p", [0.0, 1e-4, 0.05, 0.5, 0.93, 1.0])
def test_quantile_is_that_of_scipy(q: float, n: int, p: float) -> None:
    """``scipy.stats.binom.ppf``, an independent place of the same law."""
    assert binomial_quantile(q, n=n, p=p) == int(stats.binom.ppf(q, n, p))


def test_quantile_is_the_count_whose_cdf_is_first_enough() -> None:
    """P(Bin(2, 1/2) <= 0, 1, 2) = 1/4, 3/4, 1, by hand."""
    assert [binomial_quantile(q, n=2, p=0.5) for q in (0.2, 0.25, 0.26, 0.75, 0.76)] == [
        *(0, 0, 1, 1, 2)
    ]
    assert binomial_quantile(0.5, n=7, p=0.5) == 3  # half of the law lies at or below 3


@pytest.mark.parametrize(("q", "n", "p"), [(0.0, 1, 0.5), (float("nan"), 1, 0.5), (0.5, -1, 0.5)])
def test_what_is_no_probability_is_refused(q: float, n: int, p: float) -> None:
    with pytest.raises(InputError, match="must lie in"):
        binomial_quantile(q, n=n, p=p)
