"""The process in which a guarded implementation runs: imports it, answers calls over a pipe."""

import contextlib
import os
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection

from validate.capture.processes import die_with_parent

__all__ = ["main"]


def main(descriptor: int) -> int:
    """Serve calls until the pipe is closed.

    Args:
        descriptor: Open file descriptor of the pipe.

    Returns:
        Exit code of the process, 0.
    """
    die_with_parent()
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  a module in the working directory is importable
    with Connection(descriptor) as pipe, contextlib.suppress(EOFError):
        _serve(pipe)
    return 0


def _serve(pipe: Connection) -> None:
    import torch

    from validate.conformance.guard import Broke, direct
    from validate.conformance.registry import find_implementation, find_operation
    from validate.errors import InputError

    torch.set_num_threads(1)
    wanted, op, settings, device = pipe.recv()
    try:
        operation = find_operation(op)
        implementation = find_implementation(wanted, operation.contract.op)
    except InputError as error:
        pipe.send(("cannot", str(error)))
        return
    call = direct(implementation.function, operation, settings, device=device)
    pipe.send(("ready", None))
    while True:
        inputs = pipe.recv()
        try:
            pipe.send(("gave", dict(call(inputs))))
        except Broke as broke:
            if not _usable(device):
                pipe.send(("ended", asdict(broke.breach)))
                return
            pipe.send(("broke", asdict(broke.breach)))
        except Exception as error:  # noqa: BLE001  ours, not the implementation's: told as such
            pipe.send(("bug", f"{type(error).__name__}: {error}"))


def _usable(device: str) -> bool:
    """Whether the device still works: an illegal access spoils it for the whole process."""
    import torch

    try:
        if device != "cpu":
            torch.ones(1, device=device).add_(1).cpu()
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
