"""Reading of drawn streams, and the columns and strata made of them: each rule beside its neighbour."""

import math
from typing import Any

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.metrics.bounds.test_law_tests import made, steps
from tests.unit.metrics.spec_made import PROMPT, TWO_IDS, drafted, fair, pair, side
from validate.metrics._reason import Reason
from validate.metrics._spec_inside import _rows, verify_rows
from validate.metrics._spec_read import _repeated, spec_side
from validate.metrics._spec_streams import Drawn, Tokens, other_parameters
from validate.metrics._spec_tests import Seen, settled, strata_of
from validate.numerics.keyed import keyed_uniform
from validate.schema import Levels, SamplingParams

KIND = "spec-sampled"
LEVELS = Levels(low=0.999, high=0.95)


def repeated(*laws: list[float]) -> str | None:
    """Prompts that all drew token 0 alone, with these chances."""
    columns: dict[str, list[Any]] = {
        "prompt": [at for at, law in enumerate(laws) for _ in law],
        "token": [0 for law in laws for _ in law],
        "p": [chance for law in laws for chance in law],
    }
    n = len(columns["p"])
    drawn = Drawn(kind="sampled", tokens=made(Tokens, n, **columns), steps=None, groups=())
    return _repeated("rocm", "sampled", drawn, [f"p-{at}" for at in range(len(laws))])


class TestRepeated:
    """Two laws, of 0.5 and 0.6 nats a token; 30 nats of the first make equal draws no accident."""

    def both(self, tokens: int, *more: float) -> list[list[float]]:
        return [[math.exp(-nats)] * tokens + list(more) for nats in (0.5, 0.6)]

    @pytest.mark.parametrize(("tokens", "told"), [(59, False), (61, True)])
    def test_thirty_nats(self, tokens: int, told: bool) -> None:
        assert (repeated(*self.both(tokens)) is not None) is told

    @pytest.mark.parametrize(("tokens", "told"), [(59, False), (61, True)])
    def test_a_token_of_chance_nothing_adds_nothing(self, tokens: int, told: bool) -> None:
        assert (repeated(*self.both(tokens, 0.0)) is not None) is told

    def test_a_short_stream_hides_no_other(self) -> None:
        assert "prompts p-1 and p-2 hold the same 61 tokens" in str(repeated([0.5], *self.both(61)))


def refusal(cand: Any) -> str | None:
    return spec_side(pair(cand), cand).refusal


def changed(cand: Any, **update: Any) -> Any:
    """The side with other fields of its sampled streams."""
    cand.drawn["sampled"] = {
        name: stream.model_copy(update=update) for name, stream in cand.drawn["sampled"].items()
    }
    return cand


class TestRead:
    def test_a_threshold_that_is_no_number_is_not_known_to_be_1(self) -> None:
        cand = side({"sampled": fair(5)}, options={"speculative_accept_threshold_acc": "high"})

        assert "acceptance was relaxed" in str(refusal(cand))

    def test_a_stream_without_log_probabilities_contradicts_none(self) -> None:
        assert refusal(changed(side({"sampled": fair(5)}), logprobs=())) is None

    def test_without_parameters_no_temperature_is_known(self) -> None:
        cand = changed(side({"sampled": fair(5)}), params=None)
        drawn = spec_side(pair(cand), cand).kinds["sampled"]

        assert drawn.groups == ("not known",)
        assert np.isnan(drawn.tokens.temperature).all()

    def test_parameters_are_told_by_name(self) -> None:
        params = SamplingParams(temperature=0.7, min_p=0.1, seed=1)
        cand = changed(side({"sampled": fair(5, prompts=1)}), params=params)

        assert spec_side(pair(cand), cand).kinds["sampled"].groups == (
            '{"min_p": 0.1, "temperature": 0.7}',
        )

    def gap(self, step: list[int], row: list[int]) -> str | None:
        """Steps 0 and 1 begin behind the first token and three places later."""
        x = drafted([1, 0, 1]) | {"step": np.asarray(step), "row": np.asarray(row)}
        x["place"] = PROMPT + np.array([0, 3, 4])
        return refusal(side({KIND: {"p-0": x}}))

    def test_a_step_of_three_rows(self) -> None:
        assert self.gap([-1, 0, 0, 0, 1, 1], [0, 0, 1, 2, 0, 1]) is None

    def test_the_first_gap_is_told(self) -> None:
        """Row 2 behind row 0 in both steps."""
        assert "step 0 row 2 does not follow" in str(
            self.gap([-1, 0, 0, 0, 1, 1], [0, 0, 2, 1, 0, 2])
        )


