"""Digests: what enters them, and what does not."""

import hashlib
from typing import Any

from tests.captures import make_prompt, write_capture
from validate.capture import capture_digest, file_sha256, json_sha256, prompt_set_digest
from validate.schema import Prompt

A = Prompt(id="a", token_ids=(1, 2, 3), prompt_length=2, tags=("short",))
B = Prompt(id="b", token_ids=(4,), prompt_length=1, score_stride=8)


def test_the_prompt_digest_is_sha256_of_these_lines():
    lines = (
        b'{"id":"a","prompt_length":2,"score_stride":1,"token_ids":[1,2,3]}\n'
        b'{"id":"b","prompt_length":1,"score_stride":8,"token_ids":[4]}\n'
    )

    assert prompt_set_digest([A, B]) == hashlib.sha256(lines).hexdigest()


def test_order_and_tags_do_not_enter_the_prompt_digest():
    tagged = A.model_copy(update={"tags": ("tensors", "state")})

    assert prompt_set_digest([B, tagged]) == prompt_set_digest([A, B])


def test_everything_else_does():
    changes: list[dict[str, Any]] = [
        {"id": "c"},
        {"token_ids": (1, 2, 4)},
        {"token_ids": (1, 2)},
        {"prompt_length": 1},
        {"score_stride": 2},
    ]
    digests = {prompt_set_digest([A.model_copy(update=change), B]) for change in changes}

    assert len(digests | {prompt_set_digest([A, B])}) == len(changes) + 1
    assert prompt_set_digest([A]) != prompt_set_digest([A, B])


def test_the_digest_of_a_file_larger_than_a_buffer(tmp_path):
    data = bytes(range(256)) * 5000
    (tmp_path / "f").write_bytes(data)

    assert file_sha256(tmp_path / "f") == hashlib.sha256(data).hexdigest()


def test_key_order_does_not_enter_the_json_digest():
    assert json_sha256({"a": 1, "b": [2, None]}) == json_sha256({"b": [2, None], "a": 1})
    assert json_sha256({"a": 1}) != json_sha256({"a": 1.5})


def test_the_capture_digest_follows_every_tensor(tmp_path):
    from tests.captures import make_header, make_tensors

    prompts = [make_prompt(0)]
    write_capture(tmp_path / "a", prompts)
    write_capture(tmp_path / "b", prompts, tensors={"p-000": make_tensors(prompts[0], seed=1)})

    assert make_header(prompts).prompt_digest == prompt_set_digest(prompts)
    assert capture_digest(tmp_path / "a") != capture_digest(tmp_path / "b")
    assert capture_digest(tmp_path / "a") == file_sha256(tmp_path / "a/manifest.json")
