"""The docs cannot drift: what exists is documented, and what is documented exists."""

import importlib.util
import inspect
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from _pytest.config.argparsing import Parser

from validate.capture.project import load_project
from validate.capture.targets import parse_target
from validate.cli.app import app
from validate.faults import FAULT_SIDES, FAULTS
from validate.metrics import METRICS
from validate.pytest_plugin import pytest_addoption
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


HEADINGS = [
    "Formula",
    "How to read it",
    "Limits",
    "Undefined when",
    "Why",
    "Planted faults",
    "Source",
]
"""What every page of a metric tells, in this order; others may stand between."""
NOT_SHIPPED = {"greedy.hazard_ratio": ("ratio", "prompts")}
"""Metrics that no shipped suite gates, with what they measure."""


def judged() -> dict[str, tuple[str, str]]:
    """Unit of each gated metric, and what its n counts, as the golden report measures them."""
    report = json.loads(read("golden/reports/default.json"))
    found = [gate["measurement"] for gate in report["gates"] if gate["measurement"]]
    return {one["metric"]: (one["unit"], one["n_of"]) for one in found} | NOT_SHIPPED


def kinds(metric: str) -> set[str]:
    """Kinds of the gates that hold a metric, over all suites."""
    suites = [tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "suites").glob("*.toml")]
    gates = [gate for suite in suites for gate in suite["gates"]]
    return {gate["kind"] for gate in gates if gate.get("metric", gate["name"]) == metric}


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_page_of_a_metric_is_complete(metric: str) -> None:
    page = read(f"docs/metrics/{metric}.md")

    headings = re.findall(r"^## (.*)$", page, re.M)
    assert [name for name in headings if name in HEADINGS] == HEADINGS
    for name in HEADINGS:
        assert section(page, name).strip(), name
    assert "It does not see: " in section(page, "Limits")
    assert page.splitlines()[2].startswith("**Measures** ")
    assert not {"TODO", "TBD"} & set(page.split())


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_page_of_a_metric_tells_unit_sample_and_gate_kind(metric: str) -> None:
    page = read(f"docs/metrics/{metric}.md")
    row = re.search(
        r"^\| unit \| n counts \| gate kind \|\n\|---\|---\|---\|\n\| (.*) \|$", page, re.M
    )
    assert row, "no table of unit, n and gate kind"
    unit, counts, kind = (cell.replace("&#124;", "|") for cell in row.group(1).split(" | "))

    said, n_of = judged()[metric]
    assert unit == said
    assert n_of.startswith(counts.partition(" of the ")[0])
    assert set(re.findall(r"\[`(\w+)`\]\(\.\./gates\.md#kinds\)", kind)) == kinds(metric) or (
        metric in NOT_SHIPPED and "in no shipped suite" in kind
    )
    limits = section(page, "Limits")
    assert all(f"`{one}` gate" in limits for one in kinds(metric))


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


PROGRAMS = ("validate", "make", "pytest", "python")
"""Programs whose command lines are held against their real parsers."""


def commands_of(block: str) -> Iterator[str]:
    """Every command of ours in a code block: workflow steps, chains and venv paths among them."""
    for line in block.replace("\\\n", " ").splitlines():
        plain = re.sub(r"^(- )?(run|command): ", "", line.strip())
        for part in re.split(r"&&|\|\||;|>>?|<|\|", plain.partition("  #")[0]):
            words = part.strip().removeprefix(".venv/bin/").removeprefix("$ ")
            if words.partition(" ")[0] in PROGRAMS and not words.startswith("python -c"):
                yield words


def snippet_lines() -> list[str]:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return sorted({line for block in blocks for line in commands_of(block)})


def parse_pytest(words: list[str], config: pytest.Config) -> None:
    """Parse a command line of pytest with its own parser; our options with our plugin's."""
    ours = Parser(_ispytest=True)
    pytest_addoption(ours)
    names = {name for group in ours._groups for option in group.options for name in option.names()}
    theirs = list(words)
    for option in [word for word in words if word.startswith("--validate-")]:
        assert option in names
        at = theirs.index(option)
        del theirs[at : at + 2]
    given, unknown = config._parser.parse_known_and_unknown_args(theirs)
    assert unknown == []
    assert [path for path in given.file_or_dir if not (ROOT / path.split("::")[0]).exists()] == []


def parse(words: list[str]) -> None:
    """Parse a command line of ``validate`` as the program does, and run nothing."""
    context = typer.main.get_command(app)
    while words:
        inner = getattr(context, "commands", None)
        if inner is None:
            break
        assert words[0] in inner, f"no command {words[0]}"
        context, words = inner[words[0]], words[1:]
    context.make_context("validate", list(words))


@pytest.mark.parametrize("line", snippet_lines())
def test_command_lines_in_the_docs_could_be_typed(line: str, pytestconfig: pytest.Config) -> None:
    words = shlex.split(line)
    if words[0] == "python" and words[1:3] == ["-m", "pytest"]:
        words = words[2:]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", read("Makefile"), re.M)
    elif words[0] == "pytest":
        parse_pytest(words[1:], pytestconfig)
    elif words[0] == "python":
        assert words[1] == "-m"
        assert importlib.util.find_spec(words[2]) is not None
    else:
        parse(words[1:])
    for option, value in itertools.pairwise(words):
        name = option.removeprefix("--validate-").removeprefix("--")
        if option.startswith("--") and name in {"ref", "cand", "target"} and "/" not in value:
            parse_target(value, PROJECT, faults=FAULT_SIDES)


def inline() -> list[str]:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    return sorted(set(re.findall(r"`(validate [a-z][^`\n]*)`", text)))


@pytest.mark.parametrize("line", inline())
def test_command_named_in_prose_exists_with_its_options(line: str) -> None:
    words = re.split(r"[ \[\]|=]+", line)[1:]
    name = " ".join(words[:2]) if " ".join(words[:2]) in commands() else words[0]
    below = {
        option
        for one, held in commands().items()
        if one.startswith(f"{name} ")
        for option in options(held)
    }

    assert name in commands() or below or name == "golden"
    known = options(commands()[name]) if name in commands() else below
    assert {word for word in words if word.startswith("--")} - known - {"--help"} == set()


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
