"""The path proof: which branches a run counts, how often, and that none other appears."""

import pytest
import torch

from tests.unit.models.small import CPU, SMALL, WEIGHTS, run_decode, run_prefill
from validate.models import SILENT, PathOptions, Trace, greedy
from validate.schema.paths import OPTION_BRANCHES, PAD_BRANCHES, PATHS

MLA, KDA = 2, 3
"""Layers of each kind in the small model."""
ROW = ((3, 1, 4, 1, 5, 9),)


def branches(options, *, chunk=0, decode=2):
    """Prefill of six tokens, then ``decode`` tokens one at a time."""
    trace = Trace(wants=lambda _: False)
    _, state = run_prefill(ROW, options, chunk=chunk, trace=trace)
    if decode:
        run_decode(((2,) * decode,), state, options, trace=trace)
    assert not trace.tensors
    return dict(trace.branches)


def options_of(**switches):
    return PathOptions(**{"dtype": torch.float64, **switches})


def test_the_reference_path_by_hand():
    assert branches(options_of()) == {
        "kda.chunk": KDA,
        "kda.recurrent": 2 * KDA,
        "mla.prefill.decompressed": MLA,
        "mla.decode.decompressed": 2 * MLA,
    }


def test_the_reference_path_in_chunks_and_splits():
    """Three passes of prefill, each and each decode step merging three parts."""
    assert branches(options_of(splits=3), chunk=2) == {
        "kda.chunk": 3 * KDA,
        "kda.recurrent": 2 * KDA,
        "mla.prefill.decompressed": 3 * MLA,
        "mla.decode.decompressed": 2 * MLA,
        "lse_merge": 5 * MLA,
    }


@pytest.mark.parametrize("pad", ["zero", "tile", "repeat"])
def test_the_rocm_path_by_pad(pad):
    """One part of keys in each step: no merge."""
    prefill = "tile" if pad == "tile" else "zero"

    assert branches(options_of(path="rocm", prefill_pad=prefill, decode_pad=pad)) == {
        "kda.chunk": KDA,
        "kda.recurrent": 2 * KDA,
        f"mla.prefill.padded.{prefill}": MLA,
        "mla.decode.absorbed": 2 * MLA,
        f"mla.decode.pad.{pad}": 2 * MLA,
    }


def test_rocm_merges_prefix_and_new_tokens_from_the_second_chunk_on():
    """Chunks of 2: the first of three has no prefix. Decode merges its four parts."""
    found = branches(options_of(path="rocm", splits=4), chunk=2)

    assert found["lse_merge"] == 2 * MLA + 2 * MLA
    assert found["mla.prefill.padded.zero"] == 3 * MLA


@pytest.mark.parametrize("form", ["fp8", "fp8-fnuz"])
def test_float8_prefill_is_counted_for_each_part_that_was_rounded(form):
    """Two passes: the first has its new tokens alone, the second the prefix and its new tokens."""
    plain = branches(options_of(path="rocm"), chunk=3)
    narrow = branches(options_of(path="rocm", prefill=form), chunk=3)
    name = OPTION_BRANCHES[("prefill", form)]

    assert narrow == plain | {name: 3 * MLA}


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_a_bfloat16_state_is_counted_in_both_forms(path):
    plain, narrow = branches(options_of(path=path)), branches(options_of(path=path, state="bf16"))

    assert narrow == plain | {OPTION_BRANCHES[("state", "bf16")]: 3 * KDA}


@pytest.mark.parametrize("fault", ["VX-01", "LC-01", "VX-02"])
def test_a_fault_does_not_show_in_the_path_proof(fault):
    """The code believes it runs the same path; only numbers can tell."""
    switches = {"path": "rocm", "decode_pad": "repeat", "splits": 2}

    assert branches(options_of(**switches, fault=fault)) == branches(options_of(**switches))


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_every_promised_branch_runs_and_no_forbidden_one(path):
    found = branches(options_of(path=path, splits=2), chunk=4)
    rule = PATHS[path]

    assert [name for name in rule.requires if not found.get(name)] == []
    assert [name for name in rule.forbids if name in found] == []


@pytest.mark.parametrize("pad", sorted(PAD_BRANCHES))
def test_pads_run_the_branches_that_their_name_promises(pad):
    prefill = "tile" if pad == "tile" else "zero"
    found = branches(options_of(path="rocm", prefill_pad=prefill, decode_pad=pad))

    assert {n for n in found if ".padded." in n or ".pad." in n} == set(PAD_BRANCHES[pad])


def test_greedy_counts_its_prefill_and_its_steps():
    """The last token is taken from logits and not fed back: steps - 1 decode passes."""
    trace = Trace(wants=lambda _: False)

    greedy(WEIGHTS, ROW, steps=4, config=SMALL, options=options_of(), device=CPU, trace=trace)

    assert trace.branches["kda.chunk"] == KDA
    assert trace.branches["kda.recurrent"] == 3 * KDA


def test_tensors_are_kept_only_when_asked_for_and_handed_over_once():
    trace = Trace(wants=lambda name: name.endswith(".lse"))

    run_prefill(ROW, options_of(), chunk=3, trace=trace)
    taken = trace.take()

    assert sorted(taken) == ["prefill.mla.1.lse", "prefill.mla.4.lse"]
    assert [len(passes) for passes in taken.values()] == [2, 2]
    assert trace.take() == {}
    assert trace.branches["kda.chunk"] == 2 * KDA


def test_a_silent_trace_changes_nothing():
    loud = run_prefill(ROW, options_of(), trace=Trace(wants=lambda _: True))[0]
    quiet = run_prefill(ROW, options_of(), trace=SILENT)[0]

    assert torch.equal(loud, quiet)
