"""Head padding: which counts kernels take, and that each rule's unpad undoes its pad."""

import math

import pytest
import torch

from tests.unit.models.small import ROWS, real, rocm, run_decode, run_prefill, whole_trace
from validate.errors import InputError
from validate.models import mla
from validate.models.attention import attend
from validate.models.heads import ACCEPTED_HEADS, accepted, pad_heads, padded_count, unpad_heads

HEADS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Heads of a K3 rank at TP 1 to 16 (96, 48, 24, 12, 6), and counts that kernels take as they are."""

PADDED = {
    "zero": dict(zip(HEADS, (4, 8, 8, 16, 16, 32, 32, 48, 64, 96), strict=True)),
    "tile": dict(zip(HEADS, (4, 8, 8, 16, 16, 32, 32, 48, 64, 96), strict=True)),
    "repeat": dict(zip(HEADS, (4, 48, 8, 48, 16, 48, 32, 48, 64, 96), strict=True)),
}
"""By hand from the accepted counts 4, 8, 16, 32, 48, 64, 80, 96, 112, 128."""

RULES = ("zero", "tile", "repeat")
CASES = [pytest.param(h, r, id=f"{h}-{r}") for h in HEADS for r in RULES]


def unread(heads, rule):
    """Padded columns that the matching unpad does not read."""
    count = padded_count(heads, rule)
    read = range(0, count, count // heads) if rule == "repeat" else range(heads)
    return sorted(set(range(count)) - set(read))


def numbered(heads, dim=3):
    """(2, 2, heads, dim), every number different."""
    return torch.arange(2.0 * 2 * heads * dim).view(2, 2, heads, dim)


def test_accepted_counts_are_those_of_the_kernel():
    """sglang's assert for aiter: 4, 8, or a multiple of 16 within 16..128."""
    assert sorted(ACCEPTED_HEADS) == [4, 8, 16, 32, 48, 64, 80, 96, 112, 128]
    assert all(accepted(heads) == heads for heads in ACCEPTED_HEADS)


@pytest.mark.parametrize("heads", [0, 1, 6, 12, 24, 40, 129, 144])
def test_a_count_without_a_kernel_is_refused(heads):
    with pytest.raises(
        InputError,
        match=rf"^MLA kernel: {heads} heads have no kernel; "
        r"accepted: 4, 8, 16, 32, 48, 64, 80, 96, 112, 128\. Pad the heads first$",
    ):
        accepted(heads)


@pytest.mark.parametrize(("heads", "rule"), CASES)
def test_padded_count_by_hand(heads, rule):
    assert padded_count(heads, rule) == PADDED[rule][heads]


def test_twelve_heads_cannot_be_repeated_to_sixteen():
    assert padded_count(12, "zero") == padded_count(12, "tile") == 16
    assert padded_count(12, "repeat") == 48


@pytest.mark.parametrize(
    ("heads", "rule"), [(9, "repeat"), (13, "repeat"), (129, "zero"), (129, "tile")]
)
def test_heads_that_no_count_holds_are_refused(heads, rule):
    with pytest.raises(
        InputError, match=rf"^pad={rule}: no accepted head count for {heads} heads \(at most 128\)$"
    ):
        padded_count(heads, rule)


def test_pads_by_hand():
    """Three heads a, b, c to 4 by zero and tile, to 48 by repeat: 16 times each in a row."""
    x = torch.tensor([[1.0], [2.0], [3.0]])

    assert pad_heads(x, "zero").flatten().tolist() == [1, 2, 3, 0]
    assert pad_heads(x, "tile").flatten().tolist() == [1, 2, 3, 1]
    assert pad_heads(x, "repeat").flatten().tolist() == [1] * 16 + [2] * 16 + [3] * 16


@pytest.mark.parametrize(("heads", "rule"), CASES)
def test_unpad_undoes_pad_of_output_and_lse(heads, rule):
    x = numbered(heads)

    padded = pad_heads(x, rule)
    out = unpad_heads(padded, heads, rule, axis=-2)
    lse = unpad_heads(padded[..., 0], heads, rule, axis=-1)

    assert padded.shape == (2, 2, PADDED[rule][heads], 3)
    assert padded.is_contiguous()
    assert out.is_contiguous()
    assert torch.equal(out, x)
    assert torch.equal(lse, x[..., 0])


@pytest.mark.parametrize(("heads", "rule"), CASES)
def test_garbage_in_padded_heads_moves_no_real_head(heads, rule):
    """Attention with every unread head of q, k and v NaN gives the bits it gives without."""
    q, k, v = (torch.sin(numbered(heads) + shift) for shift in range(3))
    mask = torch.ones(2, 2, 2, dtype=torch.bool).tril()

    def run(*, garbage):
        made_q, made_k, made_v = made = [pad_heads(x, rule) for x in (q, k, v)]
        for x in made:
            x[..., unread(heads, rule), :] = math.nan if garbage else 0.0
        raw = attend(
            made_q,
            made_k,
            made_v,
            mask,
            scale=0.7,
            accumulate=torch.float32,
            round_weights=True,
        )
        out = unpad_heads(raw.out, heads, rule, axis=-2)
        return out, unpad_heads(raw.lse, heads, rule, axis=-1)

    clean, dirty = run(garbage=False), run(garbage=True)

    assert torch.isfinite(dirty[0]).all()
    assert torch.equal(dirty[0], clean[0])
    assert torch.equal(dirty[1], clean[1])


@pytest.mark.parametrize("rule", RULES)
def test_garbage_in_padded_heads_moves_nothing_in_the_model(monkeypatch, rule):
    options = rocm(prefill_pad="tile" if rule == "tile" else "zero", decode_pad=rule, splits=2)

    def run():
        trace = whole_trace()
        logits, state = run_prefill(ROWS, options, chunk=4, trace=trace)
        more, _ = run_decode(ROWS, state, options, trace=trace)
        found = {n: torch.cat(passes, dim=1) for n, passes in trace.tensors.items()}
        return {n: real(x, ROWS) for n, x in (found | {"a": logits, "b": more}).items()}

    def poisoned(x, rule):
        padded = pad_heads(x, rule)
        padded[..., unread(x.shape[-2], rule), :] = math.nan
        seen.append(bool(torch.isnan(padded).any()))
        return padded

    seen: list[bool] = []
    clean = run()
    monkeypatch.setattr(mla, "pad_heads", poisoned)
    dirty = run()

    assert seen
    assert all(seen)
    assert all((dirty[name] == clean[name]).all() for name in clean)


def test_a_head_count_that_the_kernel_lacks_is_refused_where_it_is_called(monkeypatch):
    """The host-side check guards the call: an unpadded 12 never reaches the kernel."""
    monkeypatch.setattr(mla, "pad_heads", lambda x, rule: x)

    with pytest.raises(InputError, match=r"^MLA kernel: 12 heads have no kernel"):
        run_prefill(ROWS, rocm())
