"""A log-probability is stored twice, in the stream and as a tensor: both must be the same number."""

import numpy as np

from tests.unit.metrics.spec_made import fair, pair, side
from validate.metrics.speculative_logprob import speculative_logprob
from validate.schema import Levels

LEVELS = Levels(low=0.99, high=0.95)


def returned(cand, change):
    """The side with other log-probabilities in its streams alone."""
    held = cand.drawn["sampled"]
    cand.drawn["sampled"] = {
        name: stream.model_copy(update={"logprobs": tuple(change(x) for x in stream.logprobs)})
        for name, stream in held.items()
    }
    return cand


def test_five_decimals_are_the_same_number():
    cand = returned(side({"sampled": fair(20)}), lambda x: round(x, 5))

    assert speculative_logprob(pair(cand), LEVELS).value is not None


def test_divided_by_the_temperature_they_are_not():
    cand = returned(side({"sampled": fair(20)}), lambda x: x / 0.8)

    found = speculative_logprob(pair(cand), LEVELS)

    assert found.value is None
    assert "token 0 was returned with the log-probability" in (found.why_undefined or "")


def test_a_missing_value_is_no_finite_one():
    cand = returned(side({"sampled": fair(20)}), lambda x: None)

    assert speculative_logprob(pair(cand), LEVELS).value is None


def test_an_infinite_one_is_written_as_missing():
    streams = fair(20)
    streams["p-0"]["logprob"] = np.where(np.arange(20) == 3, -np.inf, streams["p-0"]["logprob"])

    found = speculative_logprob(pair(side({"sampled": streams})), LEVELS)

    assert "was returned with" not in (found.why_undefined or "")
