"""Which tests of drawn streams are made, what share of the level each has and over how many units."""

import hashlib
import importlib
import math
from typing import Any

import numpy as np
import pytest

from tests.measured import assert_measured, known
from tests.unit.metrics.spec_made import PROMPT, drafted, fair, pair, plain, side
from validate.metrics import METRICS
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import Steps, label_number
from validate.metrics._spec_tests import Named
from validate.metrics.speculative_acceptance_z import _words as acceptance_words
from validate.metrics.speculative_serial import _coins, _finals, _lag, _shared
from validate.metrics.speculative_surprisal import _held, _words as surprisal_words
from validate.schema import Levels, SamplingParams
from validate.stats import SignificanceTest, cvm_shift_needed

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"


def made_steps(**columns: Any) -> Steps:
    """Verify steps of two drafts; what is not given is 0."""
    n = len(next(iter(columns.values())))
    flat = dict.fromkeys(
        ("prompt", "step", "place", "limit", "count", "temperature", "group", "label", "batch_row"),
        np.zeros(n, np.int64),
    )
    wide = dict.fromkeys(
        ("drafts", "accepts", "expected", "drafted_p", "drafted_q", "confidence"), np.zeros((n, 2))
    )
    return Steps(**{**flat, **wide, **{name: np.asarray(x) for name, x in columns.items()}})


class TestColumns:
    def test_label_is_62_bits_of_a_digest(self) -> None:
        """SHA-256 of 'abc' begins with ba7816bf 8f01cfea (FIPS 180-2, appendix B.1)."""
        assert label_number("abc") == 0xBA7816BF8F01CFEA // 4

    def test_judged_rows(self) -> None:
        """The rejected draft is judged too, but never one beyond the limit."""
        steps = made_steps(count=[0, 1, 2, 0, 1], limit=[2, 2, 2, 0, 1])

        assert steps.judged.tolist() == [
            [True, False],
            [True, True],
            [True, True],
            [False, False],
            [True, False],
        ]

    def test_chances_of_both_rules(self) -> None:
        """min(1, p / q) for chain rejection, p for the others."""
        steps = made_steps(drafted_p=[[0.2, 0.6]], drafted_q=[[0.8, 0.3]])

        assert_measured(steps.chances("chain"), [[0.25, 1.0]], atol=1e-12, rtol=0)
        assert_measured(steps.chances("target_only"), [[0.2, 0.6]], atol=1e-12, rtol=0)

    def test_coins_lie_where_the_decision_says(self) -> None:
        """Below 0.25 where accepted, above where rejected; each of its own number."""
        steps = made_steps(
            accepts=[[1, 0]] * 50,
            drafted_p=[[0.2, 0.2]] * 50,
            drafted_q=[[0.8, 0.8]] * 50,
            step=np.arange(50),
        )
        coins = steps.coins(7, "chain")
        spread = np.c_[coins[:, 0] / 0.25, (coins[:, 1] - 0.25) / 0.75]

        assert ((spread >= 0) & (spread <= 1)).all()
        assert len(np.unique(spread)) == 100
        assert spread.min() < 0.1
        assert spread.max() > 0.9

    def test_cold_streams_are_left_out_with_their_steps(self) -> None:
        """Of three prompts one was asked at T = 0."""
        made = side({KIND: {f"p-{at}": drafted([1] * 10) for at in range(3)}})
        held = made.drawn[KIND]["p-1"]
        made.drawn[KIND]["p-1"] = held.model_copy(
            update={"params": SamplingParams(temperature=0.0, seed=9)}
        )
        (drawn,) = spec_side(pair(made), made).sampled()

        assert len(drawn.tokens) == 2 * 21
        assert len(known(drawn.steps)) == 2 * 10
        assert sorted(set(drawn.tokens.prompt.tolist())) == [0, 2]

    def test_key_comes_from_the_captures_digest(self) -> None:
        made = side({"sampled": fair(5)})

        assert spec_side(pair(made), made).key == int(hashlib.sha256(b"rocm").hexdigest()[:16], 16)


