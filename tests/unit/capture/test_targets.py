"""Target syntax: every form is read, and everything unknown is refused with a hint."""

from pathlib import Path

import pytest

from validate.capture.project import Project, find_project, load_project
from validate.capture.targets import did_you_mean, parse_target
from validate.errors import InputError

ROOT = Path(__file__).parents[3]
FAULTS = {"VX-01": "cand", "LC-01": "cand", "RF-01": "ref"}


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(ROOT / "validate.toml")


def refused(text: str, project: Project) -> str:
    with pytest.raises(InputError) as caught:
        parse_target(text, project, faults=FAULTS)

    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("text", ["cuda", "cuda-repeat", "cuda-repeat-2", "oracle"])
def test_golden_names_lead_to_their_folders(text: str, project: Project) -> None:
    target = parse_target(text, project, faults=FAULTS)

    assert (target.kind, target.name, target.path) == ("golden", text, None)
    assert target.folder is not None
    assert target.folder.resolve() == ROOT / "golden" / "k3-nano" / text


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("rocm", {}),
        ("rocm:pad=tile", {"pad": "tile"}),
        (
            "rocm:pad=repeat,prefill=fp8-fnuz,state=bf16,kernels=torch,weights=seed2,draft=off,splits=4",
            {
                "pad": "repeat",
                "prefill": "fp8-fnuz",
                "state": "bf16",
                "kernels": "torch",
                "weights": "seed2",
                "draft": "off",
                "splits": "4",
            },
        ),
        ("rocm:fault=LC-01", {"fault": "LC-01"}),
        (
            "reference:fault=RF-01,weights=seed1,dtype=float64,splits=2,batch=3,chunk=7,state=bf16",
            {
                "fault": "RF-01",
                "weights": "seed1",
                "dtype": "float64",
                "splits": "2",
                "batch": "3",
                "chunk": "7",
                "state": "bf16",
            },
        ),
    ],
)
def test_paths_that_run_here_keep_their_keys(
    text: str, options: dict[str, str], project: Project
) -> None:
    target = parse_target(text, project, faults=FAULTS)

    assert (target.kind, target.options, target.text) == ("torch", options, text)
    assert target.path == text.partition(":")[0]
    assert target.folder is None


def test_text_with_a_slash_is_a_folder(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    target = parse_target("runs/x", project, faults=FAULTS)

    assert (target.kind, target.name, target.folder) == ("folder", "runs/x", Path("runs/x"))


def test_existing_folder_without_a_slash_wins_over_a_name(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rocm").mkdir()
    monkeypatch.chdir(tmp_path)

    assert parse_target("rocm", project, faults=FAULTS).kind == "folder"


def test_missing_folder_names_its_nearest_sibling(tmp_path: Path, project: Project) -> None:
    (tmp_path / "rocm-tile").mkdir()

    text = refused(f"{tmp_path}/rocm-tiel", project)

    assert "no such folder" in text
    assert f"did you mean '{tmp_path}/rocm-tile'?" in text
    assert f"validate capture --target NAME --out {tmp_path}/rocm-tiel" in text


def test_servers_are_refused_until_they_are_built(project: Project) -> None:
    text = refused("http://localhost:30000", project)

    assert text.startswith("target 'http://localhost:30000': servers are not built yet")
    assert "known  : oracle, cuda, cuda-repeat" in text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("rcm", ["no target is named 'rcm'", "did you mean 'rocm'?", "known  : oracle, cuda"]),
        ("ROCm", ["names are lower-case letters", "did you mean 'rocm'?"]),
        ("", ["no target is named ''"]),
        ("zzzzzz", ["no target is named 'zzzzzz'\n", "known  : oracle"]),
        ("rocm:pda=tile", ["rocm has no key 'pda'; did you mean 'pad'?", "pad, fault, prefill"]),
        ("cuda:pad=zero", ["cuda has no key 'pad'", "known keys of cuda: (none)"]),
        ("rocm:pad=tlie", ["pad='tlie' is unknown; did you mean 'tile'?", "zero, tile, repeat"]),
        ("rocm:draft=dspark", ["draft='dspark' is unknown", "known values of draft: off"]),
        ("rocm:pad", ["'pad' is not key=value"]),
        ("rocm:pad=", ["'pad=' is not key=value"]),
        ("rocm:", ["'' is not key=value"]),
        ("rocm:pad=zero,,state=bf16", ["'' is not key=value"]),
        ("rocm:pad=zero,pad=tile", ["the key 'pad' is given twice"]),
        ("rocm:splits=0", ["splits='0' is no integer from 1 to 999999"]),
        ("rocm:splits=-1", ["splits='-1' is no integer"]),
        ("rocm:splits=1e3", ["splits='1e3' is no integer"]),
        ("rocm:splits=1000000", ["splits='1000000' is no integer"]),
        ("rocm:fault=VX-1", ["fault='VX-1' is unknown here; did you mean 'VX-01'?"]),
        ("rocm:fault=RF-01", ["(it is planted in ref, not in cand)", "VX-01, LC-01"]),
        ("reference:fault=VX-01", ["(it is planted in cand, not in ref)", "planted in ref: RF-01"]),
    ],
)
def test_unknown_parts_are_refused_with_all_that_is_known(
    text: str, parts: list[str], project: Project
) -> None:
    said = refused(text, project)

    assert said.startswith(f"target '{text}': ")
    for part in parts:
        assert part in said


