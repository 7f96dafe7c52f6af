"""Whatever stops a writer, what it leaves never passes for whole and can be taken up."""

import errno
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.captures import files_of, write_capture
from validate.capture import open_capture
from validate.errors import CaptureError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("whole") / "c"
    write_capture(path, shard_prompts=2)
    return files_of(path)


def run_python(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *args],
        check=False,
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.long
def test_a_kill_at_any_system_call(tmp_path):
    done = run_python(str(Path(__file__).with_name("crashing.py")), str(tmp_path))

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    # Counted by the script itself; only the last few calls come after the manifest is there.
    assert report["once"]["refused"] > 80
    assert 1 <= report["once"]["whole"] <= 6
    assert min(report["twice"].values()) >= 3
    assert report["renewals"] > report["once"]["refused"]


def fail_at(monkeypatch: pytest.MonkeyPatch, call: str, point: int, error: BaseException) -> None:
    """Make the ``point``-th call of ``os.<call>`` raise; a write writes half before it."""
    real = getattr(os, call)
    seen = itertools.count(1)

    def failing(*args: Any, **options: Any) -> Any:
        if next(seen) < point:
            return real(*args, **options)
        if call == "write":
            handle, data = args
            real(handle, bytes(data)[: len(bytes(data)) // 2])
        raise error

    monkeypatch.setattr(os, call, failing)


ENDS = {
    "full disk": ("write", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), CaptureError),
    "full disk at sync": ("fsync", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), CaptureError),
    "broken disk": ("replace", OSError(errno.EIO, os.strerror(errno.EIO)), CaptureError),
    "Ctrl-C at write": ("write", KeyboardInterrupt(), KeyboardInterrupt),
    "Ctrl-C at sync": ("fsync", KeyboardInterrupt(), KeyboardInterrupt),
    "Ctrl-C at rename": ("replace", KeyboardInterrupt(), KeyboardInterrupt),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_end_at_any_call(tmp_path, monkeypatch, whole, end):
    call, error, raised = ENDS[end]
    refused = 0
    for point in itertools.count(1):
        path = tmp_path / str(point)
        try:
            with monkeypatch.context() as patch:
                fail_at(patch, call, point, error)
                write_capture(path, shard_prompts=2)
            break
        except raised:
            pass
        left = files_of(path)
        assert not [name for name in left if name.endswith(".partial")]
        if "manifest.json" in left:
            assert {name: data for name, data in left.items() if name != "journal.jsonl"} == whole
        else:
            refused += 1
            with pytest.raises(CaptureError):
                open_capture(path, label="cand")
        write_capture(path, shard_prompts=2, resume=True)
        assert files_of(path) == whole

    assert refused >= 8


def test_the_message_of_a_full_disk(tmp_path, monkeypatch):
    # Journal; then of the shard: a header of 304 bytes, 20 bytes of positions, half of 20 more.
    fail_at(monkeypatch, "write", 4, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    with pytest.raises(CaptureError) as caught:
        write_capture(tmp_path / "c", shard_prompts=2)
    assert caught.value.exit_code == 4
    assert re.fullmatch(
        rf"rocm:pad=tile: {tmp_path}/c/shards/00000\.safetensors: No space left on device "
        r"\(ENOSPC\); 334 bytes were written; the capture is unfinished\n"
        r"  do next: free space or repair the disk, then "
        rf"validate capture --resume --target rocm:pad=tile --out {tmp_path}/c",
        str(caught.value),
    )


def test_the_kernels_own_refusal(tmp_path):
    """A limit on file size makes the kernel refuse, as a full disk does."""
    script = (
        "import resource, signal, pathlib, tests.captures as c;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600));"
        f"c.write_capture(pathlib.Path({str(tmp_path / 'c')!r}))"
    )
    done = run_python("-c", script)

    last = done.stderr.rstrip().splitlines()[-2:]
    assert "CaptureError: rocm:pad=tile: " in last[0]
    assert "File too large (EFBIG); 600 bytes were written" in last[0]
    assert not list(tmp_path.rglob("*.partial"))
    with pytest.raises(CaptureError):
        open_capture(tmp_path / "c", label="cand")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(CaptureError, match=r"Not a directory \(ENOTDIR\); 0 bytes were written"):
        write_capture(tmp_path / "file" / "c")


def test_a_failed_writer_takes_no_more(tmp_path, monkeypatch):
    from tests.captures import PROOF, TIMING, make_header, make_prompt, make_tensors
    from validate.capture import CaptureWriter

    prompts = [make_prompt(n) for n in range(2)]
    with CaptureWriter(tmp_path / "c", header=make_header(prompts), shard_prompts=1) as writer:
        with monkeypatch.context() as patch:
            fail_at(patch, "fsync", 1, OSError(errno.EIO, os.strerror(errno.EIO)))
            with pytest.raises(CaptureError, match=r"Input/output error \(EIO\)"):
                writer.add(prompts[0], make_tensors(prompts[0]), stream=None, batch_row=0)

        with pytest.raises(CaptureError, match="the writer is closed"):
            writer.add(prompts[1], make_tensors(prompts[1]), stream=None, batch_row=0)
        with pytest.raises(CaptureError, match="the writer is closed"):
            writer.close(path_proof=PROOF, timing=TIMING)
