"""The report of a run: what was measured, in numbers and in three sentences."""

import datetime as dt
import importlib.util
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from validate.conformance.head_padding.kernels import (
    DECODE,
    LATENT,
    PREFILL,
    ROPE,
    SCALE,
    SPLITS,
    VALUE,
    WIDTH,
)
from validate.conformance.head_padding.padding import HEADS

__all__ = ["environment", "markdown", "sentences", "summary", "write"]

NOT_SHOWN = (
    (
        "No ROCm hardware and no AITER kernel was measured: the kernels are torch's, cuBLAS's and "
        "our Triton decode on the card named above. What is shown is that attention does not mix "
        "heads there; a padded AITER kernel with wrong metadata would still be wrong."
    ),
    (
        "float8_e4m3fn means operands rounded with scale 1 and bfloat16 arithmetic after it (the "
        "Triton decode reads a float8 cache); no float8 matrix unit ran, and weights were not "
        "rounded to float8."
    ),
    (
        "Operands are Gaussian with scores of standard deviation 2, not activations of Kimi K3; "
        "entries beyond 448, where scale 1 saturates, did not occur."
    ),
    (
        "Prefill is one request in one pass; ragged batches, cached prefixes and the merge after "
        "them are the sweep of `mla_prefill` and `mla_decode`, at small sizes."
    ),
)


def environment(device: str, *, quick: bool) -> dict[str, Any]:
    """Card, versions, command and shapes."""
    found: dict[str, Any] = {
        "schema_version": 1,
        "title": "Padding 12 attention heads at Kimi K3's per-rank shapes",
        "command": f"python -m validate.conformance.head_padding --device {device} --out golden/reports"
        + (" --quick" if quick else ""),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "device": device,
        "quick": quick,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "triton": _triton(),
        "python": platform.python_version(),
        "shapes": {
            "heads": HEADS,
            "prefill_qk": WIDTH,
            "prefill_v": VALUE,
            "decode_key": LATENT + ROPE,
            "decode_value": LATENT,
            "scale": SCALE,
            "triton_splits": SPLITS,
        },
        "kernels": {
            f"{phase} {one.name}": one.title
            for phase, known in (("prefill", PREFILL), ("decode", DECODE))
            for one in known.values()
            if device in one.devices
        },
        "not_shown": list(NOT_SHOWN),
    }
    if device == "cpu":
        return {**found, "card": platform.processor() or platform.machine(), "arch": "cpu"}
    major, minor = torch.cuda.get_device_capability()
    return {
        **found,
        "card": torch.cuda.get_device_name(),
        "arch": f"sm_{major}{minor}" if torch.version.hip is None else _gcn(),
        "driver": _driver(),
        "cudnn": torch.backends.cudnn.version(),
    }


def _gcn() -> str:
    return str(torch.cuda.get_device_properties(0).gcnArchName)


def _triton() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return None
    return str(importlib.import_module("triton").__version__)


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip().splitlines()[0] if said.stdout.strip() else None


