"""What an engine runs before it is ready, so that no request pays for a first time."""

from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch

from engine.engine import Engine
from engine.packing import buckets
from engine.passes import MODEL_RATE, TAIL_SECONDS

FULL_BATCH = "batch of 1 s"
"""Name of the step that runs clips of one second together."""


def warm_up(engine: Engine, batch_frames: int) -> Iterator[tuple[str, float, float]]:
    """Run what will be seen: (name, milliseconds, seconds of audio) of each step.

    Batches are limited to `batch_frames` of work. On a CPU every size of a batch gets its
    kernels, and ten clips stand for a full batch; on CUDA the largest shapes reserve the
    memory that they will need.
    """
    cuda = engine.device.type == "cuda"
    if sizes := kernel_sizes(engine, batch_frames):
        started = perf_counter()
        make_kernels(engine, sizes)
        yield f"{len(sizes)} sizes of a batch", (perf_counter() - started) * 1000, 0.0
    batch = _clips_of_a_second(engine, batch_frames)
    steps = {
        "one frame": [engine.config.receptive_field],
        "1 s": [MODEL_RATE],
        FULL_BATCH: [MODEL_RATE] * (batch if cuda else min(batch, 10)),
    }
    if cuda:
        steps["longest pass"] = [_longest_pass(engine)]
    noise = np.random.default_rng(0)
    for name, lengths in steps.items():
        started = perf_counter()
        engine.infer([noise.standard_normal(n, np.float32) for n in lengths])
        yield name, (perf_counter() - started) * 1000, sum(lengths) / MODEL_RATE


def kernel_sizes(engine: Engine, batch_frames: int) -> list[int]:
    """Rows for which kernels are made, the largest first; none on CUDA, where none are kept.

    Up to the longest pass alone, or a batch of clips of one second: their extra tokens are
    rows as well.
    """
    if engine.device.type == "cuda":
        return []
    config = engine.config
    second = config.frames(MODEL_RATE) + config.extra_tokens
    longest = config.frames(_longest_pass(engine)) + config.extra_tokens
    # what a large size leaves free in memory, the smaller ones use again: upwards, a base
    # shape ends with 450 MiB more, downwards with 190
    return buckets(max(longest, _clips_of_a_second(engine, batch_frames) * second))[::-1]


@torch.inference_mode()
def make_kernels(engine: Engine, sizes: Sequence[int]) -> None:
    """Make them for the calling thread: oneDNN has others for another count of threads."""
    for rows in sizes:
        engine.encoder.warm(rows)


def _clips_of_a_second(engine: Engine, batch_frames: int) -> int:
    return max(batch_frames // engine.config.frames(MODEL_RATE), 1)


def _longest_pass(engine: Engine) -> int:
    return round((engine.pass_seconds + TAIL_SECONDS) * MODEL_RATE)
