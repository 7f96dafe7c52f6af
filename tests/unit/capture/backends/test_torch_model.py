"""Recording through the torch backend: what the manifest says, resuming, refusals."""

import functools
import re

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.capture.backends.recording import (
    ONE,
    PROMPTS,
    expected_names,
    make_project,
    opened,
    record,
)
from validate.capture import open_capture
from validate.capture.backends import torch_batch, torch_model
from validate.capture.backends.torch_paths import path_options
from validate.capture.digest import file_sha256
from validate.errors import InputError
from validate.models import DTYPES, PathOptions
from validate.models.options import FAULTS
from validate.schema import Prompt


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


def test_batches_keep_the_order_of_the_set_and_are_never_mixed():
    """In batches of two: plain; inside and two; one; other."""
    manifest = record("out", options={"batch": "2"})

    assert manifest.batch_rows == {"plain": 0, "inside": 0, "two": 1, "one": 0, "other": 0}
    sizes = {p: s.batch_size for p, s in opened("out").streams.items()}
    assert sizes == {"plain": 1, "inside": 2, "two": 2, "one": 1, "other": 1}


def test_what_the_manifest_says_of_a_plain_recording(project, whole):
    manifest, reader = whole["reference"]

    assert manifest.dtype == "bfloat16"
    assert manifest.model.weights == "seed1"
    assert manifest.model.weights_digest == file_sha256(project / "weights/seed1.safetensors")
    assert manifest.model.name == "small"
    assert (manifest.model.vocab_size, manifest.model.tokenizer_length) == (21, 19)
    assert manifest.options == {"batch": "8", "chunk": "0", "splits": "1", "renorm": "all"}
    assert manifest.sampling == {"kind": "greedy", "max_tokens": "16", "ignore_eos": "true"}
    assert manifest.declared_weights is False
    assert manifest.deviations == ()
    assert manifest.fault is None
    assert manifest.target == "reference:test"
    assert manifest.prompt_set == "test"
    assert reader.timing["capture_seconds"] > 0


def test_the_rocm_path_has_its_own_defaults(whole):
    assert whole["rocm"][0].options == {
        "batch": "8",
        "chunk": "32",
        "splits": "4",
        "renorm": "exactly_k",
    }


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

    assert told == [(n, 5, "reference:test") for n in (1, 3, 4, 5)]


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
        InputError, match=r"^fault=VX-99: the torch model plants VX-01, LC-01, "
    ) as e:
        record("out", "rocm", {"fault": "VX-99"}, prompts=ONE)

    assert str(e.value).partition("plants ")[2].split(", ") == list(FAULTS)


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


# What must be refused or kept, whatever the tags and keys.


def test_a_prompt_tagged_state_alone_has_its_states():
    """As the format and the oracle backend have it."""
    prompt = Prompt(id="s", token_ids=(1, 2, 3), prompt_length=1, tags=("state",))
    record("out", prompts=[prompt])

    assert set(opened("out").names("s")) == expected_names(prompt).keys()


@pytest.mark.parametrize("token", [-1, 21])
def test_an_id_outside_the_vocabulary_is_refused(token):
    prompt = Prompt(id="s", token_ids=(1, token, 3), prompt_length=3)

    with pytest.raises(InputError, match="vocabulary"):
        record("out", prompts=[prompt])


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("rocm", {"fault": "VX-01", "pad": "zero"}),
        ("rocm", {"fault": "VX-01", "pad": "tile"}),
        ("rocm", {"fault": "LC-01", "splits": "1"}),
        ("reference", {"fault": "LC-01"}),
        ("rocm", {"fault": "SA-04", "renorm": "all"}),
        ("reference", {"fault": "SA-05", "renorm": "exactly_k"}),
    ],
)
def test_a_fault_whose_site_the_other_keys_take_away_is_refused(path, options):
    with pytest.raises(InputError, match=options["fault"]):
        path_options(path, options)


@pytest.mark.parametrize(("key", "value"), [("pad", "zero"), ("pad", "tile"), ("prefill", "fp8")])
def test_a_key_that_the_reference_path_would_ignore_is_refused(key, value):
    with pytest.raises(
        InputError,
        match=rf"^{key}={value}: path 'reference' does not read the key '{key}'\n  do next",
    ):
        path_options("reference", {key: value})


def test_a_tie_rule_that_there_is_not_is_refused():
    with pytest.raises(InputError, match=r"^renorm=most: must be one of all, exactly_k$"):
        record("out", options={"renorm": "most"}, prompts=ONE)


@pytest.mark.parametrize(
    ("path", "options", "rule"),
    [
        ("reference", {}, "all"),
        ("rocm", {}, "exactly_k"),
        ("rocm", {"renorm": "all"}, "all"),
        ("rocm", {"fault": "SA-05"}, "exactly_k"),
    ],
)
def test_the_tie_rule_is_declared_and_counted(path, options, rule):
    manifest = record("out", path, options, prompts=ONE)

    assert manifest.options["renorm"] == rule
    assert {n for n in manifest.path_proof.branches if n.startswith("renorm.")} == {
        f"renorm.{rule}"
    }


def test_a_renorm_fault_moves_the_filtered_rows_alone():
    record("clean", "rocm", prompts=PROMPTS)
    record("faulty", "rocm", {"fault": "SA-05"}, prompts=PROMPTS)
    clean, faulty = arrays("clean"), arrays("faulty")

    assert {n for (p, n) in clean if not np.array_equal(clean[p, n], faulty[p, n])} == {
        "renorm.out"
    }


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ("0", {"inside.prefill.oneshot": 1}),
        ("11", {"inside.prefill.oneshot": 1}),
        ("4", {"inside.prefill.chunked": 1}),
    ],
)
def test_the_path_proof_counts_how_captured_prefill_ran(chunk, expected):
    """One batch of three prompts of at most eleven tokens."""
    branches = record("out", options={"chunk": chunk}).path_proof.branches

    assert {n: c for n, c in branches.items() if n.startswith("inside.")} == expected
