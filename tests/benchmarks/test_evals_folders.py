"""Two lm-eval folders of 100,000 samples each: 3 seconds and 500 MB (``pytest -m benchmark``)."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.lm_eval_folders import choice_samples, text_samples, write_folder

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[2]
TASKS, ITEMS, WRITTEN = 6, 15_000, 5_000
SECONDS, MEGABYTES = 3.0, 500


def test_two_folders_of_100_000_samples(tmp_path: Path) -> None:
    """The whole command in processor time, start included, and its peak of memory."""
    right = (np.random.default_rng(0).random(WRITTEN) < 0.9).astype(float).tolist()
    for name, noise, model in (("ref", 0.0, "hf"), ("cand", 0.02, "vllm")):
        for place in range(TASKS + 1):
            task = (
                {f"mc{place}": choice_samples(ITEMS, seed=place, noise=noise)}
                if place < TASKS
                else {"gsm8k": text_samples(right)}
            )
            write_folder(tmp_path / name / str(place), task, model=model)
    for name in ("ref", "cand"):
        _gather(tmp_path / name)

    words = [
        "compare",
        "--ref",
        f"{tmp_path}/ref",
        "--cand",
        f"{tmp_path}/cand",
        "--format",
        "json",
    ]
    code = "from validate.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--out", f"{tmp_path}/report"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert done.returncode in (0, 3), done.stderr.decode()
    assert used.ru_utime <= SECONDS
    assert used.ru_maxrss <= MEGABYTES * 1024


def _gather(folder: Path) -> None:
    """One results file a task, as lm-eval writes when it is run task by task into one folder."""
    home = folder / "toy__model"
    home.mkdir()
    for place in sorted(folder.glob("[0-9]")):
        for path in (place / "toy__model").iterdir():
            name = path.name.replace("T10-00-00", f"T10-00-0{place.name}")
            path.rename(home / name)
