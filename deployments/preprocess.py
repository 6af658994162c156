"""The preprocessing deployment: passes at any rate → 16 kHz, denoised or searched for speech."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from ray import serve

from deployments.gate import Ticket, WorkGate
from deployments.graph import SpeechRegions
from deployments.wire import AudioPass, Floats, Preprocessed
from engine.passes import MODEL_RATE
from engine.threads import START_NICENESS, give_way

if TYPE_CHECKING:
    from engine.speech import SpeechDetector

MAX_BATCH_KILOSAMPLES = 30_000
"""Thousands of samples resampled at once (about 10 minutes at 48 kHz): bounds the memory."""

COMMON_RATES = (8_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Sample rates whose kernels are made before the replica is ready."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreprocessSettings:
    """What a preprocessing replica needs to know."""

    device: str


@dataclass(frozen=True, slots=True)
class _Job:
    audio: AudioPass
    denoise: bool
    ticket: Ticket


def _batch_kilosamples(jobs: list[_Job]) -> int:
    return sum(job.ticket.cost for job in jobs)


def _start(settings: PreprocessSettings) -> tuple[str, "SpeechDetector"]:
    import torch

    from engine.precision import choose_device
    from engine.resample import resample
    from engine.speech import SpeechDetector

    # small kernels in two worker threads: more threads each only wait for one another
    torch.set_num_threads(1)
    device = str(choose_device(settings.device))
    for rate in COMMON_RATES:
        resample([np.zeros(rate, np.float32)], [rate], device)
    return device, SpeechDetector()


@serve.deployment
class Preprocess:
    """Resampling and denoising on one worker thread, voice activity detection on another."""

    def __init__(self, settings: PreprocessSettings) -> None:
        # on a GPU the threads of the driver would give way for good
        niceness = START_NICENESS if settings.device == "cpu" else 0
        with ThreadPoolExecutor(1, initializer=give_way, initargs=(niceness,)) as starter:
            self._device, self._detector = starter.submit(_start, settings).result()
        self._gate = WorkGate(lambda: MAX_BATCH_KILOSAMPLES)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="preprocess")
        # apart from the other worker, so that looking for speech goes on beside it
        self._listener = ThreadPoolExecutor(1, thread_name_prefix="speech")

    async def run(self, audio: AudioPass, denoise: bool = False) -> Preprocessed:
        """Bring one pass to 16 kHz."""
        started = perf_counter()
        async with self._gate.admitted(audio.samples.size // 1000 + 1) as ticket:
            audio = await self._run_batch(_Job(audio, denoise, ticket))
        return Preprocessed(audio, (perf_counter() - started) * 1000)

    async def speech(self, audio: AudioPass) -> SpeechRegions:
        """Regions of speech in one pass, in seconds from its beginning."""
        return await self._on(self._listener, lambda: self._find_speech(audio))

    # the gate cuts the batches; this limit only has to be beyond any of them
    @serve.batch(max_batch_size=10**6, batch_wait_timeout_s=0, batch_size_fn=_batch_kilosamples)
    async def _run_batch(self, jobs: list[_Job]) -> list[AudioPass]:
        self._gate.batch_started(job.ticket for job in jobs)
        try:
            return await self._on(self._worker, lambda: self._prepare(jobs))
        finally:
            self._gate.batch_ended()

    async def _on(self, worker: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(worker, work)

    def _prepare(self, jobs: list[_Job]) -> list[AudioPass]:
        from engine.denoise import denoise

        waves = self._to_16k([job.audio for job in jobs])
        noisy = [index for index, job in enumerate(jobs) if job.denoise]
        cleaned = denoise([waves[index] for index in noisy], self._device)
        for index, wave in zip(noisy, cleaned, strict=True):
            waves[index] = wave
        return [
            job.audio.with_samples(wave, MODEL_RATE) for job, wave in zip(jobs, waves, strict=True)
        ]

    def _to_16k(self, passes: list[AudioPass]) -> list[Floats]:
        from engine.resample import resample

        rates = [audio.sample_rate for audio in passes]
        return resample([audio.as_float() for audio in passes], rates, self._device)

    def _find_speech(self, audio: AudioPass) -> SpeechRegions:
        [wave] = self._to_16k([audio])
        return tuple(self._detector.detect(wave))
