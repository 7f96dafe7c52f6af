"""Recording the oracle capture: written, read back, resumed, refused."""

import hashlib
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.measured import assert_measured
from tests.unit.oracle.tiny import TINY, random_weights
from validate.capture import CaptureWriter, open_capture, prompt_set_digest
from validate.capture.backends import oracle
from validate.errors import InputError
from validate.oracle import run_prompt
from validate.schema import CaptureHeader, ModelIdentity, Prompt, Provenance

PROMPTS = (
    Prompt(id="a", token_ids=(3, 1, 4, 1, 5, 9), prompt_length=4, tags=("tensors", "state")),
    Prompt(id="b", token_ids=(2, 6), prompt_length=2, tags=("short",)),
    Prompt(id="c", token_ids=(7,), prompt_length=1, tags=("tensors",)),
)


def _sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _header(prompts=PROMPTS, **changes):
    fields = {
        "target": "oracle",
        "dtype": "float64",
        "model": ModelIdentity(
            name="tiny",
            architecture="kimi-k3-text",
            config_digest=_sha("config"),
            weights_digest=_sha("weights"),
            weights="seed0",
            tokenizer_digest=_sha("tokenizer"),
            tokenizer_length=TINY.tokenizer_length,
            vocab_size=TINY.vocab_size,
        ),
        "prompt_set": "test",
        "prompt_digest": prompt_set_digest(prompts),
        "options": {"chunk": "4"},
        "provenance": Provenance(
            created="2026-01-01T00:00:00Z", device="cpu", hardware="test", arch="test"
        ),
        "evidence": "emulated",
        "sources_digest": _sha("sources"),
    }
    return CaptureHeader(**{**fields, **changes})


@pytest.fixture
def weights_path(tmp_path):
    """float32 weights, so that what is read back is what the oracle ran."""
    stored = {name: w.astype(np.float32) for name, w in random_weights().items()}
    save_file(stored, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def _record(weights_path, out, **changes):
    options = {
        "weights_path": weights_path,
        "config": TINY,
        "prompts": PROMPTS,
        "out": out,
        "header": _header(),
        "stream_tokens": 3,
        "chunk": 4,
    }
    return oracle.record(**{**options, **changes})


def test_a_recording_reads_back_as_the_oracle_ran_it(weights_path, tmp_path):
    seen: list[str] = []

    manifest = _record(weights_path, tmp_path / "out", progress=seen.append)

    assert seen == ["a", "b", "c"]
    assert manifest.dtype == "float64"
    assert manifest.path_proof.path == "oracle"
    # a: 4 prefills, 2 chunks, 3 + 2 decode steps; b: 3, 0, 2; c: 3 (none before decoding), 0, 1 + 2
    assert manifest.path_proof.branches == {
        "oracle.prefill": 10,
        "oracle.chunk": 2,
        "oracle.decode": 10,
    }
    assert manifest.evidence == "emulated"
    weights = {n: w.astype(np.float32).astype(np.float64) for n, w in random_weights().items()}
    side = open_capture(tmp_path / "out", label="oracle")
    assert list(side.prompts) == ["a", "b", "c"]
    for prompt in PROMPTS:
        run = run_prompt(prompt, weights, TINY, stream_tokens=3, chunk=4)
        assert set(side.names(prompt.id)) == set(run.tensors)
        for name, tensor in run.tensors.items():
            stored = side.tensor(prompt.id, name)
            assert stored.dtype == tensor.array.dtype
            assert_measured(stored, tensor.array, atol=1e-7, rtol=1e-6)
            assert side.axes(prompt.id, name) == tensor.axes
        stream = side.streams[prompt.id]
        assert stream.token_ids == run.stream
        assert stream.finish_reason == "length"
        assert_measured(stream.logprobs, run.logprobs, atol=1e-9, rtol=1e-9)


class StopHere(Exception):
    """Raised in place of an interruption."""


def test_an_interrupted_recording_is_taken_up(weights_path, tmp_path, monkeypatch):
    """Stopped after the first prompt was committed; the second run does only the other two."""
    whole = _record(weights_path, tmp_path / "whole")
    one_each = partial(CaptureWriter, shard_prompts=1)
    monkeypatch.setattr(oracle, "CaptureWriter", one_each)

    def stop(prompt):
        if prompt == "a":
            raise StopHere

    with pytest.raises(StopHere):
        _record(weights_path, tmp_path / "out", progress=stop)
    ran = []

    def counted(prompt, *args, **options):
        ran.append(prompt.id)
        return run_prompt(prompt, *args, **options)

    monkeypatch.setattr(oracle, "run_prompt", counted)
    manifest = _record(weights_path, tmp_path / "out", resume=True)

    assert ran == ["b", "c"]
    assert manifest.path_proof == whole.path_proof
    a = open_capture(tmp_path / "whole", label="whole")
    b = open_capture(tmp_path / "out", label="out")
    for prompt in PROMPTS:
        for name in a.names(prompt.id):
            assert np.array_equal(a.tensor(prompt.id, name), b.tensor(prompt.id, name))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"stream_tokens": 0}, r"stream_tokens=0; at least 1 token"),
        ({"chunk": 0}, r"chunk=0; at least 1 token"),
        ({"chunk": 5}, r"header's options\.chunk is 4, but the oracle records 5"),
        ({"header": _header(dtype="bfloat16")}, r"header's dtype is bfloat16, .* records float64"),
        ({"header": _header(fault="VX-01")}, r"header's fault is VX-01"),
        (
            {"config": TINY.model_copy(update={"vocab_size": 20})},
            r"header's model\.vocab_size is 19, but the oracle records 20",
        ),
        (
            {"config": TINY.model_copy(update={"experts": 7})},
            r"weights do not fit configuration 'tiny': 0 missing, 0 extra, 20 wrong shape",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    weights_path, tmp_path, changes, match
):
    with pytest.raises(InputError, match=match):
        _record(weights_path, tmp_path / "out", **changes)

    assert not (tmp_path / "out").exists()


def test_a_token_outside_the_vocabulary_leaves_no_whole_capture(weights_path, tmp_path):
    prompts = (*PROMPTS, Prompt(id="d", token_ids=(19,), prompt_length=1))

    with pytest.raises(InputError, match=r"takes one or more ids in 0\.\.18"):
        _record(weights_path, tmp_path / "out", prompts=prompts, header=_header(prompts))

    assert not (tmp_path / "out" / "manifest.json").exists()
