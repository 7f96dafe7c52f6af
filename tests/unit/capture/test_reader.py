"""Opening a capture: what is whole opens, what is not says so in one message."""

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.captures import files_of, make_prompt, make_stream, make_tensors, write_capture
from tests.measured import assert_measured
from validate.capture import capture_digest, file_sha256, open_capture
from validate.capture.digest import manifest_seal
from validate.capture.files import copy_range, pin
from validate.capture.messages import Fault
from validate.errors import CaptureError, InputError
from validate.schema import Side

RESUME = "validate capture --resume --target rocm:pad=tile --out "


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "rocm"
    write_capture(path, shard_prompts=2)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        open_capture(path, label="cand 'rocm'", **options)
    assert caught.value.exit_code == 4
    return str(caught.value)


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, and its digest with it."""
    file = path / "manifest.json"
    content = json.loads(file.read_bytes())
    change(content)
    content["digest"] = manifest_seal(content)
    file.write_text(json.dumps(content))


def edit_file(path: Path, name: str, content: bytes) -> None:
    """Replace a file and make size and digest of the manifest agree with it."""
    (path / name).write_bytes(content)

    def change(manifest: dict[str, Any]) -> None:
        for artifact in manifest["artifacts"]:
            if artifact["path"] == name:
                artifact.update(bytes=len(content), sha256=file_sha256(path / name))

    edit_manifest(path, change)


class TestWhole:
    def test_all_that_was_added_comes_back(self, capture):
        reader = open_capture(capture, label="cand")

        assert isinstance(reader, Side)
        assert reader.label == "cand"
        assert list(reader.prompts.values()) == [make_prompt(n) for n in range(3)]
        assert reader.streams["p-002"] == make_stream(make_prompt(2), row=2)
        assert reader.manifest.batch_rows == {"p-000": 0, "p-001": 1, "p-002": 2}
        assert reader.timing == {"prefill_seconds": 0.25, "decode_seconds": 1.5}
        assert reader.digest == capture_digest(capture)
        for number in range(3):
            expected = make_tensors(make_prompt(number))
            prompt = f"p-{number:03d}"
            assert reader.names(prompt) == tuple(sorted(expected))
            for name, (array, axes) in expected.items():
                actual = reader.tensor(prompt, name)
                assert actual.tobytes() == array.tobytes()
                assert (actual.dtype, actual.shape) == (array.dtype, array.shape)
                assert reader.axes(prompt, name) == axes
                assert reader.shape(prompt, name) == array.shape
                assert reader.dtype(prompt, name) == array.dtype.name

    def test_a_tensor_is_the_readers_own_copy(self, capture):
        reader = open_capture(capture, label="cand")
        reader.tensor("p-000", "prefill.mla.3.lse")[:] = 7.0

        expected = make_tensors(make_prompt(0))["prefill.mla.3.lse"].array
        assert_measured(reader.tensor("p-000", "prefill.mla.3.lse"), expected, atol=0, rtol=0)

    @pytest.mark.parametrize("block", [1, 2, 5, 9])
    def test_blocks_of_rows_make_up_the_tensor(self, capture, block):
        reader = open_capture(capture, label="cand")

        blocks = list(reader.rows("p-001", "prefill.mla.3.out", block))

        assert [len(b) for b in blocks] == [min(block, 5 - at) for at in range(0, 5, block)]
        whole = reader.tensor("p-001", "prefill.mla.3.out")
        assert np.concatenate(blocks).tobytes() == whole.tobytes()

    def test_blocks_of_an_empty_tensor_are_none(self, capture):
        reader = open_capture(capture, label="cand")

        assert list(reader.rows("p-000", "state.decode.kv.3", 4)) == []

    @pytest.mark.parametrize(("name", "block"), [("logits", 0), ("state.scale", 1)])
    def test_blocks_that_cannot_be_are_refused(self, capture, name, block):
        reader = open_capture(capture, label="cand")

        with pytest.raises(InputError, match=f"tensor '{name}': blocks of {block} rows"):
            reader.rows("p-000", name, block)

    def test_an_unknown_name_is_answered_with_the_nearest(self, capture):
        reader = open_capture(capture, label="cand 'rocm'")

        with pytest.raises(CaptureError) as caught:
            reader.tensor("p-000", "prefill.mla.3.ou")
        assert str(caught.value) == (
            f"cand 'rocm': {capture}: prompt 'p-000' has no tensor 'prefill.mla.3.ou'; did you mean "
            "'prefill.mla.3.out'?\n"
            "  tensors here: 6: 'logits', 'logits.positions', 'prefill.mla.3.lse', "
            "'prefill.mla.3.out', 'state.decode.kv.3' and 1 more\n"
            f"  do next     : {RESUME}{capture}"
        )
        with pytest.raises(CaptureError, match="no prompt 'p-003'; did you mean 'p-00"):
            reader.names("p-003")

    def test_other_files_beside_it_are_no_concern(self, capture):
        (capture / "README.md").write_text("the command that made it")

        assert "README.md" not in open_capture(capture, label="cand").prompts

    def test_a_link_that_stays_inside_is_followed(self, capture):
        before = open_capture(capture, label="cand").tensor("p-000", "logits")
        (capture / "shards/00000.safetensors").rename(capture / "shards/moved")
        (capture / "shards/00000.safetensors").symlink_to("moved")

        after = open_capture(capture, label="cand").tensor("p-000", "logits")
        assert after.tobytes() == before.tobytes()

    def test_the_folder_itself_may_be_a_link(self, capture, tmp_path):
        (tmp_path / "latest").symlink_to(capture)

        linked = open_capture(tmp_path / "latest", label="cand").tensor("p-000", "logits")
        direct = open_capture(capture, label="cand").tensor("p-000", "logits")
        assert linked.tobytes() == direct.tobytes()

    def test_without_streams_and_timing(self, capture):
        def change(manifest):
            manifest["artifacts"] = [
                a for a in manifest["artifacts"] if a["artifact"] not in ("streams", "timing")
            ]

        edit_manifest(capture, change)
        reader = open_capture(capture, label="cand")

        assert (dict(reader.streams), dict(reader.timing)) == ({}, {})


class TestMissing:
    def test_no_folder(self, tmp_path):
        assert refusal(tmp_path / "none") == (
            f"cand 'rocm': {tmp_path}/none: no capture here\n"
            f"  do next: validate capture --resume --target NAME --out {tmp_path}/none"
        )

    def test_a_file(self, tmp_path):
        (tmp_path / "file").touch()

        assert "is no capture: a folder is expected" in refusal(tmp_path / "file")

    def test_an_empty_folder(self, tmp_path):
        assert "the capture is empty: the folder holds nothing\n" in refusal(tmp_path)

    def test_a_folder_of_other_things(self, tmp_path):
        (tmp_path / "notes").touch()

        assert "is no capture: manifest.json is missing\n" in refusal(tmp_path)

    def test_unfinished(self, tmp_path):
        write_capture(tmp_path / "c", stop_after=2, shard_prompts=1)

        assert refusal(tmp_path / "c") == (
            f"cand 'rocm': {tmp_path}/c: the capture is unfinished: 2 prompts are stored, "
            f"manifest.json is missing\n  do next: {RESUME}{tmp_path}/c"
        )

    def test_a_missing_shard(self, capture):
        (capture / "shards/00001.safetensors").unlink()

        assert refusal(capture) == (
            f"cand 'rocm': {capture}/shards/00001.safetensors: the file is missing\n"
            f"  do next: {RESUME}{capture}"
        )


class TestDamaged:
    def test_a_flipped_bit_names_file_and_digests(self, capture):
        shard = capture / "shards/00002.safetensors"
        data = bytearray(shard.read_bytes())
        before = file_sha256(shard)
        data[-1] ^= 1
        shard.write_bytes(data)

        assert refusal(capture) == (
            f"cand 'rocm': {shard}: the file is damaged: its sha256 differs from the manifest's\n"
            f"  expected: {before}\n"
            f"  actual  : {file_sha256(shard)}\n"
            f"  do next : {RESUME}{capture}"
        )

    def test_without_verifying_digests_a_flipped_value_passes_and_a_header_does_not(self, capture):
        shard = capture / "shards/00002.safetensors"
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
        open_capture(capture, label="cand", verify=False)
        data[9] ^= 1
        shard.write_bytes(data)

        assert f"{shard}: " in refusal(capture, verify=False)

    @pytest.mark.parametrize("name", ["shards/00001.safetensors", "prompts.jsonl", "timing.json"])
    def test_a_file_cut_short_names_both_sizes(self, capture, name):
        data = (capture / name).read_bytes()
        (capture / name).write_bytes(data[:-3])

        assert refusal(capture, verify=False) == (
            f"cand 'rocm': {capture}/{name}: the file is cut short: {len(data) - 3} bytes, the "
            f"manifest says {len(data)}\n  do next: {RESUME}{capture}"
        )

    def test_a_file_that_grew(self, capture):
        with (capture / "streams.jsonl").open("ab") as file:
            file.write(b"\n")

        assert "streams.jsonl: the file is too long: " in refusal(capture)

    def test_a_file_that_changes_after_it_was_opened(self, capture):
        reader = open_capture(capture, label="cand 'rocm'")
        shard = capture / "shards/00000.safetensors"
        shard.write_bytes(b"short")

        with pytest.raises(
            CaptureError, match="the file has changed since it was opened"
        ) as caught:
            reader.tensor("p-000", "logits")
        assert f"cand 'rocm': {shard}: " in str(caught.value)

    def test_a_file_that_vanishes_after_it_was_opened(self, capture):
        reader = open_capture(capture, label="cand 'rocm'")
        (capture / "shards/00000.safetensors").unlink()

        with pytest.raises(CaptureError, match=r"cannot be read: No such file .* \(ENOENT\)"):
            reader.tensor("p-000", "logits")

    def test_a_folder_in_place_of_a_shard(self, capture):
        (capture / "shards/00000.safetensors").unlink()
        (capture / "shards/00000.safetensors").mkdir()

        assert "00000.safetensors: is not a regular file\n" in refusal(capture)

    def test_a_pipe_in_place_of_a_shard_does_not_hang(self, capture):
        (capture / "shards/00000.safetensors").unlink()
        os.mkfifo(capture / "shards/00000.safetensors")

        assert "00000.safetensors: is not a regular file\n" in refusal(capture)

    def test_a_file_that_may_not_be_read(self, capture, monkeypatch):
        real = os.open

        def refuse(path, *args, **options):
            if str(path).endswith("timing.json"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return real(path, *args, **options)

        monkeypatch.setattr(os, "open", refuse)

        assert "timing.json: cannot be read: Permission denied (EACCES)\n" in refusal(capture)


class TestManifest:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param(
                "", "does not parse as JSON: Expecting value at line 1 column 1", id="empty"
            ),
            pytest.param("{", "does not parse as JSON: ", id="cut"),
            pytest.param(
                "[]", "schema_version is None; this version of validate reads 1", id="list"
            ),
            pytest.param('{"a":1,"a":1}', "key 'a' appears 2 times in one object", id="key twice"),
            pytest.param('{"a":Infinity}', "Infinity is no JSON number", id="infinity"),
            pytest.param("[" * 100_000, "does not parse as JSON: nested too deep", id="nesting"),
            pytest.param("\ufeff{}", "does not parse as JSON: ", id="byte order mark"),
        ],
    )
    def test_no_strict_json(self, capture, text, message):
        (capture / "manifest.json").write_text(text)

        found = refusal(capture)
        assert found.startswith(f"cand 'rocm': {capture}/manifest.json: {message}")
        assert f"\n  do next: move {capture} away, then validate capture --resume" in found

    @pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.5])
    def test_another_schema_version(self, capture, version):
        edit_manifest(capture, lambda m: m.update(schema_version=version))

        assert f"schema_version is {version!r}; this version of validate reads 1" in refusal(
            capture
        )

    def test_missing_unknown_and_wrong_fields(self, capture):
        def change(manifest):
            del manifest["target"]
            manifest["extra"] = 1
            manifest["batch_rows"]["p-000"] = "0"

        edit_manifest(capture, change)

        found = refusal(capture)
        assert "manifest.json: the manifest does not follow its schema: 3 wrong\n" in found
        assert "target: Field required" in found
        assert "batch_rows.p-000: Input should be a valid integer" in found
        assert "extra: Extra inputs are not permitted" in found

    @pytest.mark.parametrize("digest", ["0" * 64, None])
    def test_a_manifest_that_was_not_sealed_so(self, capture, digest):
        file = capture / "manifest.json"
        content = json.loads(file.read_bytes())
        sealed = content["digest"]
        file.write_text(json.dumps({**content, "digest": digest}))

        assert refusal(capture).splitlines()[:3] == [
            f"cand 'rocm': {file}: the manifest is damaged: its own digest differs from its content",
            f"  expected: {digest}",
            f"  actual  : {sealed}",
        ]

    def test_a_number_changed_in_the_manifest(self, capture):
        file = capture / "manifest.json"
        file.write_bytes(file.read_bytes().replace(b'"p-001":1', b'"p-001":2'))

        assert "the manifest is damaged: its own digest differs" in refusal(capture)

    def test_too_large(self, capture):
        with (capture / "manifest.json").open("r+b") as file:
            file.truncate(64 * 2**20 + 1)

        assert "the file has 67108865 bytes; at most 67108864 are read\n" in refusal(capture)

    @pytest.mark.parametrize(
        "path",
        [
            "/etc/passwd",
            "../rocm/prompts.jsonl",
            "shards/../../secret",
            "./prompts.jsonl",
            "shards//00000.safetensors",
            "",
            "a\\b",
            "nul\0byte",
            "line\nbreak",
            "x" * 300,
        ],
    )
    def test_a_path_that_is_not_inside(self, capture, path):
        edit_manifest(capture, lambda m: m["artifacts"][0].update(path=path))

        found = refusal(capture)
        assert (
            f"manifest.json: artifact path {path!r} is not a relative path inside the capture"
        ) in found

    def test_a_link_that_leads_out(self, capture, tmp_path):
        secret = tmp_path / "secret"
        (capture / "timing.json").rename(secret)
        (capture / "timing.json").symlink_to(secret)

        assert refusal(capture) == (
            f"cand 'rocm': {capture}/timing.json: path 'timing.json' leads out of the capture\n"
            f"  leads to: {secret}\n"
            f"  do next : {RESUME}{capture}"
        )

    def test_a_folder_that_leads_out(self, capture, tmp_path):
        (capture / "shards").rename(tmp_path / "elsewhere")
        (capture / "shards").symlink_to(tmp_path / "elsewhere")

        assert "path 'shards/00000.safetensors' leads out of the capture\n" in refusal(capture)

    def test_a_manifest_that_leads_out(self, capture, tmp_path):
        (capture / "manifest.json").rename(tmp_path / "m.json")
        (capture / "manifest.json").symlink_to(tmp_path / "m.json")

        assert "path 'manifest.json' leads out of the capture\n" in refusal(capture)

    def test_a_link_to_itself(self, capture):
        (capture / "timing.json").unlink()
        (capture / "timing.json").symlink_to("timing.json")

        assert "timing.json: cannot be read: " in refusal(capture)

    def test_a_manifest_that_leads_nowhere(self, capture):
        (capture / "manifest.json").unlink()
        (capture / "manifest.json").symlink_to("gone")

        assert "manifest.json: the file is missing\n" in refusal(capture)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param(
                lambda m: m["artifacts"].append(m["artifacts"][-1]),
                "artifact path 'shards/00005.safetensors' is listed 2 times",
                id="one path twice",
            ),
            pytest.param(
                lambda m: m["artifacts"].pop(0),
                "artifacts must be one of prompts and at most one of streams and timing, not "
                "{'prompts': 0, 'streams': 1, 'timing': 1}",
                id="no prompts",
            ),
            pytest.param(
                lambda m: m["artifacts"][0].update(tensors=m["artifacts"][-1]["tensors"]),
                "artifact 'prompts.jsonl' of prompts lists tensors",
                id="tensors in JSON",
            ),
            pytest.param(
                lambda m: m["artifacts"][3]["tensors"][0].update(axes=[]),
                "tensor 'p-000/logits.positions': 0 axis names for 1 dimensions",
                id="axes",
            ),
            pytest.param(
                lambda m: m["artifacts"][4]["tensors"][0].update(axes=["rows", "rows"]),
                "tensor 'p-000/prefill.mla.3.lse': axis names ('rows', 'rows') must be distinct",
                id="one axis twice",
            ),
            pytest.param(
                lambda m: m["artifacts"][3]["tensors"][0].update(name="logits"),
                "tensor name 'logits' is not '<prompt id>/<name>'",
                id="no prompt",
            ),
            pytest.param(
                lambda m: m["artifacts"][3]["tensors"][0].update(name="p-000/../x"),
                "tensor name 'p-000/../x' is not '<prompt id>/<name>'",
                id="second slash",
            ),
            pytest.param(
                lambda m: m["artifacts"][3]["tensors"][0].update(
                    shape=[0, 2**40, 2**40], axes=list("abc")
                ),
                "is larger than any array can be",
                id="huge and empty",
            ),
            pytest.param(
                lambda m: m["artifacts"][3]["tensors"][0].update(shape=[2**62]),
                "is larger than any array can be",
                id="huge",
            ),
            pytest.param(
                lambda m: m["batch_rows"].update({"p-900": 0}),
                "batch_rows of the manifest names no prompt or a negative row: 'p-900'",
                id="row of no prompt",
            ),
            pytest.param(
                lambda m: m.update(prompt_digest="0" * 64),
                "the 3 prompts are not those of the manifest's prompt_digest",
                id="prompt digest",
            ),
            pytest.param(
                lambda m: m["artifacts"][3]["tensors"].append(m["artifacts"][3]["tensors"][0]),
                "tensor 'p-000/logits.positions' is stored twice",
                id="one tensor twice",
            ),
        ],
    )
    def test_content_that_contradicts_itself(self, capture, change, message):
        edit_manifest(capture, change)

        assert message in refusal(capture)


class TestTokenData:
    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("prompts.jsonl", lambda d: b"", "the capture holds no prompts"),
            ("prompts.jsonl", lambda d: d[:-1], "the last line has no end"),
            ("prompts.jsonl", lambda d: d + d, "line 4: prompt 'p-000' is there already"),
            ("prompts.jsonl", lambda d: b"\n" + d, "does not parse as JSON: Expecting value"),
            ("prompts.jsonl", lambda d: d.replace(b'"p-000"', b'"P 0"'), "line 1 is no prompt: 1 wrong"),
            (
                "prompts.jsonl",
                lambda d: d.replace(b'"prompt_length":3', b'"prompt_length":6', 1),
                "prompt 'p-000': prompt_length 6 exceeds its 5 token ids",
            ),
            (
                "prompts.jsonl",
                lambda d: d.replace(b"[0,1,", b"[0,2,"),
                "the 3 prompts are not those of the manifest's prompt_digest",
            ),
            (
                "streams.jsonl",
                lambda d: d.replace(b'"p-000"', b'"p-900"'),
                "line 1: stream of prompt 'p-900', which the capture lacks",
            ),
            ("streams.jsonl", lambda d: d + d, "line 4: the greedy stream of prompt 'p-000' is there already"),
            (
                "streams.jsonl",
                lambda d: d.replace(b"[65,66,257]", b"[65,66]", 1),
                "stream of prompt 'p-000': 3 logprobs for 2 token ids",
            ),
            (
                "streams.jsonl",
                lambda d: d.replace(b"-0.5", b"NaN", 1),
                "NaN is no JSON number",
            ),
            (
                "streams.jsonl",
                lambda d: d.replace(b"-0.5", b"-1e999", 1),
                "-1e999 is beyond the range of float64",
            ),
            (
                "streams.jsonl",
                lambda d: d.replace(b'"batch_row":0', b'"batch_row":1', 1),
                "stream of prompt 'p-000': batch row 1 of a batch of 1",
            ),
            (
                "streams.jsonl",
                lambda d: d.replace(b'"batch_row":1', b'"batch_row":0', 1),
                "stream of prompt 'p-001': batch row 0, but 1 for the prompt itself",
            ),
            ("timing.json", lambda d: b"[]", "timing is not one JSON object"),
            ("timing.json", lambda d: b'{"a_s": true}', "timing 'a_s' is True, not a finite number"),
            ("timing.json", lambda d: b'{"a_s": "1"}', "timing 'a_s' is '1', not a finite number"),
            ("timing.json", lambda d: b'{"a_s": 1' + b"0" * 400 + b"}", "… (401 digits) is beyond the range of int64"),
        ],
    )  # fmt: skip
    def test_token_data_that_does_not_fit(self, capture, name, change, message):
        edit_file(capture, name, change((capture / name).read_bytes()))

        found = refusal(capture)
        assert found.startswith(f"cand 'rocm': {capture}/{name}: ")
        assert message in found

    def drawn(self, capture, *, options=None, **changes):
        """A ``sampled`` stream of three tokens, and what the manifest says of it."""
        stream = json.loads((capture / "streams.jsonl").read_bytes().splitlines()[0])
        params = {"temperature": 1.0, "seed": 5}
        stream |= {"kind": "sampled", "finish_reason": "length", "params": params, **changes}
        data = (capture / "streams.jsonl").read_bytes()
        edit_file(capture, "streams.jsonl", data + json.dumps(stream).encode() + b"\n")
        edit_manifest(capture, lambda m: m["options"].update(options or {}))

    @pytest.mark.parametrize(
        ("options", "changes"),
        [
            ({}, {}),
            ({"tokens": "3", "seed": "0", "cut": "0"}, {}),
            ({"tokens": "9", "cut": "0.999"}, {"finish_reason": "stop"}),
            ({"tokens": "9"}, {"kind": "spec-greedy"}),
        ],
    )
    def test_a_drawn_stream_as_the_manifest_says(self, capture, options, changes):
        self.drawn(capture, options=options, **changes)

        assert len(open_capture(capture, label="cand 'rocm'").drawn) == 1

    @pytest.mark.parametrize("tokens", ["2", "4", "800"])
    @pytest.mark.parametrize("kind", ["sampled", "spec-sampled"])
    def test_a_drawn_stream_of_another_length(self, capture, kind, tokens):
        self.drawn(capture, options={"tokens": tokens}, kind=kind)

        assert (
            f"the {kind} stream of prompt 'p-000' ended by its length with 3 tokens, and the "
            f"manifest's options say tokens={tokens}"
        ) in refusal(capture)

    @pytest.mark.parametrize(
        ("key", "value", "meant"),
        [
            ("tokens", "0", "a whole number from 1 is meant"),
            ("tokens", "-3", "a whole number from 1 is meant"),
            ("tokens", "3.0", "a whole number from 1 is meant"),
            ("tokens", "003", "a whole number from 1 is meant"),
            ("tokens", "\u0663", "a whole number from 1 is meant"),
            ("seed", "zz", "a whole number from 0 is meant"),
            ("seed", "-1", "a whole number from 0 is meant"),
            ("seed", "\u00b2", "a whole number from 0 is meant"),
            ("cut", "-5", "a probability below 1 is meant"),
            ("cut", "1", "a probability below 1 is meant"),
            ("cut", "nan", "a probability below 1 is meant"),
            ("cut", "", "a probability below 1 is meant"),
            ("cut", "0_0.1", "a probability below 1 is meant"),
            ("cut", "\u0660", "a probability below 1 is meant"),
            ("cut", " 0", "a probability below 1 is meant"),
        ],
    )
    def test_options_of_drawn_streams_that_are_no_values(self, capture, key, value, meant):
        self.drawn(capture, options={key: value})

        found = refusal(capture)
        assert found.startswith(
            f"cand 'rocm': {capture}/manifest.json: options say {key}={value}: {meant}"
        )
        assert f"do next: move {capture} away, then {RESUME}{capture}" in found

    @pytest.mark.parametrize("key", ["tokens", "seed"])
    def test_a_number_of_5000_digits_is_no_bug_of_ours(self, capture, key):
        self.drawn(capture, options={key: "9" * 5000})

        assert f"options say {key}={'9' * 40}… (5000 characters): a whole number" in refusal(
            capture
        )

    @pytest.mark.parametrize("cut", ["0", "0.3", "1e-05", "0.999"])
    def test_a_cut_as_it_is_written(self, capture, cut):
        self.drawn(capture, options={"cut": cut})

        assert open_capture(capture, label="cand 'rocm'").manifest.options["cut"] == cut

    def test_options_that_nothing_was_drawn_with_are_not_looked_at(self, capture):
        edit_manifest(capture, lambda m: m["options"].update(cut="-5"))

        assert open_capture(capture, label="cand 'rocm'").drawn is not None

    def test_a_drawn_stream_without_parameters(self, capture):
        self.drawn(capture, params=None)

        assert "kind sampled and no params, so its law is not known" in refusal(capture)

    def test_a_prompt_without_content(self, capture):
        def change(manifest):
            manifest["artifacts"] = [
                a
                for a in manifest["artifacts"]
                if a["artifact"] != "streams"
                and not any(entry["name"].startswith("p-002/") for entry in a["tensors"])
            ]

        edit_manifest(capture, change)

        assert "1 of 3 prompts have neither tensor nor stream: 'p-002'" in refusal(capture)

    def test_a_tensor_of_a_prompt_that_is_not_there(self, capture):
        data = (capture / "shards/00003.safetensors").read_bytes().replace(b"p-002/", b"p-902/")
        edit_file(capture, "shards/00003.safetensors", data)

        def change(manifest):
            for entry in manifest["artifacts"][6]["tensors"]:
                entry["name"] = entry["name"].replace("p-002", "p-902")

        edit_manifest(capture, change)

        assert "tensor 'p-902/logits.positions' belongs to no prompt" in refusal(capture)

    def test_one_tensor_in_two_shards(self, capture):
        def change(manifest):
            manifest["artifacts"].append({**manifest["artifacts"][-1], "path": "shards/copy"})

        edit_manifest(capture, change)
        (capture / "shards/copy").write_bytes((capture / "shards/00005.safetensors").read_bytes())

        found = refusal(capture)
        assert "shards/copy: tensor 'p-002/state.scale' is stored twice\n" in found
        assert "also in: 00005.safetensors\n" in found


def test_a_range_is_read_across_windows(tmp_path, monkeypatch):
    monkeypatch.setattr("validate.capture.files.WINDOW", 8192)
    data = np.random.default_rng(0).bytes(50_000)
    (tmp_path / "f").write_bytes(data)

    for begin, length in [(0, 50_000), (1, 49_999), (4095, 2), (8191, 20_000), (50_000, 0), (7, 0)]:
        out = bytearray(length)
        copy_range(pin(tmp_path, "f"), begin, memoryview(out))
        assert bytes(out) == data[begin : begin + length]


def test_a_range_beyond_the_end_is_refused(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")

    with pytest.raises(Fault, match="the file ends before byte 4"):
        copy_range(pin(tmp_path, "f"), 0, memoryview(bytearray(4)))


def test_opening_writes_nothing(capture):
    before = files_of(capture)
    open_capture(capture, label="cand")

    assert files_of(capture) == before


def test_no_pickle_is_ever_read():
    rooms = Path(__file__).parents[3] / "validate" / "capture"
    sources = {file: file.read_text() for file in rooms.glob("*.py")}

    assert sources
    found = [
        file
        for file, text in sources.items()
        if re.search(r"\b(pickle|np\.load|torch\.load)\b", text)
    ]
    assert found == []
