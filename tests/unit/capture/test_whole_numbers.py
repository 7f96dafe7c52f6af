"""Whole numbers beyond int64 are refused where they are read; negative ids are for a gate."""

import re
from pathlib import Path

import pytest

from tests.captures import make_prompt, make_tensors, write_capture
from tests.unit.capture.test_reader import edit_file, refusal
from validate.capture.importers._samples import read_items
from validate.capture.jsontext import parse
from validate.capture.messages import Fault
from validate.errors import SuiteError
from validate.suite import load_prompts
from validate.suite.toml import read_toml

RANGE = "beyond the range of int64, -2^63 to 2^63 - 1"


@pytest.mark.parametrize("number", [10**30, 2**63, -(2**63) - 1])
@pytest.mark.parametrize("name", ["streams.jsonl", "prompts.jsonl"])
def test_id_of_a_capture_names_file_line_and_range(name: str, number: int, tmp_path: Path) -> None:
    prompt = make_prompt(0)
    write_capture(tmp_path / "c", [prompt], tensors={prompt.id: make_tensors(prompt)})
    path = tmp_path / "c" / name
    text = re.sub(r'"token_ids":\[-?\d+', f'"token_ids":[{number}', path.read_text(), count=1)
    edit_file(tmp_path / "c", name, text.encode())

    message = refusal(tmp_path / "c")

    assert f"{name}: line 1 is no {name.removesuffix('s.jsonl')}: {number} is {RANGE}" in message


def test_ids_within_the_range_are_read() -> None:
    assert parse(b"[-1, 9223372036854775807]") == [-1, 2**63 - 1]
    with pytest.raises(Fault, match=r"1{40}… \(99 digits\) is beyond"):
        parse(b"1" * 99)


@pytest.mark.parametrize(
    "line",
    [
        '{"doc_id": 1%s}',
        '{"doc_id": 0, "validate": {"token_ids": [1%s]}}',
        '{"doc_id": 0, "validate": {"prompt_tokens": 1%s}}',
        '{"doc_id": 0, "acc": 1%s}',
    ],
)
def test_sample_of_lm_eval_names_the_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(line % ("0" * 400) + "\n")

    with pytest.raises(Fault, match="line 1 "):
        list(read_items(path, task="t", metrics=["acc"], kind="unknown"))


def test_suite_and_prompt_set_name_the_line(tmp_path: Path) -> None:
    suite, prompts = tmp_path / "s.toml", tmp_path / "p.jsonl"
    suite.write_text(f"a = 1\n[b]\nleast = [1, {10**30}]\n")
    prompts.write_text(f'{{"id": "a", "token_ids": [{10**30}], "prompt_length": 1}}\n')

    with pytest.raises(SuiteError, match=r"s.toml:3: least is beyond the range of int64"):
        read_toml(suite)
    with pytest.raises(SuiteError, match=r"p.jsonl:1: no prompt: "):
        load_prompts(prompts)