def _variants(results: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Every measured padding: its row, its name, its entry."""
    for row in results:
        if "failed" not in row:
            for name, variant in row["variants"].items():
                yield row, name, variant


def _ratios(row: dict[str, Any], variant: dict[str, Any]) -> list[float]:
    """Error after padding over error before, for each head, against the oracle."""
    base, padded = row["unpadded"]["kernel"], variant["errors"]["kernel"]
    if base["nonfinite"] or padded["nonfinite"]:
        return []
    return [
        b / a
        for a, b in zip(base["rel_l2_by_head"], padded["rel_l2_by_head"], strict=True)
        if a > 0
    ]


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and extremes over everything that was measured, by phase and padding."""
    found: dict[str, Any] = {}
    for row, name, variant in _variants(results):
        entry = found.setdefault(
            f"{row['phase']} {name}",
            {
                "measured": 0,
                "bit_identical": 0,
                "not_finite": 0,
                "ratios": [],
                "cost": [],
                "differ": [],
            },
        )
        entry["measured"] += 1
        entry["bit_identical"] += variant["against_unpadded"]["differ"] == 0
        ratios = _ratios(row, variant)
        entry["not_finite"] += not ratios
        entry["ratios"] += ratios
        if variant["against_unpadded"]["differ"]:
            entry["differ"].append(
                f"{row['kernel']} {row['context']} x{row['queries']} {row['dtype']}"
            )
        if "cost" in row:
            entry["cost"].append(row["cost"]["ratio"][name]["whole"])
    for entry in found.values():
        ratios, cost = entry.pop("ratios"), entry.pop("cost")
        entry["head_error_ratio"] = _extremes(ratios)
        entry["cost_ratio"] = _extremes(cost)
    return found


def _extremes(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    array = np.asarray(values)
    return {
        "low": float(np.min(array)),
        "median": float(np.median(array)),
        "high": float(np.max(array)),
    }


def _failed(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in results if "failed" in row]


def sentences(report: dict[str, Any]) -> list[str]:
    """What was found, what it costs, what was not looked at: three sentences."""
    results = report["results"]
    sixteen = [(r, v) for r, name, v in _variants(results) if name in ("zero", "tile")]
    if not sixteen:
        return ["Nothing was measured: every kernel failed."]
    same = sum(v["against_unpadded"]["differ"] == 0 for _, v in sixteen)
    ratios = np.array([x for r, v in sixteen for x in _ratios(r, v)])
    worst = f"between {ratios.min():.4g} and {ratios.max():.4g} times" if len(ratios) else "unknown"
    first = (
        f"On one {report['card']}, padding 12 heads to 16 with zeros or with copies left every real "
        f"head bit for bit as it was in {same} of {len(sixteen)} measurements; over all of them the "
        f"error of a head against the float64 oracle was {worst} that without padding."
    )
    costs = [
        f"{row['phase']} {_size(row['context'])}"
        + (f" x{row['queries']}" if row["phase"] == "decode" else "")
        + f" {row['kernel']} {row['cost']['ratio']['zero']['whole']:.2f}"
        for row in _largest(results)
    ]
    second = (
        "Zero padding multiplies the time of attention, copies included, by: "
        + ("; ".join(costs) or "(not timed)")
        + "."
    )
    return [first, second, NOT_SHOWN[0].partition(":")[0] + "."]


def _largest(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Timed bfloat16 rows at the longest context of each phase and kernel."""
    best: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in results:
        if "cost" not in row or row["dtype"] != "bfloat16":
            continue
        key = (row["phase"], row["kernel"], 0 if row["phase"] == "prefill" else row["queries"])
        if key not in best or row["context"] > best[key]["context"]:
            best[key] = row
    return list(best.values())


def _size(context: int) -> str:
    return f"{context // 1024}k" if context % 1024 == 0 and context < 1 << 20 else f"{context:,}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _row(row: dict[str, Any], name: str, variant: dict[str, Any]) -> str:
    base, padded = row["unpadded"]["kernel"], variant["errors"]["kernel"]
    against = variant["against_unpadded"]
    ratio = row["cost"]["ratio"][name] if "cost" in row else {"whole": None, "kernel": None}
    cells = (
        row["phase"],
        _size(row["context"]),
        str(row["queries"]) if row["phase"] == "decode" else "-",
        row["dtype"],
        row["kernel"],
        f"{name} to {variant['heads']}",
        _worst(base),
        _worst(padded),
        _number(max(_ratios(row, variant), default=None)),
        _worst(variant["errors"]["bfloat16"]) if "bfloat16" in variant["errors"] else "-",
        "identical" if not against["differ"] else f"{against['differ']:,} of {against['of']:,}",
        _number(ratio["whole"]),
        _number(ratio["kernel"]),
    )
    return f"| {' | '.join(cells)} |"


def _worst(errors: dict[str, Any]) -> str:
    """Error of the worst head; in words when something is not finite."""
    if errors["nonfinite"]:
        return f"{errors['nonfinite']:,} not finite"
    return _number(float(np.max(errors["rel_l2_by_head"])))


_HOW = (
    "Errors are the relative L2 error of the worst head against the oracle on the sampled rows; the "
    "ratio is that of the worst head, padded over unpadded. `before rounding` is the error of "
    "the padded result against the oracle on operands that were not rounded to float8. Cost is time "
    "over the unpadded time, medians of calls in turn: `whole` with padding and unpadding, `kernel` "
    "alone."
)
_HEAD = (
    (
        "| phase | context | queries | dtype | kernel | padding | error unpadded | error padded | worst "
        "ratio | before rounding | bits of real heads that differ | cost whole | cost kernel |"
    ),
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def markdown(report: dict[str, Any]) -> str:
    """The page."""
    results = report["results"]
    lines = [f"# {report['title']}", ""]
    lines += [f"{n}. {text}" for n, text in enumerate(sentences(report), start=1)]
    lines += ["", f"Made by `{report['command']}` on {report['date']}.", ""]
    for key in ("card", "arch", "driver", "torch", "cuda", "hip", "cudnn", "triton", "python"):
        if report.get(key) is not None:
            lines.append(f"- {key}: {report[key]}")
    lines.append(
        f"- oracle: float64, blocked; against NumPy on a slice {report['oracle_check']:.2g}"
    )
    lines += ["", "## What it does not show", ""]
    lines += [f"- {text}" for text in report["not_shown"]]
    lines += ["", "## Kernels", ""]
    lines += [f"- {name}: {title}" for name, title in report["kernels"].items()]
    lines += ["", "## Measurements", "", _HOW, "", *_HEAD]
    lines += [_row(row, name, variant) for row, name, variant in _variants(results)]
    lines += ["", "## NaN in the padded heads, repeats, and what ran", ""]
    lines += [line for row in results if "failed" not in row for line in _proof(row)]
    failed = _failed(results)
    lines += ["", "## Not measured", ""]
    lines += [
        f"- {row['phase']} {_size(row['context'])} x{row['queries']} {row['dtype']} {row['kernel']}: "
        f"{row['failed']}"
        for row in failed
    ] or ["- nothing: every kernel ran at every point"]
    return "\n".join(lines) + "\n"


def _proof(row: dict[str, Any]) -> list[str]:
    again, nan = row["again"]["differ"], row.get("zero_against_nan_heads", {}).get("differ")
    head = (
        f"- {row['phase']} {_size(row['context'])} x{row['queries']} {row['dtype']} {row['kernel']}: "
        f"unpadded run twice differs in {again:,} elements; NaN against zero in padded heads in "
        f"{'?' if nan is None else f'{nan:,}'}"
    )
    ran = row.get("kernels_run", {}).get("unpadded", [])
    return [head, *(f"  - `{name}`" for name in ran[:6])]


def write(report: dict[str, Any], folder: Path) -> None:
    """``k3-head-padding.json`` and ``.md``; strict JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**report, "summary": summary(report["results"]), "sentences": sentences(report)}
    text = json.dumps(whole, indent=1, allow_nan=False)
    (folder / "k3-head-padding.json").write_text(text + "\n", encoding="utf-8")
    (folder / "k3-head-padding.md").write_text(markdown(report), encoding="utf-8")
