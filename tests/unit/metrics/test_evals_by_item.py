"""Rules of the metrics of evals on a handful of items, every figure of a measurement by hand."""

from typing import Any

import numpy as np
import pytest

from tests.measured import assert_measured, known
from tests.unit.metrics.evals_items import eval_pair, eval_side, item, items, matched
from tests.unit.metrics.evals_made import LEVELS
from validate.metrics import METRICS
from validate.metrics._evals import by_doc, flip, identical_answers, other_prompts
from validate.metrics.evals_signal import at_chance
from validate.schema import Measurement, Pair
from validate.schema.evals import EvalRequests


def measure(name: str, pair: Pair) -> Measurement:
    return METRICS[name](pair, LEVELS)


class TestShared:
    @pytest.mark.parametrize(
        ("a", "b", "token"),
        [
            ((1, 2, 3), (1, 2, 3), None),
            ((1, 2), (1, 2, 3), 2),
            ((1, 2, 3), (1, 2), 2),
            ((1, 9), (1, 2, 3), 1),
            ((), (7,), 0),
            (None, (7,), None),
            ((7,), None, None),
        ],
    )
    def test_flip_tells_where_two_responses_part(self, a: Any, b: Any, token: int | None) -> None:
        """A response that is the beginning of the other parts where it ends."""
        one = eval_pair([{}, {"token_ids": a}], [{}, {"token_ids": b}])

        assert flip(one, 1) == ("t doc 1", token)

    def test_documents_are_known_by_hash_or_else_by_row(self) -> None:
        """Documents a, a, b: means (1 + 3) / 2 and 5; without hashes three documents."""
        same = [item(0, doc_hash="a"), item(1, doc_hash="a"), item(2, doc_hash="b")]
        values = by_doc(same, np.array([1.0, 3.0, 5.0]))

        assert values.tolist() == [2.0, 5.0]
        bare = [one._replace(doc_hash=None) for one in same]
        assert by_doc(bare, np.array([1.0, 3.0, 5.0])).tolist() == [1.0, 3.0, 5.0]

    @pytest.mark.parametrize(
        ("ref", "cand", "cause"),
        [
            (
                (9, 1),
                (10, 2),
                "ref 9 tokens with 1 BOS, cand 10 tokens with 2 BOS: cand has BOS twice",
            ),
            ((9, 1), (8, 0), "ref 9 tokens with 1 BOS, cand 8 tokens with 0 BOS: cand has no BOS"),
            ((8, 0), (9, 1), "ref 8 tokens with 0 BOS, cand 9 tokens with 1 BOS: ref has no BOS"),
            (
                (9, 1),
                (9, 1),
                "ref 9 tokens with 1 BOS, cand 9 tokens with 1 BOS: another tokenizer",
            ),
            ((9, None), (8, 0), "ref 9 tokens, cand 8 tokens with 0 BOS: another tokenizer"),
            ((9, 0), (None, None), "ref 9 tokens with 0 BOS, cand ? tokens: another tokenizer"),
        ],
    )
    def test_cause_of_other_prompts(self, ref: Any, cand: Any, cause: str) -> None:
        """Item 1 of three has another hash; item 2 has none on cand's side and tells nothing."""

        def side(own: Any, hashes: list[str | None]) -> list[dict[str, Any]]:
            tokens, bos = own
            return [
                {"prompt_tokens": tokens, "bos": bos, "prompt_tokens_hash": digest}
                for digest in hashes
            ]

        one = eval_pair(side(ref, ["a", "b", "c"]), side(cand, ["a", "x", None]))
        why = known(other_prompts(matched(one)))

        assert (
            f"differ on 1 of 3 items, though the prompts read the same; e.g. t doc 1: {cause}"
            in (str(why))
        )

    @pytest.mark.parametrize(
        ("texts", "sample", "odd", "alarm"),
        [
            (20, "true", False, True),
            (19, "true", False, False),
            (20, "false", False, False),
            (20, "true", True, False),
        ],
    )
    def test_equal_drawn_answers_of_unlike_runs(
        self, texts: int, sample: str, odd: bool, alarm: bool
    ) -> None:
        """Twenty answers drawn at a temperature never agree by chance; greedy ones may."""
        ref = [{"response": f"text {at}"} for at in range(texts)]
        cand = [*ref[:-1], {"response": "another"}] if odd else ref
        one = eval_pair(ref, cand, generation={"do_sample": sample})
        pair = matched(one, cand=eval_side("rocm", weights="other"))

        assert (identical_answers(pair) is not None) == alarm

    @pytest.mark.parametrize(("numbers", "alarm"), [(20, True), (19, False)])
    def test_equal_numbers_of_unlike_runs(self, numbers: int, alarm: bool) -> None:
        """Twenty distinct log-likelihoods prove a cache, nineteen nothing; one that differs clears it."""
        held = [{"loglikelihoods": (-1.0 - at,)} for at in range(numbers)]
        other = [*held[:-1], {"loglikelihoods": (-0.5,)}]
        cand = eval_side("rocm", weights="other")

        assert (identical_answers(matched(eval_pair(held, held), cand=cand)) is not None) == alarm
        assert identical_answers(matched(eval_pair(held, other), cand=cand)) is None
        assert identical_answers(matched(eval_pair(held, held))) is None

    def test_three_tasks_are_named(self) -> None:
        held = [{"loglikelihoods": (-1.0 - at,)} for at in range(20)]
        pairs = [eval_pair(held, held, name=name) for name in ("a", "b", "c", "d", "e")]
        why = identical_answers(matched(*pairs, cand=eval_side("rocm", weights="other")))

        assert (
            "ref (cuda) and cand (rocm) are unlike runs, yet their answers to a, b, c and 2 more"
            in (str(why))
        )


