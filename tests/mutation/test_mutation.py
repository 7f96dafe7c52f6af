"""The mutation check itself: what it bends, what it leaves alone, and a sample of it."""

import json
import subprocess
import sys
from pathlib import Path

import parso
import pytest
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import MutationVisitor

from tests.mutation.choice import EXCLUSIONS, OPERATORS, excluded, operator
from tests.mutation.mutants import ROOMS, ROOT, files_of, mutants_of, shuffled
from tests.mutation.report import Results, read, score, survivors_explained, tell

SAMPLE = 12
SEED = 1


def bent(source, name):
    """Every mutant of ``source`` under one operator that no rule leaves out."""
    found, occurrence = [], -1
    for node in ast_nodes(parso.parse(source)):
        for _ in operator(name).mutation_positions(node):
            occurrence += 1
            if excluded(node, name) is None:
                visitor = MutationVisitor(occurrence, operator(name))
                found.append(visitor.walk(parso.parse(source)).get_code())
    return found


def left_out(source, name):
    return [
        excluded(node, name)
        for node in ast_nodes(parso.parse(source))
        for _ in operator(name).mutation_positions(node)
    ]


def test_a_comparison_is_moved_by_its_boundary_and_turned():
    assert bent("a < b\n", "ReplaceComparisonOperator_Lt_LtE") == ["a <= b\n"]
    assert bent("a < b\n", "ReplaceComparisonOperator_Lt_GtE") == ["a >= b\n"]


@pytest.mark.parametrize(
    ("source", "name", "rule"),
    [
        ("def f(a: int | None): pass\n", "ReplaceBinaryOperator_BitOr_BitAnd", "annotation"),
        ("def f() -> int | None: pass\n", "ReplaceBinaryOperator_BitOr_BitAnd", "annotation"),
        ("def f(a, *, b): pass\n", "ReplaceBinaryOperator_Mul_Div", "no operator"),
        ("raise E(a + b)\n", "ReplaceBinaryOperator_Add_Sub", "message"),
        ("f'{a + b}'\n", "ReplaceBinaryOperator_Add_Sub", "message"),
        ("@record(frozen=True)\nclass A: pass\n", "ReplaceTrueWithFalse", "decorator"),
        ("@cache\ndef f(): pass\n", "RemoveDecorator", "decorator"),
        ("zip(a, b, strict=True)\n", "ReplaceTrueWithFalse", "strict"),
        ("a = b | c\n", "ReplaceBinaryOperator_BitOr_BitAnd", "alias"),
        ("a < 0.25\n", "ReplaceComparisonOperator_Lt_LtE", "boundary"),
        ("a <= 1.0 + 1e-9\n", "ReplaceComparisonOperator_LtE_Lt", "boundary"),
        ("a * WRONG <= b\n", "ReplaceComparisonOperator_LtE_Lt", "boundary"),
        ("if TYPE_CHECKING:\n    a = 1\n", "NumberReplacer", "typing"),
    ],
)
def test_each_rule_leaves_its_places_alone(source, name, rule):
    assert set(left_out(source, name)) == {rule}
    assert rule in EXCLUSIONS


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def f(a=1): pass\n", "NumberReplacer"),
        ("def f(a: int = 1): pass\n", "NumberReplacer"),
        ("a: int = 1\n", "NumberReplacer"),
        ("a < 0\n", "ReplaceComparisonOperator_Lt_LtE"),
        ("a < limit\n", "ReplaceComparisonOperator_Lt_LtE"),
        ("a < 0.25\n", "ReplaceComparisonOperator_Lt_GtE"),
        ("def f(): return a | b\n", "ReplaceBinaryOperator_BitOr_BitAnd"),
        ("f(keepdims=True)\n", "ReplaceTrueWithFalse"),
        ("@property\ndef f(self): pass\n", "RemoveDecorator"),
    ],
)
def test_places_beside_them_are_bent(source, name):
    assert bent(source, name)


def test_every_module_of_every_room_but_records_alone_has_mutants():
    for room in ROOMS:
        reached = {mutant.module for mutant in mutants_of(room).mutants}

        assert len(reached) >= 0.8 * len(files_of(room)), room


