"""The guide for kernel authors, followed to the letter: every block it shows is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
PROGRAM = Path(sys.executable).with_name("validate")

pytestmark = [pytest.mark.slow, pytest.mark.meta, pytest.mark.long]


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == kind]


def run(folder: Path, command: str, *, errors: bool = True) -> tuple[int, str]:
    words = command.split()
    program = {"validate": [str(PROGRAM)], "python": [sys.executable]}[words[0]]
    done = subprocess.run(
        [*program, *words[1:]],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + (done.stderr if errors else "")


def same_every_time(line: str) -> bool:
    """Whether a line of the page holds no time or machine."""
    return not line.strip().startswith(("ran ", "device "))


def fixed(text: str) -> list[str]:
    """Lines of an expected or a printed output that hold no time or machine."""
    return [line for line in text.splitlines() if same_every_time(line)]


def test_the_guide_holds_word_for_word(tmp_path: Path) -> None:
    kernel, correction, suite, call = blocks("python")
    sweep = blocks("")[0].strip()
    first, second = blocks("text")
    path = tmp_path / "my_kernels.py"

    path.write_text(kernel, "utf-8")
    code, said = run(tmp_path, sweep, errors=False)
    assert code == 1
    assert fixed(said) == fixed(first), "the page shows every line that is printed"

    rerun = re.findall(r"rerun: (.*)", first)[0]
    assert run(tmp_path, rerun)[0] == 1
    head = kernel.partition('sum."""\n')
    path.write_text(head[0] + head[1] + correction, "utf-8")
    assert run(tmp_path, rerun)[0] == 0
    code, said = run(tmp_path, sweep, errors=False)
    assert code == 1
    assert fixed(said) == fixed(second)

    summed = ".sum(dim=-1, keepdim=True)"
    path.write_text(path.read_text("utf-8").replace(summed, f"{summed}.clamp(min=1e-30)"), "utf-8")
    assert run(tmp_path, sweep)[0] == 0

    (tmp_path / "test_my_kernels.py").write_text(suite, "utf-8")
    code, said = run(tmp_path, "python -m pytest test_my_kernels.py -p no:cacheprovider")
    assert code == 0, said
    count = re.findall(r"runs (\d+) tests", PAGE)[0]
    assert f"{count} passed" in said
    (tmp_path / "call.py").write_text(call, "utf-8")
    assert run(tmp_path, "python call.py")[0] == 0