class TestIdentical:
    @pytest.mark.parametrize(
        ("n", "moved", "shared", "alarm"),
        [
            (500, 1, 0, "t (499 of 500 items)"),
            (500, 4, 0, "t (496 of 500 items)"),
            (500, 5, 0, None),  # 99 % is not more than 99 %
            (101, 1, 0, "t (100 of 101 items)"),
            (100, 1, 0, None),
            (99, 1, 0, None),
            (500, 1, 401, None),  # 99 items have numbers of their own
        ],
    )
    def test_nearly_all_numbers_equal_are_no_chance(
        self, n: int, moved: int, shared: int, alarm: str | None
    ) -> None:
        """The last ``moved`` of cand's items are its own; the first ``shared`` are all 0.0."""
        ref = [{"loglikelihoods": (0.0 if at < shared else -1.0 - at,)} for at in range(n)]
        cand = [*ref[: n - moved], *[{"loglikelihoods": (0.5 - at,)} for at in range(moved)]]
        side = eval_side("rocm", weights="other")
        found = identical_answers(matched(eval_pair(ref, cand), cand=side))

        assert (found is not None) == (alarm is not None)
        assert alarm is None or f"their answers to {alarm} agree to the last digit" in str(found)
        assert identical_answers(matched(eval_pair(ref, cand))) is None  # the same weights and path

    @pytest.mark.parametrize(("own", "alarm"), [(100, True), (99, False)])
    def test_a_hundred_items_with_numbers_of_their_own_are_enough(
        self, own: int, alarm: bool
    ) -> None:
        """All of them are equal; two items that share a number on ref are none, and one moved."""
        ref = [{"loglikelihoods": (-1.0 - at,)} for at in range(own)] + [
            {"loglikelihoods": (0.0,)}
        ] * 2
        cand = [*ref[:-1], {"loglikelihoods": (-0.5,)}]
        side = eval_side("rocm", weights="other")
        found = identical_answers(matched(eval_pair(ref, cand), cand=side))

        assert (found is not None) == alarm
        assert not alarm or f"t ({own + 1} of {own + 2} items)" in str(found)

    def test_answers_equal_in_text_and_numbers_are_counted(self) -> None:
        """Of four items: all equal, other text, other number, all equal."""
        ref = [{"response": "a", "loglikelihoods": (-1.0,)}] * 4
        cand = [
            ref[0],
            {"response": "b", "loglikelihoods": (-1.0,)},
            {"response": "a", "loglikelihoods": (-2.0,)},
            ref[0],
        ]
        counted = EvalRequests(asked=10, sent=4, cached=3)
        other = EvalRequests(asked=10, sent=6, cached=5)
        pair = matched(
            eval_pair(ref, cand),
            ref=eval_side("cuda", requests=counted),
            cand=eval_side("rocm", requests=other),
        )
        found = measure("evals.identical", pair)

        assert found.value == 4.0  # |10 - 4 - 3| + |10 - 6 - 5|
        assert found.n == 4
        assert found.worst is not None
        assert (found.worst.place, found.worst.value) == ("ref", 3.0)
        assert found.pattern == "ref asked for 10 answers, sent 4 and took 3 from a cache"
        assert found.breakdown == {
            "answers equal to the last digit": 2.0,
            "ref: requests sent": 4.0,
            "ref: answers from a cache": 3.0,
            "cand: requests sent": 6.0,
            "cand: answers from a cache": 5.0,
        }

    @pytest.mark.parametrize(
        ("keys", "weights", "cached", "unlike"),
        [
            (("k", "k"), "other", 1, True),
            (("k", "l"), "other", 1, False),
            ((None, None), "other", 1, False),
            ((None, "l"), "other", 1, False),
            (("k", "k"), "seed1", 1, False),
            (("k", "k"), "other", 0, False),
        ],
    )
    def test_one_cache_key_for_unlike_runs(
        self, keys: tuple[Any, Any], weights: str, cached: int, unlike: bool
    ) -> None:
        sides = [
            eval_side(
                label,
                weights=own,
                requests=EvalRequests(asked=1, sent=1 - cached, cached=cached, cache_key=key),
            )
            for label, own, key in (("cuda", "seed1", keys[0]), ("rocm", weights, keys[1]))
        ]
        pair = matched(eval_pair([{}], [{}]), ref=sides[0], cand=sides[1])

        found = measure("evals.identical", pair)
        assert (found.undefined_kind == "unlike") == unlike
        assert (found.value == 0.0) != unlike


