"""One prompt under the names of the capture format."""

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.oracle.tiny import TINY, random_weights
from validate.oracle import forward, logits_of, run_prompt
from validate.schema import Prompt

WEIGHTS = random_weights(seed=4)
IDS = (3, 1, 4, 1, 5, 9, 2, 6, 18, 0, 16)


def _run(tags=("tensors", "state"), ids=IDS, prompt_length=6, score_stride=1, chunk=4):
    prompt = Prompt(
        id="p-0", token_ids=ids, prompt_length=prompt_length, tags=tags, score_stride=score_stride
    )
    return run_prompt(prompt, WEIGHTS, TINY, stream_tokens=5, chunk=chunk)


def test_an_untagged_prompt_gives_logits_and_stream_alone():
    run = _run(tags=("short",))

    assert set(run.tensors) == {"logits", "logits.positions", "stream.logits"}
    assert run.passes == {"prefill": 3, "chunk": 0, "decode": 4}


def test_names_shapes_and_axes_of_a_full_prompt():
    """TINY: hidden 10, 3 heads, MLA at 1 and 4 with value 6, KDA 4 wide; 11 tokens, halves 5 + 6."""
    run = _run()

    rows = {"prefill": 11, "decode": 6}
    expected = {
        "logits": ((11, 19), ("rows", "vocab")),
        "logits.positions": ((11,), ("rows",)),
        "stream.logits": ((5, 19), ("steps", "vocab")),
        "decode.logits": ((6, 19), ("rows", "vocab")),
    }
    for mode, n in rows.items():
        expected[f"{mode}.positions"] = ((n,), ("rows",))
        for layer in range(5):
            expected[f"{mode}.attn.{layer}.in"] = ((n, 10), ("rows", "hidden"))
            expected[f"{mode}.hidden.{layer}"] = ((n, 10), ("rows", "hidden"))
            kind, value = ("mla", 6) if layer in (1, 4) else ("kda", 4)
            expected[f"{mode}.{kind}.{layer}.out"] = ((n, 3, value), ("rows", "heads", "value"))
            if kind == "mla":
                expected[f"{mode}.mla.{layer}.lse"] = ((n, 3), ("rows", "heads"))
        for layer in range(1, 5):
            at = f"{mode}.router.{layer}"
            expected[f"{at}.scores"] = ((n, 6), ("rows", "experts"))
            expected[f"{at}.ids"] = ((n, 2), ("rows", "choice"))
            expected[f"{at}.weights"] = ((n, 2), ("rows", "choice"))
    for layer in range(5):
        expected[f"decode.prefix.attn.{layer}.in"] = ((5, 10), ("rows", "hidden"))
    for how in ("oneshot", "chunked", "decode"):
        for layer in (0, 2, 3):
            expected[f"state.{how}.kda.{layer}"] = ((3, 4, 4), ("heads", "key", "value"))
            expected[f"state.{how}.conv.{layer}"] = ((3, 12, 3), ("qkv", "channels", "taps"))
        for layer in (1, 4):
            expected[f"state.{how}.kv.{layer}"] = ((11, 8), ("tokens", "latent"))
    assert {n: (t.array.shape, t.axes) for n, t in run.tensors.items()} == expected


def test_arrays_are_float32_or_int32_and_contiguous():
    """A shard writer may take the memory as it lies."""
    for name, tensor in _run().tensors.items():
        integral = name.endswith((".positions", ".ids"))
        assert tensor.array.dtype == (np.int32 if integral else np.float32), name
        assert tensor.array.flags.c_contiguous, name


