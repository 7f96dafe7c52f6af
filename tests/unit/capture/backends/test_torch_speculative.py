"""The ``speculative`` artifact on the small model: what is stored, and that every fault shows in it."""

from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.measured import assert_measured
from tests.unit.capture.backends import recording
from tests.unit.capture.backends.recording import CONFIG, make_project, opened
from tests.unit.models.small import small_weights
from tests.unit.models.speculation import DRAFT
from validate import faults
from validate.capture.backends import torch_batch, torch_model
from validate.capture.backends.torch_speculative import GRID, params_of
from validate.capture.writer import CaptureWriter
from validate.errors import InputError
from validate.models import SPECULATIVE_FAULTS, save_weights
from validate.models.dspark import initialise_drafter
from validate.oracle import lossless
from validate.oracle.lossless import Asked
from validate.schema import DRAWN_KINDS, Prompt

SPEC, COLD = "spec-sampled", "spec-greedy"
PROMPTS = tuple(
    Prompt(
        id=f"p-{i}",
        token_ids=tuple((3 * i + 5 * j) % 19 for j in range(5 + i)),
        prompt_length=3 + i % 3,
        tags=("speculative", "tensors") if i == 0 else ("speculative",),
    )
    for i in range(6)
)
BARE = (Prompt(id="bare", token_ids=(1, 2, 3), prompt_length=2),)
TOKENS = {"tokens": "24"}
FEW = (PROMPTS[0], PROMPTS[2], PROMPTS[5])
"""Enough for most faults to show: no filter, top-k alone, and top-k with top-p."""
RARE = ("VX-14", "VX-22")
"""Too rare for a capture this short; test_sampler and test_drafting plant them."""
QUICK = ("SA-01", "VX-11", "SP-02", "SP-07", "SP-09", "LA-03", "VX-21")
"""One of each code site: verifiers, sampler, drafter, proposal, roll-back, cut."""
PLANTED = [
    fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.long)
    for fault in SPECULATIVE_FAULTS
    if fault not in RARE
]
PER_TOKEN = {"tokens", "outcome", "row", "step", "logprob", "p", "q", "entropy", "variance", "edge"}
PER_STEP = {"place": 1, "limit": 1, "count": 1} | dict.fromkeys(
    ("drafts", "accepts", "expected", "drafted_p", "drafted_q", "confidence"), 2
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose model has flat laws, so that a random drafter is accepted often."""
    with pytest.MonkeyPatch.context() as patch:
        folder = make_project(tmp_path_factory.mktemp("project"), patch)
        toml = (folder / "validate.toml").read_text()
        named = 'drafter = "weights/draft.safetensors"\ndrafter_config = "draft.json"\n'
        (folder / "validate.toml").write_text(toml.replace("[targets", named + "[targets", 1))
        (folder / "draft.json").write_text(DRAFT.model_dump_json())
        flat = small_weights(CONFIG, seed=1)
        flat["lm_head.weight"] *= 0.3
        save_weights(flat, folder / "weights/seed1.safetensors", metadata={})
        weights = initialise_drafter(DRAFT, CONFIG, seed=3)
        save_file(
            {n: w.to(torch.bfloat16) for n, w in weights.items()},
            folder / "weights/draft.safetensors",
        )
        yield folder


@pytest.fixture
def inside(project, monkeypatch):
    monkeypatch.chdir(project)
    for module in (torch_batch, torch_model):
        monkeypatch.setattr(module, "STREAM_TOKENS", 2)
    return project


@pytest.fixture
def _unchecked() -> Iterator[None]:
    """Shapes are checked in the clean captures; two dozen faulty ones take their time without."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def record(out: str, path: str = "rocm", prompts=PROMPTS + BARE, **options: str):
    if not Path(out).exists():
        recording.record(out, path, TOKENS | options, prompts=prompts)
    return opened(out)


def every(side, name: str) -> np.ndarray:
    return np.concatenate([side.tensor(p.id, name).reshape(-1) for p in PROMPTS])


@pytest.mark.parametrize(
    ("tokens", "sampled", "greedy"), [("8", 8, 24), ("80", 80, 24), ("160", 160, 48)]
)
def test_the_key_tokens_shortens_sampled_streams_alone(inside, tokens, sampled, greedy):
    side = record(f"tokens-{tokens}", prompts=(PROMPTS[1],), tokens=tokens)

    found = {kind: len(side.drawn[kind]["p-1"].token_ids) for kind in DRAWN_KINDS}

    assert found == {"sampled": sampled, SPEC: sampled, COLD: greedy}


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_every_kind_is_stored_with_its_axes(inside, path):
    side = record(f"clean-{path}", path)

    for prompt in PROMPTS:
        for kind in DRAWN_KINDS:
            count = len(side.drawn[kind][prompt.id].token_ids)
            assert count == 24  # greedy streams are never shorter than a golden's
            for name in PER_TOKEN:
                assert side.shape(prompt.id, f"spec.{kind}.{name}") == (count,)
                assert side.axes(prompt.id, f"spec.{kind}.{name}") == ("tokens",)
            assert side.shape(prompt.id, f"spec.{kind}.falls") == (count, 2, 2, 2)
        for kind in (SPEC, COLD):
            steps = side.shape(prompt.id, f"spec.{kind}.place")[0]
            for name, dims in PER_STEP.items():
                expected = (steps, 7)[:dims]
                assert side.shape(prompt.id, f"spec.{kind}.{name}") == expected
    assert not [n for n in side.names("bare") if n.startswith("spec.")]
    assert side.shape("p-0", f"spec.{SPEC}.audit")[1] == 2 + 3 + 3
    assert side.shape("p-0", f"spec.{SPEC}.verify.logits") == (24, CONFIG.vocab_size)


def test_tensors_and_lines_tell_the_same_stream(inside):
    side = record("clean-rocm")

    for kind in DRAWN_KINDS:
        for prompt in PROMPTS:
            stream = side.drawn[kind][prompt.id]
            assert stream.token_ids == tuple(side.tensor(prompt.id, f"spec.{kind}.tokens"))
            assert stream.params == params_of(prompt, kind, seed=1)
            logprob = side.tensor(prompt.id, f"spec.{kind}.logprob")
            assert_measured(stream.logprobs, logprob, atol=1e-5, rtol=0)


def test_a_token_is_an_accepted_draft_or_ends_its_step(inside):
    side = record("clean-rocm")

    for prompt in PROMPTS:
        x = {n: side.tensor(prompt.id, f"spec.{SPEC}.{n}") for n in (*PER_TOKEN, *PER_STEP)}
        assert x["step"][0] == -1
        for token, outcome, row, step in zip(
            x["tokens"][1:], x["outcome"][1:], x["row"][1:], x["step"][1:], strict=True
        ):
            accepted = row < x["count"][step]
            full = row == x["limit"][step]
            assert outcome == (1 if accepted else 3 if full else 2)
            if accepted:
                assert token == x["drafts"][step, row]
                assert x["accepts"][step, row] == 1
        assert (np.isnan(x["q"]) == ((x["outcome"] == 0) | (x["row"] == 7))).all()


def test_what_is_stored_of_an_emitted_token_is_the_oracles(inside):
    """p, moments and falls of ``inside`` tokens, from the stored verify rows, one at a time."""
    side = record("clean-rocm")
    rows = side.tensor("p-0", f"spec.{SPEC}.verify.logits").astype(np.float64)
    params = side.drawn[SPEC]["p-0"].params
    asked = Asked(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        ties="exactly_k",
    )

    for at, row in enumerate(rows):
        law = lossless.requested_law(row, asked)
        x = int(side.tensor("p-0", f"spec.{SPEC}.tokens")[at])
        found = [side.tensor("p-0", f"spec.{SPEC}.{n}")[at] for n in ("p", "entropy", "variance")]
        assert_measured(found, [law[x], *lossless.surprisal_moments(law)], atol=1e-7, rtol=1e-6)
        fall = side.tensor("p-0", f"spec.{SPEC}.falls")[at, 0, 0]
        wanted = lossless.fall(law, x, order="falling_p", p=law)
        assert_measured(fall, wanted, atol=1e-7, rtol=1e-6)


def test_verify_rows_are_the_teacher_forced_ones(inside):
    side = record("wide", "reference", dtype="float64")

    verify, forced = (side.tensor("p-0", f"spec.{SPEC}.{n}.logits") for n in ("verify", "forced"))
    assert_measured(verify, forced, atol=1e-10, rtol=1e-9)
    audit = side.tensor("p-0", f"spec.{SPEC}.audit")
    assert_measured(audit, np.zeros(audit.shape), atol=1e-10, rtol=0)


def test_the_replay_is_the_stream_among_other_batchmates(inside):
    side = record("clean-rocm")

    same = [
        (side.tensor(p.id, f"spec.{SPEC}.replay") == side.tensor(p.id, f"spec.{SPEC}.tokens")[:12])
        for p in PROMPTS
    ]
    assert np.mean(same) > 0.9


def test_options_path_proof_and_digest_say_what_ran(inside):
    manifest = record("clean-rocm").manifest

    said = {"verifier": "chain", "build": "sparse", "draft": "on", "cut": "0", "tokens": "24"}
    assert said.items() <= manifest.options.items()
    for branch in ("draft.block", "verify.chain", "sampler.sparse"):
        assert manifest.path_proof.branches[branch] > 0
    assert manifest.model.drafter_digest is not None


def test_seeds_are_each_requests_own(inside):
    side = record("clean-rocm")

    seeds = [
        side.drawn[kind][p.id].params.seed for p in PROMPTS for kind in ("sampled", "spec-sampled")
    ]
    assert len(set(seeds)) == len(seeds)
    assert {s.params.seed for s in side.drawn[COLD].values()} == {None}
    assert len({g.temperature for g in GRID}) > 3


def test_without_a_drafter_the_speculative_kinds_are_left_out(inside):
    side = record("undrafted", draft="off")

    assert set(side.drawn) == {"sampled"}
    assert not [n for n in side.names("p-0") if n.startswith(f"spec.{SPEC}")]


def test_an_interrupted_capture_is_taken_up_with_the_same_streams(inside, monkeypatch):
    whole = record("clean-rocm")

    def stop(done, total, what):
        if done > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch_model, "CaptureWriter", small_groups(CaptureWriter))
    with pytest.raises(KeyboardInterrupt):
        recording.record("again", "rocm", TOKENS, prompts=PROMPTS + BARE, progress=stop)
    recording.record("again", "rocm", TOKENS, prompts=PROMPTS + BARE, resume=True)

    again = opened("again")
    for prompt in PROMPTS:
        for name in whole.names(prompt.id):
            assert np.array_equal(
                whole.tensor(prompt.id, name), again.tensor(prompt.id, name), equal_nan=True
            )


