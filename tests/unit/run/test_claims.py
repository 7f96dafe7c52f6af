"""Claims: figures are read, what follows from them is computed, and what rests on nothing says so."""

import hashlib
from pathlib import Path

import pytest

from tests.measured import assert_measured
from tests.unit.run.made import run, side
from validate.errors import InputError
from validate.report import render_console, render_html, render_markdown
from validate.run.claims import attach_claims, load_claims
from validate.schema.claims import ClaimsReport

SHIPPED = Path(__file__).parents[3] / "docs" / "claims" / "kimi-k3.toml"
HEAD = """
schema_version = 1
title = "a title"
baseline = "one"
[conditions]
engine = "sglang"
"""
ONE = """
[[systems]]
name = "one"
gpu = "MI355X"
gpus = 4
[systems.figures]
throughput = {throughput}
"""


def claims(tmp_path: Path, *parts: str) -> ClaimsReport:
    path = tmp_path / "claims.toml"
    path.write_text(HEAD + "".join(parts or (ONE.format(throughput=100),)), "utf-8")
    return load_claims(path)


def value(found: ClaimsReport, system: str, name: str) -> float:
    return next(one.value for one in found.derived if (one.system, one.name) == (system, name))


def test_published_table_recomputes_as_the_sheet_says() -> None:
    """Expected: the last paragraph of the published table, 952/8, 498/16, 1568/8 and on."""
    found = load_claims(SHIPPED)

    for system, per_gpu, per_dollar in (
        ("MI355X", 119, 47.6),
        ("B200", 31.125, 7.3235),
        ("B300", 196, 32.667),
    ):
        assert_measured(value(found, system, "throughput_per_gpu"), per_gpu, rtol=1e-4, atol=0)
        assert_measured(
            value(found, system, "throughput_per_dollar"), per_dollar, rtol=1e-4, atol=0
        )
    assert_measured(value(found, "B300", "throughput_ratio"), 1.647, rtol=1e-3, atol=0)
    assert_measured(value(found, "B300", "decode_ratio"), 1.458, rtol=1e-3, atol=0)
    assert_measured(value(found, "MI355X", "prefill_rate"), 3372.5, rtol=1e-4, atol=0)
    wrong = [(one.system, one.name) for one in found.derived if one.agrees is False]
    assert wrong == [("MI355X", "prefill_rate")]  # 4,000 to 7,000 were reported
    assert set(found.evidence.values()) == {"NO EVIDENCE"}


def test_power_and_price_give_tokens_per_joule_and_dollar(tmp_path: Path) -> None:
    """4 GPUs of 250 W at 100 tok/s: 0.1 tokens a joule; 2 $ an hour each: 45,000 a dollar."""
    found = claims(tmp_path, ONE.format(throughput=100), "price = 2.0\npower = 250\n")

    assert_measured(value(found, "one", "tokens_per_joule"), 0.1, rtol=1e-12, atol=0)
    assert_measured(value(found, "one", "tokens_per_dollar"), 45_000, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("stated", "agrees"),
    [
        ('"25"', True),
        ('"25.1"', True),
        ('"25.0"', False),
        ('"24.9"', False),
        ('"26"', False),
        ("[20, 30]", True),
    ],
)
def test_stated_numbers_are_held_to_their_last_digit(
    tmp_path: Path, stated: str, agrees: bool
) -> None:
    found = claims(
        tmp_path, ONE.format(throughput=100.3), f"[systems.stated]\nthroughput_per_gpu = {stated}\n"
    )

    assert [one.agrees for one in found.derived if one.stated] == [agrees]


