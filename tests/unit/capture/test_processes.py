"""Processes of ours: their environment, how their end is told, and that they end with us."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from validate.capture.processes import ROOT, child_environment, how_it_ended, start_child


@pytest.mark.parametrize(
    ("before", "expected"),
    [(None, ()), ("", ()), ("/one:/two", ("/one", "/two")), (":/one::", ("/one",))],
)
def test_our_folder_comes_first_and_no_empty_entry_names_the_working_directory(
    monkeypatch, before, expected
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)

    made = child_environment()

    assert made["PYTHONPATH"] == os.pathsep.join((str(ROOT), *expected))
    assert made.keys() == {*os.environ, "PYTHONPATH"}
    assert (ROOT / "validate" / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("code", "wrote", "expected"),
    [
        (-9, "", "died of SIGKILL"),
        (-11, "first\nlast\n", "died of SIGSEGV; it last wrote: last"),
        (3, " \n", "ended with exit code 3"),
        (0, "x" * 401, "ended with exit code 0; it last wrote: " + "x" * 400),
    ],
)
def test_an_end_is_told_with_the_last_words(code, wrote, expected):
    with tempfile.TemporaryFile() as said:
        said.write(wrote.encode())

        assert how_it_ended(code, said) == expected


def test_a_child_gets_its_end_of_the_pipe_and_a_session_of_its_own():
    answer = (
        "import os, sys; from multiprocessing.connection import Connection; print('said');"
        "Connection(int(sys.argv[2])).send((sys.argv[1], os.getsid(0) == os.getpid()))"
    )
    with tempfile.TemporaryFile() as said:
        child = start_child("-c", answer, "word", said=said)

        assert child.pipe.recv() == ("word", True)
        assert how_it_ended(child.process.wait(), said).endswith("code 0; it last wrote: said")
        child.pipe.close()


ORPHAN = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c",
    "import time; from validate.capture.processes import die_with_parent\\n"
    "die_with_parent(); print('set', flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is of Linux")
def test_a_child_does_not_outlive_a_parent_that_is_killed():
    told = subprocess.run(
        [sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert told.returncode == -signal.SIGKILL, told.stderr
    status = Path(f"/proc/{told.stdout.strip()}/stat")
    for _ in range(100):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child is still there after 5 s")
