"""The pages of the contracts are those that the records give."""

from pathlib import Path

import pytest

from validate.conformance.pages import contract_page, index_page, main
from validate.conformance.registry import IMPLEMENTATIONS, OPERATIONS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "conformance"
ANEW = "write it anew: python -m validate.conformance.pages"

pytestmark = pytest.mark.meta


def test_index_and_files_name_every_operation() -> None:
    assert (PAGES / "README.md").read_text("utf-8") == index_page(), ANEW
    assert {path.stem for path in PAGES.glob("*.md")} == {"README", *OPERATIONS}, ANEW


@pytest.mark.parametrize("name", OPERATIONS)
def test_page_is_current(name: str) -> None:
    assert (PAGES / f"{name}.md").read_text("utf-8") == contract_page(name, OPERATIONS[name]), ANEW


@pytest.mark.parametrize("name", OPERATIONS)
def test_contract_says_what_a_caller_must_know(name: str) -> None:
    contract = OPERATIONS[name].contract

    assert contract.op == name
    assert contract.signature.startswith(f"{name}(")
    assert contract.outputs
    assert [clause for clause, text in contract.clauses.items() if not text.endswith(".")] == []


def test_implementations_belong_to_operations_and_are_told_apart() -> None:
    assert {one.op for one in IMPLEMENTATIONS} <= set(OPERATIONS)
    names = [(one.op, one.name) for one in IMPLEMENTATIONS]
    assert len(names) == len(set(names))


def test_pages_of_no_operation_are_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "validate.conformance.pages.OPERATIONS", {"lse_merge": OPERATIONS["lse_merge"]}
    )
    (tmp_path / "old.md").write_text("gone", "utf-8")

    main(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "lse_merge.md"]
