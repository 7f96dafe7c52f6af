"""Kill a writing process at its every system call; run by test_crash.py, prints one JSON object.

Each round forks a writer that counts its calls of open, write, fsync, rename
and unlink and kills itself with SIGKILL before the n-th (a write half done
first). What it leaves must be refused or be whole, and taking it up must give
the bytes of a writer that nobody stopped.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.captures import files_of, write_capture
from validate.capture import open_capture
from validate.errors import CaptureError

CALLS = ("open", "write", "fsync", "replace", "unlink")


def kill_before(point: int) -> None:
    """Make this process kill itself before its ``point``-th system call, counted from 1."""
    seen = itertools.count(1)

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            if next(seen) == point:
                if name == "write":
                    handle, data = args
                    call(handle, bytes(data)[: len(bytes(data)) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return wrapper

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


def in_child(work: Callable[[], object]) -> bool:
    """Run ``work`` in a fork; True when it was killed, False when it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as err:  # noqa: BLE001  (a fork must never come back)
            sys.stderr.write(f"{err!r}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status) != 0:
        sys.exit("a writer failed by itself")
    return False


def write(path: Path, point: int | None) -> None:
    if point is not None:
        kill_before(point)
    write_capture(path, resume=True, shard_prompts=2)


def refused(path: Path, whole: dict[str, bytes]) -> bool:
    """Whether what a killed writer left is refused; if not, it must be whole."""
    try:
        open_capture(path, label="killed")
    except CaptureError:
        return True
    left = {name: data for name, data in files_of(path).items() if name != "journal.jsonl"}
    if left != whole:
        sys.exit(f"{path} passes for whole and is not: {sorted(left)}")
    return False


def one_kill(root: Path, whole: dict[str, bytes]) -> dict[str, int]:
    """Kill at every point, then take up."""
    counts = {"refused": 0, "whole": 0}
    for point in itertools.count(1):
        path = root / f"once-{point}"
        if not in_child(partial(write, path, point)):
            return counts
        counts["refused" if refused(path, whole) else "whole"] += 1
        in_child(partial(write, path, None))
        if files_of(path) != whole:
            sys.exit(f"taken up after a kill at call {point}, the bytes differ")
    raise AssertionError


def two_kills(root: Path, whole: dict[str, bytes], first: int) -> int:
    """Kill at ``first``, then kill the process that takes it up at its every point."""
    for point in itertools.count(1):
        path = root / f"twice-{first}-{point}"
        in_child(partial(write, path, first))
        if not in_child(partial(write, path, point)):
            return point - 1
        refused(path, whole)
        in_child(partial(write, path, None))
        if files_of(path) != whole:
            sys.exit(f"taken up after kills at calls {first} and {point}, the bytes differ")
    raise AssertionError


def renewal_kills(root: Path, whole: dict[str, bytes]) -> int:
    """Damage a whole capture, then kill the process that renews it at its every point."""
    for point in itertools.count(1):
        path = root / f"renewal-{point}"
        write(path, None)
        shard = path / "shards" / "00000.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1] + b"?")
        if not in_child(partial(write, path, point)):
            return point - 1
        refused(path, whole)
        in_child(partial(write, path, None))
        if files_of(path) != whole:
            sys.exit(f"renewed after a kill at call {point}, the bytes differ")
    raise AssertionError


def main(root: Path) -> None:
    write_capture(root / "whole", shard_prompts=2)
    whole = files_of(root / "whole")
    counts = one_kill(root, whole)
    last = counts["refused"]
    twice = {first: two_kills(root, whole, first) for first in (last // 2, last)}
    renewals = renewal_kills(root, whole)
    sys.stdout.write(json.dumps({"once": counts, "twice": twice, "renewals": renewals}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