def test_evidence_with_a_digest_is_checked(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("100 tok/s\n", "utf-8")
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    figure = f'{{ value = 100, evidence = "run.log", sha256 = "{digest}" }}'

    found = claims(tmp_path, ONE.format(throughput=figure))
    assert found.evidence == {"one/throughput": f"run.log (sha256 {digest[:12]}, as claimed)"}

    log.write_text("900 tok/s\n", "utf-8")
    with pytest.raises(InputError, match=r"evidence 'run.log' has sha256 [0-9a-f]{12}, not"):
        claims(tmp_path, ONE.format(throughput=figure))
    with pytest.raises(InputError, match=r"evidence '../run.log' is no file beside it"):
        claims(tmp_path, ONE.format(throughput=figure.replace("run.log", "../run.log")))


def test_evidence_without_a_digest_says_that_nobody_looked(tmp_path: Path) -> None:
    figure = '{ value = 100, evidence = "https://a.example/x" }'

    found = claims(tmp_path, ONE.format(throughput=figure))

    assert found.evidence == {"one/throughput": "https://a.example/x (not checked)"}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((ONE.format(throughput="nan"),), "systems.0.figures.throughput"),
        ((ONE.format(throughput="-1"),), "greater than 0"),
        ((ONE.format(throughput="0"),), "greater than 0"),
        ((ONE.format(throughput="1").replace("throughput", "speed"),), "no figure is called speed"),
        ((ONE.format(throughput="1").replace('"one"', '"two"'),), "baseline 'one' is none of"),
        ((ONE.format(throughput="1"), ONE.format(throughput="1")), "two systems have one name"),
        ((ONE.format(throughput="1"), "[systems.stated]\nspeed = 3\n"), "states 'speed', which"),
        (
            (ONE.format(throughput='{ value = 1, sha256 = "' + 64 * "0" + '" }'),),
            "without evidence",
        ),
        (("systems = 3\n",), "systems"),
        (("x = \n",), "not TOML"),
    ],
)
def test_wrong_claims_are_refused_with_their_place(
    tmp_path: Path, parts: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        claims(tmp_path, *parts)


def test_conditions_must_be_stated(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        HEAD.replace('engine = "sglang"', "") + ONE.format(throughput=1), encoding="utf-8"
    )

    with pytest.raises(InputError, match="conditions"):
        load_claims(path)


def test_every_page_shows_claims_with_what_keeps_them_from_the_verdict() -> None:
    report = attach_claims(run(side("rocm", 0.1)), load_claims(SHIPPED))

    for page in (render_console(report), render_markdown(report), render_html(report)):
        text = page.replace("\\_", "_").replace("&#39;", "'")
        assert "NO EVIDENCE" in text
        assert "47.6 tok/s per $/hour" in text
        assert "were not measured on that capture" in text
        assert "NOT as computed" in text
    assert attach_claims(report, load_claims(SHIPPED)) == report


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("throughput = true", r"systems.0.figures.throughput.value: .*number"),
        ('throughput = "100"', r"systems.0.figures.throughput.value: .*number"),
        ("throughput = 1e308\nprice = 1e-308", r"system 'one': throughput_per_dollar comes out as"),
        ("throughput = 1e-308\npower = 1e308", r"system 'one': tokens_per_joule comes out as 0"),
        (f"throughput = {'9' * 5001}", "not TOML: Exceeds the limit"),
        (f"throughput = {'9' * 400}", r"systems.0.figures.throughput.value: "),
        (f"throughput = {'[' * 20000}", "not TOML: "),
        ("throughput = 1\n[systems.stated]\nthroughput_per_gpu = [9, 1]", r"\[9, 1\] is empty"),
        ("ttft = { value = 1, prompt_tokens = true }", r"figures.ttft.prompt_tokens: .*integer"),
    ],
)
def test_figures_that_no_machine_has_are_refused_with_their_place(
    text: str, said: str, tmp_path: Path
) -> None:
    system = ONE.format(throughput=0).replace("throughput = 0\n", text + "\n")

    with pytest.raises(InputError, match=rf"claims.toml: .*{said}"):
        claims(tmp_path, system)


def test_number_of_gpus_is_one_that_can_be(tmp_path: Path) -> None:
    for gpus in ("true", "9" * 30, "0"):
        with pytest.raises(InputError, match=r"systems\.0\.gpus: "):
            claims(tmp_path, ONE.format(throughput=1).replace("gpus = 4", f"gpus = {gpus}"))
