"""Numbers in, intervals out; SciPy does the work."""

from validate.stats.floor import FLOOR_MIN_REPEATS, floor_limits
from validate.stats.mean import abs_mean_limits, mean_limits
from validate.stats.proportion import proportion_limits
from validate.stats.quantile import quantile, quantile_limits, quantile_n_min
from validate.stats.ratio import geometric_ratio, ratio_limits

__all__ = [
    "FLOOR_MIN_REPEATS",
    "abs_mean_limits",
    "floor_limits",
    "geometric_ratio",
    "mean_limits",
    "proportion_limits",
    "quantile",
    "quantile_limits",
    "quantile_n_min",
    "ratio_limits",
]
