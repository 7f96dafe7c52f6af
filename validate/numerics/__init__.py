"""Arrays in, arrays out: number formats, error measures, softmax, exact sums, row statistics."""

from validate.numerics.centred import centred_rms
from validate.numerics.errors import (
    ScaleFit,
    max_abs_err,
    mismatch_share,
    nmse,
    rel_l2,
    scale_fit,
    worst_index,
)
from validate.numerics.formats import DTYPES, dtype_of, to_float64, ulp_distance, unit_roundoff
from validate.numerics.nonfinite import NonFinite, count_nonfinite, unlike_nonfinite
from validate.numerics.rows import NO_TARGET, RowStatistics, row_statistics
from validate.numerics.softmax import log_softmax, logsumexp
from validate.numerics.sums import exact_mean, exact_sum
from validate.numerics.topk import TopKBounds, TopKRows, topk_bounds

__all__ = [
    "DTYPES",
    "NO_TARGET",
    "NonFinite",
    "RowStatistics",
    "ScaleFit",
    "TopKBounds",
    "TopKRows",
    "centred_rms",
    "count_nonfinite",
    "dtype_of",
    "exact_mean",
    "exact_sum",
    "log_softmax",
    "logsumexp",
    "max_abs_err",
    "mismatch_share",
    "nmse",
    "rel_l2",
    "row_statistics",
    "scale_fit",
    "to_float64",
    "topk_bounds",
    "ulp_distance",
    "unit_roundoff",
    "unlike_nonfinite",
    "worst_index",
]
