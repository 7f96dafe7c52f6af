"""Train the DSpark drafter: `python train_drafter.py --target weights/seed1.safetensors --text build/text --seconds 420 --compile --out build/dspark`.

Rows are those that the target was trained on. The target runs once over a row;
at random anchors the drafter predicts the next ``block`` positions and is drawn
towards the target's own distributions there: KL plus total variation (half the
expected rejection), weighted down along the block, since a draft counts only
when all before it were accepted. The confidence head learns the expected
acceptance sum(min(p, q)). Warm-up over 2 %, constant to 50 %, then linear to 0.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from network import Layers, training_logits
from optimizer import Muon
from rows import start
from torch.nn import functional as nnf

from validate.models import PathOptions, load_config, load_weights, save_weights
from validate.models.dspark import (
    block_hidden,
    block_logits,
    confidence,
    context_features,
    context_kv,
    initialise_drafter,
    markov_bias,
)
from validate.schema import DraftConfig

HERE = Path(__file__).resolve().parent
MUON_RATE, ADAM_RATE = 0.01, 3e-3
ANCHORS = 32
DECAY = 4.0
NOT_MUON = ("markov.in.weight", "markov.out.weight", "confidence.weight")


def rate_at(share: float) -> float:
    """Learning-rate factor at a share of the run."""
    return min(share / 0.02, 1.0, (1.0 - share) / 0.5)


def visible(anchors: torch.Tensor, tokens: int, block: int) -> torch.Tensor:
    """(1, 1, blocks * block, tokens + blocks * block): context before the anchor, and its own block."""
    owner = torch.arange(len(anchors), device=anchors.device).repeat_interleave(block)
    context = torch.arange(tokens, device=anchors.device) < anchors[owner].unsqueeze(1)
    return torch.cat([context, owner.unsqueeze(1) == owner], dim=1)[None, None]


def main() -> None:
    """Train one drafter."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    started = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    config = load_config(HERE.parent / "config.json")
    draft = DraftConfig.model_validate_json((HERE.parent / "drafter.json").read_bytes())
    queue = start(
        args.text / "train.bin", seed=500 + args.seed, workers=args.workers, batch=args.batch
    )
    options = PathOptions(dtype=torch.bfloat16)
    target = load_weights(args.target, config, dtype=torch.bfloat16, device=args.device)
    weights = {
        n: w.to(args.device).requires_grad_()
        for n, w in initialise_drafter(draft, config, seed=args.seed).items()
    }
    torch.set_float32_matmul_precision("high")
    layers = Layers(compiled=args.compile)
    fade = torch.exp(-torch.arange(draft.block, device=args.device) / DECAY)
    fade = fade / fade.sum()

    def read_target(ids: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        hidden: list[torch.Tensor] = []
        with torch.no_grad():
            logits, _ = training_logits(target, ids[:, :-1], config, options, layers, hidden)
        return [hidden[i] for i in draft.taps], logits

    def loss_of(
        taps: list[torch.Tensor],
        logits: torch.Tensor,
        ids: torch.Tensor,
        anchors: torch.Tensor,
        allowed: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tokens = logits.shape[1]
        features = context_features(weights, taps, draft=draft)
        places = torch.arange(tokens, device=ids.device).expand(ids.shape[0], -1)
        context = context_kv(weights, features, places, draft=draft)
        blocks = anchors.expand(ids.shape[0], -1)
        hidden = block_hidden(
            weights,
            target["embed.weight"],
            ids.gather(1, blocks),
            blocks,
            context,
            allowed,
            draft=draft,
        )
        rows = (anchors.unsqueeze(1) + torch.arange(draft.block, device=ids.device)).flatten()
        previous = ids[:, rows].unflatten(1, (-1, draft.block))
        teacher = torch.log_softmax(logits[:, rows].float(), -1).unflatten(1, (-1, draft.block))
        made = block_logits(hidden, target["lm_head.weight"]) + markov_bias(weights, previous)
        ours = torch.log_softmax(made, -1)
        p, q = teacher.exp(), ours.exp()
        kl = (p * (teacher - ours)).sum(-1)
        overlap = torch.minimum(p, q).sum(-1)
        sure = nnf.binary_cross_entropy_with_logits(
            confidence(weights, hidden, previous), overlap.detach().clamp(0, 1), reduction="none"
        )
        each = kl + 2.0 * (1.0 - overlap) + 0.1 * sure
        loss = (each.mean((0, 1)) * fade).sum()
        return loss, overlap.detach().mean((0, 1)), kl.detach().mean()

    step_loss = torch.compile(loss_of, dynamic=False) if args.compile else loss_of
    matrices = {n: w for n, w in weights.items() if w.ndim == 2 and n not in NOT_MUON}
    rest = {n: w for n, w in weights.items() if n not in matrices}
    muon = Muon(matrices)
    adam = torch.optim.AdamW(rest.values(), lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    rng = torch.Generator().manual_seed(args.seed)
    began, length, step, curve = None, 0.0, 0, []
    while True:
        ids, _ = queue.get()
        ids = torch.from_numpy(ids.astype("int64")).to(args.device)
        tokens = ids.shape[1] - 1
        picked = torch.randperm(tokens - draft.block, generator=rng)[:ANCHORS] + 1
        anchors = picked.sort().values.to(args.device)
        taps, logits = read_target(ids)
        allowed = visible(anchors, tokens, draft.block)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=False):
            loss, overlap, kl = step_loss(taps, logits, ids, anchors, allowed)
        loss.backward()
        if began is None and step == 2:
            began = time.monotonic()
            length = args.seconds - (began - started)
            if not length > 0:
                sys.exit(f"compilation took all of the {args.seconds:.0f} s")
            print(f"compiled; the clock starts, {length:.0f} s to go", flush=True)
        passed = 0.0 if began is None else (time.monotonic() - began) / length
        if passed >= 1.0:
            break
        factor = rate_at(passed)
        torch.nn.utils.clip_grad_norm_(list(rest.values()), 1.0)
        muon.step(MUON_RATE * factor)
        adam.param_groups[0]["lr"] = ADAM_RATE * factor
        adam.step()
        for w in weights.values():
            w.grad = None
        if step % 100 == 0:
            value = float(loss.detach())
            if value != value:
                sys.exit(f"step {step}: the loss is NaN")
            curve.append(
                {
                    "step": step,
                    "seconds": round(passed * length, 1),
                    "blocks": step * args.batch * ANCHORS,
                    "loss": round(value, 4),
                    "kl": round(float(kl), 4),
                    "overlap": [round(x, 3) for x in overlap.tolist()],
                }
            )
            print(json.dumps(curve[-1]), flush=True)
        step += 1
    card = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    record = {
        "seed": args.seed,
        "target": args.target.name,
        "card": card,
        "torch": torch.__version__,
        "seconds": round(length, 1),
        "batch": args.batch,
        "anchors": ANCHORS,
        "steps": step,
        "curve": curve,
    }
    (args.out / "curve.json").write_text(json.dumps(record, indent=1) + "\n")
    save_weights(weights, args.out / "weights.safetensors", metadata={"name": draft.name})
    print(f"saved after {step} steps", flush=True)


if __name__ == "__main__":
    main()
