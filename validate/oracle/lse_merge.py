"""Merging attention over parts of the keys into attention over all of them."""

from collections.abc import Sequence

import numpy as np

from validate.oracle.records import Partial

__all__ = ["lse_merge"]


def lse_merge(parts: Sequence[Partial]) -> Partial:
    """Merge by natural-log LSE: ``sum_i e^(lse_i - lse) out_i`` with ``lse = log sum_i e^lse_i``.

    Args:
        parts: Partial attention over disjoint sets of keys, equal shapes, at
            least one. A part with LSE -inf saw no key and counts for nothing,
            whatever its output holds (a kernel may leave it unwritten).

    Returns:
        ``Partial`` over the union of the keys; where every part is empty the
        output is 0 and the LSE -inf.

    Raises:
        ValueError: ``parts`` is empty.

    Numerics:
        Shifted by the largest LSE. A NaN or +inf LSE gives NaN, never a number.

    Source:
        Dao et al. 2022 (FlashAttention, arXiv 2205.14135), section 3.1; flash-decoding split-KV;
        aiter ``mla_reduce_v1``. Natural log as AITER decode returns it; the base-2
        convention of sglang's DCP merge has to be converted first.

    Example:
        Weights 1 and 3 of a total of 4:

        >>> def part(out, lse):
        ...     return Partial(out=np.full((1, 1, 1), out), lse=np.full((1, 1), lse))
        >>> both = lse_merge([part(8.0, np.log(1.0)), part(4.0, np.log(3.0))])
        >>> round(float(both.out[0, 0, 0]), 6), round(float(np.exp(both.lse[0, 0])), 6)
        (5.0, 4.0)
    """
    if not parts:
        msg = "lse_merge: no parts to merge; give at least one Partial"
        raise ValueError(msg)
    lses = np.stack([part.lse for part in parts])  # [parts, rows, heads]
    outs = np.stack([part.out for part in parts])
    top = np.max(lses, axis=0)
    shift = np.where(top == -np.inf, 0.0, top)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.exp(lses - shift)
        total = np.sum(weights, axis=0)
        lse = shift + np.log(total)
        share = weights / np.where(total == 0.0, 1.0, total)
    counted = np.where((lses == -np.inf)[..., None], 0.0, outs)
    return Partial(out=np.sum(share[..., None] * counted, axis=0), lse=lse)