def test_keys_are_one_a_mutant_and_the_seed_orders_them():
    mutants = mutants_of("gates").mutants

    assert len({mutant.key for mutant in mutants}) == len(mutants)
    assert shuffled(mutants, seed=1) == shuffled(reversed(mutants), seed=1)
    assert shuffled(mutants, seed=1) != shuffled(mutants, seed=2)
    assert set(OPERATORS) >= {mutant.operator for mutant in mutants}


def test_the_score_counts_what_a_test_could_judge():
    head = {"rooms": ["gates"], "mutants": {"gates": 5}}
    states = ["killed", "killed", "timeout", "survived", "invalid"]
    lines = [
        {"key": str(k), "module": "validate.gates.bound", "line": k, "function": "f"}
        | {"status": status, "operator": "AddNot", "change": "-a\n+not a"}
        for k, status in enumerate(states)
    ]
    results = Results(head=head, lines=lines)

    assert score(results.rooms()["gates"]) == 0.75
    assert score(Results(head=head, lines=[]).rooms()["gates"]) is None
    text = tell(results)
    assert "gates: 75.0% killed (2 killed, 1 timeout, 1 survived, 1 invalid; 5 of 5 tried)" in text
    assert "validate.gates.bound:3 in f (AddNot)\n-a\n+not a" in text


def results_file(folder, name, states, *, code="a" * 64, only="", python="3.12.3", count=3):
    """A file as ``run`` writes it: a head, then a line for each mutant and its status."""
    head = {"head": True, "tool": "t", "python": python, "numpy": "2", "date": "2026-11-30"}
    head |= {"rooms": ["gates"], "code": {"gates": code}, "seed": 1, "sample": None, "only": only}
    head |= {"mutants": {"gates": count}, "left_out": {"gates": {}}}
    lines = [
        {"key": key, "module": "validate.gates.bound", "line": 1, "function": "f", "status": status}
        for key, status in states.items()
    ]
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)), "utf-8")
    return file


def test_a_mutant_that_was_tried_again_counts_once_by_its_later_line(tmp_path):
    every = results_file(tmp_path, "all", {"a": "killed", "b": "survived", "c": "survived"})
    again = results_file(tmp_path, "b", {"b": "killed"}, only="bound", python="3.11.7", count=1)

    found = read([every, again])
    assert found.rooms()["gates"] == {"killed": 2, "survived": 1}
    assert found.head["mutants"] == {"gates": 3}
    assert found.head["python"] == "3.12.3, 3.11.7"


def test_mutants_of_other_code_are_not_counted_together(tmp_path):
    one = results_file(tmp_path, "one", {"a": "survived"})
    other = results_file(tmp_path, "other", {"a": "killed"}, code="b" * 64, only="bound")

    with pytest.raises(SystemExit, match=r"other: its mutants are of other code of gates \(bbbb"):
        read([one, other])


def test_a_module_that_is_bent_is_bent_for_whoever_asks_its_package():
    """The package stays loaded and held the honest module as its attribute."""
    asked = (
        "import validate.oracle.lossless; from tests.mutation.mutants import path_of; "
        "from tests.mutation.trial import plant; name = 'validate.oracle.lossless'; "
        "plant(name, path_of(name).read_text('utf-8') + '\\nBENT = True\\n'); "
        "from validate.oracle import lossless; print(lossless.BENT)"
    )
    found = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert found.stdout == "True\n", found.stderr


@pytest.mark.meta
@pytest.mark.slow
def test_a_sample_of_the_mutants_is_killed(tmp_path):
    out = tmp_path / "sample.jsonl"
    asked = ["run", "--quick", "--sample", str(SAMPLE), "--seed", str(SEED), "--jobs", "1"]

    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", *asked, "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    states = [line["status"] for line in lines[1:]]
    assert len(states) == SAMPLE
    assert states.count("killed") + states.count("timeout") >= SAMPLE - states.count("invalid")
    assert states.count("invalid") <= 1


def test_every_explanation_says_something():
    assert all(len(why) > 20 for why in survivors_explained().values())
    assert Path(ROOT / "tests/mutation/survivors.toml").exists()
