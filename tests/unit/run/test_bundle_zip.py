"""The container of a bundle: nothing hostile is unpacked, and nothing leaves its folder."""

import io
import stat
import zipfile
from pathlib import Path

import pytest

from validate.errors import CaptureError, InputError
from validate.run import bundle_zip
from validate.run.bundle_zip import unpack, write_zip


def entry(name: str, kind: int = stat.S_IFREG, compress: int = zipfile.ZIP_STORED):
    made = zipfile.ZipInfo(name)
    made.external_attr = (kind | 0o644) << 16
    made.compress_type = compress
    return made


def hostile(*entries: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return stream.getvalue()


BOMB = (entry("a", compress=zipfile.ZIP_DEFLATED), bytes(10**7))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (hostile((entry("../escaped"), b"x")), "'../escaped' is no relative path"),
        (hostile((entry("a/../../escaped"), b"x")), "is no relative path inside the bundle"),
        (hostile((entry("/tmp/escaped"), b"x")), "'/tmp/escaped' is no relative path"),
        (hostile((entry("a\\..\\escaped"), b"x")), "is no relative path"),
        (hostile((entry("C:escaped"), b"x")), "is no relative path"),
        (hostile((entry("e\u0301"), b"x")), "is no relative path"),
        (hostile((entry("/".join("abcdefghi")), b"x")), "is cut short or too deep"),
        (hostile((entry("link", stat.S_IFLNK), b"/etc")), "'link' is no regular file but a link"),
        (hostile((entry("folder/"), b"")), "is no relative path"),
        (hostile((entry("pipe", stat.S_IFIFO), b"")), "is no regular file"),
        (hostile((entry("a"), b"1"), (entry("b"), b"2")).replace(b"b", b"a"), "stands there twice"),
        (hostile((entry("Aa"), b"1"), (entry("aA"), b"2")), "'aA' stands there twice"),
        (
            hostile((entry("a/b"), b"1"), (entry("A"), b"2")),
            "'a/b' lies below 'a', which is a file",
        ),
        (hostile(BOMB), r"own \d+ \('a' alone 10000000\): nothing in a bundle is compressed"),
        (
            hostile(
                (entry("a", compress=zipfile.ZIP_DEFLATED), b"xy" * 40), (entry("b"), b"x" * 99)
            ),
            r"'a' is compressed from 80 bytes to \d+",
        ),
        (b"", r"is no whole zip file but empty \(0 bytes\)\n  do next: copy or download it again"),
        (b"PK\3\4 and then nothing", "is no whole zip file: the next file's header was cut short"),
        (b"plain text", "is no zip file: it begins with b'plai'"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_container_is_refused_and_nothing_leaves_its_folder(
    made: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / "in" / "side").mkdir(parents=True)
    path = tmp_path / "hostile.zip"
    path.write_bytes(made)

    with pytest.raises(CaptureError, match=said):
        unpack(path, tmp_path / "in" / "side")

    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
    assert not Path("/tmp/escaped").exists()


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    """Many names on the same bytes: a bomb without compression."""
    names = [f"n{at:03d}" for at in range(50)]
    whole = bytearray(hostile(*((entry(name), bytes(5000)) for name in names)))
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        start = archive.start_dir
        size = archive.getinfo(names[0]).header_offset + 30 + 4 + 5000
    directory = bytes(whole[start:])
    moved = bytearray(whole[:size]) + directory
    end = len(moved) - 22
    moved[end + 16 : end + 20] = size.to_bytes(4, "little")
    for at in range(50):
        place = size + at * (46 + 4)
        moved[place + 42 : place + 46] = bytes(4)
    path.write_bytes(moved)

    with pytest.raises(CaptureError, match="have 250000 bytes, more than its own"):
        unpack(path, tmp_path)


def test_too_many_and_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, Path | bytes] = {f"f{at}": b"x" * 100 for at in range(11)}
    path = tmp_path / "many.zip"
    write_zip(path, files)
    monkeypatch.setattr(bundle_zip, "MOST_FILES", 10)

    with pytest.raises(CaptureError, match="holds 11 files of 1100 bytes in a container of"):
        unpack(path, tmp_path)
    with pytest.raises(InputError, match="would hold 11 files of 1100 bytes"):
        write_zip(path, files)
    monkeypatch.setattr(bundle_zip, "MOST_FILES", 20)
    monkeypatch.setattr(bundle_zip, "MOST_TEXT", 99)
    with pytest.raises(CaptureError, match="'f0' has 100 bytes; outside captures at most 99"):
        unpack(path, tmp_path)
    monkeypatch.setattr(bundle_zip, "MOST_BYTES", 1000)
    with pytest.raises(CaptureError, match="at most 20 files and 1000 bytes"):
        unpack(path, tmp_path)