class TestPrompts:
    def test_wrong_prompts_by_side(self) -> None:
        """One BOS is asked of ref; cand's tokenizer is not known, so that only two are wrong there."""
        ref: list[dict[str, Any]] = [
            {"bos": 1},
            {"bos": 0},
            {"bos": None, "truncated": True},
            {"bos": 1},
        ]
        cand: list[dict[str, Any]] = [
            {"bos": 1},
            {"bos": 0},
            {"bos": 2},
            {"bos": 1, "truncated": True},
        ]
        hashes = [*["h"] * 3, None]
        held = [
            [
                {**one, "prompt_tokens_hash": digest}
                for one, digest in zip(side, hashes, strict=True)
            ]
            for side in (ref, cand)
        ]
        pair = matched(eval_pair(*held), ref=eval_side("cuda", bos_expected=1))
        found = measure("evals.prompts", pair)

        assert (found.value, found.n) == (4.0, 4)
        assert found.breakdown == {
            "compared by token ids": 3.0,
            "wrong in ref": 2.0,
            "wrong in cand": 2.0,
        }
        assert found.worst is not None
        assert found.worst.place == "ref: t doc 1"
        assert found.worst.detail == "starts with 0 BOS tokens where the tokenizer puts 1"

    def test_two_bos_of_an_unknown_tokenizer(self) -> None:
        pair = matched(eval_pair([{"bos": 1}], [{"bos": 2}]))

        assert measure("evals.prompts", pair).pattern == (
            "cand: t doc 0 starts with 2 BOS tokens where the tokenizer puts 1"
        )

    def test_cut_prompt_is_told(self) -> None:
        pair = matched(eval_pair([{"bos": 1}], [{"bos": 1, "truncated": True}]))

        assert measure("evals.prompts", pair).pattern == "cand: t doc 0 was cut to fit"


