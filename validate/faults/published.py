"""The published faults that this catalogue answers for, by id, and why some are not planted."""

from collections.abc import Mapping

__all__ = ["NOT_PLANTED", "PUBLISHED"]

_HEADS = {
    "HD-01": "Split and reduce are planned for two different kernels when heads are folded",
    "HD-03": "Padded heads of a tile write into the workspace of the log-sum-exps",
    "HD-04": "Heads that no group takes are never written",
    "HD-05": "Query and key heads are padded apart, and the ratio between them breaks",
    "HD-06": "Only the first key head of a prompt reaches the machine that decodes",
    "HD-07": "A fused projection is split along another layout than it was stored in",
    "HD-08": "Decode loses the dimensions that a layer without rotation still has",
    "HD-10": "Folded heads take the causal bound of another query",
}
_SAMPLING = {
    "SA-01": "A platform without the op verifies greedily, whatever was asked for",
    "SA-02": "An op that is bound to nothing is called by the first request that needs it",
    "SA-04": "Scratch is as wide as a default while rows write as much as they ask for",
    "SA-05": "One filter counts the mass before, the other after the division",
    "SA-06": "The token that reaches p is left out",
    "SA-08": "A threshold is chosen before all counts have arrived",
    "SA-09": "Top-k of half-precision rows changes from call to call",
    "SA-10": "Padding of the vocabulary takes part in the choice",
    "SA-11": "Two samplers of one engine apply temperature and masks in other orders",
    "SA-12": "Top-k that is off becomes top-1",
    "SA-13": "A seed counts for nothing beside a request without one",
    "SA-14": "A first token that alone exceeds p is masked away",
    "SA-15": "A threshold is taken from a row that was already renormalised in place",
}
_SPECULATION = {
    "SP-01": "Fewer rows of a verify window are stored than it can commit",
    "SP-02": "A block of drafts is placed one position early",
    "SP-03": "Positions of the drafter advance before its pass",
    "SP-05": "The drafter is fed another hidden stream than it was trained on",
    "SP-06": "The drafter is fed other layers than it was trained on",
    "SP-07": "A mismatch is answered by a second draw",
    "SP-09": "Drafts come from one law and are weighed by another",
    "SP-10": "Later rows receive the runners-up of the first",
    "SP-11": "Every returned log-probability is 0",
    "SP-12": "The drafter's output lacks its residual",
    "SP-13": "Ranks count accepted drafts differently",
    "SP-14": "All rows of a verify window share one causal bound",
}
_STATE = {
    "LA-01": "Recurrent state is read transposed at a chunk boundary",
    "LA-02": "A prefix cache hands out state that nobody wrote",
    "LA-03": "The number of accepted tokens is capped by the convolution's length",
    "LA-05": "Rejected drafts stay in the recurrent state",
    "LA-06": "A slot number is computed in another unit than slots have",
    "LA-07": "Prompts shorter than a chunk give NaN",
    "LA-08": "Recurrent state is kept in half precision without saying so",
    "LA-10": "Packed sequences run into each other",
    "LA-11": "Tokens past a fixed length are not processed",
    "LA-12": "A tile decides on its causal mask from its first element",
    "LA-13": "State is rebuilt from buffers that hold zeros",
    "LA-14": "Prefill in pieces forgets what came before",
}
_FORMATS = {
    "QU-01": "Bytes of one float8 encoding are read as another's",
    "QU-02": "Two float8 encodings in one process share one largest value",
    "QU-03": "A scale is rounded after it was used",
    "QU-05": "Weights lie in the tile order of another kernel",
    "QU-06": "A scale for a quantised cache is applied to a plain one",
    "QU-07": "Scales that the interface takes are not used",
    "QU-08": "Missing scales are taken for 1",
    "QU-09": "Scales are rounded, the weights that belong to them are not",
    "QU-10": "Four-bit codes are unpacked in the wrong order",
    "QU-11": "Scale bytes are converted as numbers",
    "QU-12": "One more rounding that nobody declared",
    "QU-13": "A narrow scratch buffer clips what its scale would have saved",
}
_LENGTH = {
    "LC-01": "Log-sum-exps in base 2 are merged in base e",
    "LC-02": "Ranks that split the context merge with the wrong base",
    "LC-04": "An empty part is told by the wrong infinity",
    "LC-05": "An offset does not fit its integer",
    "LC-06": "Two kernels count the width of a window differently",
    "LC-07": "Rotary angles are formed in low precision",
    "LC-08": "Chunked prefill loses its place in a long prompt",
    "LC-10": "The window's width never reaches the kernel",
}
_RACES = {
    "ND-01": "A collective ends before its peers have read",
    "ND-02": "A collective reads a fragment of an earlier input",
    "ND-04": "Draft ids are read before they are written",
    "ND-05": "Buffers overlap at one depth of drafting",
    "ND-06": "Rows that fill up a captured batch write state",
    "ND-07": "Metadata ends before the rows of a captured batch do",
    "ND-08": "A captured graph reads a buffer that has moved",
    "ND-09": "Rows past the first wave keep indices of an earlier step",
    "ND-10": "A sum is taken in the order of arrival",
    "ND-11": "Clearing of new memory lands on fresh writes",
    "ND-12": "Two kinds of work share scratch that both need at once",
    "ND-13": "A slot of the residual bank is scratch while it is live",
}
_EXPERTS = {
    "MO-01": "The bias of the router has too few bits",
    "MO-02": "Every rank adds the shared expert",
    "MO-04": "Rows of padding are routed",
    "MO-05": "A norm over all heads is taken rank by rank",
    "MO-06": "Weights of a norm are cut at the wrong place when ranks outnumber heads",
    "MO-07": "A router reads half-precision scores as single, and drops its flags",
    "MO-09": "The routed scale is applied never or twice",
    "MO-10": "The bias of an expert is added whole",
    "MO-11": "A norm that belongs to each head runs over all",
}
_YARDSTICK = {
    "TV-01": "NaN is within every tolerance",
    "TV-02": "A similarity that is blind to scale",
    "TV-03": "A cache of answers that does not know the model",
    "TV-04": "Reference logits are clipped when they are stored",
    "TV-05": "Scores are read one row off, or thought to be",
    "TV-06": "A sum over nothing is taken for a score",
    "TV-07": "Answers are cut off before they end",
    "TV-08": "Prompts begin with two markers, or none",
    "TV-09": "Scores of cached positions come from unwritten memory",
    "TV-10": "Scores come from rows that drafts have shifted",
    "TV-12": "The reference is the wrong one",
    "TV-13": "An op that writes its own input is called twice",
    "TV-14": "A tolerance finer than the format's steps",
    "TV-15": "A threshold that lets wrong experts through",
    "TV-16": "Log-probabilities of two conventions are compared",
    "TV-17": "Another order of sums is taken for corruption",
}

PUBLISHED: Mapping[str, str] = {
    **_HEADS,
    **_SAMPLING,
    **_SPECULATION,
    **_STATE,
    **_FORMATS,
    **_LENGTH,
    **_RACES,
    **_EXPERTS,
    **_YARDSTICK,
}
"""All 102 by id, in our own words; the public thread of each stands with its plant."""

NOT_PLANTED: Mapping[str, str] = {
    "LC-10": "nothing here has a window that could be left out: attention sees all keys, and a "
    "convolution without its window is none",
}
"""Why a fault has no site in this project."""
