"""An implementation in a process of its own: a hang, a crash or an exit is a finding.

The child imports the implementation and answers one call at a time over a pipe. It is
killed at the time limit, and a fresh one is started after a kill or a crash. Nothing
but ``validate.conformance.child`` is run, so a script that calls this needs no main guard.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from validate.capture.processes import child_environment, how_it_ended, start_child
from validate.conformance.guard import Broke
from validate.conformance.records import Breach, Settings
from validate.errors import InputError, ValidateError

__all__ = ["Isolated", "guarded"]

START_LIMIT = 180.0
"""Seconds a child may take to import torch and the implementation."""


class Isolated:
    """A call that runs in a child; ``start`` before the first call, ``close`` after the last."""

    def __init__(
        self, implementation: str, operation: str, settings: Settings, device: str, limit: float
    ) -> None:
        self._job = (implementation, operation, dict(settings), device)
        self._limit = limit
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self.lost = 0
        """How many children were killed at the limit or died."""
        self.waited = 0.0
        """Seconds spent on calls that were killed at the limit."""

    def close(self) -> None:
        """End the child."""
        self._stop()
        self._said.close()

    def __call__(self, inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """One call of the implementation.

        Raises:
            Broke: A general clause is broken; ``time`` and a crash replace the child.
        """
        pipe = self._pipe or self.start()
        try:
            pipe.send(dict(inputs))
            if not pipe.poll(self._limit):
                self.lost += 1
                self.waited += self._limit
                self._stop()
                what = f"a call had not returned after {self._limit:.4g} s and was killed"
                raise Broke(Breach(clause="time", what=what, ratio=None))
            kind, found = pipe.recv()
        except (EOFError, OSError) as error:
            self.lost += 1
            raise Broke(Breach(clause="returns", what=self._died())) from error
        if kind == "ended":
            self.lost += 1
            self._stop()
        if kind in {"broke", "ended"}:
            raise Broke(Breach(**found))
        if kind == "bug":
            msg = f"{self._job[1]}: the guards themselves raised {found}"
            raise ValidateError(msg)
        outputs: Mapping[str, np.ndarray] = found
        return outputs

    def start(self) -> Connection:
        """Start the child and give our end of its pipe.

        Raises:
            InputError: The implementation cannot be imported.
        """
        self._said.seek(0)
        self._said.truncate()
        environment = child_environment()
        environment.setdefault("OMP_NUM_THREADS", "1")
        self._process, ours = start_child(
            "-m", "validate.conformance.child", said=self._said, environment=environment
        )
        self._pipe = ours
        try:
            ours.send(self._job)
            if not ours.poll(START_LIMIT):
                self._stop()
                msg = f"{self._job[0]}: importing it took longer than {START_LIMIT:.4g} s"
                raise InputError(msg)
            kind, text = ours.recv()
        except (EOFError, OSError) as error:
            msg = f"{self._job[0]}: the process that imports it ended: {self._died()}"
            raise InputError(msg) from error
        if kind != "ready":
            self._stop()
            raise InputError(text)
        return ours

    def _died(self) -> str:
        """How the child ended, with the last words that it wrote."""
        process = self._process
        code = None if process is None else process.wait()
        self._stop()
        return f"the process {how_it_ended(code, self._said)}"

    def _stop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            # The whole group: what the implementation started goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._pipe = None


@contextlib.contextmanager
def guarded(
    implementation: str,
    operation: str,
    settings: Settings,
    *,
    device: str = "cpu",
    time_limit: float = 30.0,
) -> Iterator[Isolated]:
    """An implementation behind the general clauses, in a child process.

    Args:
        implementation: Registered name or ``module:function``, imported in the child.
        operation: Registered name or ``module:attribute`` of an ``Operation``.
        settings: Contract settings, every key present.
        device: ``cpu`` or ``cuda``.
        time_limit: Seconds a call may take before the child is killed.

    Raises:
        InputError: The implementation cannot be imported.
    """
    call = Isolated(implementation, operation, settings, device, time_limit)
    try:
        call.start()
        yield call
    finally:
        call.close()
