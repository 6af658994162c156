"""The model deployment: packed batches of 16 kHz passes through the engine."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ray import serve

from deployments.gate import Ticket, WorkGate
from deployments.metrics import ModelMetrics
from deployments.speed import BusySpeed
from deployments.wire import AudioPass, Floats, ModelInfo, OtherModel, Result, Scored
from engine.errors import EmotionError
from engine.passes import MODEL_RATE
from engine.threads import START_NICENESS, cpu_threads, give_way

if TYPE_CHECKING:
    # at run time only where it is loaded: other replicas import this module, and need no torch
    from engine.engine import Engine

logger = logging.getLogger("ray.serve.model")
"""A child of Serve's logger with a level of its own: Serve itself is quiet at INFO."""

DEFAULT_BATCH_FRAMES = {"cpu": 1500, "cuda": 16_000}
OVERTAKE_SECONDS_PER_FRAME = 0.002
"""A 30 s pass may be overtaken by short clips that arrive within 3 s of it."""

COMPILED = False
"""`torch.compile` is not used: see docs/measurements.md."""

CPU_BRIEF_SECONDS = 0.15
"""A batch of this long is not done sooner in a larger one on a CPU, whose cores a single clip
already fills; what is in a larger one would only wait for all of it."""

CPU_LANES = 2
"""Batches beside one another on a busy CPU. The threads of one batch meet after each operation,
so whatever else runs on a core holds up all of them; two batches do not wait for each other."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model replica needs to know."""

    model: str
    device: str
    dtype: str
    pass_seconds: float
    cpu_threads: int
    max_batch_frames: int
    gpu_share: float = 0.0


@dataclass(frozen=True, slots=True)
class _Job:
    wave: Floats
    frame_embeddings: bool
    ticket: Ticket
    arrived: float


def _batch_work(jobs: Sequence[_Job]) -> int:
    # a plain sum of numbers computed before: a size function that raises stops the queue
    return sum(job.ticket.cost for job in jobs)


def _worker(name: str, workers: int, threads: int, niceness: int = 0) -> ThreadPoolExecutor:
    """Threads that compute, each with `threads` OpenMP threads: a count of the calling thread."""

    def begin() -> None:
        give_way(niceness)
        import torch

        torch.set_num_threads(threads)

    return ThreadPoolExecutor(workers, thread_name_prefix=name, initializer=begin)


def _load(settings: ModelSettings) -> "Engine":
    import torch

    from engine.engine import Engine

    if 0 < settings.gpu_share < 1 and torch.cuda.is_available():
        # Ray's fraction is for placement only; this is what keeps a replica inside it
        torch.cuda.set_per_process_memory_fraction(settings.gpu_share)
    return Engine.load(settings.model, settings.device, settings.dtype, settings.pass_seconds)


def _warm_up(engine: "Engine", batch_frames: int) -> float:
    """Seconds of audio per second of a full batch."""
    from engine.warm_up import FULL_BATCH, warm_up

    speed = 0.0
    for name, milliseconds, seconds in warm_up(engine, batch_frames):
        logger.info("warm-up %s: %.0f ms", name, milliseconds)
        if name == FULL_BATCH:
            speed = seconds / (milliseconds / 1000)
    return speed


def _warm_up_lanes(engine: "Engine", batch_frames: int, lanes: ThreadPoolExecutor, n: int) -> None:
    from engine.warm_up import kernel_sizes, make_kernels

    started = perf_counter()
    sizes = kernel_sizes(engine, batch_frames)
    for done in [lanes.submit(make_kernels, engine, sizes[lane::n]) for lane in range(n)]:
        done.result()
    logger.info("warm-up of %d lanes: %.0f ms", n, (perf_counter() - started) * 1000)


