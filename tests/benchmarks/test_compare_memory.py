"""Memory of a comparison does not grow with the captures.

    pytest -m benchmark -s tests/benchmarks/test_compare_memory.py

writes a pair of captures of 100 MB and a pair of 2 GB (about 4.5 GB of disk) and,
in a process of its own, reads or compares them; the peaks of resident memory,
mapped pages included, must not differ. One test streams every tensor, the other
pairs the captures and runs every logits metric over them. ``VALIDATE_BENCH_MB=20,200``
takes other sizes.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.captures import PROOF, make_header, make_prompt
from validate.capture import CaptureWriter, Tensor

ROOT = Path(__file__).parents[2]
SIZES_MB = tuple(int(mb) for mb in os.environ.get("VALIDATE_BENCH_MB", "100,2000").split(","))
TENSOR_MB = 4
GROWTH_MB = 32
"""What the larger pair may take beyond the smaller: its list of tensors and the allocator's slack."""

READ = """
import json, pathlib, sys, time
import numpy as np
from validate.capture import open_capture

def status(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1000

before = status("VmHWM")
begin = time.perf_counter()
ref, cand = (open_capture(pathlib.Path(path), label=path) for path in sys.argv[1:])
opened = time.perf_counter()
worst, count = 0.0, 0
for prompt in ref.prompts:
    for name in ref.names(prompt):
        pairs = zip(ref.rows(prompt, name, 512), cand.rows(prompt, name, 512), strict=True)
        if count % 2:
            pairs = [(ref.tensor(prompt, name), cand.tensor(prompt, name))]
        for a, b in pairs:
            err = np.abs(a.astype(np.float32) - b.astype(np.float32)).max()
            if not err <= worst:
                worst = float(err)
        count += 1
json.dump({"import_mb": before, "peak_mb": status("VmHWM"), "tensors": count, "worst": worst,
           "open_s": opened - begin, "stream_s": time.perf_counter() - opened}, sys.stdout)
"""


COMPARE = """
import json, pathlib, sys, time
from validate.capture import open_capture
from validate.metrics import METRICS
from validate.pairing import pair
from validate.schema import Levels

def status(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1000

before = status("VmHWM")
begin = time.perf_counter()
ref, cand = (open_capture(pathlib.Path(path), label=path) for path in sys.argv[1:])
matched = pair(ref, cand, near_tie=0.1, route_gap=0.1)
opened = time.perf_counter()
found = {name: metric(matched, Levels(low=0.999)) for name, metric in METRICS.items()
         if name.startswith("logits.") and name != "logits.err_ratio"}
json.dump({"import_mb": before, "peak_mb": status("VmHWM"), "tensors": len(ref.prompts),
           "worst": found["logits.kl_max"].value, "open_s": opened - begin,
           "compare_s": time.perf_counter() - opened}, sys.stdout)
"""
VOCAB = 8192
ROWS = 61
"""Scored positions of a prompt; one megabyte of bfloat16 logits."""


def write_logits(folder: Path, megabytes: int) -> float:
    """Two captures of ``megabytes`` of logits each; gives the seconds it took."""
    prompts = [
        make_prompt(n).model_copy(update={"token_ids": tuple(range(ROWS)), "prompt_length": ROWS})
        for n in range(megabytes)
    ]
    begin = time.perf_counter()
    for side, scale in (("ref", 1.0), ("cand", 1.01)):
        rng = np.random.default_rng(0)
        with CaptureWriter(folder / side, header=make_header(prompts)) as writer:
            for prompt in prompts:
                logits = (rng.standard_normal((ROWS, VOCAB), dtype=np.float32) * scale).astype(
                    ml_dtypes.bfloat16
                )
                tensors = {
                    "logits": Tensor(logits, ("rows", "vocab")),
                    "logits.positions": Tensor(np.arange(ROWS, dtype=np.int32), ("rows",)),
                }
                writer.add(prompt, tensors, stream=None, batch_row=0)
            writer.close(path_proof=PROOF, timing={})
    return time.perf_counter() - begin


def write_pair(folder: Path, megabytes: int) -> float:
    """Two captures of ``megabytes`` each, of bfloat16; gives the seconds it took."""
    rows, width = 2048, TENSOR_MB * 10**6 // 2 // 2048
    prompts = [make_prompt(n) for n in range(max(1, megabytes // TENSOR_MB // 4))]
    begin = time.perf_counter()
    for side in ("ref", "cand"):
        rng = np.random.default_rng(0)
        with CaptureWriter(folder / side, header=make_header(prompts)) as writer:
            for prompt in prompts:
                tensors = {}
                for layer in range(4):
                    bits = rng.integers(0x3C00, 0x4000, (rows, width), dtype=np.uint16)
                    array = bits.view(ml_dtypes.bfloat16)
                    if side == "cand":
                        array[7, 11] = 3.0
                    tensors[f"prefill.hidden.{layer}"] = Tensor(array, ("rows", "hidden"))
                writer.add(prompt, tensors, stream=None, batch_row=0)
            writer.close(path_proof=PROOF, timing={})
    return time.perf_counter() - begin


def measure(
    folder: Path, megabytes: int, *, write: Callable[[Path, int], float], script: str
) -> dict[str, float]:
    """Write a pair, run ``script`` on it in a process of its own, remove it."""
    seconds = write(folder, megabytes)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "ref"), str(folder / "cand")],
        capture_output=True,
        check=True,
        env=env,
    )
    shutil.rmtree(folder)
    found: dict[str, float] = json.loads(done.stdout)
    return {"size_mb": megabytes, "write_s": seconds, **found}


@pytest.mark.benchmark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "script"), [(write_pair, READ), (write_logits, COMPARE)], ids=["read", "compare"]
)
def test_peak_memory_does_not_grow_with_the_captures(tmp_path, capsys, write, script):
    """Twenty times the data, the same peak but for lists of names and one number a row."""
    small, large = (measure(tmp_path / str(mb), mb, write=write, script=script) for mb in SIZES_MB)

    with capsys.disabled():
        for found in (small, large):
            line = "  ".join(f"{key} {value:.4g}" for key, value in found.items())
            sys.stdout.write(f"\n{line}")
    assert large["worst"] > 0
    assert large["tensors"] > small["tensors"]
    assert large["peak_mb"] <= small["peak_mb"] + GROWTH_MB