def test_hint_is_empty_when_nothing_is_near() -> None:
    assert did_you_mean("qqqq", ["zero", "tile"]) == ""


def test_targets_import_no_framework() -> None:
    import subprocess
    import sys

    code = (
        "import validate.capture.targets, validate.capture.resolve, sys;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_repeats_are_those_that_the_file_declares(project: Project) -> None:
    assert project.repeats("cuda") == (
        "cuda-repeat",
        "cuda-repeat-2",
        "cuda-repeat-3",
        "cuda-repeat-4",
    )
    assert project.repeats("rocm") == ()


def test_project_is_found_from_a_folder_below(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")

    assert find_project(below).root == tmp_path.resolve()


def test_project_beside_the_package_is_the_last_resort(tmp_path: Path) -> None:
    assert find_project(tmp_path).root.resolve() == ROOT


def test_paths_below_the_working_directory_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "validate.toml").write_text((ROOT / "validate.toml").read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_project(tmp_path / "validate.toml").suite == Path("suites/default.toml")

    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert find_project(Path.cwd()).suite == tmp_path.resolve() / "suites" / "default.toml"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schema_version = 1", "schema_version = 2"), "schema_version: Input should be 1"),
        (("schema_version = 1", "schema_version = ["), "not TOML"),
        (('suite = "', 'siute = "'), "suite: Field required"),
        (("[targets.rocm]", "[targets.ROCm]"), "should match pattern"),
        (('path = "rocm"', 'path = "hip"'), "targets.rocm.path is 'hip'"),
        (('repeat_of = "cuda"', 'repeat_of = "cdua"'), "repeat_of names no target: 'cdua'"),
    ],
)
def test_wrong_project_files_are_refused_by_key(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "validate.toml"
    text = (ROOT / "validate.toml").read_text("utf-8").replace(*change)
    if change[0] == "[targets.rocm]":
        text = text.replace("[targets.rocm.keys]", "[targets.ROCm.keys]")
    path.write_text(text, "utf-8")

    with pytest.raises(InputError) as caught:
        load_project(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_wrong_value_with_slashes_is_a_value_and_no_folder(project: Project) -> None:
    message = refused("rocm:pad=../../x", project)

    assert "pad='../../x' is unknown" in message
    assert "known values of pad: zero, tile, repeat" in message


@pytest.mark.parametrize("text", ["rocm:", "rocm:pad", "rocm:pad=tile,pad=zero"])
def test_what_is_no_list_of_keys_has_a_next_step(text: str, project: Project) -> None:
    assert "\n  do next: " in refused(text, project)


@pytest.mark.parametrize("text", ["n" * 300, f"{'n' * 300}/x", f"./{'n' * 300}"])
def test_name_that_no_system_holds_is_unknown(text: str, project: Project) -> None:
    assert refused(text, project).startswith(f"target '{text}': no ")
