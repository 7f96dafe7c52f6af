"""Arrays read lately: copies, a bound in bytes, and the oldest goes first."""

from functools import partial

import numpy as np
import pytest

from tests.captures import PROOF, make_header, make_prompt, make_tensors
from validate.capture import CaptureWriter, open_capture
from validate.capture.recent import KEPT_BYTES, Recent
from validate.errors import CaptureError


def reads(recent, keys, size=100):
    """Ask for ``keys`` in order; gives the keys that had to be read."""
    made = []

    def read(key):
        made.append(key)
        return np.full(size, ord(key), np.uint8)

    for key in keys:
        assert (recent.get(key, lambda key=key: read(key)) == ord(key)).all()
    return "".join(made)


def test_the_array_unused_for_longest_goes_first():
    """Room for eight of 100 bytes: a is used again before i comes, so b goes."""
    recent = Recent(800)

    assert reads(recent, "abcdefgh" + "a" + "i") == "abcdefghi"
    assert recent.nbytes == 800
    assert reads(recent, "acdefghi") == ""
    assert reads(recent, "b") == "b"


def test_callers_get_copies():
    recent = Recent(800)
    first = recent.get("a", lambda: np.zeros(3))
    first[:] = 7
    second = recent.get("a", lambda: np.ones(3))
    second[:] = 8

    assert recent.get("a", lambda: np.ones(3)).tolist() == [0, 0, 0]


def test_an_array_above_an_eighth_of_the_bound_is_not_kept():
    recent = Recent(800)

    assert reads(recent, "aa", size=101) == "aa"
    assert recent.nbytes == 0


@pytest.mark.parametrize("seed", range(5))
def test_never_more_bytes_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    recent = Recent(1000)

    for _ in range(300):
        size = 4 * int(rng.integers(40))
        recent.get(size, partial(np.zeros, size, np.uint8))
        assert recent.nbytes <= 1000


def test_a_tensor_is_read_from_disk_once(tmp_path):
    """What was read stays readable though the file is gone; what was not is refused."""
    prompts = [make_prompt(0), make_prompt(1)]
    with CaptureWriter(tmp_path / "c", header=make_header(prompts)) as writer:
        for row, prompt in enumerate(prompts):
            writer.add(prompt, make_tensors(prompt), stream=None, batch_row=row)
        writer.close(path_proof=PROOF, timing={})
    reader = open_capture(tmp_path / "c", label="cand")
    before = reader.tensor("p-000", "logits")
    reader.tensor("p-000", "logits")[:] = 0
    for file in (tmp_path / "c" / "shards").iterdir():
        file.unlink()

    assert (reader.tensor("p-000", "logits") == before).all()
    assert reader._recent.nbytes <= KEPT_BYTES
    with pytest.raises((OSError, CaptureError)):
        reader.tensor("p-001", "logits")
