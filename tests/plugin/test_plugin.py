"""The plugin in processes of its own, on suites of made-up captures; ``compare`` itself is real."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SUITE = """
schema_version = 1
name = "small"
alpha = 0.01
beta = 0.05
evidence = ["hardware", "emulated"]
model = "k3-nano"
prompts = "p.jsonl"
gates = [
  { name = "yardstick.aa", kind = "exact" },
  { name = "yardstick.floor", kind = "exact" },
  { name = "yardstick.path_proof", kind = "exact" },
  { name = "yardstick.ref_error", kind = "bound", metric = "logits.kl_max" },
  { name = "logits.kl_p90", kind = "bound", weight = 1 },
  { name = "logits.kl_p50", kind = "noise_ratio", weight = 1 },
  { name = "state.kda_rel_l2", kind = "bound" },
]
"""
CHILD = """
import sys
if "validate.cli" in sys.orig_argv:
    import validate.cli.judge
    from tests.plugin.child import judge
    validate.cli.judge.judge = judge
"""
MODULE = """
import pytest
pytestmark = pytest.mark.validate_gates({names})
def test_gate(gate):
    gate.check()
"""
PLUGIN = ("-p", "no:validate", "-p", "validate.pytest_plugin", "-p", "no:cacheprovider")
"""Whether or not the installed package brings the plugin along."""


@pytest.fixture
def world(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with one suite, its three gate modules, and made-up captures behind it."""
    files = {
        "validate.toml": (ROOT / "validate.toml").read_text("utf-8"),
        "suites/default.toml": SUITE,
        "sitecustomize.py": CHILD,
        "pytest.ini": "[pytest]\naddopts = --import-mode=importlib\n",
        **{
            f"suites/test_{area}.py": MODULE.format(names=f'"{area}"')
            for area in ("yardstick", "logits", "state", "evals")
        },
    }
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), str(ROOT)]))
    monkeypatch.setenv("NO_COLOR", "1")
    return pytester


def gates(world: pytest.Pytester, cand: str, *more: str, tests: str = "suites"):
    sides = ("--validate-ref", "cuda", "--validate-cand", cand)
    return world.runpytest_subprocess(*PLUGIN, *sides, *more, tests)


def measured(world: pytest.Pytester) -> list[str]:
    log = world.path / "measured.log"
    return log.read_text("utf-8").splitlines() if log.exists() else []


def test_one_test_a_gate_and_one_measurement(world: pytest.Pytester) -> None:
    done = gates(world, "rocm", "-v")

    done.assert_outcomes(passed=7, deselected=1)  # the suite has no gate of the area evals
    done.stdout.fnmatch_lines(
        [
            "validate: ref cuda, cand rocm, suite of validate.toml",
            "suites/test_logits.py::test_gate[[]logits.kl_p90] PASSED*",
            "7 of 7 gates were judged by a test of their own",
            "the suite, ref cuda against cand rocm (emulated):",
            "  PASS: every gate was shown to be within its limit*",
        ]
    )
    assert measured(world) == ["rocm "]


@pytest.mark.parametrize("selection", [("-k", "kl_p90"), ("-n", "2")], ids=["k", "xdist"])
def test_verdicts_are_those_of_compare_whatever_is_selected(
    world: pytest.Pytester, selection: tuple[str, ...]
) -> None:
    done = gates(world, "rocm:pad=tile", "-rfE", "--validate-report", "out", *selection)

    report = json.loads((world.path / "out" / "report.json").read_text("utf-8"))
    red = {gate["name"] for gate in report["gates"] if gate["outcome"] == "FAIL"}
    assert red == {"logits.kl_p90", "logits.kl_p50", "state.kda_rel_l2"}
    shown = {
        line.partition("test_gate[")[2].partition("]")[0]
        for line in done.outlines
        if line.startswith("FAILED ")
    }
    assert shown == ({"logits.kl_p90"} if "-k" in selection else red)
    assert done.ret == 1
    assert measured(world) == ["rocm:pad=tile "]
    done.stdout.fnmatch_lines(
        [
            "FAIL logits.kl_p90: 3 nats, limit 1 *",
            "  rerun: validate compare *--only logits.kl_p90*",
            "  FAIL: cand is not the same model within the limits (3 of 7 gates are FAIL)*",
            "  report: *report.json",
        ]
    )


def test_open_gate_is_an_error_in_words_and_never_a_skip(world: pytest.Pytester) -> None:
    done = gates(world, "rocm:pad=repeat")

    counts = done.parseoutcomes()
    assert counts["errors"] > 0
    assert "skipped" not in counts
    done.stdout.fnmatch_lines(["*INCONCLUSIVE yardstick.floor: *2 repeats of ref, at least 3*"])


def test_incomparable_sides_are_errors_in_words(world: pytest.Pytester) -> None:
    done = gates(world, "rocm:splits=2", "-k", "kl_p90")

    done.assert_outcomes(errors=1, deselected=7)
    done.stdout.fnmatch_lines(["*INCOMPARABLE logits.kl_p90: REF_BLAMED: *"])


def test_waived_gate_passes_and_is_listed(world: pytest.Pytester) -> None:
    done = gates(world, "rocm:splits=3", "-k", "state")

    done.assert_outcomes(passed=1, deselected=7)
    done.stdout.fnmatch_lines(["WAIVED state.kda_rel_l2: FAIL and does not count: known (#7; *"])


