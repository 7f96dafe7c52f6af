"""Suites: what is read, what is refused, and with which words."""

import re
import tomllib
from pathlib import Path

import pytest

from validate.errors import SuiteError
from validate.suite import load_prompts, load_suite

ROOT = Path(__file__).parents[3]
KNOWN = ("logits.kl_p90", "logits.nll_delta", "logits.kl_p50", "state.kda_rel_l2")

HEAD = """\
schema_version = 1
name = "small"
alpha = 0.01
beta = 0.05
evidence = ["emulated"]
model = "k3-nano"
prompts = "suites/prompts/default.jsonl"
"""
YARDSTICK = """\
  { name = "yardstick.aa", kind = "exact" },
  { name = "yardstick.floor", kind = "exact" },
  { name = "yardstick.path_proof", kind = "exact" },
  { name = "yardstick.ref_error", kind = "bound", metric = "logits.kl_p90", weight = 1 },
"""


def written(tmp_path, gates, head=HEAD, yardstick=YARDSTICK):
    """A suite file with these gate lines below the yardstick gates."""
    path = tmp_path / "x.toml"
    path.write_text(f"{head}gates = [\n{yardstick}{gates}]\n", encoding="utf-8")
    return path


def refused(tmp_path, gates, **parts):
    """The message about a bad suite, without the folder."""
    path = written(tmp_path, gates, **parts)
    with pytest.raises(SuiteError) as caught:
        load_suite(path, known=KNOWN)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_good_suite_is_read(tmp_path):
    """Every field arrives."""
    line = '  { name = "logits.kl_p90", kind = "bound", weight = 2 },\n'
    suite = load_suite(written(tmp_path, line), known=KNOWN)

    assert (suite.name, suite.alpha, suite.beta) == ("small", 0.01, 0.05)
    assert suite.evidence == ("emulated",)
    assert suite.limits == "golden/tolerances.toml"
    gate = suite.gate("logits.kl_p90")
    assert gate is not None
    assert (gate.area, gate.kind, gate.weight) == ("logits", "bound", 2.0)
    assert (gate.measures, gate.limit_key, gate.on_self) == ("logits.kl_p90", "logits.kl_p90", 0.0)
    assert suite.gate("logits.none") is None


def test_files_below_the_working_directory_are_named_from_there(tmp_path, monkeypatch):
    """A report made in a clone reads the same in every clone."""
    path = written(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    inside = load_suite(path, known=KNOWN).path
    monkeypatch.chdir(ROOT)

    assert inside == "x.toml"
    assert load_suite(path, known=KNOWN).path == str(path)
    assert load_suite(Path("suites/default.toml")).path == "suites/default.toml"


def test_a_gate_may_borrow_metric_and_limit(tmp_path):
    """The reference's own error is a metric under another gate's name."""
    suite = load_suite(written(tmp_path, ""), known=KNOWN)
    gate = suite.gate("yardstick.ref_error")

    assert gate is not None
    assert (gate.measures, gate.limit_key) == ("logits.kl_p90", "yardstick.ref_error")
    assert gate.on_self is None


def test_misspelt_gate_is_named_with_line_and_nearest_match(tmp_path):
    """The message of the style guide, word for word."""
    message = refused(tmp_path, '  { name = "logits.kl_p9o", kind = "bound" },\n')

    assert message.splitlines()[0] == (
        "x.toml:13: gate 'logits.kl_p9o' names no metric; did you mean 'logits.kl_p90'?"
    )
    assert "known here: logits.kl_p50, logits.kl_p90, logits.nll_delta" in message
    assert message.endswith("(all: validate list metrics)")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            '{ name = "logits.kl_p90", kind = "bond" }',
            "'three_way', 'lossless' or 'noninferior'; did you mean 'bound'?",
        ),
        (
            '{ name = "logits.kl_p90", kind = "bound", wieght = 1 }',
            "x.toml:13: gate 'logits.kl_p90': unknown key 'wieght'; did you mean 'weight'?",
        ),
        (
            '{ name = "logits.kl_p90" }',
            "x.toml:13: gate 'logits.kl_p90': the key 'kind' is missing",
        ),
        ('{ kind = "bound" }', "gate 'number 5': the key 'name' is missing"),
        (
            '{ name = "logits.kl_p90", kind = "bound", weight = -1 }',
            "x.toml:13: gate 'logits.kl_p90': weight = -1: Input should be greater than or equal to 0",
        ),
        (
            '{ name = "logits.kl_p90", kind = "bound", weight = nan }',
            "x.toml:13: gate 'logits.kl_p90': weight = nan: Input should be",
        ),
        (
            '{ name = "logits.kl_p90", kind = "bound", weight = "1" }',
            "x.toml:13: gate 'logits.kl_p90': weight = '1': Input should be a valid number",
        ),
        (
            '{ name = "logits.kl_p90", kind = "exact", weight = 1 }',
            "x.toml:13: gate 'logits.kl_p90': weight 1 on an exact gate",
        ),
        (
            '{ name = "logits.kl_p90", kind = "bound", equals = 1 }',
            "x.toml:13: gate 'logits.kl_p90': equals = 1 means nothing to a bound gate",
        ),
        (
            '{ name = "logit.kl_p90", kind = "bound" }',
            "x.toml:13: gate 'logit.kl_p90': area 'logit' is none of yardstick, attention",
        ),
        (
            '{ name = "yardstick.ab", kind = "exact", metric = "logits.kl_p90" }',
            "gate 'yardstick.ab' is no yardstick gate; did you mean 'yardstick.aa'?",
        ),
    ],
)
def test_bad_gates_are_refused(tmp_path, line, expected):
    """Line, gate, key and what would be right."""
    assert expected in refused(tmp_path, f"  {line},\n")