@serve.deployment
class Model:
    """One engine; everything that computes runs on its worker threads: one that has the whole
    device for a batch, or lanes that share a CPU where more waits than that."""

    def __init__(self, settings: ModelSettings) -> None:
        logger.setLevel(logging.INFO)
        threads = cpu_threads(settings.cpu_threads)
        # on a GPU the threads of the driver would give way for good
        niceness = START_NICENESS if settings.device == "cpu" else 0
        # loading and warming up on one thread, which ends before others compute: a second thread
        # that computed with many would have OpenMP threads of its own, more than cores
        with _worker("start", 1, threads, niceness) as starter:
            self._engine = starter.submit(_load, settings).result()
            lanes = CPU_LANES if self._engine.device.type == "cpu" and threads >= CPU_LANES else 1
            # weights are packed for the CPU, or attention grouped for CUDA, without a compiler
            logger.info("encoder: %s on %s, not compiled", self._engine.dtype, self._engine.device)
            default = DEFAULT_BATCH_FRAMES[self._engine.device.type]
            self._max_batch_frames = settings.max_batch_frames or default
            if lanes > 1:
                with _worker("start-lane", lanes, threads // lanes, niceness) as narrow:
                    _warm_up_lanes(self._engine, self._max_batch_frames, narrow, lanes)
            warmed = starter.submit(_warm_up, self._engine, self._max_batch_frames)
            self._speed = BusySpeed(warmed.result())
        self._wide = _worker("model", 1, threads)
        self._narrow = _worker("lane", lanes, threads // lanes)
        self._gate = WorkGate(
            lambda: self._max_batch_frames,
            OVERTAKE_SECONDS_PER_FRAME,
            lanes,
            self._brief_frames if self._engine.device.type == "cpu" else None,
        )
        self._device_error: str | None = None
        self._metrics = ModelMetrics()
        self._held_samples = 0
        self._done_samples = 0

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Live limits: `max_batch_frames`."""
        unknown = set(user_config) - {"max_batch_frames"}
        if unknown:
            raise ValueError(f"user_config of Model: {sorted(unknown)} is not max_batch_frames")
        if frames := user_config.get("max_batch_frames"):
            self._max_batch_frames = int(frames)

    def _brief_frames(self) -> int:
        return round(CPU_BRIEF_SECONDS * self._speed.value / self._engine.frame_seconds)

    def _is_full(self, work: int, more_waits: bool) -> bool:
        most = self._max_batch_frames
        if more_waits:
            most = min(most, self._brief_frames())
        return work >= most / 2

    async def score(self, audio: AudioPass) -> Result:
        """Score one pass; an error is returned, not raised, so that no traceback is logged."""
        arrived = perf_counter()
        if audio.model not in (None, (self._engine.name, self._engine.revision)):
            return OtherModel()
        wave = audio.as_float()
        self._held_samples += wave.size
        try:
            async with self._gate.admitted(self._engine.work(wave.size)) as ticket:
                job = _Job(wave, audio.frame_embeddings, ticket, arrived)
                return await self._run_batch(job)
        finally:
            self._held_samples -= wave.size
            self._done_samples += wave.size

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What `cluster.autoscaling` scales by; called by Serve every half second."""
        return {
            "audio_seconds": self._held_samples / MODEL_RATE,
            "done_audio_seconds": self._done_samples / MODEL_RATE,
            "audio_seconds_per_second": self._speed.value,
        }

    # the gate cuts the batches; this limit only has to be beyond any of them
    @serve.batch(
        max_batch_size=10**6,
        batch_wait_timeout_s=0,
        batch_size_fn=_batch_work,
        max_concurrent_batches=CPU_LANES,
    )
    async def _run_batch(self, jobs: list[_Job]) -> list[Result]:
        alone = self._gate.batch_started([job.ticket for job in jobs])
        full = self._is_full(_batch_work(jobs), alone and self._gate.waiting_work > 0)
        self._speed.batch_started()
        try:
            worker = self._wide if alone else self._narrow
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(worker, self._compute, jobs)
        finally:
            self._gate.batch_ended()
            seconds = sum(job.wave.size for job in jobs) / MODEL_RATE
            self._speed.batch_ended(seconds, full, self._gate.busy)

    def _compute(self, jobs: list[_Job]) -> list[Result]:
        started = perf_counter()
        frame_embeddings = any(job.frame_embeddings for job in jobs)
        try:
            results = self._engine.infer_each([job.wave for job in jobs], frame_embeddings)
        except Exception as error:
            logger.exception("batch of %d failed", len(jobs))
            self._metrics.batch_failures.inc()
            if is_device_lost(error):
                self._device_error = str(error)
            elif len(jobs) > 1:
                # whatever it was, it is one clip's: the others get their answers
                return [result for job in jobs for result in self._compute([job])]
            return [EmotionError("internal", "The model failed on this audio.") for _ in jobs]
        milliseconds = (perf_counter() - started) * 1000
        self._observe(jobs, milliseconds)
        return [
            result
            if isinstance(result, EmotionError)
            else Scored(
                frame_logits=result.frame_logits,
                embedding=result.embedding,
                frame_embeddings=result.frame_embeddings if job.frame_embeddings else None,
                labels=result.labels,
                model=self._engine.name,
                revision=self._engine.revision,
                queue_ms=(started - job.arrived) * 1000,
                model_ms=milliseconds,
            )
            for job, result in zip(jobs, results, strict=True)
        ]

    def _observe(self, jobs: list[_Job], milliseconds: float) -> None:
        metrics = self._metrics
        metrics.batch_clips.observe(len(jobs))
        metrics.batch_frames.observe(_batch_work(jobs))
        metrics.batch_ms.observe(milliseconds)
        metrics.padding_ratio.set(self._engine.padding_ratio)
        metrics.queued_audio_seconds.set(self._gate.waiting_work * self._engine.frame_seconds)
        if retries := self._engine.take_retries():
            metrics.float32_retries.inc(retries)
        if self._engine.device.type == "cuda":
            metrics.device_memory_bytes.set(self._engine.device_memory_bytes())

    def info(self) -> ModelInfo:
        """Facts about the loaded model."""
        engine = self._engine
        return ModelInfo(
            model=engine.name,
            revision=engine.revision,
            dtype=str(engine.dtype).removeprefix("torch."),
            device=str(engine.device),
            compiled=COMPILED,
            labels=engine.labels,
            embedding_size=engine.embedding_size,
            sample_rate=MODEL_RATE,
            frame_seconds=engine.frame_seconds,
            receptive_field=engine.config.receptive_field,
            max_batch_frames=self._max_batch_frames,
            versions={name: version(name) for name in ("torch", "torchaudio", "ray")},
        )

    def check_health(self) -> None:
        """Fail where the device is lost: only a new process can use it again."""
        if self._device_error is not None:
            raise RuntimeError(self._device_error)


def is_device_lost(error: Exception) -> bool:
    """Whether every later call of this process would fail as well (a sticky CUDA error)."""
    import torch

    out_of_memory = isinstance(error, torch.OutOfMemoryError)
    return isinstance(error, torch.AcceleratorError) and not out_of_memory