def test_comparison_without_a_verdict_is_an_error_with_its_words(world: pytest.Pytester) -> None:
    done = gates(world, "rocm:splits=4", "-n", "2")

    done.assert_outcomes(errors=7)
    done.stdout.fnmatch_lines(
        [
            "*kda_rel_l2: no verdict: validate compare ended with exit code 4*",
            "*CaptureError: rocm:splits=4: shards/0.safetensors: the digest differs*",
        ]
    )
    assert measured(world) == ["rocm:splits=4 "]


@pytest.mark.parametrize(
    "selection", [("no_such_gate",), ("test_other",), ("test_other", "-n", "2")]
)
def test_run_that_judged_no_gate_fails(world: pytest.Pytester, selection: tuple[str, ...]) -> None:
    world.path.joinpath("suites", "test_more.py").write_text("def test_other(): pass\n", "utf-8")

    done = gates(world, "rocm", "-k", *selection)

    assert done.ret == 1
    done.stdout.fnmatch_lines(["no gate was judged, though *", "  do next: pytest suites *"])
    assert measured(world) == []


def test_skipped_gates_are_no_gates(world: pytest.Pytester) -> None:
    text = MODULE.format(names='"logits"').replace("def", "@pytest.mark.skip('no')\ndef")
    world.path.joinpath("suites", "test_logits.py").write_text(text, "utf-8")

    assert gates(world, "rocm", "-k", "logits").ret == 1


def test_gates_without_sides_are_a_usage_error(world: pytest.Pytester) -> None:
    done = world.runpytest_subprocess(*PLUGIN, "suites")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*pytest suites --validate-ref cuda --validate-cand rocm*"])


def test_gates_without_sides_do_not_pass_under_xdist(world: pytest.Pytester) -> None:
    done = world.runpytest_subprocess(*PLUGIN, "suites", "-n", "2")

    done.assert_outcomes(errors=4)
    done.stdout.fnmatch_lines(["*name the two sides: pytest suites --validate-ref *"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--validate-ref", "cuda"), "*--validate-cand missing; name the two sides: *"),
        (("--validate-suite", "s.toml"), "*--validate-ref and --validate-cand missing; *"),
        (
            ("--validate-ref", "cuda", "--validate-cand", "rocmm"),
            "*no target is named 'rocmm'; did you mean 'rocm'?*",
        ),
        (
            ("--validate-ref", "cuda", "--validate-cand", "rocm", "--validate-suite", "no.toml"),
            "*no.toml: cannot be read*",
        ),
    ],
    ids=["one side", "no side", "unknown target", "no suite"],
)
def test_wrong_options_are_refused_before_collection(
    world: pytest.Pytester, options: tuple[str, ...], said: str
) -> None:
    done = world.runpytest_subprocess(*PLUGIN, *options, "suites")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([said])
    assert measured(world) == []


USER = """
def test_candidate(ref, cand, compare):
    report = compare(ref, cand, only=["logits"], prompt="p-0")
    assert report.cand.evidence == "emulated"

def test_looks_for_itself(ref, compare):
    assert compare(ref, "rocm:pad=tile", check=False).verdict == "FAIL"
"""


def test_user_suite_of_five_lines(world: pytest.Pytester) -> None:
    world.path.joinpath("test_mine.py").write_text(USER, "utf-8")

    done = gates(world, "rocm", tests="test_mine.py")

    done.assert_outcomes(passed=2)
    assert measured(world) == ["rocm logits", "rocm:pad=tile "]


def test_user_suite_that_only_compares_fails_on_a_fail(world: pytest.Pytester) -> None:
    world.path.joinpath("test_mine.py").write_text(USER, "utf-8")

    done = gates(world, "rocm:pad=tile", "-k", "candidate", tests="test_mine.py")

    done.assert_outcomes(failed=1, deselected=1)
    done.stdout.fnmatch_lines(["FAIL: cand is not the same model within the limits*"])


def test_gate_is_checked_when_the_test_forgets_to(world: pytest.Pytester) -> None:
    text = MODULE.format(names="").replace("gate.check()", "pass")
    world.path.joinpath("test_mine.py").write_text(text, "utf-8")

    gates(world, "rocm:pad=tile", tests="test_mine.py").assert_outcomes(passed=4, failed=3)


def test_unused_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, validate.pytest_plugin; "
        "print([m for m in ('numpy', 'pydantic', 'torch', 'scipy', 'rich') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_misspelt_mark_is_an_error_that_names_the_nearest_gate(world: pytest.Pytester) -> None:
    (world.path / "suites" / "test_logits.py").write_text(
        MODULE.format(names='"state", "logits.kl_p9O"'), "utf-8"
    )

    done = gates(world, "rocm")

    assert done.ret == 2
    done.stdout.fnmatch_lines(
        ["*names 'logits.kl_p9O', which is no area and no gate; did you mean 'logits.kl_p90'?*"]
    )


def test_report_folder_that_takes_nothing_is_a_usage_error(world: pytest.Pytester) -> None:
    done = gates(world, "rocm", "--validate-report", "validate.toml")

    assert done.ret == 4
    done.stderr.fnmatch_lines(["*--validate-report *: nothing can be written there (it is a file*"])
    assert measured(world) == []
