"""Muon for matrices (momentum orthogonalised by Newton-Schulz), AdamW for the rest.

Source of the method: K. Jordan et al., "Muon: an optimizer for hidden layers
in neural networks" (2024); coefficients of the quintic iteration as published.
Matrices of one shape are stacked, so that a step is a few batched products.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
NOT_MUON = ("embed.weight", "lm_head.weight", "_conv.weight", ".b.weight", "router.weight")


def orthogonalised(m: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrix of each (rows, cols) slice, roughly; in bfloat16."""
    a, b, c = QUINTIC
    x = m.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Muon over stacks of same-shaped matrices."""

    def __init__(
        self, matrices: Mapping[str, Tensor], *, momentum: float = 0.95, decay: float = 0.02
    ) -> None:
        self.momentum, self.decay = momentum, decay
        groups: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for parameter in matrices.values():
            groups[tuple(parameter.shape[-2:])].append(parameter)
        self.groups = list(groups.values())
        self.buffers = [
            torch.zeros(
                sum(p.numel() // p[..., :, :].shape[-1] // p.shape[-2] for p in g),
                *g[0].shape[-2:],
                device=g[0].device,
            )
            for g in self.groups
        ]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate ``rate``."""
        for group, buffer in zip(self.groups, self.buffers, strict=True):
            grads = torch.cat([p.grad.view(-1, *p.shape[-2:]) for p in group])  # type: ignore[union-attr]
            buffer.lerp_(grads, 1 - self.momentum)
            update = orthogonalised(grads.lerp(buffer, self.momentum)).float()
            scale = max(1.0, update.shape[-2] / update.shape[-1]) ** 0.5
            sizes = [p.numel() // (p.shape[-1] * p.shape[-2]) for p in group]
            for p, u in zip(group, update.split(sizes), strict=True):
                p.mul_(1 - rate * self.decay).sub_(u.view_as(p), alpha=rate * scale)


def split_parameters(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Matrices for Muon, everything else for AdamW; the correction bias is moved by balance alone."""
    trained = {n: w for n, w in weights.items() if not n.endswith("correction_bias")}
    muon = {n: w for n, w in trained.items() if w.ndim >= 2 and not n.endswith(NOT_MUON)}
    return muon, {n: w for n, w in trained.items() if n not in muon}
