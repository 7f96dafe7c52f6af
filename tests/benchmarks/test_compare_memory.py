"""Memory of a comparison does not grow with the captures.

    pytest -m benchmark -s tests/benchmarks/test_compare_memory.py

writes a pair of captures of 100 MB and a pair of 2 GB (about 4.5 GB of disk),
streams every tensor of both sides in a process of its own and compares the
peaks of resident memory, mapped pages included. ``VALIDATE_BENCH_MB=20,200``
takes other sizes.
"""

import json
import os
import shutil
import subprocess
import sys
import time
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


def measure(folder: Path, megabytes: int) -> dict[str, float]:
    """Write a pair, stream it in a process of its own, remove it."""
    seconds = write_pair(folder, megabytes)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder / "ref"), str(folder / "cand")],
        capture_output=True,
        check=True,
        env=env,
    )
    shutil.rmtree(folder)
    found: dict[str, float] = json.loads(done.stdout)
    return {"size_mb": megabytes, "write_s": seconds, **found}


@pytest.mark.benchmark
@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_captures(tmp_path, capsys):
    small, large = (measure(tmp_path / str(mb), mb) for mb in SIZES_MB)

    with capsys.disabled():
        for found in (small, large):
            line = "  ".join(f"{key} {value:.4g}" for key, value in found.items())
            sys.stdout.write(f"\n{line}")
    assert large["worst"] > 0
    assert large["tensors"] > small["tensors"]
    assert large["peak_mb"] <= small["peak_mb"] + GROWTH_MB