def small_groups(writer):
    return lambda *a, **k: writer(*a, **{**k, "shard_prompts": 2})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft": "off", "verifier": "chain"}, "nothing is drafted here"),
        ({"verifier": "greedy"}, "verifier=greedy: must be one of chain, target_only"),
        ({"cut": "1.5"}, "cut=1.5: must be a probability from 0"),
        ({"fault": "SA-01", "draft": "off"}, "fault=SA-01 has no site here: nothing is drafted"),
        ({"fault": "SP-07", "verifier": "chain"}, "its site is the code of verifier=exact_match"),
        ({"fault": "VX-21", "cut": "0"}, "its site is the code of cut=0.3"),
        ({"fault": "SP-09", "verifier": "target_only"}, "does none of the arithmetic"),
        ({"fault": "SP-09", "draft": "onehot"}, "draft=onehot draws no proposal"),
    ],
)
def test_a_key_without_a_meaning_here_is_refused(inside, options, message):
    with pytest.raises(InputError, match=message):
        recording.record("refused", "rocm", options, prompts=PROMPTS)


def test_a_fault_of_speculation_needs_a_prompt_to_draw_from(inside):
    with pytest.raises(InputError, match="no prompt of the set is tagged 'speculative'"):
        recording.record("refused", "rocm", {"fault": "VX-10"}, prompts=BARE)