class TestRates:
    def test_every_kind_on_both_sides(self) -> None:
        """Ten items; kinds overlap: a blank answer is unreadable too."""
        fine: dict[str, Any] = {"response": "a", "answer": "a", "finish": "stop"}
        blank: dict[str, Any] = {"response": " ", "answer": "[invalid]", "finish": "stop"}
        cut: dict[str, Any] = {"response": "a", "answer": "a", "finish": "length"}
        lost: dict[str, Any] = {**fine, "scores": {"acc": float("nan")}}
        ref = [blank, cut, cut, *[fine] * 7]
        cand = [fine, cut, blank, blank, blank, lost, *[fine] * 4]
        found = measure("evals.rates", matched(eval_pair(ref, cand)))

        assert found.value == 20.0
        shown = {name: value for name, value in found.breakdown.items() if name.endswith("%")}
        assert_measured(
            list(shown.values()), [10.0, 30.0, 20.0, 10.0, 10.0, 30.0, 10.0], atol=1e-12, rtol=0
        )
        assert list(shown) == [
            "t, empty: ref %",
            "t, empty: cand %",
            "t, cut: ref %",
            "t, cut: cand %",
            "t, unreadable: ref %",
            "t, unreadable: cand %",
            "t, invalid: cand %",
        ]
        assert found.breakdown["t, empty: lost"] == 3.0
        assert found.breakdown["t, empty: gained"] == 1.0
        assert found.breakdown["t, cut: drop"] == -10.0
        assert found.pattern == "cand: 1 items have no score (t doc 5)"

    def test_items_without_a_score_are_named_by_side(self) -> None:
        """Three are spelled out; a document that two filters score counts once."""
        fine: dict[str, Any] = {}
        lost: dict[str, Any] = {"scores": {"acc": float("nan")}}
        strict = eval_pair([lost, *[fine] * 4], [fine, *[lost] * 4], through="strict")
        loose = eval_pair([fine] * 5, [fine, *[lost] * 4], through="loose")

        assert measure("evals.rates", matched(strict, loose)).pattern == (
            "ref: 1 items have no score (t doc 0); "
            "cand: 4 items have no score (t doc 1, t doc 2, t doc 3 and 1 more)"
        )
        assert measure("evals.rates", matched(eval_pair([fine], [fine]))).pattern is None

    @pytest.mark.parametrize(
        ("change", "kinds"),
        [
            ({"response": None}, ["cut", "invalid"]),
            ({"finish": None}, ["empty", "unreadable", "invalid"]),
        ],
    )
    def test_kinds_that_one_item_cannot_tell_are_left_out(
        self, change: dict[str, Any], kinds: list[str]
    ) -> None:
        fine: dict[str, Any] = {"response": "a", "answer": "a", "finish": "stop"}
        found = measure("evals.rates", matched(eval_pair([fine, fine], [fine, {**fine, **change}])))

        drops = [name for name in found.breakdown if name.endswith(": drop")]
        assert drops == [f"t, {kind}: drop" for kind in kinds]


class TestLength:
    def test_a_tenth_in_tokens_where_both_keep_ids(self) -> None:
        """20 tokens: 18 and 22 are a tenth apart and no change, 17 is shorter, 23 longer."""
        ref = [{"response": "a", "token_ids": (1,) * 20, "finish": "stop"}] * 6
        lengths = (18, 22, 17, 23, 17, 20)
        cand = [
            {"response": "b" * 99, "token_ids": (1,) * n, "finish": "stop" if n > 17 else "length"}
            for n in lengths
        ]
        found = measure("evals.length", matched(eval_pair(ref, cand)))

        assert_measured(found.value, 100 / 6, atol=1e-9, rtol=0)
        assert found.breakdown["t, shorter: lost"] == 2.0
        assert found.breakdown["t, shorter: gained"] == 1.0
        assert found.breakdown["t, longer: lost"] == 1.0
        assert found.breakdown["t, longer: gained"] == 2.0
        assert found.breakdown["t: ref mean length"] == 20.0
        assert found.breakdown["t: cand mean length"] == 19.5  # 117 / 6
        ends = {name: value for name, value in found.breakdown.items() if "ends by" in name}
        assert list(ends) == [
            "t: ref ends by stop, %",
            "t: cand ends by length, %",
            "t: cand ends by stop, %",
        ]
        assert_measured(list(ends.values()), [100.0, 100 / 3, 200 / 3], atol=1e-9, rtol=0)

    def test_characters_where_one_item_keeps_no_ids(self) -> None:
        """Texts of 10 and 5 characters; the ids say otherwise and are not asked."""
        ref = [{"response": "a" * 10, "token_ids": (1,)}] * 2
        cand: list[dict[str, Any]] = [
            {"response": "a" * 5, "token_ids": (1,)},
            {"response": "", "token_ids": None},
        ]
        found = measure("evals.length", matched(eval_pair(ref, cand)))

        assert found.value == 100.0
        assert found.breakdown["t: ref mean length"] == 10.0
        assert found.breakdown["t: cand mean length"] == 2.5


