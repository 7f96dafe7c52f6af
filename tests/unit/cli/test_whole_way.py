"""The whole way on a tiny random model: record, compare, plant faults, go stale, verify, calibrate."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validate.cli import main
from validate.models import initialise, save_weights
from validate.schema import ModelConfig, Prompt

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow

CONFIG = ModelConfig(
    name="k3-nano",
    vocab_size=260,
    tokenizer_length=260,
    hidden_size=32,
    layers=3,
    heads=12,
    mla_layers=(1,),
    q_lora_rank=16,
    kv_lora_rank=16,
    qk_nope_head_dim=8,
    qk_rope_head_dim=4,
    v_head_dim=8,
    kda_head_dim=8,
    kda_gate_rank=4,
    attn_res_block=2,
    dense_intermediate=32,
    experts=4,
    experts_per_token=2,
    latent_size=16,
    expert_intermediate=16,
    shared_intermediate=16,
)
LIMIT = """
[{key}.{dtype}]
value = 50.0
worst = 1000.0
source = "derived"
pointer = "wide enough for a random model"
roundoff = [1.0, 1]
"""


def prompts() -> list[Prompt]:
    made = []
    for n in range(30):
        length = 2 + n % 7
        made.append(
            Prompt(
                id=f"p-{n:02d}",
                token_ids=(256, *((31 * n + 7 * t) % 256 for t in range(length))),
                prompt_length=length,
                tags=("tensors", "state") if n < 2 else (),
            )
        )
    return made


def without_streams(name: str) -> str:
    """A shipped suite less two areas: drawn streams and lm-eval tasks have whole ways of their own."""
    suite = (ROOT / "suites" / f"{name}.toml").read_text("utf-8")
    suite = re.sub(r'\n  \{ name = "(speculative|evals)\.[^\n]*', "", suite)
    return suite.replace('tasks = "suites/tasks"\n', "")


def settle(folder: Path) -> None:
    """A project with a tiny model, wide limits and recipes that differ in batch, chunk, splits."""
    text = (ROOT / "validate.toml").read_text("utf-8")
    for small, big in (("1", "30"), ("3", "15"), ("16", "10"), ("32", "8")):
        text = text.replace(f'batch = "{small}", chunk', f'batch = "{big}", chunk')
    suite = without_streams("default")
    keys = [*re.findall(r'name = "([a-z]+\.[a-z0-9_]+)"', suite), "near_tie", "route_gap"]
    limits = "".join(LIMIT.format(key=key, dtype="bfloat16") for key in keys)
    files = {
        "validate.toml": text,
        "suites/default.toml": suite,
        "suites/prompts/default.jsonl": "".join(p.model_dump_json() + "\n" for p in prompts()),
        "golden/tolerances.toml": f"schema_version = 1\n{limits}",
        "golden/calibration.toml": (ROOT / "golden" / "calibration.toml").read_text("utf-8"),
        "golden/k3-nano/config.json": CONFIG.model_dump_json(),
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    weights = folder / "golden" / "k3-nano" / "weights"
    weights.mkdir()
    for seed in (1, 2):
        made = initialise(CONFIG, seed=seed)
        save_weights(made, weights / f"seed{seed}.safetensors", metadata={})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("whole-way")
    settle(folder)
    with contextlib.chdir(folder):
        assert main(["golden", "record", "--device", "cpu"]) == 0
        yield folder


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["compare", "--format", "json", *arguments])
    shown = capsys.readouterr()
    assert shown.out, shown.err
    return code, json.loads(shown.out)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {gate["name"]: gate["outcome"] for gate in report["gates"]}


def test_capture_against_itself_differs_by_exactly_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = compared(capsys, "--ref", "cuda", "--cand", "cuda")

    assert {"FAIL", "INCOMPARABLE"}.isdisjoint(outcomes(report).values())
    assert code in {0, 3}
    ratios = {"attention.introduced_ratio", "attention.propagated_ratio", "logits.err_ratio"}
    inside = {"state.prefill_decode", "state.chunked_oneshot", "yardstick.ref_error"}
    inside |= {"renorm.kept_mass", "renorm.sum_error", "renorm.value_error"}
    values = {g["name"]: g["measurement"]["value"] for g in report["gates"]}
    differing = {k: v for k, v in values.items() if k not in ratios | inside and v != 0}
    assert differing == {}


def test_honest_rocm_path_is_not_blamed_and_then_reused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, first = compared(capsys, "--ref", "cuda", "--cand", "rocm")
    _, again = compared(capsys, "--ref", "cuda", "--cand", "rocm")

    assert "INCOMPARABLE" not in outcomes(first).values()
    assert (first["cand"]["evidence"], first["cand"]["reused"]) == ("emulated", False)
    assert again["cand"]["reused"] is True
    assert [gate["measurement"] for gate in first["gates"]] == [
        gate["measurement"] for gate in again["gates"]
    ]


def test_dry_run_tells_the_pairing_and_captures_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    before = sorted(place.rglob("*"))

    assert main(["compare", "--ref", "cuda", "--cand", "rocm:splits=7", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "(to be captured)" in text
    assert "pairing  known once both sides are captured" in text
    assert main(["compare", "--ref", "cuda", "--cand", "cuda-repeat", "--dry-run"]) == 0
    assert "pairing  30 of 30 prompts" in capsys.readouterr().out
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "fault",
    [
        "VX-01",
        pytest.param("LC-01", marks=pytest.mark.long),
        pytest.param("VX-02", marks=pytest.mark.long),
    ],
)
def test_planted_fault_is_far_outside_what_is_clean(
    fault: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ("--only", "attention")
    _, clean = compared(capsys, "--ref", "cuda", "--cand", "rocm:splits=2", *only)
    _, faulty = compared(capsys, "--ref", "cuda", "--cand", f"rocm:splits=2,fault={fault}", *only)

    def head(report: dict[str, Any]) -> Any:
        found = [g for g in report["gates"] if g["name"] == "attention.head_rel_l2"]
        return found[0]["measurement"]["value"]

    assert faulty["cand"]["fault"] == fault
    assert head(faulty) > 2 * head(clean)


def test_other_weights_must_be_declared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, report = compared(capsys, "--ref", "cuda", "--cand", "rocm:weights=seed2")

    assert report["cand"]["weights"] == "seed2"
    assert any("declares other weights: seed2" in note for note in report["notes"])


def test_selection_by_prompt_and_length_reaches_the_report(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = compared(
        capsys, "--ref", "cuda", "--cand", "cuda-repeat", "--only", "logits", "--tokens", "3"
    )

    kl = next(gate for gate in report["gates"] if gate["name"] == "logits.kl_p90")
    assert kl["measurement"]["n"] == 5
    assert "--tokens 3" in kl["rerun"]


def test_stale_golden_is_incomparable_until_it_is_verified(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = place / "golden" / "k3-nano" / "cuda-repeat" / "verified.json"
    held = json.loads(note.read_text("utf-8"))
    note.write_text(json.dumps(held | {"source_digest": "ab" * 32}), "utf-8")

    code, report = compared(capsys, "--ref", "cuda", "--cand", "cuda-repeat")
    assert code == 4
    assert set(outcomes(report).values()) == {"INCOMPARABLE"}
    assert "is stale" in report["gates"][0]["reason"]
    assert "validate golden verify cuda-repeat" in report["gates"][0]["reason"]

    assert main(["golden", "verify", "cuda-repeat"]) == 0
    assert "cuda-repeat: 30 prompts run again on " in capsys.readouterr().out
    assert json.loads(note.read_text("utf-8"))["how"] == "verified"
    code, report = compared(capsys, "--ref", "cuda", "--cand", "cuda-repeat")
    assert "INCOMPARABLE" not in outcomes(report).values()


def test_oracle_is_verified_by_the_same_numbers(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["golden", "verify", "oracle"]) == 0
    assert "oracle: 7 prompts run again" in capsys.readouterr().out


def test_damaged_capture_exits_4_with_one_message(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", "--target", "rocm:pad=tile", "--out", "hurt"]) == 0
    capsys.readouterr()
    shard = next((place / "hurt" / "shards").iterdir())
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)

    assert main(["compare", "--ref", "cuda", "--cand", "./hurt"]) == 4
    said = capsys.readouterr().err
    assert said.startswith("CaptureError: ")
    assert "Traceback" not in said
