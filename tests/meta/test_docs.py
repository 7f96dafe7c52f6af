"""The docs cannot drift: what exists is documented, and what is documented exists."""

import inspect
import itertools
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from validate.capture.project import load_project
from validate.capture.targets import parse_target
from validate.cli.app import app
from validate.faults import FAULT_SIDES, FAULTS
from validate.metrics import METRICS
from validate.schema import EXIT_CODES
from validate.schema.suite import AREAS

pytestmark = pytest.mark.meta

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROJECT = load_project(ROOT / "validate.toml")


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def commands() -> dict[str, Any]:
    """Every command by its full name, groups opened up."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command
        else:
            found |= {f"{name} {below}": below_command for below, below_command in inner.items()}
    return found


def options(command: Any) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--") and name != "--help"
    }


def section(text: str, heading: str) -> str:
    """The part of a page below one heading."""
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading '## {heading}'"
    return found.group(1)


@pytest.mark.parametrize("name", sorted(commands()))
def test_command_has_its_section_and_each_option_a_line(name: str) -> None:
    text = section(read("docs/commands.md"), f"validate {name.partition(' ')[0]}")

    if " " in name:
        assert f"`validate {name}" in text
    for option in options(commands()[name]):
        assert re.search(rf"`[^`]*{option}\b", text), f"{option} of validate {name}"


@pytest.mark.parametrize("name", sorted(commands()))
def test_command_and_each_of_its_options_have_help(name: str) -> None:
    command = commands()[name]

    assert command.help
    assert len(options(command)) <= {"compare": 13}.get(name, 12)
    assert [p.name for p in command.params if not getattr(p, "help", "")] == []


def test_commands_page_names_no_option_that_is_not_there() -> None:
    page = read("docs/commands.md")
    known = set().union(*(options(command) for command in commands().values()))

    assert set(re.findall(r"--[a-z][a-z-]+", page)) - known == {"--help", "--traceback"}


@pytest.mark.parametrize("code", [*sorted(EXIT_CODES.values()), 2, 70, 130])
def test_exit_code_is_documented(code: int) -> None:
    assert re.search(rf"^\| {code} \|", section(read("docs/commands.md"), "Exit codes"), re.M)
    assert re.search(rf"\b{code}\b", section(read("README.md"), "What you read"))


@pytest.mark.parametrize("name", sorted(PROJECT.targets))
def test_target_is_documented_with_every_key_and_value(name: str) -> None:
    page = read("docs/targets.md")
    entry = PROJECT.targets[name]

    assert f"`{name}`" in page
    for key, rule in entry.keys.items():
        line = re.search(rf"^\| `{key}` \|([^|]*)\|", page.split(f"`{name}` is")[-1], re.M)
        assert line, f"key {key} of {name}"
        values = () if isinstance(rule, str) else rule
        assert [value for value in values if f"`{value}`" not in line.group(1)] == []


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_metric_is_documented_and_says_what_it_is(metric: str) -> None:
    assert read(f"docs/metrics/{metric}.md").startswith(f"# `{metric}`\n")
    assert f"[`{metric}`]({metric}.md)" in read("docs/metrics/README.md")
    assert inspect.getdoc(METRICS[metric])


@pytest.mark.parametrize("suite", sorted((ROOT / "suites").glob("*.toml")))
def test_gate_is_documented(suite: Path) -> None:
    pages = read("docs/gates.md") + read("docs/metrics/README.md")
    gates = [gate["name"] for gate in tomllib.loads(suite.read_text("utf-8"))["gates"]]

    assert [name for name in gates if f"`{name}`" not in pages] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "capture-format.md"],  # names tensors, not gates
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_names_no_gate_that_is_not_there(page: Path) -> None:
    suite = tomllib.loads(read("suites/default.toml"))
    branches = {"renorm.all", "renorm.exactly_k"}  # of the path proof, as docs/model.md lists them
    known = {gate["name"] for gate in suite["gates"]} | set(METRICS) | branches
    named = re.findall(rf"`((?:{'|'.join(AREAS)})\.[a-z0-9_]+)`", page.read_text("utf-8"))

    assert set(named) - known == set()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_fault_is_documented_with_its_side_and_gates(fault: str) -> None:
    text = section(read("docs/faults.md"), fault)

    assert f"where = {FAULTS[fault].where}" in text
    assert [gate for gate in FAULTS[fault].gates if f"`{gate}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        assert target.exists(), f"{page.name}: {link}"
        headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.M) if anchor else []
        slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
        assert not anchor or anchor in slugs, f"{page.name}: {link}"


def snippet_lines() -> list[str]:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith(("validate ", "make "))})


@pytest.mark.parametrize("line", snippet_lines())
def test_command_lines_in_the_docs_could_be_typed(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", read("Makefile"), re.M)
        return
    name = " ".join(words[1:3]) if " ".join(words[1:3]) in commands() else words[1]
    assert name in commands(), line
    assert {word for word in words if word.startswith("--")} <= options(commands()[name])
    for option, value in itertools.pairwise(words):
        if option in {"--ref", "--cand", "--target"} and "/" not in value:
            parse_target(value, PROJECT, faults=FAULT_SIDES)


def test_readme_shows_the_two_commands() -> None:
    assert {"make demo", "make test"} <= set(snippet_lines())


def test_readme_shows_the_gates_and_limits_of_today() -> None:
    gates = tomllib.loads(read("suites/default.toml"))["gates"]
    limits = tomllib.loads(read("golden/tolerances.toml"))
    rows = re.findall(r"^\|PASS +\| (\S+) +\| \S+ \S+ +\| (\S+) ", read("README.md"), re.M)

    assert f"at the stated confidence ({len(gates)} gates)" in read("README.md")
    assert len(rows) == 2
    for name, limit in rows:
        area, metric = name.split(".")
        assert limit == f"{limits[area][metric]['bfloat16']['value']:.4g}", name


def test_every_page_is_reached_from_the_index() -> None:
    def linked(page: Path) -> set[Path]:
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
        return {(page.parent / link).resolve() for link in links if "://" not in link}

    found = {ROOT / "docs" / "README.md"}
    for _ in range(2):
        found |= {link for page in found for link in linked(page) if link.suffix == ".md"}

    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - found == set()