class TestSignal:
    @pytest.mark.parametrize(
        ("held", "count"),
        [
            ([{"loglikelihoods": (0.0, 0.0)}, {"loglikelihoods": (-1.0, 0.0)}], 1),
            ([{"loglikelihoods": (0.0,)}] * 19, 0),
            ([{"loglikelihoods": (0.0,)}] * 20, 20),
            ([{"loglikelihoods": (0.0,)}] * 19 + [{"loglikelihoods": (-1.0,)}], 0),
            ([{"loglikelihoods": (-3.0,)}] * 19, 0),
            ([{"loglikelihoods": (-3.0,)}] * 20, 20),
            ([{"loglikelihoods": (-3.0,)}] * 19 + [{"loglikelihoods": (-4.0,)}], 0),
            ([{"response": " "}] * 19, 0),
            ([{"response": " "}] * 20, 20),
            ([{"response": " "}] * 19 + [{"response": None}], 0),
            ([{"response": " "}] * 19 + [{"response": "a"}], 0),
            ([{}] * 20, 0),
        ],
    )
    def test_items_of_cand_that_carry_nothing(self, held: list[dict[str, Any]], count: int) -> None:
        """One choice of exactly 0 may be real, two are not; twenty alike are no chance."""
        sound: list[dict[str, Any]] = [
            {"loglikelihoods": (-1.0 - at,), "response": "a"} for at in range(len(held))
        ]
        found = measure("evals.signal", matched(eval_pair(sound, held)))

        assert found.value == float(count)
        assert found.n == len(held)
        assert (found.worst is None) == (count == 0)
        if found.worst is not None:
            assert (found.worst.place, found.worst.value) == ("cand: t", float(count))

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            (0.0, "log-likelihoods of exactly 0: an empty slice was summed"),
            (-3.5, "every log-likelihood is -3.5: no variance at all"),
        ],
    )
    def test_twenty_equal_numbers_in_words(self, value: float, why: str) -> None:
        held = [{"loglikelihoods": (value,)}] * 20
        sound = [{"loglikelihoods": (-1.0 - at,)} for at in range(20)]

        assert measure("evals.signal", matched(eval_pair(sound, held))).pattern == (
            f"cand t: 20 items, {why}"
        )

    def test_worst_is_the_task_with_most(self) -> None:
        zero: dict[str, Any] = {"loglikelihoods": (0.0, 0.0)}
        fine: dict[str, Any] = {"loglikelihoods": (-1.0, -2.0)}
        few = eval_pair([zero, fine, fine], [fine] * 3, name="few")
        most = eval_pair([fine] * 3, [zero, zero, fine], name="most")
        found = measure("evals.signal", matched(few, most))
        why = "log-likelihoods of exactly 0: an empty slice was summed"

        assert (found.value, found.n) == (3.0, 6)
        assert found.worst is not None
        assert (found.worst.place, found.worst.value, found.worst.detail) == (
            "cand: most",
            2.0,
            why,
        )
        assert found.pattern == f"ref few: 1 items, {why}; cand most: 2 items, {why}"

    def test_extractors_that_disagree(self) -> None:
        """Of four items two extractors score one otherwise on ref and three on cand."""
        right: dict[str, Any] = {"scores": {"acc": 1.0}}
        wrong: dict[str, Any] = {"scores": {"acc": 0.0}}
        strict = eval_pair([right] * 4, [right] * 4, through="strict-match")
        loose = eval_pair(
            [right, right, right, wrong], [wrong, wrong, wrong, right], through="flexible-extract"
        )
        found = measure("evals.signal", matched(strict, loose))

        assert found.breakdown == {
            "ref t: strict-match and flexible-extract disagree, %": 25.0,
            "cand t: strict-match and flexible-extract disagree, %": 75.0,
        }

    def test_chance_by_side(self) -> None:
        """30 of 30 right against a chance of 1/4, and 8 of 30."""
        right: dict[str, Any] = {"scores": {"acc": 1.0}}
        wrong: dict[str, Any] = {"scores": {"acc": 0.0}}
        one = eval_pair([right] * 30, [right] * 8 + [wrong] * 22, chance=0.25)

        assert measure("evals.signal", matched(one)).breakdown == {"cand t: acc at chance": 1.0}

    @pytest.mark.parametrize(
        ("right", "chance", "guess"),
        [(0, None, True), (1, None, False), (0, 0.0, True), (12, 0.25, True), (13, 0.25, False)],
    )
    def test_better_than_a_guess_at_95_percent(
        self, right: int, chance: float | None, guess: bool
    ) -> None:
        """Of 30 at a chance of 1/4: 12 or more come by luck in 5.07 %, 13 or more in 2.16 %."""
        held = items([{"scores": {"acc": float(at < right)}} for at in range(30)])

        assert at_chance(held, metric="acc", chance=chance) == guess