def spied(name: str, monkeypatch: pytest.MonkeyPatch, **streams: Any) -> dict[str, Named]:
    """Tests that a metric hands on, by name."""
    metric = METRICS[f"speculative.{name}"]
    home = importlib.import_module(f"validate.metrics.speculative_{name}")
    real = home.settled
    handed: list[Named] = []

    def settled(metric_name: str, found: list[Named], seen: Any, **rest: Any) -> Any:
        handed.extend(found)
        return real(metric_name, found, seen, **rest)

    monkeypatch.setattr(home, "settled", settled)
    kinds = {kind.replace("_", "-"): held for kind, held in streams.items()}
    metric(pair(side(kinds)), LEVELS)
    return {one.name: one for one in handed}


def weights(found: dict[str, Named]) -> dict[str, float]:
    return {name: round(one.weight, 12) for name, one in found.items()}


def totals(found: dict[str, Named], part: str) -> float:
    return round(math.fsum(one.weight for name, one in found.items() if part in name), 12)


def half(prompts: int = 8, steps: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {f"p-{at}": drafted((rng.random(steps) < 0.5).astype(int)) for at in range(prompts)}


class TestWeights:
    def test_serial_of_plain_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """0.4 for neighbours; four other pairings share 0.6."""
        found = spied("serial", monkeypatch, sampled=fair(60))

        assert weights(found) == {
            "sampled, neighbours at distance 1": 0.4,
            "sampled, neighbours at distance 2": 0.15,
            "sampled, tokens of one stream": 0.15,
            "sampled, streams at one position": 0.15,
            "sampled, streams at one token": 0.15,
        }
        # 8 streams of 60: 59 and 58 neighbours each
        assert [one.test.n for one in found.values()][:2] == [472, 464]

    def test_serial_of_drafted_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Eleven other pairings; one draft a step has no next one in its step: ten have a result."""
        found = spied("serial", monkeypatch, spec_sampled=half())

        assert len(found) == 11
        assert found[f"{KIND}, neighbours at distance 1"].weight == 0.4
        assert {round(one.weight, 12) for one in list(found.values())[1:]} == {round(0.6 / 11, 12)}
        assert f"{KIND}, final tokens of one step and the next" in found
        assert f"{KIND}, coins of streams at one step and row" in found

    def test_two_kinds_share_the_level(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = spied("serial", monkeypatch, sampled=fair(60), spec_sampled=half())

        assert found["sampled, neighbours at distance 1"].weight == 0.2
        assert found[f"{KIND}, neighbours at distance 1"].weight == 0.2

    def test_acceptance(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """0.99 of the level: a half pooled, a fifth by row, a tenth over four depths, a fifth for coins."""
        found = spied("acceptance_z", monkeypatch, spec_sampled=half())
        depths = {name: one for name, one in found.items() if "depth" in name}

        assert found[KIND].weight == 0.495
        assert_measured(found[f"{KIND}, draft 1"].weight, 0.198, atol=1e-12, rtol=0)
        assert_measured(found[f"{KIND}, coins"].weight, 0.198, atol=1e-12, rtol=0)
        assert len(depths) == 4
        assert_measured([one.weight for one in depths.values()], [0.02475] * 4, atol=1e-12, rtol=0)
        assert [found[KIND].test.n, sum(one.test.n for one in depths.values())] == [480, 480]

    def test_impossible_decisions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Chances of 1.000005 are 1 in float32: one of 30 such drafts was rejected."""
        accepts = [1] * 29 + [0]
        found = spied(
            "acceptance_z",
            monkeypatch,
            spec_greedy={"p-0": drafted(accepts, expected=1.000005)},
        )
        (one,) = found.values()

        assert (one.name, one.weight) == ("spec-greedy, impossible decisions", 0.01)
        assert (one.test.p_value, one.test.statistic, one.test.n) == (0.0, 1.0, 30)
        assert_measured(known(one.test.estimate), 1 / 30, atol=1e-12, rtol=0)

    def test_surprisal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """0.6 pooled; depth and parameters share 0.4, entropy being one value for all tokens."""
        found = spied("surprisal", monkeypatch, sampled=fair(60))

        assert found["sampled"].weight == 0.6
        assert totals(found, "depth") + totals(found, "parameters") + totals(found, "entropy") == (
            pytest.approx(0.4, abs=1e-9)
        )
        assert sum("depth" in name for name in found) == 4
        assert sum(one.test.n for name, one in found.items() if "depth" in name) == 480

    def test_uniform_of_plain_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = spied("uniform", monkeypatch, sampled=fair(60))

        assert found["sampled, p falling"].weight == 0.6
        assert_measured(sum(one.weight for one in found.values()), 1.0, atol=1e-9, rtol=0)
        assert not any("q/p" in name for name in found)

    def test_uniform_of_drafted_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """0.3 for p falling; the other 0.3 over six laws and orders."""
        found = spied("uniform", monkeypatch, spec_sampled=half())
        laws = {
            name: one
            for name, one in found.items()
            if name == f"{KIND}, q/p falling" or "own law" in name
        }

        assert_measured(found[f"{KIND}, p falling"].weight, 0.3, atol=1e-12, rtol=0)
        assert {round(one.weight, 12) for one in laws.values()} == {0.05}
        assert f"{KIND}, bonus, own law, p falling" in laws
        assert f"{KIND}, bonus, own law, q/p falling" not in laws
        accepted = found[f"{KIND}, accepted, own law, p falling"].test.n
        assert accepted == sum(int(x["count"].sum()) for x in half().values())

    def test_power_of_uniform_with_drafts(self) -> None:
        """At 0.3 of the level: shift / (sqrt(n) sqrt(2) sin(0.75 pi) / (0.75 pi)), the latter 0.42441."""
        streams = half()
        n = sum(len(x["tokens"]) for x in streams.values())
        found = METRICS["speculative.uniform"](pair(side({KIND: streams})), LEVELS)

        shift = cvm_shift_needed(alpha=0.001 * 0.3, power=0.95)
        assert_measured(
            known(found.detection).effect, shift / (0.424413 * math.sqrt(n)), atol=0, rtol=1e-5
        )

    def test_ref_without_a_telling_token_claims_no_power(self) -> None:
        sure = {name: plain([0] * 60, entropy=np.zeros(60)) for name in fair(60)}
        found = METRICS["speculative.uniform"](
            pair(side({"sampled": fair(60)}), side({"sampled": sure}, label="cuda")), LEVELS
        )

        assert known(found.detection).effect == math.inf


class TestSerialUnits:
    """Two streams of three steps: accepts 1, 0, 1; tokens 0; a 1 0; 0; 1 0 stand at indices 0 to 5."""

    def drawn(self) -> Any:
        # Two drafts a step, of which the first is decided by ``accepts`` and the second not reached.
        made = side({KIND: {name: drafted([1, 0, 1]) for name in ("p-0", "p-1")}})
        held = spec_side(pair(made), made)
        return held, held.kinds[KIND]

    def test_neighbours_stay_in_their_stream(self) -> None:
        """Six tokens each: 5 neighbours at distance 1, 4 at distance 2."""
        _, drawn = self.drawn()
        u = np.linspace(0.05, 0.95, 12)

        assert _lag(drawn.tokens, u, "k", 1)[1].n == 10
        name, test = _lag(drawn.tokens, u, "k", 2)
        assert (name, test.n) == ("k, neighbours at distance 2", 8)

    def test_shared_by_stream_position_and_token(self) -> None:
        """Two streams; six positions and six indices with a token of each."""
        _, drawn = self.drawn()
        u = np.linspace(0.05, 0.95, 12)
        names = [name for name, _ in _shared(drawn.tokens, u, "k")]

        assert names == [
            "k, tokens of one stream",
            "k, streams at one position",
            "k, streams at one token",
        ]
        assert [test.n for _, test in _shared(drawn.tokens, u, "k")] == [2, 6, 6]

    def test_final_tokens(self) -> None:
        """One a step, of which 2 x 2 follow one another; three steps with one of each stream."""
        _, drawn = self.drawn()
        (_, follow), (_, together) = _finals(drawn.tokens, np.linspace(0.05, 0.95, 12), "k")

        assert (follow.n, together.n) == (4, 3)

    def test_coins(self) -> None:
        """Every draft has a chance of 3/4: two streams, three positions, three steps with one of each."""
        held, drawn = self.drawn()
        within, across, stream, position, aligned = (test.n for _, test in _coins(held, drawn))

        assert (within, across, stream, position, aligned) == (0, 4, 2, 3, 3)

    @pytest.mark.parametrize(("p", "told"), [(0.0, 0), (1.0, 0), (0.5, 2)])
    def test_certain_coins_tell_nothing(self, p: float, told: int) -> None:
        streams = {name: drafted([1, 0, 1]) for name in ("p-0", "p-1")}
        for x in streams.values():
            x["drafted_p"] = np.full((3, 1), p)
        made = side({KIND: streams})
        held = spec_side(pair(made), made)

        assert _coins(held, held.kinds[KIND])[2][1].n == told

    def test_coins_of_two_streams_meet_by_position_and_by_step(self) -> None:
        """Accepts 1, 0, 0 and 0, 0, 0: steps are anchored at 5, 7, 8 and at 5, 6, 7, so that drafts stand
        at 6, 8, 9 and 6, 7, 8: two positions are shared, all three steps are.
        """
        made = side({KIND: {"p-0": drafted([1, 0, 0]), "p-1": drafted([0, 0, 0])}})
        held = spec_side(pair(made), made)
        drawn = held.kinds[KIND]

        assert (known(drawn.steps).place - PROMPT).tolist() == [0, 2, 3, 0, 1, 2]
        _, _, stream, position, aligned = (test.n for _, test in _coins(held, drawn))
        assert (stream, position, aligned) == (2, 2, 3)


def test_tokens_that_could_not_be_others_are_not_held() -> None:
    """Variances 0, 1e-9, 2e-9 and one token without mass."""
    x = plain([0, 0, 0, 0])
    x["variance"] = np.array([0.0, 1e-9, 2e-9, 0.2])
    x["p"] = np.array([0.75, 0.75, 0.75, 0.0])
    made = side({"sampled": {"p-0": x}})

    assert _held(spec_side(pair(made), made).kinds["sampled"]).tokens.index.tolist() == [2]


def named(name: str, p: float, weight: float, statistic: float) -> Named:
    test = SignificanceTest(
        p_value=p, statistic=statistic, n=50, n_of="steps", method="z", estimate=0.1
    )
    return Named(name, test, weight)


class TestWords:
    @pytest.mark.parametrize(
        ("found", "told"),
        [
            ([("a", 0.5, 0.5, 1.0), ("b", 0.01, 0.1, -1.0)], ("b", False)),  # 1 against 0.1
            ([("a", 0.02, 0.5, 1.0), ("b", 0.01, 0.1, -1.0)], ("a", True)),  # 0.04 against 0.1
            ([("a", 0.0, 0.5, 2.0), ("b", 0.0, 0.1, -2.0)], ("a", True)),  # 0 against 0
            ([("a", 0.0, 0.1, 1.0), ("b", 0.01, 0.5, -1.0)], ("a", True)),  # 0 against 0.02
            ([("a", 0.0, 0.1, 0.0)], ("a", False)),
        ],
    )
    def test_smallest_p_for_its_weight_is_told(
        self, found: list[tuple[str, float, float, float]], told: tuple[str, bool]
    ) -> None:
        held = [named(*one) for one in found]
        name, up = told

        assert acceptance_words(held) == (
            f"{'more' if up else 'fewer'} drafts are accepted than their law expects; most in {name}"
        )
        too, at = ("probable", "a lower") if up else ("surprising", "a higher")
        assert surprisal_words(held) == (
            f"tokens are too {too}, as at {at} temperature; most in {name}"
        )
