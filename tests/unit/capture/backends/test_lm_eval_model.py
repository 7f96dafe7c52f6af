"""The torch model as lm-eval's language model: same numbers as the model's own loops, one BOS."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance

from tests.measured import assert_measured
from validate.capture.backends import lm_eval_model
from validate.capture.backends.lm_eval_cache import Answers
from validate.capture.backends.torch_batch import Runner
from validate.capture.backends.torch_paths import path_options, renorm_rule
from validate.errors import InputError
from validate.models import Trace, greedy, load_config, load_weights

pytestmark = pytest.mark.golden
GOLDEN = Path("golden/k3-nano")
STOP = {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}


def _silent(_done: int, _total: int, _what: str) -> None:
    """Nothing."""


def runner(path: str = "reference") -> Runner:
    config = load_config(GOLDEN / "config.json")
    options = path_options(path, {})
    return Runner(
        weights=load_weights(
            GOLDEN / "weights/seed1.safetensors", config, dtype=options.dtype, device="cpu"
        ),
        config=config,
        options=options,
        device="cpu",
        chunk=0 if path == "reference" else 32,
        state_chunk=8,
        renorm=renorm_rule(path, {}),
        trace=Trace(wants=lambda _: False),
    )


@pytest.fixture(scope="module")
def reference() -> Runner:
    return runner()


def model(
    of: Runner, folder: Path, *, resume: bool = False, recording: str = "one"
) -> lm_eval_model.CaptureLM:
    answers = Answers(folder, model="a" * 64, resume=resume, recording=recording)
    return lm_eval_model.CaptureLM(of, answers, name="reference", progress=_silent)


def asked(*texts: Any) -> list[Instance]:
    """Requests of a task ``t``, one a document."""
    return [
        Instance(
            request_type="loglikelihood",
            doc={},
            arguments=text if isinstance(text, tuple) else (text,),
            idx=0,
            metadata=("t", n, 1),
        )
        for n, text in enumerate(texts)
    ]


def test_one_bos_stands_before_a_text_and_none_inside_it(reference: Runner, tmp_path: Path) -> None:
    """TV-08: a byte tokenizer has no text that reads as the mark."""
    lm = model(reference, tmp_path)

    assert lm.tok_encode("a<s>") == [256, *b"a<s>"]
    lm.loglikelihood(asked(("1+1=", "2"), ("", "2")))
    assert [note[0].tokens for note in lm.notes.values()] == [(256, *b"1+1=2"), (256, *b"2")]


def test_greedy_text_is_that_of_the_models_own_loop(reference: Runner, tmp_path: Path) -> None:
    prompts = ["123+456=", "sort hgfa>", "77+3="]

    texts = model(reference, tmp_path).generate_until(asked(*[(p, STOP) for p in prompts]))

    rows = [[256, *prompt.encode()] for prompt in prompts]
    made = greedy(
        reference.weights,
        rows,
        steps=6,
        config=reference.config,
        options=reference.options,
        device="cpu",
    ).ids.tolist()
    assert texts == [bytes(ids).decode().partition("\n")[0] for ids in made]
    assert texts == ["579", "afgh", "80"]


def test_a_shared_beginning_changes_no_likelihood(reference: Runner, tmp_path: Path) -> None:
    """Rows that share a prefix against the same rows alone; bfloat16 sums in another order."""
    head = "set abc=1234;\nset xyz=9876;\nand it came to pass\nget "
    pairs = [(f"{head}abc=", "1234;"), (f"{head}xyz=", "9876;"), (f"{head}xyz=", "1234;")]

    together = model(reference, tmp_path / "a").loglikelihood(asked(*pairs))
    alone = [model(reference, tmp_path / "b").loglikelihood(asked(pair))[0] for pair in pairs]

    assert reference.trace.branches["lm_eval.prefix.shared"] >= 1
    assert [greedy for _, greedy in together] == [True, True, False]
    assert [greedy for _, greedy in alone] == [True, True, False]
    for (one, _), (other, _) in zip(together, alone, strict=True):
        assert_measured(one, other, atol=0.05, rtol=0.02)


def test_the_likelihood_is_the_sum_over_the_continuation_alone(
    reference: Runner, tmp_path: Path
) -> None:
    """TV-05: rows shifted by one; expected from one teacher-forced pass, token by token."""
    text = "12+34=46\n"
    logits, _ = reference.prefill([[256, *text.encode()]])
    logprobs = torch.log_softmax(logits[0].to(torch.float64), -1)
    given = len("12+34=")
    expected = sum(float(logprobs[p, text.encode()[p]]) for p in range(given, len(text)))

    ((value, is_greedy),) = model(reference, tmp_path).loglikelihood(asked(("12+34=", "46\n")))

    assert is_greedy
    assert_measured(value, expected, atol=1e-3, rtol=0)


def test_rolling_scores_every_byte_once_in_windows_too(
    reference: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "In the beginning God created"
    (whole,) = model(reference, tmp_path / "a").loglikelihood_rolling(asked(text))
    logits, _ = reference.prefill([[256, *text.encode()]])
    logprobs = torch.log_softmax(logits[0].to(torch.float64), -1)
    expected = sum(float(logprobs[p, byte]) for p, byte in enumerate(text.encode()))
    assert_measured(whole, expected, atol=1e-3, rtol=0)

    monkeypatch.setattr(lm_eval_model, "MAX_LENGTH", 10)
    (cut,) = model(reference, tmp_path / "b").loglikelihood_rolling(asked(text))

    assert math.isfinite(cut)
    assert cut < whole


def test_a_prompt_that_is_too_long_is_said_to_be_cut(
    reference: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm_eval_model, "MAX_LENGTH", 12)
    lm = model(reference, tmp_path)

    lm.generate_until(asked(("1+1=", STOP), ("100+200=", STOP)))

    assert [note[0].truncated for note in lm.notes.values()] == [False, True]
    assert lm.notes["t", 1][0].tokens == tuple(b"0+200=")


def test_prompts_never_share_an_answer(reference: Runner, tmp_path: Path) -> None:
    texts = model(reference, tmp_path).generate_until(
        asked(*[(f"{n}+{n}=", STOP) for n in range(101, 107)])
    )

    assert texts == [str(2 * n) for n in range(101, 107)]


@pytest.mark.parametrize(("recording", "hits", "sent"), [("one", 0, 4), ("another", 2, 2)])
def test_an_interrupted_run_is_taken_up_and_counts_what_ran_for_it(
    reference: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recording: str,
    hits: int,
    sent: int,
) -> None:
    monkeypatch.setattr("validate.capture.backends.lm_eval_batches.MAX_ROWS", 2)
    prompts = asked(*[(f"{n}+{n}=", STOP) for n in range(101, 105)])
    first = model(reference, tmp_path)

    def stop(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    first.progress = stop
    with pytest.raises(KeyboardInterrupt):
        first.generate_until(prompts)

    again = model(reference, tmp_path, resume=True, recording=recording)
    ran = again.runner.trace.branches["lm_eval.greedy"]
    assert again.generate_until(prompts) == ["202", "204", "206", "208"]
    assert (again.answers.hits, again.answers.sent) == (hits, sent)
    assert again.runner.trace.branches["lm_eval.greedy"] == ran + 1


def test_what_is_not_greedy_is_refused(reference: Runner, tmp_path: Path) -> None:
    sampled = STOP | {"do_sample": True, "temperature": 0.7}

    with pytest.raises(InputError, match="only greedy generation runs here"):
        model(reference, tmp_path).generate_until(asked(("1+1=", sampled)))


def test_the_padded_path_answers_through_its_own_kernels(tmp_path: Path) -> None:
    padded = runner("rocm")

    texts = model(padded, tmp_path).generate_until(asked(("123+456=", STOP)))

    assert texts == ["579"]
    assert any("absorbed" in name for name in padded.trace.branches)