def test_line_numbers_survive_comments_and_double_brackets(tmp_path):
    """Gates may be tables of their own, with comments that look like gates."""
    tables = "".join(
        f"[[gates]]\n{line.strip(' {},').replace(', ', chr(10))}\n"
        for line in YARDSTICK.replace(" },", "").splitlines()
    )
    path = tmp_path / "x.toml"
    path.write_text(
        f'{HEAD}{tables}[[gates]]\n# name = "no"\nkind = "bond"\nname = "logits.kl_p90"\n'
    )
    with pytest.raises(SuiteError) as caught:
        load_suite(path, known=KNOWN)

    line = path.read_text().splitlines().index('name = "logits.kl_p90"') + 1
    assert str(caught.value).startswith(f"{path}:{line}: gate 'logits.kl_p90': kind = 'bond'")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("alpha = 0.01", "alpha = 0", "x.toml:3: alpha = 0: Input should be greater than 0"),
        ("alpha = 0.01", "alpha = 0.5", "x.toml:3: alpha = 0.5: Input should be less than 0.5"),
        ("alpha = 0.01", "alpha = nan", "x.toml:3: alpha = nan"),
        ("beta = 0.05", "beta = -1", "x.toml:4: beta = -1: Input should be greater than 0"),
        ("alpha = 0.01", "alpha = 1e-300", "x.toml:3: alpha = 1e-300 is below 1e-09: its confiden"),
        ("beta = 0.05", "beta = 1e-300", "x.toml:4: beta = 1e-300 is below 1e-09: its confiden"),
        ('["emulated"]', "[]", "x.toml:5: evidence = []"),
        ('["emulated"]', '["emulatd"]', "did you mean 'emulated'?"),
        ("schema_version = 1", "schema_version = 2", "x.toml:1: schema_version = 2"),
        ("alpha = 0.01\n", "", "the key 'alpha' is missing"),
        ("alpha = 0.01", "alpha = 0.01\nalhpa = 1", "x.toml:4: unknown key 'alhpa'; did you mean"),
    ],
)
def test_bad_headings_are_refused(tmp_path, old, new, expected):
    """alpha, beta, evidence and version are checked with their line."""
    assert expected in refused(tmp_path, "", head=HEAD.replace(old, new))


def test_a_gate_listed_twice_is_refused(tmp_path):
    """Its weight would count twice."""
    line = '  { name = "logits.kl_p90", kind = "bound" },\n'

    assert "gate listed twice: logits.kl_p90" in refused(tmp_path, line * 2)


@pytest.mark.parametrize("name", ["aa", "floor", "path_proof", "ref_error"])
def test_yardstick_gates_cannot_be_left_out_of_a_suite(tmp_path, name):
    """A suite without them would judge by a yardstick that nobody checked."""
    kept = "".join(line for line in YARDSTICK.splitlines(True) if f".{name}" not in line)

    assert f"the suite lacks the gate 'yardstick.{name}'" in refused(tmp_path, "", yardstick=kept)


def test_yardstick_gates_have_their_form(tmp_path):
    """A bound on A/A, or an error of no metric, is not what run measures."""
    bent = YARDSTICK.replace('aa", kind = "exact"', 'aa", kind = "bound"')
    bare = YARDSTICK.replace(', metric = "logits.kl_p90"', "")

    assert "gate 'yardstick.aa' must be of kind 'exact'" in refused(tmp_path, "", yardstick=bent)
    assert "'yardstick.ref_error' needs a metric" in refused(tmp_path, "", yardstick=bare)


@pytest.mark.parametrize("text", [HEAD, HEAD + "gates = []\n", HEAD + "gates = 3\n"])
def test_a_suite_without_gates_is_refused(tmp_path, text):
    """It could only pass."""
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(SuiteError, match="the suite lists no gates, so it could only pass"):
        load_suite(path, known=KNOWN)


def test_broken_toml_is_refused_with_its_line(tmp_path):
    """The parser's own place."""
    path = tmp_path / "x.toml"
    path.write_text('schema_version = 1\nname = "small\n')
    with pytest.raises(SuiteError, match=rf"{re.escape(str(path))}:2: not valid TOML"):
        load_suite(path, known=KNOWN)


