"""What one batch of prompts gives: values against the oracle, streams against a decode run anew."""

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.capture.backends.recording import CONFIG, PROMPTS, expected_names, make_project
from validate import oracle
from validate.capture.backends import torch_batch
from validate.capture.backends.torch_batch import Runner, run_batch
from validate.models import PathOptions, Trace, decode_forced, load_weights, prefill
from validate.schema import Prompt

INSIDE = tuple(p for p in PROMPTS if "tensors" in p.tags)
PLAIN = tuple(p for p in PROMPTS if "tensors" not in p.tags)


STEPS = 5


@pytest.fixture(autouse=True)
def short_streams(monkeypatch):
    """Five tokens instead of sixteen."""
    monkeypatch.setattr(torch_batch, "STREAM_TOKENS", STEPS)


@pytest.fixture(scope="module")
def seed1(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return (
            make_project(tmp_path_factory.mktemp("p"), patch).resolve()
            / "weights/seed1.safetensors"
        )


def runner(seed1, *, chunk=0, state_chunk=4, **switches) -> Runner:
    options = PathOptions(**switches)
    return Runner(
        weights=load_weights(seed1, CONFIG, dtype=options.dtype, device="cpu"),
        config=CONFIG,
        options=options,
        device="cpu",
        chunk=chunk,
        state_chunk=state_chunk,
        renorm="all",
        trace=Trace(wants=lambda _: False),
    )


FORMS = [
    pytest.param({"path": "reference"}, id="reference"),
    pytest.param({"path": "rocm", "splits": 4, "chunk": 3, "decode_pad": "tile"}, id="rocm"),
]


@pytest.mark.parametrize("prompts", [INSIDE, PLAIN], ids=["inside", "plain"])
@pytest.mark.parametrize("form", FORMS)
def test_everything_recorded_in_float64_is_what_the_oracle_records(seed1, form, prompts):
    """Names, axes, shapes and values, tensor by tensor; the oracle stores float32."""
    made = run_batch(runner(seed1, dtype=torch.float64, **form), prompts)
    weights = oracle.load_weights(seed1)

    for row in made:
        run = oracle.run_prompt(row.prompt, weights, CONFIG, stream_tokens=STEPS, chunk=4)
        renorm = {name for name in row.tensors if name.startswith("renorm.")}
        assert row.tensors.keys() - renorm == run.tensors.keys()
        for name, (expected, axes) in run.tensors.items():
            array = row.tensors[name].array
            assert row.tensors[name].axes == axes, name
            assert array.shape == expected.shape, name
            assert_measured(array, expected, atol=2e-6, rtol=2e-6)
        assert row.stream.token_ids == run.stream
        assert_measured(row.stream.logprobs, run.logprobs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_dtypes_of_a_bfloat16_recording(seed1, form):
    """The path's dtype for what it computed in it, float32 where it computed wide, int32 for indices."""
    made = run_batch(runner(seed1, **form), INSIDE)

    for row in made:
        assert row.tensors.keys() == expected_names(row.prompt).keys()
        for name, tensor in row.tensors.items():
            dtype: type = ml_dtypes.bfloat16
            if name.endswith((".positions", ".ids", ".top_k")):
                dtype = np.int32
            elif name == "renorm.in_after_sha256":
                dtype = np.uint8
            elif re.search(r"(\.lse|\.scores|\.weights)$|^state\..*\.kda\.|^renorm\.", name):
                dtype = np.float32
            assert tensor.array.dtype == dtype, name


def test_a_bfloat16_array_has_the_bits_of_the_tensor():
    x = torch.tensor([[1.0, -2.5], [float("nan"), float("inf")]], dtype=torch.bfloat16)

    array = torch_batch._array(x.T)

    assert array.dtype == ml_dtypes.bfloat16
    assert array.view(np.int16).tolist() == x.T.contiguous().view(torch.int16).tolist()


def decoded(run: Runner, prompt: Prompt, stream):
    """The rows of the decode path from which a stream was taken: one of prefill, the rest of decode."""
    fixed: dict[str, Any] = {"config": run.config, "options": run.options, "device": "cpu"}
    head = prompt.token_ids[: prompt.prompt_length]
    first, state = prefill(run.weights, [head], chunk=run.chunk, **fixed)
    rest, _ = decode_forced(run.weights, [stream.token_ids[:-1]], state, **fixed)
    return torch.cat([first[0, -1:], rest[0]])


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        pytest.param(*FORMS[0].values, torch.bfloat16, id="reference-bfloat16"),
        pytest.param(*FORMS[1].values, torch.float64, id="rocm-float64"),
    ],
)
def test_stream_logprobs_are_the_log_softmax_of_the_decode_rows(seed1, form, dtype):
    run = runner(seed1, dtype=dtype, **form)

    for prompt in PLAIN:
        (made,) = run_batch(run, [prompt])
        rows = torch.log_softmax(decoded(run, prompt, made.stream).double(), dim=-1)
        taken = rows[torch.arange(STEPS), list(made.stream.token_ids)]
        assert len(made.stream.token_ids) == STEPS
        assert made.stream.finish_reason == "length"
        assert_measured(made.stream.logprobs, taken, atol=1e-12, rtol=1e-12)
        assert_measured(taken, rows.amax(-1), atol=1e-12, rtol=1e-12)


