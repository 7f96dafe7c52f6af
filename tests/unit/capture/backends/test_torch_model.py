"""Recording through the torch backend: what the manifest says, resuming, refusals."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.captures import files_of
from tests.measured import assert_measured
from tests.unit.capture.backends.recording import (
    PROMPTS,
    expected_names,
    make_project,
    record,
)
from validate.capture import CaptureWriter, open_capture
from validate.capture.backends import torch_batch, torch_model
from validate.capture.backends.torch_model import path_options
from validate.capture.digest import file_sha256
from validate.errors import CaptureError, InputError
from validate.models import DTYPES, PathOptions

ONE = PROMPTS[:1]
"""Enough where only the manifest counts."""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    return make_project(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One recording of each path that many tests read: manifest and reader."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        make_project(folder, patch)
        return {
            path: (record(path, path), open_capture(folder / path, label=path))
            for path in ("reference", "rocm")
        }


@pytest.fixture(autouse=True)
def short_streams(monkeypatch):
    """Three tokens instead of sixteen in all recordings but those of ``whole``."""
    monkeypatch.setattr(torch_batch, "STREAM_TOKENS", 3)
    monkeypatch.setattr(torch_model, "STREAM_TOKENS", 3)


def opened(out):
    return open_capture(Path(out), label=out)


def arrays(out):
    reader = opened(out)
    return {(p, n): reader.tensor(p, n) for p in reader.prompts for n in reader.names(p)}


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_a_capture_holds_exactly_the_tensors_of_the_format(whole, path):
    manifest, reader = whole[path]

    assert manifest.digest == reader.manifest.digest
    for prompt in PROMPTS:
        expected = expected_names(prompt)
        assert set(reader.names(prompt.id)) == expected.keys()
        assert {n: reader.axes(prompt.id, n) for n in expected} == expected
        assert len(reader.streams[prompt.id].token_ids) == 16


def test_shapes_by_hand(whole):
    """Eleven tokens of which five are the prefix; 12 heads of MLA value 6 and KDA key 4."""
    shape = functools.partial(whole["reference"][1].shape, "inside")

    assert shape("logits") == (11, 21)
    assert shape("stream.logits") == (16, 21)
    assert shape("prefill.mla.1.out") == (11, 12, 6)
    assert shape("prefill.mla.1.lse") == (11, 12)
    assert shape("decode.kda.0.out") == (6, 12, 4)
    assert shape("decode.prefix.attn.4.in") == (5, 10)
    assert shape("decode.router.1.scores") == (6, 6)
    assert shape("decode.router.1.ids") == (6, 2)
    assert shape("decode.logits") == (6, 21)
    assert shape("state.decode.kda.0") == (12, 4, 4)
    assert shape("state.chunked.conv.2") == (3, 48, 3)
    assert shape("state.oneshot.kv.4") == (11, 8)


def test_batches_take_prompts_that_are_looked_inside_of_first():
    """In batches of two: inside and two, one; then plain and other. A tagged batch is not mixed."""
    manifest = record("out", options={"batch": "2"})

    assert manifest.batch_rows == {"inside": 0, "two": 1, "one": 0, "plain": 0, "other": 1}
    sizes = {p: s.batch_size for p, s in opened("out").streams.items()}
    assert sizes == {"inside": 2, "two": 2, "one": 1, "plain": 2, "other": 2}


def test_what_the_manifest_says_of_a_plain_recording(project, whole):
    manifest, reader = whole["reference"]

    assert manifest.dtype == "bfloat16"
    assert manifest.model.weights == "seed1"
    assert manifest.model.weights_digest == file_sha256(project / "weights/seed1.safetensors")
    assert manifest.model.name == "small"
    assert (manifest.model.vocab_size, manifest.model.tokenizer_length) == (21, 19)
    assert manifest.options == {"batch": "8", "chunk": "0", "splits": "1"}
    assert manifest.sampling == {"kind": "greedy", "max_tokens": "16", "ignore_eos": "true"}
    assert manifest.declared_weights is False
    assert manifest.deviations == ()
    assert manifest.fault is None
    assert manifest.target == "reference:test"
    assert manifest.prompt_set == "test"
    assert reader.timing["capture_seconds"] > 0


def test_the_rocm_path_has_its_own_defaults(whole):
    assert whole["rocm"][0].options == {"batch": "8", "chunk": "32", "splits": "4"}


def test_the_provenance_says_what_numbers_were_added_in():
    engine = record("out", options={"splits": "2"}, prompts=ONE).provenance.engine_args

    assert engine == {
        "path": "reference",
        "tf32": "off",
        "reduced_precision_reduction": "off",
        "splits": "2",
    }


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_a_recording_on_a_cpu_is_emulated(whole, path):
    assert whole[path][0].evidence == "emulated"


def test_weights_are_declared_only_by_the_key(project):
    plain = record("plain", prompts=ONE)
    same = record("same", options={"weights": "seed1"}, prompts=ONE)
    other = record("other", options={"weights": "seed2"}, prompts=ONE)

    assert [m.declared_weights for m in (plain, same, other)] == [False, True, True]
    assert same.model == plain.model
    assert other.model.weights == "seed2"
    assert other.model.weights_digest == file_sha256(project / "weights/seed2.safetensors")
    assert "weights" not in other.options


@pytest.mark.parametrize(
    ("path", "options", "deviation", "branch"),
    [
        ("rocm", {"prefill": "fp8"}, "prefill-fp8", "mla.prefill.fp8.float8_e4m3fn"),
        ("rocm", {"prefill": "fp8-fnuz"}, "prefill-fp8-fnuz", "mla.prefill.fp8.float8_e4m3fnuz"),
        ("rocm", {"state": "bf16"}, "state-bf16", "kda.state.bfloat16"),
        ("reference", {"state": "bf16"}, "state-bf16", "kda.state.bfloat16"),
    ],
)
def test_an_option_that_differs_by_intent_is_declared_and_ran(path, options, deviation, branch):
    manifest = record("out", path, options, prompts=ONE)

    assert [d.id for d in manifest.deviations] == [deviation]
    assert manifest.path_proof.branches[branch] > 0


def test_two_deviations_are_both_declared():
    manifest = record("out", "rocm", {"prefill": "fp8", "state": "bf16"}, prompts=ONE)

    assert {d.id for d in manifest.deviations} == {"prefill-fp8", "state-bf16"}


@pytest.mark.parametrize("options", [{"prefill": "bf16"}, {"state": "fp32"}, {"pad": "tile"}])
def test_the_ordinary_value_of_an_option_declares_nothing(options):
    manifest = record("out", "rocm", options, prompts=ONE)

    assert manifest.deviations == ()
    assert not [n for n in manifest.path_proof.branches if "fp8" in n or "bfloat16" in n]


@pytest.mark.parametrize(
    ("options", "pad"),
    [
        ({"fault": "VX-01"}, "repeat"),
        ({"fault": "LC-01"}, "zero"),
        ({"fault": "VX-02"}, "zero"),
        ({"pad": "repeat"}, "repeat"),
        ({"pad": "tile"}, "tile"),
        ({}, "zero"),
    ],
)
def test_a_fault_brings_the_padding_it_needs(options, pad):
    manifest = record("out", "rocm", options, prompts=ONE)

    assert manifest.fault == options.get("fault")
    assert [n for n in manifest.path_proof.branches if n.startswith("mla.decode.pad.")] == [
        f"mla.decode.pad.{pad}"
    ]


def test_a_planted_fault_moves_decode_and_not_prefill():
    record("clean", "rocm", {"pad": "repeat", "dtype": "float64"})
    record("faulty", "rocm", {"fault": "VX-01", "dtype": "float64"})
    clean, faulty = arrays("clean"), arrays("faulty")
    moved = {
        name
        for (prompt, name) in clean
        if prompt == "inside" and not np.array_equal(clean[prompt, name], faulty[prompt, name])
    }

    assert "decode.mla.1.out" in moved
    assert "decode.mla.1.lse" in moved
    assert "decode.attn.1.in" not in moved
    assert not {n for n in moved if n.startswith(("prefill.", "logits", "state.oneshot"))}


def test_an_empty_prompt_set_is_refused(tmp_path):
    with pytest.raises(
        InputError,
        match=r"^target 'reference:test': the prompt set 'test' holds no prompt; nothing to capture$",
    ):
        record("out", prompts=())

    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_there_are_refused_before_anything_is_written(project):
    (project / "weights/seed2.safetensors").unlink()

    with pytest.raises(InputError, match=r"^weights .*seed2\.safetensors: cannot be read"):
        record("out", options={"weights": "seed2"})

    assert not (project / "out").exists()


def test_progress_is_told_after_every_batch():
    told: list[tuple[int, int, str]] = []

    record("out", options={"batch": "2"}, progress=lambda *line: told.append(line))

    assert told == [(n, 5, "reference:test") for n in (2, 3, 5)]


@pytest.fixture
def one_prompt_a_group(monkeypatch):
    """Commit every prompt at once, so that an interruption leaves some behind."""
    writer = functools.partial(CaptureWriter, shard_prompts=1)
    monkeypatch.setattr(torch_model, "CaptureWriter", writer)


class _StopError(Exception):
    """Stands for whatever ends a recording."""


def stored(out):
    """The files of a capture without those that hold times."""
    files = files_of(Path(out))
    manifest = json.loads(files.pop("manifest.json"))
    files.pop("timing.json")
    kept = ("batch_rows", "path_proof", "prompt_digest", "options", "evidence", "sources_digest")
    return files, {name: manifest[name] for name in kept}


@pytest.mark.parametrize("done", [1, 2])
def test_an_interrupted_recording_resumes_to_the_same_bytes(one_prompt_a_group, done):
    """Stopped after a batch: nothing runs twice, and the proof counts what ran before."""
    seen: list[int] = []

    def stop(count, *_):
        seen.append(count)
        if len(seen) == done:
            raise _StopError

    options = {"batch": "2"}
    record("whole", options=options)
    with pytest.raises(_StopError):
        record("out", options=options, progress=stop)
    with pytest.raises(CaptureError, match="unfinished"):
        opened("out")
    record("out", options=options, resume=True)

    assert stored("out") == stored("whole")


def test_a_recording_stopped_inside_a_batch_runs_that_batch_again(monkeypatch, one_prompt_a_group):
    """Numbers may depend on what shares a batch, so the whole batch runs; the stored row stays."""
    real, calls = torch_batch.run_batch, []

    def run(runner, group):
        rows = real(runner, group)
        calls.append([row.prompt.id for row in rows])
        return rows if len(calls) != 2 else iter_then_stop(rows)

    def iter_then_stop(rows):
        yield rows[0]
        raise _StopError

    record("whole")
    monkeypatch.setattr(torch_model, "run_batch", run)
    with pytest.raises(_StopError):
        record("out")
    calls.append([])
    record("out", resume=True)

    whole, out = stored("whole"), stored("out")
    assert calls == [["inside", "two", "one"], ["plain", "other"], [], ["plain", "other"]]
    assert out[0] == whole[0]
    assert out[1]["batch_rows"] == whole[1]["batch_rows"]


def test_a_whole_recording_is_kept_when_it_is_taken_up_again(monkeypatch):
    first = record("out", prompts=ONE)
    monkeypatch.setattr(torch_model, "run_batch", None)

    assert record("out", prompts=ONE, resume=True) == first


def test_a_folder_that_holds_a_capture_is_not_overwritten():
    record("out", prompts=ONE)

    with pytest.raises(CaptureError, match="holds a capture already"):
        record("out", prompts=ONE)


def test_two_recordings_of_one_path_are_equal_to_the_last_bit():
    record("a", "rocm")
    record("b", "rocm")

    assert stored("a") == stored("b")


def test_batch_chunk_and_splits_do_not_move_a_float64_recording():
    record("a", options={"dtype": "float64"})
    record("b", options={"dtype": "float64", "batch": "1", "chunk": "3", "splits": "2"})
    a, b = arrays("a"), arrays("b")

    assert a.keys() == b.keys()
    for name in a:
        assert_measured(b[name], a[name], atol=1e-11, rtol=1e-10)


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("reference", {}, PathOptions(path="reference")),
        (
            "reference",
            {"splits": "3", "dtype": "float32"},
            PathOptions(splits=3, dtype=DTYPES["float32"]),
        ),
        ("rocm", {}, PathOptions(path="rocm", splits=4)),
        (
            "rocm",
            {"pad": "tile"},
            PathOptions(path="rocm", splits=4, prefill_pad="tile", decode_pad="tile"),
        ),
        ("rocm", {"pad": "repeat", "splits": "1"}, PathOptions(path="rocm", decode_pad="repeat")),
        (
            "rocm",
            {"prefill": "fp8", "state": "bf16"},
            PathOptions(path="rocm", splits=4, prefill="fp8", state="bf16"),
        ),
        (
            "rocm",
            {"fault": "VX-01"},
            PathOptions(path="rocm", splits=4, decode_pad="repeat", fault="VX-01"),
        ),
    ],
)
def test_keys_become_switches(path, options, expected):
    assert path_options(path, options) == expected


def test_a_fault_that_the_model_does_not_plant_is_refused():
    with pytest.raises(
        InputError, match=r"^fault=VX-99: the torch model plants VX-01, LC-01, VX-02$"
    ):
        record("out", "rocm", {"fault": "VX-99"}, prompts=ONE)


def test_the_two_config_digests_differ_with_any_number(project):
    before = record("a", prompts=ONE).model.config_digest
    text = (project / "config.json").read_text()
    (project / "config.json").write_text(text.replace("-5.0", "-4.0"))

    assert record("b", prompts=ONE).model.config_digest != before
    assert re.fullmatch("[0-9a-f]{64}", before)


def test_vendor_sums_are_wide_after_a_recording():
    """TF32 and reduced-precision bfloat16 sums are switched off, as the provenance says."""
    torch.backends.cuda.matmul.allow_tf32 = True
    record("out", prompts=ONE)

    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction is False
