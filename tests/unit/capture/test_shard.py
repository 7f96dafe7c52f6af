"""The tensor file: the library's bytes when written, every lie refused when read."""

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from tests.captures import make_prompt, make_tensors
from validate.capture import Tensor
from validate.capture.files import pin
from validate.capture.format import DTYPES
from validate.capture.intake import hold
from validate.capture.messages import Fault
from validate.capture.shard import check_shard, encode_shard, ordered, split_parts
from validate.schema import TensorEntry


def parts_of(tensors: dict[str, Tensor]) -> Any:
    return ordered(hold(make_prompt(0), tensors, stream=None, batch_row=0).parts)


def shard_bytes(tensors: dict[str, Tensor]) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_shard(parts_of(tensors)))


def every_dtype() -> dict[str, Tensor]:
    return {
        f"t.{name}": Tensor(np.arange(7).astype(form.dtype), ("rows",))
        for name, form in DTYPES.items()
    }


def test_bytes_equal_those_of_the_safetensors_library():
    parts = parts_of(every_dtype())
    specs = {
        part.entry.name: safetensors.TensorSpec(
            dtype=part.entry.dtype,
            shape=list(part.entry.shape),
            data_ptr=part.array.ctypes.data,
            data_len=part.array.nbytes,
        )
        for part in parts
    }

    assert b"".join(bytes(chunk) for chunk in encode_shard(parts)) == safetensors.serialize(specs)


def test_torch_reads_bfloat16_bit_for_bit(tmp_path):
    values = np.array([1.0, -0.0, np.inf, np.nan, 3.140625], ml_dtypes.bfloat16)
    path = tmp_path / "a.safetensors"
    path.write_bytes(shard_bytes({"x": Tensor(values, ("rows",))}))

    loaded = safetensors.torch.load_file(path)["p-000/x"]

    assert loaded.dtype == torch.bfloat16
    assert loaded.view(torch.int16).tolist() == values.view(np.int16).tolist()


def test_a_shard_of_the_library_passes_the_check(tmp_path):
    path = tmp_path / "a.safetensors"
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    safetensors.numpy.save_file({"p-000/x": array}, path, metadata={"format": "np"})
    entry = TensorEntry(name="p-000/x", dtype="float32", shape=(2, 3), axes=("rows", "vocab"))

    offsets = check_shard(pin(tmp_path, "a.safetensors"), [entry])

    assert path.read_bytes()[offsets["p-000/x"] :] == array.tobytes()


def test_parts_are_cut_at_the_limit_and_a_larger_one_stands_alone():
    sizes = {"a": 10, "b": 10, "c": 50, "d": 10}
    tensors = {name: Tensor(np.zeros(n, np.uint8), ("rows",)) for name, n in sizes.items()}
    held = hold(make_prompt(0), tensors, stream=None, batch_row=0)

    runs = [[part.entry.name[6:] for part in run] for run in split_parts(held.parts, limit=20)]

    assert runs == [["a", "b"], ["c"], ["d"]]


def tamper(tmp_path: Path, change: Any) -> Any:
    """A shard of one float32 (2, 3) tensor and one int32 (2,) whose header ``change`` edited."""
    tensors = {
        "a": Tensor(np.ones((2, 3), np.float32), ("rows", "vocab")),
        "b": Tensor(np.ones(2, np.int32), ("rows",)),
    }
    data = shard_bytes(tensors)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    text = change(header)
    text = json.dumps(header if text is None else text) if not isinstance(text, str) else text
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text.encode()).to_bytes(8, "little") + text.encode() + data[end:])
    entries = [part.entry for part in parts_of(tensors)]
    return lambda: check_shard(pin(tmp_path, "a.safetensors"), entries)


