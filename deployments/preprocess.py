"""The preprocessing deployment: batches of passes at any rate → 16 kHz on the chosen device."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from ray import serve

from deployments.gate import WorkGate
from deployments.wire import AudioPass, Preprocessed
from engine.precision import choose_device
from engine.resample import TARGET_RATE, resample

MAX_BATCH_SAMPLES = 30_000_000
"""Samples resampled at once (about 10 minutes at 48 kHz): bounds the memory of a batch."""


@dataclass(frozen=True, slots=True)
class PreprocessSettings:
    """What a preprocessing replica needs to know."""

    device: str


def _batch_samples(batch: list[AudioPass]) -> int:
    return sum(audio.samples.size for audio in batch)


@serve.deployment
class Preprocess:
    """Resampling; everything that computes runs on a single worker thread."""

    def __init__(self, settings: PreprocessSettings) -> None:
        self._device = str(choose_device(settings.device))
        self._gate = WorkGate(lambda: MAX_BATCH_SAMPLES)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="preprocess")
        for rate in (8_000, 22_050, 24_000, 32_000, 44_100, 48_000):
            resample([np.zeros(rate, np.float32)], [rate], self._device)

    async def run(self, audio: AudioPass) -> Preprocessed:
        """Bring one pass to 16 kHz; int16 at 16 kHz already stays what it is."""
        started = perf_counter()
        if audio.sample_rate != TARGET_RATE:
            await self._gate.admit(audio.samples.size)
            audio = await self._run_batch(audio)
        return Preprocessed(audio, (perf_counter() - started) * 1000)

    # the gate cuts the batches; this limit only has to be beyond any of them
    @serve.batch(max_batch_size=10**9, batch_wait_timeout_s=0, batch_size_fn=_batch_samples)
    async def _run_batch(self, batch: list[AudioPass]) -> list[AudioPass]:
        self._gate.batch_started()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._worker, self._resample, batch)
        finally:
            self._gate.batch_ended()

    def _resample(self, batch: list[AudioPass]) -> list[AudioPass]:
        rates = [audio.sample_rate for audio in batch]
        waves = resample([audio.as_float() for audio in batch], rates, self._device)
        return [
            audio.with_samples(wave, TARGET_RATE) for audio, wave in zip(batch, waves, strict=True)
        ]
