"""The committed eval tasks: what their generator makes, the same on every call."""

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

TASKS = Path("suites/tasks")
NAMES = sorted(path.stem for path in TASKS.rglob("*.yaml"))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_tasks", TASKS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Made-up text in the place of the held-out books and pages."""
    rng = random.Random(5)
    for name in ("books", "pages"):
        words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(4000)]
        (tmp_path / f"heldout-{name}.bin").write_text(" ".join(words))
    return tmp_path


def test_two_calls_write_the_same_bytes(generator: ModuleType, text: Path, tmp_path: Path) -> None:
    for out in ("one", "two"):
        generator.main(text, tmp_path / out)

    one, two = (
        {p.relative_to(tmp_path / out): p.read_bytes() for p in (tmp_path / out).rglob("*.*")}
        for out in ("one", "two")
    )
    assert one == two
    assert len(one) == 11 + 9


def test_tasks_without_text_are_the_committed_ones(
    generator: ModuleType, text: Path, tmp_path: Path
) -> None:
    generator.main(text, tmp_path / "out")

    for name in ("k3_add3", "k3_sort", "k3_brackets", "k3_copy"):
        made = (tmp_path / "out/data" / f"{name}.jsonl").read_bytes()
        assert made == (TASKS / "data" / f"{name}.jsonl").read_bytes(), name
    for path in TASKS.rglob("*.yaml"):
        made = (tmp_path / "out" / path.relative_to(TASKS)).read_bytes()
        assert made == path.read_bytes(), path


def test_every_task_has_at_least_500_distinct_documents() -> None:
    for path in (TASKS / "data").glob("*.jsonl"):
        lines = path.read_text().splitlines()
        assert len(set(lines)) >= 500, path
        for line in lines:
            json.loads(line)


def test_answers_follow_from_what_is_asked() -> None:
    """Arithmetic and order are checked anew here, not by the generator."""
    for line in (TASKS / "data/k3_add3.jsonl").read_text().splitlines():
        doc = json.loads(line)
        one, other = doc["ask"].removesuffix("=").split("+")
        assert int(one) + int(other) == int(doc["answer"])
    for line in (TASKS / "data/k3_sort.jsonl").read_text().splitlines():
        doc = json.loads(line)
        assert "".join(sorted(doc["ask"][5:-1])) == doc["answer"]
    for distance in (24, 128, 320):
        for line in (TASKS / f"data/k3_recall{distance}.jsonl").read_text().splitlines():
            doc = json.loads(line)
            key = doc["ask"].rpartition("get ")[2].removesuffix("=")
            assert f"set {key}={doc['answer']}\n" in doc["ask"]


def test_there_are_six_kinds_and_variants_by_shots_and_length() -> None:
    assert NAMES == [
        "k3_add3",
        "k3_add3_fewshot1",
        "k3_add3_fewshot4",
        "k3_brackets",
        "k3_continue",
        "k3_copy",
        "k3_recall128",
        "k3_recall24",
        "k3_recall320",
        "k3_sort",
        "k3_text",
    ]
