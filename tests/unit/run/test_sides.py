"""Path proofs: what a target's name promises and what its capture proves."""

import pytest

from tests.unit.run.made import REFERENCE, ROCM, gate, run, side
from validate.run.sides import capture_digest, content_digest, proof_gaps
from validate.schema.manifest import PathProof


def gaps(target, branches, *, path=None, **how):
    """Gaps of a capture of ``target`` that ran these branches."""
    known = "rocm" if target.startswith("rocm") else "reference"
    proof = PathProof(path=path or known, branches=branches)
    return [
        text.partition("' ")[2]
        for text in proof_gaps("cand", side(target, path_proof=proof, **how))
    ]


def without(branches, *names):
    return {name: count for name, count in branches.items() if name not in names}


PAD_TILE = without(ROCM, "mla.prefill.padded.zero", "mla.decode.pad.zero") | {
    "mla.prefill.padded.tile": 1,
    "mla.decode.pad.tile": 1,
}
PAD_REPEAT = without(ROCM, "mla.decode.pad.zero") | {"mla.decode.pad.repeat": 1}


@pytest.mark.parametrize(
    ("target", "branches"),
    [
        ("cuda", REFERENCE),
        ("cuda-repeat", REFERENCE),
        ("cuda-repeat-3", REFERENCE),
        ("reference", REFERENCE),
        ("rocm", ROCM),
        ("rocm:pad=zero", ROCM),
        ("rocm:pad=tile", PAD_TILE),
        ("rocm:pad=repeat", PAD_REPEAT),
        ("rocm:splits=1", without(ROCM, "lse_merge")),
        ("rocm:prefill=fp8", ROCM | {"mla.prefill.fp8.float8_e4m3fn": 1}),
        ("rocm:prefill=fp8-fnuz", ROCM | {"mla.prefill.fp8.float8_e4m3fnuz": 1}),
        ("rocm:state=bf16,pad=tile", PAD_TILE | {"kda.state.bfloat16": 1}),
        ("vllm", {"flash": 1}),
    ],
)
def test_an_honest_proof_has_no_gaps(target, branches):
    """The table of validate/schema/paths.py, row by row."""
    assert gaps(target, branches) == []


@pytest.mark.parametrize("name", list(ROCM))
def test_every_branch_of_the_rocm_path_is_needed(name):
    """Missing, or there with count 0."""
    assert gaps("rocm", without(ROCM, name)) == [f"lacks the branch {name}"]
    assert gaps("rocm", ROCM | {name: 0}) == [f"lacks the branch {name}"]


@pytest.mark.parametrize("name", list(REFERENCE))
def test_every_branch_of_the_reference_path_is_needed(name):
    """The same for ref."""
    assert gaps("cuda", without(REFERENCE, name)) == [f"lacks the branch {name}"]


@pytest.mark.parametrize(
    ("target", "branches", "expected"),
    [
        ("rocm", ROCM | {"mla.decode.decompressed": 1}, "ran the branch mla.decode.decompressed"),
        ("rocm", ROCM | {"mla.prefill.decompressed": 1}, "ran the branch mla.prefill.decompressed"),
        ("cuda", REFERENCE | {"mla.decode.absorbed": 1}, "ran the branch mla.decode.absorbed"),
        ("rocm", ROCM | {"kda.state.bfloat16": 1}, "ran the branch kda.state.bfloat16, which its"),
        ("rocm:prefill=fp8", ROCM, "lacks the branch mla.prefill.fp8.float8_e4m3fn"),
        ("rocm:state=bf16", ROCM, "lacks the branch kda.state.bfloat16"),
        ("rocm:pad=tile", ROCM, "lacks the branch mla.prefill.padded.tile"),
        ("rocm:pad=repeat", ROCM, "lacks the branch mla.decode.pad.repeat"),
        ("rocm", PAD_REPEAT, "lacks the branch mla.decode.pad.zero"),
        ("vllm", {}, "proves no branch or kernel at all"),
        ("vllm", {"flash": 0}, "proves no branch or kernel at all"),
    ],
)
def test_what_did_not_or_should_not_run_is_named(target, branches, expected):
    """One gap, one sentence."""
    assert gaps(target, branches)[0].startswith(expected)


def test_another_path_is_named():
    """A capture called rocm whose proof is of the reference path."""
    found = gaps("rocm", REFERENCE, path="reference")

    assert found[0] == "names the path rocm, its proof is of reference"
    assert len(found) > 4


