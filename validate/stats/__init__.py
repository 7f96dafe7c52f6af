"""Numbers in, intervals, p-values and power out; SciPy does the work."""

from validate.stats.binomial import binomial_test, mcnemar_counts, mcnemar_test
from validate.stats.binomial_law import binomial_quantile
from validate.stats.bootstrap import bootstrap_limits, resamples_needed
from validate.stats.bounded import bernstein_limits, betting_limits
from validate.stats.cluster import cluster_mean_limits, cluster_ratio_limits
from validate.stats.exceedance import exceedance_limits, exceedance_n_needed, most_allowed
from validate.stats.floor import FLOOR_MIN_REPEATS, floor_limits
from validate.stats.lossless import (
    combined_p,
    cvm_power,
    cvm_shift_needed,
    cvm_test,
    group_dispersion,
    lag_products,
    skewed_z,
    z_power,
    z_shift_needed,
)
from validate.stats.mean import abs_mean_limits, mean_limits
from validate.stats.multiplicity import holm, weighted_bonferroni
from validate.stats.n_min import N_MIN, n_min, trusted
from validate.stats.noninferior import (
    equivalence_mean,
    equivalence_proportion,
    noninferiority_mean,
    noninferiority_proportion,
    paired_proportion_limits,
)
from validate.stats.paired_drop import (
    DROP_METHOD,
    drop_limits,
    drop_n_needed,
    least_drop,
    mde_drop,
)
from validate.stats.power_count import (
    Decision,
    mde_proportion,
    mde_quantile,
    n_needed_proportion,
    n_needed_quantile,
    power_binomial,
    power_mcnemar,
    power_paired_proportion,
    power_proportion,
    power_quantile,
)
from validate.stats.power_mean import (
    mde_abs_mean,
    mde_mean_t,
    mde_ratio_t,
    n_needed_equivalence_mean,
    n_needed_mean_t,
    n_needed_ratio_t,
    power_abs_mean_fail,
    power_equivalence_mean,
    power_mean_t,
    power_ratio_t,
)
from validate.stats.projected import units_for_mean, units_for_rate, units_for_share, units_needed
from validate.stats.proportion import proportion_limits
from validate.stats.quantile import (
    abs_median,
    abs_median_limits,
    quantile,
    quantile_limits,
    quantile_n_min,
)
from validate.stats.ratio import geometric_ratio, ratio_limits
from validate.stats.result import Alternative, SignificanceTest
from validate.stats.survival import (
    Survival,
    hazard_noninferiority,
    hazard_ratio_limits,
    kaplan_meier,
    poisson_rate_limits,
    rate_excess_test,
)
from validate.stats.tail import TAIL_LIMIT, TailDiagnostic, tail_checked, tail_diagnostic
from validate.stats.uniformity import martingale_z, serial_independence, uniformity_test

__all__ = [
    "DROP_METHOD",
    "FLOOR_MIN_REPEATS",
    "N_MIN",
    "TAIL_LIMIT",
    "Alternative",
    "Decision",
    "SignificanceTest",
    "Survival",
    "TailDiagnostic",
    "abs_mean_limits",
    "abs_median",
    "abs_median_limits",
    "bernstein_limits",
    "betting_limits",
    "binomial_quantile",
    "binomial_test",
    "bootstrap_limits",
    "cluster_mean_limits",
    "cluster_ratio_limits",
    "combined_p",
    "cvm_power",
    "cvm_shift_needed",
    "cvm_test",
    "drop_limits",
    "drop_n_needed",
    "equivalence_mean",
    "equivalence_proportion",
    "exceedance_limits",
    "exceedance_n_needed",
    "floor_limits",
    "geometric_ratio",
    "group_dispersion",
    "hazard_noninferiority",
    "hazard_ratio_limits",
    "holm",
    "kaplan_meier",
    "lag_products",
    "least_drop",
    "martingale_z",
    "mcnemar_counts",
    "mcnemar_test",
    "mde_abs_mean",
    "mde_drop",
    "mde_mean_t",
    "mde_proportion",
    "mde_quantile",
    "mde_ratio_t",
    "mean_limits",
    "most_allowed",
    "n_min",
    "n_needed_equivalence_mean",
    "n_needed_mean_t",
    "n_needed_proportion",
    "n_needed_quantile",
    "n_needed_ratio_t",
    "noninferiority_mean",
    "noninferiority_proportion",
    "paired_proportion_limits",
    "poisson_rate_limits",
    "power_abs_mean_fail",
    "power_binomial",
    "power_equivalence_mean",
    "power_mcnemar",
    "power_mean_t",
    "power_paired_proportion",
    "power_proportion",
    "power_quantile",
    "power_ratio_t",
    "proportion_limits",
    "quantile",
    "quantile_limits",
    "quantile_n_min",
    "rate_excess_test",
    "ratio_limits",
    "resamples_needed",
    "serial_independence",
    "skewed_z",
    "tail_checked",
    "tail_diagnostic",
    "trusted",
    "uniformity_test",
    "units_for_mean",
    "units_for_rate",
    "units_for_share",
    "units_needed",
    "weighted_bonferroni",
    "z_power",
    "z_shift_needed",
]