def test_a_missing_file_names_its_neighbour(tmp_path):
    """A misspelt path."""
    written(tmp_path, "")
    (tmp_path / "x.toml").rename(tmp_path / "default.toml")
    with pytest.raises(SuiteError, match=r"cannot be read \(No such file or directory\); did you"):
        load_suite(tmp_path / "defualt.toml", known=KNOWN)


def test_an_unreadable_file_is_not_suggested_for_itself(tmp_path):
    """It is there; another name would not help."""
    path = written(tmp_path, "")
    path.write_bytes(b"\xff\xfe")
    (tmp_path / "x2.toml").write_text("")
    with pytest.raises(SuiteError, match=r"cannot be read \(it is no UTF-8 text: ") as caught:
        load_suite(path, known=KNOWN)

    assert "did you mean" not in str(caught.value)


def test_a_missing_file_is_not_taken_for_any_that_shares_its_folder(tmp_path):
    """The folder's name is no likeness."""
    written(tmp_path, "").rename(tmp_path / "default.toml")
    with pytest.raises(SuiteError, match="No such file") as caught:
        load_suite(tmp_path / "waivers.toml", known=KNOWN)

    assert "did you mean" not in str(caught.value)


def test_many_problems_are_counted(tmp_path):
    """Five are told, the rest counted."""
    lines = "".join(f'  {{ name = "logits.x{i}", kind = "bound" }},\n' for i in range(8))
    message = refused(tmp_path, lines)

    assert "and 3 more problems" in message


def test_digest_sees_meaning_and_not_layout(tmp_path):
    """Comments do not change it, a weight does."""
    line = '  { name = "logits.kl_p90", kind = "bound", weight = 2 },\n'
    plain = load_suite(written(tmp_path, line), known=KNOWN).digest
    noted = load_suite(written(tmp_path, f"  # why\n{line}"), known=KNOWN).digest
    other = load_suite(written(tmp_path, line.replace("2", "3")), known=KNOWN).digest

    assert plain == noted
    assert plain != other


def test_shipped_suites_differ_in_evidence_alone():
    """release.toml must gate all that default.toml gates."""
    raw = {
        name: tomllib.loads((ROOT / f"suites/{name}.toml").read_text())
        for name in ("default", "release")
    }
    known = [gate["name"] for gate in raw["default"]["gates"]]
    default = load_suite(ROOT / "suites/default.toml", known=known)
    release = load_suite(ROOT / "suites/release.toml", known=known)

    assert default.gates == release.gates
    assert default.evidence == ("hardware", "emulated")
    assert release.evidence == ("hardware",)
    assert (default.alpha, default.beta) == (0.01, 0.05)
    assert {**raw["default"], "name": "", "evidence": []} == {
        **raw["release"],
        "name": "",
        "evidence": [],
    }


def test_prompts_are_read_in_order(tmp_path):
    """Blank lines do not count."""
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"id": "b", "token_ids": [1, 2], "prompt_length": 1}\n\n'
        '{"id": "a", "token_ids": [3], "prompt_length": 1, "tags": ["state"]}\n'
    )

    assert [prompt.id for prompt in load_prompts(path)] == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the prompt set is empty, so nothing could be compared"),
        ("\n\n", "the prompt set is empty, so nothing could be compared"),
        ('{"id": "a"}\n', r":1: no prompt: the key 'token_ids' is missing"),
        (
            '{"id": "a", "token_ids": [1], "prompt_length": 1}\nnot json\n',
            ":2: no prompt: .*Invalid JSON",
        ),
        (
            '{"id": "a", "token_ids": [1], "prompt_length": 1}\n' * 2,
            ":2: prompt 'a' stands on line 1 already",
        ),
    ],
)
def test_bad_prompt_sets_are_refused(tmp_path, text, expected):
    """With the line."""
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(SuiteError, match=expected):
        load_prompts(path)


def test_suite_of_evals_alone_needs_no_path_proof_where_it_accepts_unproven():
    """A foreign folder proves no path; a suite that demands hardware keeps the whole yardstick."""
    suite = load_suite(Path(__file__).parents[3] / "suites/evals.toml")

    assert suite.evals_only
    assert [gate.name for gate in suite.gates if gate.area == "yardstick"] == ["yardstick.aa"]


def test_suite_of_evals_on_hardware_keeps_the_whole_yardstick(tmp_path):
    """Evidence that must be proven needs the gate that proves it."""
    text = (Path(__file__).parents[3] / "suites/evals.toml").read_text("utf-8")
    path = tmp_path / "x.toml"
    path.write_text(text.replace('"unproven"', '"emulated"').replace('"emulated", ', ""), "utf-8")

    with pytest.raises(SuiteError, match=r"the suite lacks the gate 'yardstick\.path_proof'"):
        load_suite(path)
