"""What one request does: decode → passes through the graph → answer. No HTTP, no Ray."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np
from engine.audio.pool import DecodePool
from numpy.typing import NDArray

from deployments.graph import Graph
from deployments.wire import AudioPass, ModelInfo
from engine.audio import DecodeLimits, DecodeRequest, Pass, PcmFormat
from engine.errors import EmotionError
from serve_app.parameters import Parameters, parse_parameters
from serve_app.pipeline import map_in_order
from serve_app.results import Heard, ScoredPass, emotions_object, error_object, to_plain
from serve_app.settings import Settings
from serve_app.timings import Timings

logger = logging.getLogger("ray.serve")

PASSES_IN_FLIGHT = 4
"""Passes of one request in the graph at once: enough to fill it, few enough to stay small."""

Body = bytes | BinaryIO


@dataclass(frozen=True, slots=True)
class Answer:
    """The result object of one audio, before it is written."""

    result: dict[str, Any]
    duration: float


class EmotionService:
    """Answers requests; one per ingress replica."""

    def __init__(self, settings: Settings, graph: Graph) -> None:
        self.settings = settings
        self._graph = graph
        self._info: ModelInfo | None = None
        limits = DecodeLimits(
            max_audio_seconds=settings.max_audio_seconds,
            min_sample_rate=settings.min_sample_rate_hz,
            max_sample_rate=settings.max_sample_rate_hz,
            max_channels=settings.max_channels,
            decode_stall_seconds=settings.decode_stall_seconds,
        )
        self._decoders = DecodePool(settings.decode_workers, limits)

    def start(self) -> None:
        """Start the decoder processes."""
        self._decoders.start()

    async def close(self) -> None:
        """Stop the decoder processes."""
        await self._decoders.close()

    def asgi(self) -> Any:
        """The HTTP face of this service."""
        from serve_app.http.app import build_http

        return build_http(self)

    async def info(self) -> ModelInfo:
        """Facts about the model; raises `not_ready` while it loads."""
        self._info = await self._graph.info()
        return self._info

    async def known_info(self) -> ModelInfo:
        """Facts about the model as last seen: the graph is asked only the first time."""
        return self._info or await self.info()

    async def analyze(
        self,
        body: Body,
        parameters: Parameters,
        request_id: str,
        timings: Timings,
        pcm: PcmFormat | None = None,
    ) -> Answer:
        """Answer for one encoded audio file.

        Raises:
            EmotionError: what is wrong with the audio, or with us.
        """
        info = await self.known_info()
        request = DecodeRequest(
            pass_seconds=self.settings.pass_seconds,
            min_samples_16k=info.receptive_field,
            pcm=pcm,
        )
        started = perf_counter()
        job = await self._decoders.open(body, request)
        async with aclosing(job):
            passes = []
            async with aclosing(self._scored(job, parameters, timings, started)) as scored:
                passes = [item async for item in scored]
            [report] = job.reports
        heard = Heard(passes, report.duration, report.source(), report.warnings)
        result = emotions_object(heard, parameters, info, request_id)
        return Answer(result, report.duration)

    def _scored(
        self,
        job: AsyncIterator[Pass],
        parameters: Parameters,
        timings: Timings,
        started: float,
    ) -> AsyncGenerator[ScoredPass]:
        async def timed() -> AsyncIterator[Pass]:
            since = started
            async for excerpt in job:
                timings.add("decode", (perf_counter() - since) * 1000)
                yield excerpt
                since = perf_counter()

        async def score(excerpt: Pass) -> ScoredPass:
            audio = AudioPass(
                excerpt.samples, excerpt.sample_rate, parameters.embeddings == "frame"
            )
            return await self._score(audio, excerpt.start, timings)

        return map_in_order(timed(), score, PASSES_IN_FLIGHT)

    async def _score(self, audio: AudioPass, start: float, timings: Timings) -> ScoredPass:
        result = await self._graph.score(audio, self.settings.request_timeout_seconds)
        timings.add("preprocess", result.preprocess_ms)
        timings.add("queue", result.scored.queue_ms)
        timings.add("model", result.scored.model_ms)
        return ScoredPass(start, result.scored)

    async def predict(
        self, audio: Any, sample_rate: int | None, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        """Answer a handle call with a plain dict; see `deployments.ingress.Ingress.predict`."""
        request_id = current_request_id()
        try:
            wanted = parse_parameters(parameters)
            body, pcm = handle_audio(audio, sample_rate)
            answer = await self.analyze(body, wanted, request_id, Timings(), pcm)
        except EmotionError as error:
            return {**error_object(error, request_id), "status": error.status}
        return dict(to_plain(answer.result))


def handle_audio(audio: Any, sample_rate: int | None) -> tuple[bytes, PcmFormat | None]:
    """Encoded bytes as they are; a float32 array as headerless PCM, so that every rule holds."""
    if isinstance(audio, (bytes, bytearray, memoryview)):
        if sample_rate is not None:
            raise EmotionError("invalid_request", "sample_rate goes with an array, not with bytes")
        return bytes(audio), None
    if not isinstance(audio, np.ndarray) or audio.ndim != 1 or audio.dtype != np.float32:
        shape = f"{audio.ndim}-D {audio.dtype} array" if isinstance(audio, np.ndarray) else "other"
        raise EmotionError(
            "invalid_request", f"audio must be bytes or a 1-D float32 array, not {shape}"
        )
    if type(sample_rate) is not int:
        raise EmotionError("invalid_request", "an array needs its sample_rate in Hz")
    samples: NDArray[np.float32] = np.ascontiguousarray(audio, "<f4")
    return samples.tobytes(), PcmFormat("pcm_f32le", sample_rate, 1)


def current_request_id() -> str:
    """The id under which Serve logs this request."""
    from ray.serve.context import _get_serve_request_context

    return str(_get_serve_request_context().request_id)
