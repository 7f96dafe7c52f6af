"""The pages on the model cannot drift: names, branches and numbers are those of code and files."""

import hashlib
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from tests.unit.models.small import ROWS, rocm, run_decode, run_prefill
from validate.models import FAULTS, RULES, PathOptions, Trace, load_config, weight_shapes
from validate.models.heads import ACCEPTED_HEADS
from validate.models.sampler import Build
from validate.models.verify import Verifier
from validate.schema.paths import OPTION_BRANCHES, PAD_BRANCHES, PATHS

ROOT = Path(__file__).parents[3]
MODEL = (ROOT / "docs/model.md").read_text("utf-8")
GOLDEN = ROOT / "golden/k3-nano"
README = (GOLDEN / "README.md").read_text("utf-8")
CONFIG = load_config(GOLDEN / "config.json")


def named(text: str) -> set[str]:
    return set(re.findall(r"`([A-Za-z0-9_.]+)`", text))


def test_every_weight_is_on_the_page():
    prefixes = ("mla.", "kda.", "mlp.", "moe.")
    wanted = set()
    for name in weight_shapes(CONFIG):
        short = re.sub(r"^layers\.\d+\.", "", name)
        wanted.add(short.split(".", 1)[1] if short.startswith(prefixes) else short)

    assert wanted - named(MODEL) == set()


def test_every_branch_is_on_the_page_and_none_that_cannot_run():
    page = MODEL.partition("### Branches")[2].partition("### Sites")[0]
    on_page = {n for n in named(page) if n.startswith(("mla.", "kda.", "lse_"))}
    of_captures = {f"renorm.{rule}" for rule in RULES} | {"draft.block"}
    of_captures |= {f"verify.{rule}" for rule in get_args(Verifier)}
    of_captures |= {f"sampler.{build}" for build in get_args(Build)}
    possible: set[str] = set()
    for options in (
        PathOptions(splits=2),
        *(rocm(decode_pad=pad, splits=2) for pad in ("zero", "repeat")),
        rocm(prefill_pad="tile", decode_pad="tile", state="bf16"),
        *(rocm(prefill=form) for form in ("fp8", "fp8-fnuz")),
    ):
        trace = Trace(wants=lambda _: False)
        _, state = run_prefill(ROWS[1:2], options, trace=trace)
        run_decode(ROWS[1:2], state, options, trace=trace)
        possible |= set(trace.branches)

    assert on_page == possible
    assert of_captures <= named(page)
    assert set(OPTION_BRANCHES.values()) <= on_page | of_captures
    assert {b for pair in PAD_BRANCHES.values() for b in pair} <= on_page
    assert set(PATHS["reference"].requires) | set(PATHS["rocm"].requires) <= on_page


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_site_on_the_page(fault):
    assert re.search(rf"^\| ([A-Z0-9-]+, )*{fault}(, [A-Z0-9-]+)* \| `models/\w+\.py`", MODEL, re.M)


def test_the_accepted_heads_of_the_page():
    assert {4, 8, *range(16, 129, 16)} == ACCEPTED_HEADS
    assert "4, 8, or a multiple of 16 up to 128 heads" in MODEL


@pytest.mark.golden
@pytest.mark.parametrize(
    "file", ["config.json", "weights/seed1.safetensors", "weights/seed2.safetensors"]
)
def test_digests_of_the_readme_are_those_of_the_files(file):
    content = (GOLDEN / file).read_bytes()
    line = next(line for line in README.splitlines() if line.startswith(f"| `{file}`"))

    assert hashlib.sha256(content).hexdigest() in line
    if file != "config.json":
        assert f"{len(content):,}".replace(",", " ") in line


@pytest.mark.golden
def test_the_table_of_curves_is_that_of_the_runs():
    runs = [json.loads((GOLDEN / f"recipe/runs/seed{n}-curve.json").read_text()) for n in (1, 2)]
    points = [{p["step"]: p for p in run["curve"]} for run in runs]
    for step in (0, 100, 500, 1000, 2000, 3000, 4000, 4200):
        first, second = (p[step] for p in points)
        cells = [f"{step}", f"{first['tokens']:,}".replace(",", " ")]
        cells += [f"{p[key]:.4f}" for p in (first, second) for key in ("loss", "least_load")]
        assert f"| {' | '.join(cells)} |" in README
    assert f"| steps in all | | {runs[0]['steps']} | | {runs[1]['steps']} | |" in README


@pytest.mark.golden
def test_the_table_of_quality_is_that_of_the_runs():
    runs = [json.loads((GOLDEN / f"recipe/runs/seed{n}-quality.json").read_text()) for n in (1, 2)]
    for name in runs[0]["nats_per_byte"]:
        cells = [f"{run['nats_per_byte'][name]:.4f}" for run in runs]
        assert f"| {name}, nats a byte | {' | '.join(cells)} |" in README
    for name in runs[0]["exact"]:
        cells = [f"{100 * run['exact'][name]:.2f} %" for run in runs]
        assert f"| {name} | {' | '.join(cells)} |" in README


@pytest.mark.golden
def test_the_table_of_captures_is_that_of_the_manifests():
    folders = sorted(path.parent for path in GOLDEN.glob("*/manifest.json"))
    assert len(folders) == 6
    for folder in folders:
        line = next(line for line in README.splitlines() if line.startswith(f"| `{folder.name}` |"))
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        options = manifest["options"]
        assert manifest["prompt_digest"] in README
        assert manifest["model"]["weights_digest"] in README
        assert manifest["model"]["tokenizer_digest"] in README
        if folder.name != "oracle":
            chunk = "whole prompt" if options["chunk"] == "0" else options["chunk"]
            assert f"| {options['batch']}, {chunk}, {options['splits']} |" in line
            if manifest["provenance"]["hardware"] in line:
                assert manifest["provenance"]["driver"] in line
                assert manifest["provenance"]["versions"]["torch"] in line
