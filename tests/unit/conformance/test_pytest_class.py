"""The class to inherit: a test a sweep point, red where a clause is broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.conformance import tiny
from validate.conformance.pytest_class import ConformanceSuite

ROOT = Path(__file__).parents[3]

MODULE = """
from tests.unit.conformance import tiny
from validate.conformance.pytest_class import ConformanceSuite


class TestRight(ConformanceSuite):
    op = "tests.unit.conformance.tiny:OPERATION"
    implementation = tiny.right


class TestLateHeads(ConformanceSuite):
    op = "tests.unit.conformance.tiny:OPERATION"
    implementation = "tests.unit.conformance.tiny:late_heads"


class TestMinus(ConformanceSuite):
    op = "tests.unit.conformance.tiny:OPERATION"
    implementation = staticmethod(tiny.negated)
    contract = {"sign": "minus"}
"""


class TestInherited(ConformanceSuite):
    """The class at work in this very suite."""

    op = tiny.OPERATION
    implementation = tiny.right


def pytest_on(folder: Path, text: str, *options: str) -> tuple[int, str]:
    (folder / "test_mine.py").write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", *options, "test_mine.py"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_each_point_is_a_test_and_broken_ones_say_the_clause(tmp_path: Path) -> None:
    code, said = pytest_on(tmp_path, MODULE)

    assert code == 1
    assert "6 failed, 48 passed" in said
    assert "TestLateHeads::test_sweep_point[B1-H16-s0]" in said
    assert "double, point B1-H16-s0: tests.unit.conformance.tiny:late_heads breaks" in said
    assert "  rerun: validate conformance --case " in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("op = 'tests.unit.conformance.tiny:NOTHING'", "the quick sweep has no point"),
        ("op = 'dubble'", "no such operation"),
        ("pass", "op is missing"),
    ],
)
def test_class_that_would_test_nothing_is_an_error(tmp_path: Path, body: str, text: str) -> None:
    lines = [
        "from tests.unit.conformance import tiny",
        "from validate.conformance.pytest_class import ConformanceSuite",
        "class TestMine(ConformanceSuite):",
        f"    {body}",
        "    implementation = tiny.right",
    ]
    code, said = pytest_on(tmp_path, "\n".join(lines))

    assert code not in {0, 5}
    assert text in said