def test_options_of_the_manifest_count_below_the_target():
    """A pad that a fault set is in the options; a fault that says nothing leaves any pad."""
    assert gaps("rocm:fault=VX-01", PAD_REPEAT, options={"pad": "repeat"}, fault="VX-01") == []
    assert gaps("rocm:fault=VX-01", PAD_REPEAT, fault="VX-01") == []
    assert gaps("rocm:pad=tile", PAD_REPEAT, options={"pad": "repeat"}) != []
    assert gaps("rocm:fault=VX-01", without(ROCM, "mla.decode.pad.zero"), fault="VX-01") == [
        "lacks the branch mla.decode.pad.zero or mla.decode.pad.tile or mla.decode.pad.repeat"
    ]


DRAWN = {"draft": "on", "verifier": "chain", "build": "sparse"}
DRAFTED = {"draft.block": 9, "verify.chain": 9, "sampler.sparse": 20}


@pytest.mark.parametrize(
    ("target", "options", "ran"),
    [
        ("rocm", DRAWN, DRAFTED),
        ("rocm:draft=onehot", DRAWN, DRAFTED),
        ("rocm:draft=off", {"draft": "off", "build": "sparse"}, {"sampler.sparse": 20}),
        ("rocm:draft=off", DRAWN, {"sampler.sparse": 20}),
        (
            "rocm:verifier=exact_match",
            DRAWN,
            without(DRAFTED, "verify.chain") | {"verify.exact_match": 9},
        ),
        ("rocm", {}, {}),
    ],
)
def test_drafter_verifier_and_sampler_are_proven(target, options, ran):
    """What the options say was drafted, verified and drawn with; draft=off promises a sampler alone."""
    assert gaps(target, ROCM | ran, options=options) == []


@pytest.mark.parametrize("name", list(DRAFTED))
def test_every_branch_of_drawn_streams_is_needed(name):
    """Missing, or there with count 0."""
    assert gaps("rocm", ROCM | without(DRAFTED, name), options=DRAWN) == [
        f"lacks the branch {name}"
    ]
    assert gaps("rocm", ROCM | DRAFTED | {name: 0}, options=DRAWN) == [f"lacks the branch {name}"]


@pytest.mark.parametrize(
    ("target", "options", "ran", "expected"),
    [
        ("rocm:draft=off", DRAWN, DRAFTED, ["draft.block", "verify.chain"]),
        ("rocm", {}, {"draft.block": 1, "sampler.dense": 1}, ["draft.block", "sampler.dense"]),
        ("rocm", DRAWN, DRAFTED | {"verify.target_only": 1}, ["verify.target_only"]),
        ("rocm", DRAWN, DRAFTED | {"sampler.dense": 1}, ["sampler.dense"]),
    ],
)
def test_another_drafter_verifier_or_sampler_is_named(target, options, ran, expected):
    """Two verifiers in one proof are one too many."""
    assert gaps(target, ROCM | ran, options=options) == [
        f"ran the branch {name}, which its target does not name" for name in expected
    ]


def test_a_capture_that_lacks_its_drafter_is_incomparable():
    """Through the whole of compare: the yardstick's gate, exit 4."""
    proof = PathProof(path="rocm", branches=ROCM | {"sampler.sparse": 20})
    cand = side("rocm", path_proof=proof, options=DRAWN)

    report = run(cand)

    found = gate(report, "yardstick.path_proof")
    assert str(report.verdict) == str(found.outcome) == "INCOMPARABLE"
    assert "cand 'rocm' lacks the branch draft.block" in found.reason
    assert "cand 'rocm' lacks the branch verify.chain" in found.reason


def test_timing_is_no_content():
    """Two runs of the same numbers differ in it."""
    one, two = side("cuda"), side("cuda")
    timing = one.manifest.artifacts[0].model_copy(update={"artifact": "timing", "sha256": "0" * 64})
    held = (*one.manifest.artifacts, timing)
    one.manifest = one.manifest.model_copy(update={"artifacts": held})

    assert content_digest(one.manifest) == content_digest(two.manifest)
    assert capture_digest(one) != capture_digest(two)
    one.digest = "f" * 64  # as a capture on disk has it
    assert capture_digest(one) == "f" * 64