def test_stream_logits_are_of_a_prefill_over_prompt_and_stream(seed1):
    """Row s is the row before stream token s of a teacher-forced pass."""
    run = runner(seed1, dtype=torch.float64)
    for made in run_batch(run, PLAIN):
        head = made.prompt.token_ids[: made.prompt.prompt_length]
        row = [*head, *made.stream.token_ids[:-1]]
        logits, _ = prefill(run.weights, [row], config=CONFIG, options=run.options, device="cpu")
        expected = logits[0, len(head) - 1 :]
        assert expected.shape == (STEPS, CONFIG.vocab_size)
        assert_measured(made.tensors["stream.logits"].array, expected, atol=1e-12, rtol=1e-12)


def test_scored_positions_follow_the_stride_and_keep_the_last_sixteen(seed1):
    prompt = Prompt(id="long", token_ids=(4,) * 40, prompt_length=2, score_stride=10)
    run = runner(seed1, dtype=torch.float64)
    (made,) = run_batch(run, [prompt])
    whole, _ = prefill(
        run.weights, [prompt.token_ids], config=CONFIG, options=run.options, device="cpu"
    )

    positions = made.tensors["logits.positions"].array.tolist()
    assert positions == [0, 10, 20, *range(24, 40)]
    assert_measured(made.tensors["logits"].array, whole[0, positions], atol=1e-12, rtol=1e-12)


def test_positions_of_prefill_and_decode(seed1):
    made = {row.prompt.id: row.tensors for row in run_batch(runner(seed1), INSIDE)}

    for name, length, half in (("inside", 11, 5), ("two", 2, 1), ("one", 1, 0)):
        assert made[name]["prefill.positions"].array.tolist() == list(range(length))
        assert made[name]["decode.positions"].array.tolist() == list(range(half, length))


def test_rows_and_batch_size_of_the_streams(seed1):
    made = run_batch(runner(seed1), INSIDE)

    assert [(row.stream.batch_row, row.stream.batch_size) for row in made] == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]
    assert [row.stream.prompt for row in made] == ["inside", "two", "one"]


def test_a_logprob_that_is_no_number_is_none(seed1):
    run = runner(seed1)
    broken = dict(run.weights) | {"final_norm.weight": torch.full((10,), float("nan"))}
    made = run_batch(
        Runner(
            weights=broken,
            config=CONFIG,
            options=run.options,
            device="cpu",
            chunk=0,
            state_chunk=4,
            renorm="all",
            trace=run.trace,
        ),
        PLAIN[:1],
    )

    assert made[0].stream.logprobs == (None,) * STEPS
    assert np.isnan(made[0].tensors["logits"].array.astype(np.float32)).all()


def test_a_bfloat16_state_is_stored_as_float32_numbers_that_bfloat16_has(seed1):
    """The format wants float32 states; the values show what the path kept."""
    made = run_batch(runner(seed1, state="bf16"), INSIDE)[0].tensors

    for how in ("oneshot", "chunked", "decode"):
        state = made[f"state.{how}.kda.0"].array
        assert state.dtype == np.float32
        assert np.array_equal(state, state.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_captured_prefill_in_chunks_has_every_row_of_the_oracle(seed1):
    """Chunks of 3 over prompts of 11, 2 and 1 tokens, and over prefixes of 5, 1 and 0."""
    whole = run_batch(runner(seed1, dtype=torch.float64), INSIDE)
    parts = run_batch(runner(seed1, dtype=torch.float64, chunk=3), INSIDE)

    for one, many in zip(whole, parts, strict=True):
        assert one.tensors.keys() == many.tensors.keys()
        for name, tensor in one.tensors.items():
            assert_measured(many.tensors[name].array, tensor.array, atol=1e-11, rtol=1e-10)


def test_a_captured_prefill_is_the_chunked_one_bit_for_bit(seed1):
    """What repeats with another chunk are recorded for: bfloat16 values differ, shapes do not."""
    whole, parts = (run_batch(runner(seed1, chunk=c), INSIDE[:1])[0].tensors for c in (0, 3))
    trace = Trace(wants=lambda name: name == "prefill.hidden.4")
    run = runner(seed1)
    prefill(
        run.weights,
        [INSIDE[0].token_ids],
        config=CONFIG,
        options=run.options,
        device="cpu",
        chunk=3,
        trace=trace,
    )
    made = torch_batch._array(torch.cat(trace.tensors["prefill.hidden.4"], dim=1)[0])

    assert np.array_equal(parts["prefill.hidden.4"].array, made)
    moved = {n for n in whole if not np.array_equal(whole[n].array, parts[n].array)}
    assert {n for n in moved if n.startswith("prefill.")}
    assert not {n for n in moved if n.startswith("state.oneshot.")}


def test_filtered_rows_are_of_the_scored_logits(seed1):
    for made in run_batch(runner(seed1), PLAIN):
        rows = made.tensors["renorm.positions"].array
        assert rows.tolist() == sorted(
            {made.prompt.prompt_length - 1, len(made.prompt.token_ids) - 1}
        )
        at = np.searchsorted(made.tensors["logits.positions"].array, rows)
        logits = torch.from_numpy(made.tensors["logits"].array[at].astype(np.float32))
        assert_measured(
            made.tensors["renorm.in"].array, torch.softmax(logits, dim=1), atol=1e-7, rtol=1e-6
        )