def test_a_missing_drafter_is_named(inside, monkeypatch):
    (inside / "weights/draft.safetensors").rename(inside / "weights/away.safetensors")
    try:
        with pytest.raises(
            InputError, match="no such file\n  do next: train the drafter, or draft=off"
        ):
            recording.record("refused", "rocm", {}, prompts=PROMPTS)
    finally:
        (inside / "weights/away.safetensors").rename(inside / "weights/draft.safetensors")


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("fault", PLANTED)
def test_every_fault_shows_in_the_capture(inside, fault):
    needed = {"SP-07": {"verifier": "exact_match"}, "VX-21": {"cut": "0.3"}}.get(fault, {})
    key = "-".join(needed.values()).replace(".", "")
    few = fault in QUICK
    prompts, tokens = (FEW, "16") if few else (PROMPTS, "24")
    clean = record(f"clean-{few}{key}", "rocm", prompts, tokens=tokens, **needed)

    planted = record(f"fault-{fault.lower()}", "rocm", prompts, tokens=tokens, fault=fault)

    assert planted.manifest.fault == fault
    differ = [
        f"{p.id}/{name}"
        for p in prompts
        for name in planted.names(p.id)
        if name.startswith("spec.")
        and not np.array_equal(clean.tensor(p.id, name), planted.tensor(p.id, name), equal_nan=True)
    ]
    assert differ, f"{fault} changed nothing"
    for prompt in prompts:
        others = [n for n in clean.names(prompt.id) if not n.startswith("spec.")]
        for name in others:
            assert np.array_equal(clean.tensor(prompt.id, name), planted.tensor(prompt.id, name))


def test_every_fault_is_in_the_catalogue():
    listed = {f.id for f in faults.FAULTS.values()}

    assert set(SPECULATIVE_FAULTS) <= listed
