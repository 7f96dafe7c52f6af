"""Writing and taking up: what is refused, what is kept, which bytes come out."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.captures import (
    PROOF,
    TIMING,
    files_of,
    make_header,
    make_prompt,
    make_stream,
    make_tensors,
    write_capture,
)
from validate.capture import CaptureWriter, Tensor, artifact_of, open_capture
from validate.capture.format import split_key
from validate.errors import CaptureError
from validate.schema import CaptureHeader, Manifest, PathProof, Prompt, supported_evidence

PROMPTS = [make_prompt(n) for n in range(5)]
RESUME = "validate capture --resume --target rocm:pad=tile --out "

not_an_array: Any = [1.0]
not_words: Any = (1,)
not_a_tuple: Any = ["rows"]


def add_one(path: Path, prompt: Prompt = PROMPTS[0], **changes: Any) -> str:
    """Add one prompt that must be refused; gives the message."""
    options = {"tensors": make_tensors(prompt), "stream": None, "batch_row": 0, **changes}
    with CaptureWriter(path, header=make_header([prompt])) as writer:
        with pytest.raises(CaptureError) as caught:
            writer.add(prompt, **options)
        # A refused prompt leaves the writer usable and the prompt new.
        writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)
    assert caught.value.exit_code == 4
    return str(caught.value)


class TestAdd:
    def test_the_message_names_capture_place_and_next_step(self, tmp_path):
        tensors = {"x": Tensor(np.zeros((2, 3)), ("rows",))}

        assert add_one(tmp_path / "c", tensors=tensors) == (
            f"rocm:pad=tile: {tmp_path}/c: prompt 'p-000': tensor 'p-000/x': 1 axis names for 2 "
            "dimensions\n"
            "  axes   : ('rows',)\n"
            "  shape  : (2, 3)\n"
            "  do next: correct what the backend hands over"
        )

    @pytest.mark.parametrize(
        ("tensor", "message"),
        [
            (Tensor(np.zeros(2, bool), ("rows",)), "tensor 'x' has dtype bool; the format knows int64"),
            (Tensor(np.zeros(2, complex), ("rows",)), "tensor 'x' has dtype complex128"),
            (Tensor(np.array(["a"]), ("rows",)), "tensor 'x' has dtype str32"),
            (Tensor(np.array([{}]), ("rows",)), "tensor 'x' has dtype object"),
            (
                Tensor(np.zeros(2, ml_dtypes.float8_e4m3fn), ("rows",)),
                "tensor 'x' has dtype float8_e4m3fn",
            ),
            (
                Tensor(np.ma.masked_array([1.0, 2.0], [True, False]), ("rows",)),
                "tensor 'x' is a numpy.ma.MaskedArray, not a numpy.ndarray",
            ),
            (Tensor(not_an_array, ("rows",)), "tensor 'x' is a builtins.list, not a numpy.ndarray"),
            (Tensor(np.zeros(2), ("Rows",)), "axis names ('Rows',) must be distinct words"),
            (Tensor(np.zeros((2, 2)), ("rows", "rows")), "axis names ('rows', 'rows') must be"),
            (Tensor(np.zeros(2), not_words), "tensor 'x' cannot be described: 1 wrong"),
            (Tensor(np.zeros(2), not_a_tuple), "tensor 'x' cannot be described: 1 wrong"),
        ],
    )  # fmt: skip
    def test_a_tensor_that_does_not_fit(self, tmp_path, tensor, message):
        assert message in add_one(tmp_path / "c", tensors={"x": tensor})

    @pytest.mark.parametrize("name", ["a/b", "", ".hidden", "a b", "ä", "x" * 201, "../x", "a\n"])
    def test_a_tensor_name_of_another_form(self, tmp_path, name):
        tensors = {name: Tensor(np.zeros(2), ("rows",))}

        assert f"tensor name {f'p-000/{name}'!r} is not '<prompt id>/<name>'" in add_one(
            tmp_path / "c", tensors=tensors
        )

    def test_one_prompt_twice(self, tmp_path):
        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS), shard_prompts=2) as writer:
            for prompt in PROMPTS[:3]:
                writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)
            for prompt in (PROMPTS[0], PROMPTS[2]):  # on the disk, and still in memory
                with pytest.raises(
                    CaptureError, match=f"prompt '{prompt.id}': is stored already; each prompt is"
                ):
                    writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)

    def test_nothing_to_store(self, tmp_path):
        assert "has neither tensor nor stream" in add_one(tmp_path / "c", tensors={})

    def test_a_negative_batch_row(self, tmp_path):
        assert "batch row -1 is negative" in add_one(tmp_path / "c", batch_row=-1)

    def test_a_prompt_shorter_than_its_length(self, tmp_path):
        prompt = Prompt(id="p-000", token_ids=(1, 2), prompt_length=3)
        with (
            CaptureWriter(tmp_path / "c", header=make_header([prompt])) as writer,
            pytest.raises(CaptureError, match="prompt_length 3 exceeds its 2 token ids"),
        ):
            writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"prompt": "p-001"}, "it names prompt 'p-001'"),
            ({"logprobs": (-1.0,)}, "1 logprobs for 3 token ids"),
            ({"logprobs": (-1.0, float("nan"), None)}, "a logprob is NaN or infinite"),
            ({"batch_row": 1, "batch_size": 2}, "batch row 1, but 0 for the prompt itself"),
            ({"batch_row": 1}, "batch row 1 of a batch of 1"),
        ],
    )
    def test_a_stream_that_does_not_fit(self, tmp_path, changes, message):
        stream = make_stream(PROMPTS[0]).model_copy(update=changes)

        assert message in add_one(tmp_path / "c", stream=stream)

    @pytest.mark.parametrize(
        "array",
        [
            pytest.param(np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3], id="strided"),
            pytest.param(np.arange(24, dtype=np.float32).reshape(4, 6).T, id="transposed"),
            pytest.param(np.arange(6, dtype=">f4").reshape(2, 3), id="big-endian"),
            pytest.param(np.broadcast_to(np.float32(3), (2, 3)), id="broadcast"),
            pytest.param(np.arange(6, dtype=np.float32).reshape(2, 3)[::-1], id="backwards"),
        ],
    )
    def test_any_layout_is_stored_by_value(self, tmp_path, array):
        tensors = {PROMPTS[0].id: {"x": Tensor(array, ("rows", "vocab"))}}
        write_capture(tmp_path / "c", PROMPTS[:1], tensors=tensors)

        stored = open_capture(tmp_path / "c", label="cand").tensor("p-000", "x")
        assert stored.tolist() == array.tolist()
        assert (stored.dtype, stored.shape) == (np.dtype("<f4"), array.shape)

    def test_later_changes_of_the_callers_array_do_not_reach_the_file(self, tmp_path):
        array = np.ones(3, np.float32)
        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS[:1])) as writer:
            writer.add(PROMPTS[0], {"x": Tensor(array, ("rows",))}, stream=None, batch_row=0)
            array[:] = 9.0
            writer.close(path_proof=PROOF, timing=TIMING)

        assert open_capture(tmp_path / "c", label="c").tensor("p-000", "x").tolist() == [1, 1, 1]


class TestClose:
    def test_missing_prompts_are_no_capture(self, tmp_path):
        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS)) as writer:
            for prompt in PROMPTS[:2]:
                writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)
            with pytest.raises(CaptureError) as caught:
                writer.close(path_proof=PROOF, timing=TIMING)
            for prompt in PROMPTS[2:]:
                writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)
            writer.close(path_proof=PROOF, timing=TIMING)

        first, *facts = str(caught.value).splitlines()
        assert first == (
            f"rocm:pad=tile: {tmp_path}/c: close: the 2 prompts added are not those of the header's "
            "prompt_digest"
        )
        assert facts[2:] == ["  added   : 'p-000', 'p-001'", f"  do next : {RESUME}{tmp_path}/c"]
        assert len(open_capture(tmp_path / "c", label="c").prompts) == 5

    def test_no_prompt_at_all(self, tmp_path):
        with (
            CaptureWriter(tmp_path / "c", header=make_header(PROMPTS)) as writer,
            pytest.raises(CaptureError, match="the 0 prompts added are not those"),
        ):
            writer.close(path_proof=PROOF, timing=TIMING)
        assert not (tmp_path / "c/manifest.json").exists()

    def test_a_timing_that_is_no_number(self, tmp_path):
        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS[:1])) as writer:
            writer.add(PROMPTS[0], make_tensors(PROMPTS[0]), stream=None, batch_row=0)
            with pytest.raises(CaptureError, match="timing 'ttft_ms' is nan, not a finite number"):
                writer.close(path_proof=PROOF, timing={"ttft_ms": float("nan")})

    def test_nothing_after_it(self, tmp_path):
        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS[:1])) as writer:
            writer.add(PROMPTS[0], make_tensors(PROMPTS[0]), stream=None, batch_row=0)
            writer.close(path_proof=PROOF, timing=TIMING)
            with pytest.raises(CaptureError, match="the writer is closed"):
                writer.add(PROMPTS[1], make_tensors(PROMPTS[1]), stream=None, batch_row=0)
            with pytest.raises(CaptureError, match="the writer is closed"):
                writer.close(path_proof=PROOF, timing=TIMING)

    def test_the_returned_manifest_is_the_stored_one(self, tmp_path):
        manifest = write_capture(tmp_path / "c")

        assert manifest == open_capture(tmp_path / "c", label="c").manifest
        assert sorted(files_of(tmp_path / "c")) == sorted(
            ["manifest.json", *(artifact.path for artifact in manifest.artifacts)]
        )

    def test_a_manifest_too_large_to_be_read_is_not_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr("validate.capture.writer.MANIFEST_CAP", 1000)

        with pytest.raises(CaptureError, match=r"manifest.json: the manifest would have \d+ bytes"):
            write_capture(tmp_path / "c")
        assert not (tmp_path / "c/manifest.json").exists()

    @pytest.mark.parametrize(
        ("claimed", "device", "kernels", "stored"),
        [
            ("emulated", "cpu", {"x": 1}, "emulated"),
            ("hardware", "cpu", {"x": 1}, "emulated"),
            ("hardware", "cuda", {"x": 1}, "hardware"),
            ("hardware", "rocm", {"x": 1}, "emulated"),
            ("hardware", "rocm", {"aiter.mla_prefill": 2}, "hardware"),
            ("hardware", "rocm", {"x": 1, "aiter.mla_prefill": 0}, "emulated"),
            ("hardware", "cuda", {}, "unproven"),
            ("hardware", "cuda", {"x": 0}, "unproven"),
            ("unproven", "cuda", {"x": 1}, "unproven"),
        ],
    )
    def test_evidence_is_no_more_than_the_path_proof_carries(
        self, tmp_path, claimed, device, kernels, stored
    ):
        header = make_header(PROMPTS[:1])
        provenance = header.provenance.model_copy(update={"device": device})
        header = header.model_copy(update={"evidence": claimed, "provenance": provenance})
        proof = PathProof(path="rocm", kernels=kernels)
        with CaptureWriter(tmp_path / "c", header=header) as writer:
            writer.add(PROMPTS[0], make_tensors(PROMPTS[0]), stream=None, batch_row=0)
            manifest = writer.close(path_proof=proof, timing={})

        assert manifest.evidence == stored
        assert supported_evidence(claimed, device=device, proof=proof) == stored


class TestShards:
    def test_one_group_holds_so_many_prompts(self, tmp_path):
        manifest = write_capture(tmp_path / "c", PROMPTS, shard_prompts=2)

        shards = [a for a in manifest.artifacts if a.path.startswith("shards/")]
        assert [a.artifact for a in shards] == ["logits", "tensors", "state"] * 3
        ids = [{split_key(entry.name)[0] for entry in a.tensors} for a in shards[::3]]
        assert ids == [{"p-000", "p-001"}, {"p-002", "p-003"}, {"p-004"}]

    def test_no_shard_exceeds_the_limit_but_for_one_tensor(self, tmp_path):
        def tensors(sizes):
            return {f"t{i}": Tensor(np.zeros(n, np.uint8), ("rows",)) for i, n in enumerate(sizes)}

        sizes = {"p-000": [30, 30], "p-001": [30, 30], "p-002": [70, 50, 500, 20], "p-003": [5]}
        held = {name: tensors(sizes) for name, sizes in sizes.items()}
        manifest = write_capture(tmp_path / "c", PROMPTS[:4], tensors=held, shard_bytes=100)

        shards = [
            [entry.shape[0] for entry in a.tensors]
            for a in manifest.artifacts
            if a.artifact == "tensors"
        ]
        assert shards == [[30, 30], [30, 30], [70], [50], [500], [20], [5]]

    @pytest.mark.parametrize(
        ("name", "artifact"),
        [
            ("logits", "logits"),
            ("logits.positions", "logits"),
            ("stream.logits", "logits"),
            ("decode.logits", "tensors"),
            ("logitsx", "tensors"),
            ("state.oneshot.kda.0", "state"),
            ("prefill.hidden.3", "tensors"),
        ],
    )
    def test_the_artifact_of_a_name(self, name, artifact):
        assert artifact_of(name) == artifact

    def test_the_same_content_gives_the_same_bytes(self, tmp_path):
        write_capture(tmp_path / "a", PROMPTS)
        write_capture(tmp_path / "b", PROMPTS)

        assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


class TestResume:
    @pytest.mark.parametrize("stop", range(6))
    def test_the_bytes_are_those_of_an_uninterrupted_capture(self, tmp_path, stop):
        write_capture(tmp_path / "a", PROMPTS, shard_prompts=2)
        write_capture(tmp_path / "b", PROMPTS, shard_prompts=2, stop_after=stop)
        later = make_header(PROMPTS)
        later = later.model_copy(
            update={"provenance": later.provenance.model_copy(update={"created": "2027-01-01"})}
        )
        write_capture(tmp_path / "b", PROMPTS, header=later, resume=True)

        assert files_of(tmp_path / "a") == files_of(tmp_path / "b")

    def test_done_names_what_is_on_the_disk(self, tmp_path):
        write_capture(tmp_path / "c", PROMPTS, shard_prompts=2, stop_after=3)

        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS), resume=True) as writer:
            assert writer.done == {"p-000", "p-001"}

    def test_a_capture_that_is_whole_is_kept(self, tmp_path):
        manifest = write_capture(tmp_path / "c", PROMPTS)
        before = files_of(tmp_path / "c")
        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS), resume=True) as writer:
            assert writer.done == {prompt.id for prompt in PROMPTS}
            with pytest.raises(CaptureError, match="the capture is complete; nothing can be added"):
                writer.add(make_prompt(9), make_tensors(make_prompt(9)), stream=None, batch_row=0)
            again = writer.close(path_proof=PathProof(path="reference"), timing={})

        assert again == manifest
        assert files_of(tmp_path / "c") == before

    def test_a_folder_that_holds_something_is_not_begun(self, tmp_path):
        write_capture(tmp_path / "a", PROMPTS)
        write_capture(tmp_path / "b", PROMPTS, stop_after=1, shard_prompts=1)
        (tmp_path / "c").mkdir()
        (tmp_path / "c/thesis.tex").touch()

        for name, kind in (
            ("a", "a capture"),
            ("b", "an unfinished capture"),
            ("c", "other files"),
        ):
            before = files_of(tmp_path / name)
            with pytest.raises(CaptureError) as caught:
                write_capture(tmp_path / name, PROMPTS)
            first, holds, do_next = str(caught.value).splitlines()
            assert first == (
                f"rocm:pad=tile: {tmp_path}/{name}: the folder holds {kind} already; nothing was written"
            )
            assert holds.startswith("  it holds: '")
            assert do_next == f"  do next : name another folder, or {RESUME}{tmp_path}/{name}"
            assert files_of(tmp_path / name) == before

    def test_other_files_are_not_taken_up(self, tmp_path):
        (tmp_path / "thesis.tex").touch()

        with pytest.raises(CaptureError, match="the folder holds other files already"):
            write_capture(tmp_path, PROMPTS, resume=True)

    @pytest.mark.parametrize("stop", [3, None])
    def test_another_header_is_refused_with_every_difference(self, tmp_path, stop):
        write_capture(tmp_path / "c", PROMPTS, stop_after=stop, shard_prompts=2)
        before = files_of(tmp_path / "c")
        other = make_header(PROMPTS, options={"chunk": "128", "splits": "2"}, dtype="float32")

        with pytest.raises(CaptureError) as caught:
            write_capture(tmp_path / "c", PROMPTS, header=other, resume=True)
        assert str(caught.value) == (
            f"rocm:pad=tile: {tmp_path}/c: cannot be resumed: 4 entries of its header differ\n"
            "  dtype         : stored 'bfloat16', now 'float32'\n"
            "  options.batch : stored '4', now (absent)\n"
            "  options.chunk : stored '64', now '128'\n"
            "  options.splits: stored (absent), now '2'\n"
            "  do next       : name another folder, or capture with what is stored"
        )
        assert files_of(tmp_path / "c") == before

    def test_a_damaged_shard_and_all_after_it_are_made_again(self, tmp_path):
        write_capture(tmp_path / "a", PROMPTS, shard_prompts=1)
        write_capture(tmp_path / "b", PROMPTS, shard_prompts=1, stop_after=4)
        shard = tmp_path / "b/shards/00004.safetensors"  # of the second prompt
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)

        with CaptureWriter(tmp_path / "b", header=make_header(PROMPTS), resume=True) as writer:
            assert writer.done == {"p-000"}
        write_capture(tmp_path / "b", PROMPTS, resume=True)
        assert files_of(tmp_path / "a") == files_of(tmp_path / "b")

    @pytest.mark.parametrize("name", ["shards/00001.safetensors", "prompts.jsonl", "timing.json"])
    def test_a_damaged_whole_capture_is_made_again(self, tmp_path, name):
        write_capture(tmp_path / "c", PROMPTS)
        before = files_of(tmp_path / "c")
        (tmp_path / "c" / name).unlink()

        with CaptureWriter(tmp_path / "c", header=make_header(PROMPTS), resume=True) as writer:
            assert writer.done == frozenset()
            with pytest.raises(
                CaptureError, match="the capture is unfinished: 0 prompts are stored"
            ):
                open_capture(tmp_path / "c", label="c")
        write_capture(tmp_path / "c", PROMPTS, resume=True)
        assert files_of(tmp_path / "c") == before

    def test_a_whole_capture_that_cannot_be_read_is_left_alone(self, tmp_path, monkeypatch):
        write_capture(tmp_path / "c", PROMPTS)
        before = files_of(tmp_path / "c")

        def refuse(file):
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr("validate.capture.admit.sha256_of", refuse)
            with pytest.raises(CaptureError, match=r"cannot be read: Permission denied \(EACCES\)"):
                write_capture(tmp_path / "c", PROMPTS, resume=True)
        assert files_of(tmp_path / "c") == before

    def test_shards_that_were_all_removed_are_made_again(self, tmp_path):
        write_capture(tmp_path / "a", PROMPTS, shard_prompts=1)
        write_capture(tmp_path / "b", PROMPTS, shard_prompts=1, stop_after=3)
        shutil.rmtree(tmp_path / "b/shards")

        write_capture(tmp_path / "b", PROMPTS, resume=True)
        assert files_of(tmp_path / "a") == files_of(tmp_path / "b")

    def test_shards_are_never_written_through_a_link(self, tmp_path):
        write_capture(tmp_path / "c", PROMPTS, shard_prompts=1, stop_after=3)
        (tmp_path / "c/shards").rename(tmp_path / "elsewhere")
        (tmp_path / "c/shards").symlink_to(tmp_path / "elsewhere")
        before = files_of(tmp_path / "elsewhere")

        with pytest.raises(CaptureError, match="shards: is a symbolic link; shards are written"):
            write_capture(tmp_path / "c", PROMPTS, resume=True)
        assert files_of(tmp_path / "elsewhere") == before

    def test_a_damaged_manifest_is_not_overwritten(self, tmp_path):
        write_capture(tmp_path / "c", PROMPTS)
        (tmp_path / "c/manifest.json").write_text("{")

        with pytest.raises(CaptureError, match=r"manifest\.json: does not parse") as caught:
            write_capture(tmp_path / "c", PROMPTS, resume=True)
        assert f"do next: move {tmp_path}/c away and capture again" in str(caught.value)

    def test_a_journal_line_cut_short_does_not_count(self, tmp_path):
        write_capture(tmp_path / "a", PROMPTS, shard_prompts=1)
        write_capture(tmp_path / "b", PROMPTS, shard_prompts=1, stop_after=3)
        journal = tmp_path / "b/journal.jsonl"
        journal.write_bytes(journal.read_bytes()[:-40])

        with CaptureWriter(tmp_path / "b", header=make_header(PROMPTS), resume=True) as writer:
            assert writer.done == {"p-000", "p-001"}
        write_capture(tmp_path / "b", PROMPTS, resume=True)
        assert files_of(tmp_path / "a") == files_of(tmp_path / "b")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param(lambda d: d.replace(b"[0,1,", b"[0,9,"), "line 2 is damaged", id="token"),
            pytest.param(lambda d: b"{}\n" + d, "line 1 is no journal line", id="other line"),
            pytest.param(lambda d: d[:50], "the journal has no first line", id="first line cut"),
            pytest.param(lambda d: b"x" + d, "does not parse as JSON", id="no JSON"),
            pytest.param(
                lambda d: b"".join(reversed(d.splitlines(keepends=True))),
                "line 1 is no header: ",
                id="order",
            ),
        ],
    )
    def test_a_damaged_journal_is_refused(self, tmp_path, change, message):
        write_capture(tmp_path / "c", PROMPTS, shard_prompts=1, stop_after=3)
        journal = tmp_path / "c/journal.jsonl"
        journal.write_bytes(change(journal.read_bytes()))

        with pytest.raises(CaptureError, match=re.escape(message)) as caught:
            write_capture(tmp_path / "c", PROMPTS, resume=True)
        assert str(caught.value).startswith(f"rocm:pad=tile: {journal}: ")
        with pytest.raises(CaptureError, match=re.escape(message)):
            open_capture(tmp_path / "c", label="cand")

    def test_counts_of_the_interrupted_run_stay_in_the_path_proof(self, tmp_path):
        def proof(**counts):
            return PathProof(path="rocm", branches=counts)

        header = make_header(PROMPTS)
        with CaptureWriter(tmp_path / "c", header=header, shard_prompts=2) as writer:
            for number, prompt in enumerate(PROMPTS[:3], start=1):
                seen = proof(prefill=number)
                writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0, proof=seen)
        with CaptureWriter(tmp_path / "c", header=header, resume=True) as writer:
            for prompt in PROMPTS[2:]:
                writer.add(prompt, make_tensors(prompt), stream=None, batch_row=0)
            with pytest.raises(CaptureError, match="path 'oracle'; stored prompts ran 'rocm'"):
                writer.close(path_proof=PathProof(path="oracle"), timing={})
            manifest = writer.close(path_proof=proof(prefill=3, decode=4), timing={})

        # Two prompts were committed before the end, three ran after it.
        assert manifest.path_proof == proof(decode=4, prefill=5)

    def test_two_writers_of_one_folder(self, tmp_path):
        with (
            CaptureWriter(tmp_path / "c", header=make_header(PROMPTS)),
            pytest.raises(CaptureError) as caught,
        ):
            write_capture(tmp_path / "c", PROMPTS, resume=True)

        assert str(caught.value) == (
            f"rocm:pad=tile: {tmp_path}/c: another process is writing this capture\n"
            f"  do next: wait for it to end, then {RESUME}{tmp_path}/c"
        )
        write_capture(tmp_path / "c", PROMPTS, resume=True)


def test_header_and_manifest_agree_field_by_field():
    header, manifest = CaptureHeader.model_fields, Manifest.model_fields

    assert set(manifest) - set(header) == {
        "schema_version",
        "batch_rows",
        "artifacts",
        "path_proof",
        "digest",
    }
    assert set(header) < set(manifest)
    for name, field in header.items():
        assert field.annotation == manifest[name].annotation
        assert field.is_required() == manifest[name].is_required()


def test_the_manifest_is_strict_json_with_a_line_for_each_tensor(tmp_path):
    write_capture(tmp_path / "c", PROMPTS)
    text = (tmp_path / "c/manifest.json").read_text()
    content = json.loads(text)

    tensors = [entry for artifact in content["artifacts"] for entry in artifact["tensors"]]
    assert len(tensors) == 6 * len(PROMPTS)
    assert max(len(line) for line in text.splitlines()) < 600