def test_an_untouched_header_passes(tmp_path):
    assert tamper(tmp_path, lambda header: None)().keys() == {"p-000/a", "p-000/b"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda h: h["p-000/b"].update(data_offsets=[20, 28]),
            "tensor 'p-000/b' overlaps the one before it: it begins at byte 20, expected 24",
            id="overlap",
        ),
        pytest.param(
            lambda h: h["p-000/b"].update(data_offsets=[28, 36]),
            "tensor 'p-000/b' leaves a hole before it: it begins at byte 28, expected 24",
            id="hole",
        ),
        pytest.param(
            lambda h: h["p-000/a"].update(data_offsets=[-24, 0]),
            "tensor 'p-000/a' overlaps the one before it: it begins at byte -24, expected 0",
            id="negative",
        ),
        pytest.param(
            lambda h: h["p-000/a"].update(data_offsets=[0, 2**40]),
            f"tensor 'p-000/a' spans bytes 0 to {2**40}, {2**40} in all; float32 (2, 3) takes 24",
            id="past the end",
        ),
        pytest.param(
            lambda h: h["p-000/a"].update(shape=[3, 2]),
            "tensor 'p-000/a' is F32 (3, 2), the manifest says F32 (2, 3)",
            id="shape",
        ),
        pytest.param(
            lambda h: h["p-000/a"].update(dtype="I32"),
            "tensor 'p-000/a' is I32 (2, 3), the manifest says F32 (2, 3)",
            id="dtype",
        ),
        pytest.param(
            lambda h: h.update({"p-000/c": h.pop("p-000/b")}),
            "the tensors are not those that the manifest lists",
            id="name",
        ),
        pytest.param(
            lambda h: h["p-000/a"].update(extra=1),
            "the shard's header has not the safetensors form: 1 wrong",
            id="unknown field",
        ),
        pytest.param(
            lambda h: h["p-000/a"].update(data_offsets=[0.0, 24]),
            "the shard's header has not the safetensors form: 1 wrong",
            id="float offset",
        ),
        pytest.param(
            lambda h: [1, 2],
            "the shard's header has not the safetensors form: 1 wrong",
            id="a list",
        ),
        pytest.param(
            lambda h: '{"p-000/a":{},"p-000/a":{}}',
            "key 'p-000/a' appears 2 times in one object",
            id="one name twice",
        ),
        pytest.param(
            lambda h: "[" * 100_000, "does not parse as JSON: nested too deep", id="nesting"
        ),
        pytest.param(lambda h: "{", "does not parse as JSON", id="cut JSON"),
        pytest.param(lambda h: '{"\\ud800": 1e5}', "1 wrong", id="lone surrogate"),
        pytest.param(lambda h: '{"a": 1e999}', "1e999 is beyond the range", id="infinite number"),
        pytest.param(lambda h: '{"a": NaN}', "NaN is no JSON number", id="NaN"),
        pytest.param(lambda h: "1" * 5000, "does not parse as JSON", id="endless integer"),
    ],
)
def test_a_tampered_header_is_refused(tmp_path, change, message):
    with pytest.raises(Fault, match=re.escape(message)):
        tamper(tmp_path, change)()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "the shard has 0 bytes; its header alone needs more than 8", id="empty"),
        pytest.param(b"\x01" * 5, "the shard has 5 bytes", id="five bytes"),
        pytest.param(
            b"\xff" * 8 + b"{}",
            "the shard's header claims 18446744073709551615 bytes; the file has 10 and a header may "
            "have 67108864",
            id="header beyond the file",
        ),
        pytest.param(
            b"\x02" + b"\0" * 7 + b"{}" + b"data",
            "the tensors take 0 bytes, the shard holds 4 of data",
            id="data of no tensor",
        ),
        pytest.param(b"\x02" + b"\0" * 7 + b"\xff\xfe", "is not UTF-8 at byte 0", id="no UTF-8"),
    ],
)
def test_bytes_that_are_no_shard_are_refused(tmp_path, data, message):
    (tmp_path / "a.safetensors").write_bytes(data)

    with pytest.raises(Fault, match=re.escape(message)):
        check_shard(pin(tmp_path, "a.safetensors"), [])


def test_order_of_the_mapping_does_not_enter_the_bytes():
    tensors = make_tensors(make_prompt(1))
    backwards = dict(reversed(tensors.items()))

    assert shard_bytes(tensors) == shard_bytes(backwards)
