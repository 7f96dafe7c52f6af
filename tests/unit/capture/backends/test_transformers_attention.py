"""Padded heads against attention of transformers' own, on a small random Llama with 9 heads in 3 groups."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate.capture.backends.transformers_attention import (
    FAULTS,
    PADS,
    Padding,
    padded_attention,
    register,
)
from validate.errors import InputError

transformers = pytest.importorskip("transformers")

HEADS, GROUPS, DIM, VOCAB = 9, 3, 8, 50
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HEADS * DIM,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        initializer_range=0.5,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config).eval()


def logits(model, implementation, *, decode=False):
    ids = torch.arange(2 * 7).view(2, 7) * 5 % VOCAB
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        if not decode:
            return model(ids).logits.numpy()
        first = model(ids[:, :4], use_cache=True)
        cache, rows = first.cache, [first.logits]
        for step in range(4, 7):
            out = model(ids[:, step : step + 1], cache=cache, use_cache=True)
            rows.append(out.logits)
    return torch.cat(rows, dim=1).numpy()


def by_hand(operands):
    """Causal attention, one head and one row at a time; head h reads key head h // (heads / key heads)."""
    query, key, value = operands
    _, heads, tokens, _ = query.shape
    out = np.zeros((query.shape[0], tokens, heads, value.shape[-1]))
    for h in range(heads):
        g = h // (heads // key.shape[1])
        for t in range(tokens):
            score = np.einsum("bd,bsd->bs", query[:, h, t], key[:, g, : t + 1]) * DIM**-0.5
            weight = np.exp(score - score.max(-1, keepdims=True))
            weight /= weight.sum(-1, keepdims=True)
            out[:, t, h] = np.einsum("bs,bsd->bd", weight, value[:, g, : t + 1])
    return out


def arrays(seed=3, tokens=5):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(2, h, tokens, DIM)) for h in (HEADS, GROUPS, GROUPS)]


def causal(tokens):
    return torch.full((tokens, tokens), -torch.inf, dtype=torch.float64).triu(1)[None, None]


def run(padding, operands):
    q, k, v = (torch.from_numpy(x) for x in operands)
    kernel = padded_attention(padding, Counter())
    return kernel(torch.nn.Identity(), q, k, v, causal(q.shape[2]), scaling=DIM**-0.5)[0].numpy()


@pytest.mark.parametrize("pad", PADS)
def test_heads_are_those_of_attention_written_by_hand(pad):
    operands = arrays()

    # 1e-6: transformers' eager softmax, and ours, is float32 whatever the operands.
    assert_measured(run(Padding(pad=pad), operands), by_hand(operands), atol=1e-6, rtol=0)


@pytest.mark.parametrize("decode", [False, True], ids=["prefill", "decode"])
@pytest.mark.parametrize("pad", PADS)
def test_a_model_gives_what_it_gives_unpadded(model, pad, decode):
    expected = logits(model, "eager", decode=decode)
    counts = register(Padding(pad=pad))

    actual = logits(model, Padding(pad=pad).name, decode=decode)

    assert_measured(actual, expected, atol=1e-5, rtol=1e-5)
    calls = 2 * (4 if decode else 1)
    assert counts == {f"heads.pad.{pad}": calls, "attention.padded.16": calls}


@pytest.mark.parametrize("pad", ["zero", "tile"])
def test_hd_05_leaves_the_first_group_right_and_moves_every_other_head(pad):
    operands = arrays()
    right = by_hand(operands)

    wrong = run(Padding(pad=pad, fault="HD-05"), operands)

    # 16 query heads over 3 key heads: ceil gives groups of 6, so slots 0..5 read key head 0
    # and 6..8 key head 1, where 0..2, 3..5 and 6..8 should read 0, 1 and 2.
    assert_measured(wrong[:, :, :3], right[:, :, :3], atol=1e-6, rtol=0)
    moved = np.abs(wrong - right).max(axis=(0, 1, 3))
    assert (moved[3:] > 0.1).all()


def test_vx_01_reads_a_prefix_of_a_repeated_layout():
    operands = arrays()
    right = by_hand(operands)

    wrong = run(Padding(pad="repeat", fault="VX-01"), operands)

    # Slots hold 0 1 2 2 | 3 4 5 5 | 6 7 8 8 | 6 7 8 8.
    expected = right[:, :, [0, 1, 2, 2, 3, 4, 5, 5, 6]]
    assert_measured(wrong, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("fault", "pad"), [("HD-05", "zero"), ("HD-05", "tile"), ("VX-01", "repeat")]
)
def test_planted_faults_move_the_logits_of_a_model(model, fault, pad):
    expected = logits(model, "eager")
    padding = Padding(pad=pad, fault=fault)
    register(padding)

    assert np.abs(logits(model, padding.name) - expected).max() > 0.1


def test_every_fault_has_a_site():
    made = {
        p.fault for p in (Padding(pad="zero", fault="HD-05"), Padding(pad="repeat", fault="VX-01"))
    }

    assert made == set(FAULTS)


@pytest.mark.parametrize(
    ("fault", "pad"), [("HD-05", "repeat"), ("VX-01", "zero"), ("XX-99", "zero")]
)
def test_a_fault_without_a_site_is_refused(fault, pad):
    with pytest.raises(
        InputError, match=rf"fault={fault} has no site under pad={pad}; known: HD-05"
    ):
        Padding(pad=pad, fault=fault)


def call(operands, mask="causal", **more):
    q, k, v = (torch.from_numpy(x) for x in operands)
    bias = causal(q.shape[2]) if mask == "causal" else mask
    attend = padded_attention(Padding(), Counter())
    return attend(torch.nn.Identity(), q, k, v, bias, scaling=1.0, **more)


def test_no_mask_is_refused_where_it_would_show_the_future():
    with pytest.raises(InputError, match="5 queries without a mask would see the future"):
        call(arrays(), mask=None)


def test_one_query_needs_no_mask():
    q, k, v = arrays()

    out, _ = call([q[:, :, :1], k, v], mask=None)

    assert torch.isfinite(out).all()


@pytest.mark.parametrize("name", ["sliding_window", "softcap", "dropout"])
def test_what_would_be_ignored_is_refused(name):
    with pytest.raises(InputError, match=f"padded attention: {name}: not read here"):
        call(arrays(), **{name: 0.5})


def test_heads_that_do_not_fit_are_refused():
    rng = np.random.default_rng(1)
    many = [rng.normal(size=(1, 18, 2, DIM)) for _ in range(3)]

    with pytest.raises(InputError, match="18 heads do not fit 16"):
        call(many)


def test_heads_that_key_heads_do_not_divide_are_refused():
    q, k, v = arrays()

    with pytest.raises(InputError, match=r"query \(2, 8, 5, 8\), key \(2, 3, 5, 8\)"):
        call([q[:, :8], k, v])


def test_groups_that_do_not_fit_equal_groups_are_refused():
    rng = np.random.default_rng(1)
    q, k = rng.normal(size=(1, 15, 2, DIM)), rng.normal(size=(1, 5, 2, DIM))
    operands = [torch.from_numpy(x) for x in (q, k, k)]
    kernel = padded_attention(Padding(pad="repeat"), Counter())

    with pytest.raises(
        InputError, match="15 heads in 5 groups do not fit 16 heads in equal groups"
    ):
        kernel(torch.nn.Identity(), *operands, causal(2), scaling=1.0)
