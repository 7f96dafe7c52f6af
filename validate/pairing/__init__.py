"""Two captures in; a pair that is known to match, or every reason why it is none."""

from validate.pairing._pair import pair, pair_evals_alone
from validate.pairing.evals import pair_evals

__all__ = ["pair", "pair_evals", "pair_evals_alone"]
