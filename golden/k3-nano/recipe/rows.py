"""Training rows from worker processes: half text, half tasks, 512 bytes after a begin mark."""

import multiprocessing as mp
import random
from pathlib import Path

import numpy as np
import tasks

BOS = 256
ROW = 512
TEXT_SHARE = 0.4
QUIET = 26
"""Weight (of 255) of bytes that nothing before them determines."""


class Filler:
    """Random excerpts of the training text."""

    def __init__(self, data: bytes, rng: random.Random) -> None:
        self.data, self.rng = data, rng

    def raw(self, size: int) -> bytes:
        """``size`` bytes from anywhere."""
        at = self.rng.randrange(len(self.data) - size)
        return self.data[at : at + size]

    def __call__(self, size: int) -> str:
        """One line of about ``size`` bytes, ASCII."""
        return self.raw(size).decode("ascii", "ignore").replace("\n", " ")


def make_row(rng: random.Random, filler: Filler) -> tuple[bytes, bytes]:
    """Bytes and weights, at least ``ROW`` of each."""
    draw = rng.random()
    if draw < TEXT_SHARE:
        return filler.raw(ROW), b"\1" * ROW
    if draw < TEXT_SHARE + 0.25:
        row = tasks.small_row(rng, ROW)
    elif draw < TEXT_SHARE + 0.45:
        row = tasks.recall_row(rng, filler, ROW)
    else:
        row = tasks.far_row(rng, filler, ROW)
    return row.data, row.scored


def make_block(rng: random.Random, filler: Filler, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (count, ROW + 1) uint16 and target weights (count, ROW) uint8."""
    ids = np.empty((count, ROW + 1), np.uint16)
    weights = np.empty((count, ROW), np.uint8)
    ids[:, 0] = BOS
    for i in range(count):
        data, scored = make_row(rng, filler)
        ids[i, 1:] = np.frombuffer(data[:ROW], np.uint8)
        weights[i] = np.where(np.frombuffer(scored[:ROW], np.uint8) > 0, 255, QUIET)
    return ids, weights


def worker(
    path: Path, seed: int, count: int, queue: "mp.Queue[tuple[np.ndarray, np.ndarray]]"
) -> None:
    """Fill ``queue`` for ever."""
    rng = random.Random(seed)
    filler = Filler(path.read_bytes(), rng)
    while True:
        queue.put(make_block(rng, filler, count))


def start(
    path: Path, *, seed: int, workers: int, batch: int
) -> "mp.Queue[tuple[np.ndarray, np.ndarray]]":
    """Start ``workers`` daemon processes that make batches of ``batch`` rows."""
    context = mp.get_context("spawn")
    queue = context.Queue(maxsize=64)
    for i in range(workers):
        context.Process(
            target=worker, args=(path, seed * 1000 + i, batch, queue), daemon=True
        ).start()
    return queue
