"""Train k3-nano: `python train.py --seed 1 --text build/text --seconds 530 --compile --out build/seed1`.

``--seconds`` bounds the whole process. What compilation leaves of them is the
run, and the schedule is a share of it: warm-up over 2 %, constant to 50 %,
then linear to zero. Writes weights in
bfloat16, the curve, and a line a hundred steps.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from network import Layers, training_logits
from optimizer import Muon, split_parameters
from rows import start
from torch.nn import functional as nnf

from validate.models import PathOptions, forward, initialise, load_config, save_weights

HERE = Path(__file__).resolve().parent
MUON_RATE, ADAM_RATE, BALANCE_RATE = 0.02, 3e-3, 1e-3


def agree(weights: dict[str, torch.Tensor], config, device: str) -> float:
    """Relative distance between the training form and the model, in float32."""
    exact = PathOptions(dtype=torch.float32)
    tokens = torch.randint(0, 256, (2, 64), device=device)
    with torch.no_grad():
        ours, _ = training_logits(weights, tokens, config, exact)
        theirs, _ = forward(weights, tokens, config=config, options=exact)
    return float((ours - theirs).norm() / theirs.norm())


def rate_at(share: float) -> float:
    """Learning-rate factor at a share of the run."""
    return min(share / 0.02, 1.0, (1.0 - share) / 0.5)


def main() -> None:
    """Train one seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    started = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    config = load_config(HERE.parent / "config.json")
    options = PathOptions(dtype=torch.bfloat16)
    queue = start(args.text / "train.bin", seed=args.seed, workers=args.workers, batch=args.batch)
    weights = {
        n: w.to(args.device).requires_grad_() for n, w in initialise(config, seed=args.seed).items()
    }
    distance = agree(weights, config, args.device)
    print(f"training form against the model, float32: rel-L2 {distance:.2e}", flush=True)
    if not distance < 1e-4:
        sys.exit("the training form does not compute the model")
    torch.set_float32_matmul_precision("high")

    def loss_of(
        ids: torch.Tensor, share: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits, loads = training_logits(weights, ids[:, :-1], config, options, layers)
        each = nnf.cross_entropy(
            logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        share = share.flatten()
        full = share > 0.5
        return (each * share).sum() / share.sum(), loads, (each * full).sum() / full.sum()

    layers = Layers(compiled=args.compile)
    matrices, rest = split_parameters(weights)
    muon = Muon(matrices)
    adam = torch.optim.AdamW(
        rest.values(),
        lr=ADAM_RATE,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        fused=args.device == "cuda",
    )
    biases = [w for n, w in weights.items() if n.endswith("correction_bias")]
    began, length, step, curve = None, 0.0, 0, []
    while True:
        ids, share = queue.get()
        ids = torch.from_numpy(ids.astype("int64")).to(args.device)
        share = torch.from_numpy(share).to(args.device).float() / 255
        loss, loads, scored = loss_of(ids, share)
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
        with torch.no_grad():
            for bias, load in zip(biases, loads, strict=True):
                bias.add_((load.mean() - load).sign(), alpha=BALANCE_RATE * factor)
        for w in weights.values():
            w.grad = None
        if step % 100 == 0:
            value = float(scored)
            if value != value:
                sys.exit(f"step {step}: the loss is NaN")
            curve.append(
                {
                    "step": step,
                    "seconds": round(passed * length, 1),
                    "tokens": step * ids[:, 1:].numel(),
                    "loss": round(value, 4),
                    "least_load": round(float(loads.min()), 4),
                }
            )
            print(json.dumps(curve[-1]), flush=True)
        step += 1
    card = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    (args.out / "curve.json").write_text(
        json.dumps(
            {
                "seed": args.seed,
                "card": card,
                "torch": torch.__version__,
                "seconds": round(length, 1),
                "batch": args.batch,
                "steps": step,
                "curve": curve,
            },
            indent=1,
        )
        + "\n"
    )
    save_weights(
        weights, args.out / "weights.safetensors", metadata={"name": f"k3-nano seed{args.seed}"}
    )
    print(f"saved after {step} steps", flush=True)


if __name__ == "__main__":
    main()