class TestColumns:
    def test_rounding_leaves_a_place_within_its_law(self) -> None:
        falls = np.zeros((2, 2, 2, 2))
        falls[0, ..., 0], falls[1, ..., 0] = 1.00001, -0.00001
        whole = np.arange(2)

        u = made(Tokens, 2, falls=falls, label=whole, index=whole).uniforms(5, law=0, order=0)

        assert u.tolist() == [1.0, 0.0]

    def test_rounding_leaves_a_chance_a_chance(self) -> None:
        held = steps(1, drafted_p=np.array([[-0.5, 1.5]]), drafted_q=np.ones((1, 2)))

        assert held.chances("target_only").tolist() == [[0.0, 1.0]]
        assert held.chances("chain").tolist() == [[0.0, 1.0]]

    def test_coins_have_a_key_of_their_own(self) -> None:
        """Chance 1/2: the accepted draft's coin lies in its lower half, the rejected one's above."""
        held = steps(1, label=np.array([7]), step=np.array([3]))
        v = keyed_uniform(6, np.array(7), np.array(3), np.arange(2))

        assert_measured(held.coins(5, "chain"), [[v[0] / 2, 0.5 + v[1] / 2]], atol=1e-15, rtol=0)

    def test_a_kind_of_one_side_has_no_other_parameters(self) -> None:
        ref = side({"sampled": fair(5)}, label="cuda")
        cand = side({"sampled": fair(5), KIND: fair(5)})
        both = pair(cand, ref)

        assert other_parameters(spec_side(both, ref), spec_side(both, cand)) is None
        assert other_parameters(spec_side(both, cand), spec_side(both, ref)) is None

    def test_a_prompt_of_one_side_has_no_other_parameters(self) -> None:
        """Both drew p-0, one side alone p-1."""
        some = fair(5, prompts=2)
        some["p-1"] = {name: x[:0] for name, x in some["p-1"].items()}
        ref, cand = side({"sampled": fair(5, prompts=2)}, label="cuda"), side({"sampled": some})
        both = pair(cand, ref)

        assert other_parameters(spec_side(both, ref), spec_side(both, cand)) is None
        assert other_parameters(spec_side(both, cand), spec_side(both, ref)) is None


def test_fifty_tokens_make_a_stratum() -> None:
    """49 tokens drawn one way, 50 another."""
    held = made(Tokens, 99, group=[0] * 49 + [1] * 50)
    drawn = Drawn(kind="k", tokens=held, steps=None, groups=("A", "B"))

    assert [name for name, _ in strata_of(drawn)[2].groups] == ["parameters B"]


@pytest.mark.parametrize(("n", "needed"), [(19, 20), (20, None)])
def test_twenty_units_are_needed(n: int, needed: int | None) -> None:
    seen = [Seen(kind="k", n=n, effect=math.inf)]
    found = settled("speculative.serial", [], seen, levels=LEVELS, n_of="tokens", method="none")

    assert (found.value, found.n, found.n_needed) == (None, n, needed)


class TestVerifyRows:
    def test_a_row_for_every_token(self) -> None:
        """First token, two of step 0, one of step 1."""
        rows = np.zeros((4, 2), np.float32)
        extra = {f"spec.{KIND}.{name}.logits": rows for name in ("verify", "forced")}
        made = side({KIND: {"p-0": drafted([1, 0])}}, extra={"p-0": extra}, model=TWO_IDS)
        found = verify_rows(pair(made))

        assert not isinstance(found, Reason)
        assert len(found.kl) == 4

    def test_a_prompt_that_emitted_nothing_hides_no_other(self) -> None:
        """p-0 has no token and no row; p-1 has four."""
        whole = drafted([1, 0])
        streams = {"p-0": {name: x[:0] for name, x in whole.items()}, "p-1": whole}
        extra = {
            prompt: {
                f"spec.{KIND}.{name}.logits": np.zeros((rows, 2), np.float32)
                for name in ("verify", "forced")
            }
            for prompt, rows in (("p-0", 0), ("p-1", 4))
        }
        found = verify_rows(pair(side({KIND: streams}, extra=extra, model=TWO_IDS)))

        assert not isinstance(found, Reason)
        assert found.prompt == ("p-1",) * 4

    def test_among_two_thousand_none_is_likely(self) -> None:
        """Each id has 1/2000, below 1/1000: no difference counts."""
        verify = np.zeros((1, 2000))
        verify[0, 0] = 1.0

        _, apart, _ = _rows(np.zeros((1, 2000)), verify, np.array([0]), np.array([0.0]))

        assert apart.tolist() == [0.0]