def test_values_are_those_of_the_forward_pass():
    run = _run(score_stride=4)
    whole = forward(IDS, WEIGHTS, TINY)
    logits = logits_of(whole.final, WEIGHTS)

    assert run.tensors["logits.positions"].array.tolist() == list(range(11))
    assert_measured(run.tensors["logits"].array, logits, atol=1e-6, rtol=1e-6)
    assert run.tensors["decode.positions"].array.tolist() == [5, 6, 7, 8, 9, 10]
    assert_measured(run.tensors["decode.logits"].array, logits[5:], atol=1e-6, rtol=1e-6)
    for layer, trace in enumerate(whole.layers):
        kind = "kda" if trace.lse is None else "mla"
        for mode, first in (("prefill", 0), ("decode", 5)):
            at = run.tensors[f"{mode}.{kind}.{layer}.out"].array
            assert_measured(at, trace.out[first:], atol=1e-6, rtol=1e-6)
            at = run.tensors[f"{mode}.attn.{layer}.in"].array
            assert_measured(at, trace.attn_in[first:], atol=1e-6, rtol=1e-6)
            at = run.tensors[f"{mode}.hidden.{layer}"].array
            assert_measured(at, trace.hidden[first:], atol=1e-6, rtol=1e-6)


def test_scored_positions_choose_the_rows_of_the_logits():
    """40 tokens, stride 10: 0, 10, 20 and the last 16 (24..39)."""
    ids = tuple(np.random.default_rng(0).integers(0, 17, 40).tolist())

    run = _run(tags=(), ids=ids, score_stride=10)

    positions = [0, 10, 20, *range(24, 40)]
    assert run.tensors["logits.positions"].array.tolist() == positions
    logits = logits_of(forward(ids, WEIGHTS, TINY).final, WEIGHTS)[positions]
    assert_measured(run.tensors["logits"].array, logits, atol=1e-6, rtol=1e-6)


def test_stream_logits_are_the_rows_the_stream_was_taken_from():
    run = _run()

    logits = run.tensors["stream.logits"].array
    assert np.argmax(logits, axis=1).tolist() == list(run.stream)
    forced = forward([*IDS[:6], *run.stream], WEIGHTS, TINY)
    expected = logits_of(forced.final[5:10], WEIGHTS)
    assert_measured(logits, expected, atol=1e-6, rtol=1e-6)


def test_states_agree_however_they_were_made():
    run = _run()

    for layer in range(5):
        for kind in ("kda", "conv", "kv"):
            name = f"state.oneshot.{kind}.{layer}"
            if name not in run.tensors:
                continue
            once = run.tensors[name].array
            for how in ("chunked", "decode"):
                other = run.tensors[f"state.{how}.{kind}.{layer}"].array
                assert_measured(other, once, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("tags", [("tensors",), ("state",), ("tensors", "state")])
def test_a_prompt_of_one_token_decodes_it(tags):
    """T = 1: nothing is prefilled before the decode run (n0 = 0)."""
    run = _run(tags=tags, ids=(7,), prompt_length=1)

    if "tensors" in tags:
        assert run.tensors["decode.positions"].array.tolist() == [0]
        assert run.tensors["decode.logits"].array.shape == (1, 19)
        assert not [name for name in run.tensors if name.startswith("decode.prefix.")]
    if "state" in tags:
        assert run.tensors["state.decode.kv.1"].array.shape == (1, 8)
    assert run.passes["decode"] == 5


def test_passes_count_what_ran():
    """One-shot, half and forced prefills plus the stream's own; 3 chunks of 4; 6 + 4 decode steps."""
    assert _run().passes == {"prefill": 4, "chunk": 3, "decode": 10}


@pytest.mark.parametrize(("ids", "half"), [((7, 2), 1), ((7, 2, 5), 1), ((7, 2, 5, 3, 1), 2)])
def test_a_prompt_of_two_tokens_prefills_one(ids, half):
    """T = 2 and 3: n0 = 1, so a prefill of one token goes before the decode run."""
    run = _run(ids=ids, prompt_length=1, chunk=1)

    rows = len(ids) - half
    assert run.tensors["decode.positions"].array.tolist() == list(range(half, len(ids)))
    assert run.tensors["decode.logits"].array.shape == (rows, 19)
    assert run.tensors["decode.prefix.attn.0.in"].array.shape == (half, 10)
    assert run.tensors["decode.router.1.ids"].array.shape == (rows, 2)
    assert run.passes == {"prefill": 4, "chunk": len(ids), "decode": rows + 4}
