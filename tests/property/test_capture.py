"""Any array comes back bit for bit; any changed bit of any file is noticed."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from tests.captures import PROOF, files_of, make_header, make_prompt, write_capture
from validate.capture import CaptureWriter, Tensor, open_capture
from validate.capture.format import DTYPES
from validate.errors import CaptureError

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True)
AXES = ("rows", "heads", "value", "key")


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of this example alone (pytest's lives as long as the test)."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "c"


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Any bit pattern of any dtype, NaN payloads too, in any memory layout."""
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))].dtype
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype=np.uint8)
    array = raw.view(dtype).reshape(shape) if size else np.zeros(shape, dtype)
    return array.transpose(draw(st.permutations(range(array.ndim))))


@given(
    tensors=st.dictionaries(NAMES, arrays(), min_size=1, max_size=6),
    limit=st.integers(min_value=1, max_value=400),
)
@example(  # empty tensors share an offset in the file, and nothing else
    tensors={"a": np.zeros(0, DTYPES["bfloat16"].dtype), "b": np.zeros(0, np.float16)}, limit=1
)
@settings(deadline=None, max_examples=60)
def test_round_trip(tensors, limit):
    prompts = [make_prompt(0), make_prompt(1)]
    held = {name: Tensor(array, AXES[: array.ndim]) for name, array in tensors.items()}
    with folder() as path:
        with CaptureWriter(path, header=make_header(prompts), shard_bytes=limit) as writer:
            for prompt in prompts:
                writer.add(prompt, held, stream=None, batch_row=0)
            writer.close(path_proof=PROOF, timing={})
        reader = open_capture(path, label="cand")

        for prompt in prompts:
            assert reader.names(prompt.id) == tuple(sorted(tensors))
            for name, array in tensors.items():
                stored = reader.tensor(prompt.id, name)
                assert stored.tobytes() == array.tobytes()
                assert (stored.dtype, stored.shape) == (array.dtype, array.shape)
                if array.ndim:
                    blocks = [block.tobytes() for block in reader.rows(prompt.id, name, 2)]
                    assert b"".join(blocks) == array.tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("whole") / "c"
    write_capture(path, shard_prompts=2)
    return path


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_a_flipped_bit_anywhere_is_noticed(whole, data):
    files = files_of(whole)
    name = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(0, len(files[name]) - 1))
    bit = data.draw(st.integers(0, 7))
    changed = bytearray(files[name])
    changed[at] ^= 1 << bit

    assert noticed(whole, name, bytes(changed)), f"{name} byte {at} bit {bit}"


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_a_file_cut_anywhere_is_noticed(whole, data):
    files = files_of(whole)
    name = data.draw(st.sampled_from(sorted(files)))
    # The newline that ends the manifest carries nothing.
    end = data.draw(st.integers(0, len(files[name].rstrip(b"\n")) - 1))

    assert noticed(whole, name, files[name][:end]), f"{name} cut at byte {end}"


def noticed(whole: Path, name: str, content: bytes) -> bool:
    """Whether the capture with this content of one file is refused, in its own words."""
    with folder() as path:
        shutil.copytree(whole, path)
        (path / name).write_bytes(content)
        try:
            open_capture(path, label="cand")
        except CaptureError as err:
            return str(err).startswith("cand: ")
        return False
