"""What a block is drawn from, where it is placed, and how much of it is verified."""

import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import SMALL, rocm
from tests.unit.models.speculation import COLD, DRAFT, PROMPTS, WARM, drafter, spec_streams
from validate.models.drafting import Drafted, draft_law, tap_names, verified_drafts
from validate.models.sampler import Requests
from validate.schema import SamplingParams


def rocm_with(fault):
    return rocm(fault=fault, splits=2)


def test_q_is_the_softmax_at_the_requests_temperature_without_filters():
    logits = torch.randn(3, 2, SMALL.vocab_size, generator=torch.Generator().manual_seed(1))
    requests = Requests.of([*WARM[:2], COLD], device="cpu")

    q = draft_law(drafter(), logits, requests)

    assert_measured(q[0], torch.softmax(logits[0], -1), atol=1e-7, rtol=1e-6)
    assert_measured(q[1], torch.softmax(logits[1] / 0.6, -1), atol=1e-7, rtol=1e-6)
    assert torch.equal(q[2].argmax(-1), logits[2].argmax(-1))
    assert_measured(q[2].amax(-1), [1.0, 1.0], atol=0, rtol=0)


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (None, ["hidden.1", "hidden.2", "hidden.4"]),
        ("SP-05", ["attn.1.in", "attn.2.in", "attn.4.in"]),
        ("SP-06", ["hidden.2", "hidden.4", "hidden.6"]),
    ],
)
def test_taps(fault, names):
    assert tap_names(drafter(), layers=9, fault=fault) == names


def test_a_cut_looks_at_the_chance_to_be_reached():
    """0.9 x 0.8 = 0.72, x 0.4 = 0.29: at 0.3 two drafts are verified, though the fourth is sure."""
    sure = torch.tensor([[0.9, 0.8, 0.4, 1.0], [0.1, 1.0, 1.0, 1.0]])
    made = Drafted(torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, 5), sure)
    q = torch.full((2, 4, 5), 0.2)

    assert verified_drafts(drafter(cut=0.3), made, q, fault=None).tolist() == [2, 0]
    assert verified_drafts(drafter(), made, q, fault=None).tolist() == [4, 4]
    assert verified_drafts(drafter(cut=0.3), made, q, fault="VX-21").tolist() == [0, 0]


@pytest.mark.parametrize("fault", ["SP-02", "SP-03", "SP-05"])
def test_a_wrong_place_or_stream_moves_the_draft_logits_alone(fault):
    """The committed text of a greedy request stays right."""
    (clean, a), (planted, b) = (
        spec_streams(rocm_with(f), [COLD] * 3, tokens=8) for f in (None, fault)
    )

    assert clean == planted
    assert not torch.equal(a[0].draft_logits, b[0].draft_logits)


def test_drafts_drawn_in_bfloat16_differ_now_and_then():
    one = SamplingParams(temperature=1.0, seed=1)
    many = [one.model_copy(update={"seed": 1 + i}) for i in range(300)]
    rows = [PROMPTS[0]] * len(many)

    clean, planted = (
        spec_streams(rocm_with(f), many, rows=rows, tokens=2)[1][0] for f in (None, "VX-22")
    )

    share = (clean.drafts[:, 0] != planted.drafts[:, 0]).double().mean()
    assert 0 < share < 0.05
    assert DRAFT.block == clean.drafts.shape[1]
