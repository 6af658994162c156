"""The bare engine on a file: decode, front end, model, in this process."""

import asyncio
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from benchmarks.clips import Samples
from engine.audio import load
from engine.emotions import Emotions
from engine.engine import Engine
from engine.resample import resample
from engine.warm_up import warm_up

T = TypeVar("T")

BATCH_FRAMES = 1500
"""The server's own limit of work on a CPU."""

_worker = ThreadPoolExecutor(1, thread_name_prefix="bare engine")
"""The one thread of this process that computes. OpenMP has a team of threads for each thread that
does, and more of them than cores slow each other down (measured: twice the time of a small model's
pass), which a program with an engine alone would not have either."""


class BareEngine:
    """A loaded and warmed engine without a server around it."""

    def __init__(self, model: str) -> None:
        self._engine = _worker.submit(warmed_engine, model).result()
        self.dtype = self._engine.dtype

    async def hear(self, body: bytes) -> Emotions:
        """Emotions of the first pass of a file (all of it, up to `pass_seconds`)."""
        return await self._run(lambda: hear(self._engine, body))

    async def hear_together(self, bodies: Sequence[bytes]) -> list[Emotions]:
        """The first passes of files, in one call."""
        return await self._run(lambda: self._engine.infer([waves_of(body)[0] for body in bodies]))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(_worker, work)


def warmed_engine(model: str) -> Engine:
    """An engine that has run everything once, on the calling thread."""
    engine = Engine.load(model)
    for _ in warm_up(engine, BATCH_FRAMES):
        pass
    return engine


def hear(engine: Engine, body: bytes) -> Emotions:
    """Emotions of the first pass of a file, on the calling thread."""
    return engine.infer(waves_of(body)[:1])[0]


def waves_of(body: bytes) -> list[Samples]:
    """Decoded and resampled passes of a file: float32 [n] at 16 kHz."""
    passes, _ = load(io.BytesIO(body))
    floats = [
        excerpt.samples.astype(np.float32) / np.float32(32768)
        if excerpt.samples.dtype == np.int16
        else np.asarray(excerpt.samples, np.float32)
        for excerpt in passes
    ]
    return resample(floats, [excerpt.sample_rate for excerpt in passes])
