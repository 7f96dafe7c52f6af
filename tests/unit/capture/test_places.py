"""Where results will go is looked at before the work, and left as it was."""

from pathlib import Path

import pytest

from validate.capture.places import fit_file, fit_folder
from validate.errors import InputError


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("kept", "utf-8")
    (tmp_path / "full" / "report.json").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("name", ["full", "new", "new/a/b", "."])
def test_a_folder_that_takes_files_is_left_as_it_was(place: Path, name: str) -> None:
    before = left(place)

    fit_folder("--out", place / name)

    assert left(place) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file", "nothing can be written there (it is a file, no folder)"),
        ("file/below", "nothing can be written there (Not a directory)"),
        ("file/below/deeper", "nothing can be written there (Not a directory)"),
        ("full", "report.json is a folder there"),
    ],
)
def test_a_folder_that_takes_none_is_refused_with_the_option(
    place: Path, name: str, why: str
) -> None:
    before = left(place)
    with pytest.raises(InputError) as caught:
        fit_folder("--out", place / name, files=("report.md", "report.json"))

    assert str(caught.value) == (
        f"--out {place / name}: {why}; nothing was done\n  do next: name another folder with --out"
    )
    assert left(place) == before


def test_a_folder_of_the_system_is_refused() -> None:
    with pytest.raises(InputError, match=r"^--rows /proc/none: nothing can be written there"):
        fit_folder("--rows", Path("/proc/none"))


def test_a_link_to_nowhere_is_refused(place: Path) -> None:
    (place / "link").symlink_to(place / "nowhere")

    with pytest.raises(InputError, match="nothing can be written there"):
        fit_folder("--out", place / "link")


@pytest.mark.parametrize("name", ["file", "new.zip", "full/new.zip"])
def test_a_file_that_can_be_written_is_left_as_it_was(place: Path, name: str) -> None:
    before = left(place)

    fit_file("--bundle", place / name)

    assert left(place) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("full", "it is a folder"),
        ("none/new.zip", "there is no folder {place}/none"),
        ("file/new.zip", "there is no folder {place}/file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(place: Path, name: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        fit_file("--bundle", place / name)

    assert str(caught.value) == (
        f"--bundle {place / name}: {why.format(place=place)}; nothing was done\n"
        "  do next: name another file with --bundle"
    )


def test_nothing_asked_for_is_nothing_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    fit_folder("--out", None)
    fit_file("--out", None)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["n" * 300, f"new/{'n' * 300}/deep", "/".join(["n" * 200] * 30)])
def test_a_name_that_no_system_holds_is_refused(place: Path, name: str) -> None:
    """Also where the system would say so only once the folder above it is made."""
    with pytest.raises(
        InputError, match=r"--out .*nothing can be written there \(File name too long"
    ):
        fit_folder("--out", place / name)
    with pytest.raises(InputError, match=r"--bundle .*(File name too long|there is no folder)"):
        fit_file("--bundle", place / name)
