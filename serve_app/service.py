"""What one request does: decode → passes through the graph → answer. No HTTP, no Ray."""

import io
import wave
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from deployments.graph import Graph
from deployments.metrics import RequestMetrics
from deployments.wire import ModelInfo
from engine.audio import DecodeLimits, DecodeRequest
from engine.audio.pool import DecodePool
from engine.errors import EmotionError
from engine.passes import MODEL_RATE
from serve_app.admission import Admission
from serve_app.bodies import Body
from serve_app.cache import CacheStore, HeardCache
from serve_app.events import Accepted, Decoded, Done, Event, RequestResults
from serve_app.listening import Listener, ModelChanged
from serve_app.parameters import Parameters
from serve_app.settings import Settings
from serve_app.timings import Timings

RESTARTS = 3
"""How often audio is heard anew because its model was replaced on the way; nothing of it has been
answered yet. A stream has, and ends with an error."""

REHEARSAL_SECONDS = 3

AUDIO_SECONDS_IN_GRAPH = {"cpu": 330.0, "cuda": 4_000.0}
"""Default of `max_inflight_audio_seconds` by device: tens of seconds of work on a large model."""


class EmotionService:
    """Answers requests; one per ingress replica."""

    def __init__(self, settings: Settings, graph: Graph, store: CacheStore | None = None) -> None:
        self.settings = settings
        self._graph = graph
        self._info: ModelInfo | None = None
        self._rehearsed = False
        self.metrics = RequestMetrics()
        self._cache = HeardCache(store) if store is not None else None
        self.admission = Admission(
            settings.max_inflight_requests,
            settings.max_inflight_bytes,
            settings.max_inflight_audio_seconds or AUDIO_SECONDS_IN_GRAPH["cpu"],
            settings.ingress_replicas,
        )
        limits = DecodeLimits(
            max_audio_seconds=settings.max_audio_seconds,
            max_decoded_samples=settings.max_decoded_samples,
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

    async def predict(self, audio: Any, sample_rate: int | None, parameters: dict[str, Any]) -> Any:
        """The handle face of this service."""
        from serve_app.handle_call import predict

        return await predict(self, audio, sample_rate, parameters)

    async def info(self) -> ModelInfo:
        """Facts about the model; raises `not_ready` while it loads."""
        self._info = info = await self._graph.info()
        if not self.settings.max_inflight_audio_seconds:
            kind = info.device.split(":")[0]
            replicas = self.settings.most_model_replicas
            self.admission.max_audio_seconds = AUDIO_SECONDS_IN_GRAPH[kind] * replicas
        return info

    async def ready(self) -> None:
        """Return when a model replica answers; raises `not_ready` otherwise.

        A fleet that may be at zero is ready once it was: a probe must not wake it.
        """
        may_be_at_zero = self.settings.model_max_replicas and not self.settings.model_min_replicas
        await (self.known_info() if may_be_at_zero else self.info())
        if not self._rehearsed:
            self._rehearsed = True
            with suppress(EmotionError):
                await self._rehearse()

    async def _rehearse(self) -> None:
        """Silence through everything: the first caller finds connections and blocks made."""
        silence = io.BytesIO()
        with wave.open(silence, "wb") as file:
            file.setparams((1, 2, MODEL_RATE, 0, "NONE", ""))
            file.writeframes(bytes(2 * MODEL_RATE * REHEARSAL_SECONDS))
        body, parameters = silence.getvalue(), Parameters()
        # they take turns, and each takes twice as long for its first file
        for _ in range(len(self._decoders.workers)):
            # uncounted: nobody asked for it
            events = self._events(body, parameters, "rehearsal", Timings(), use_cache=False)
            async with aclosing(events):
                async for _ in events:
                    pass

    async def known_info(self) -> ModelInfo:
        """Facts about the model as last seen: the graph is asked only the first time."""
        return self._info or await self.info()

    async def analyze(
        self, body: Body, parameters: Parameters, request_id: str, timings: Timings
    ) -> Done:
        """The answer for one audio file.

        Raises:
            EmotionError: what is wrong with the audio, or with us.
        """
        for _ in range(RESTARTS):
            with suppress(ModelChanged):
                return await self._analyze_once(body, parameters, request_id, timings)
        return await self._analyze_once(body, parameters, request_id, timings)

    async def _analyze_once(
        self, body: Body, parameters: Parameters, request_id: str, timings: Timings
    ) -> Done:
        async with aclosing(self.events(body, parameters, request_id, timings)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event
        raise AssertionError("the last event is Done")

    async def events(
        self, body: Body, parameters: Parameters, request_id: str, timings: Timings
    ) -> AsyncGenerator[Event]:
        """`Accepted`, segments as they come, `Decoded`, the last segments and `Done`.

        Raises:
            EmotionError: what is wrong with the audio, or with us.
        """
        try:
            async with aclosing(self._events(body, parameters, request_id, timings)) as events:
                async for event in events:
                    if isinstance(event, Done):
                        self._count(event, timings)
                    yield event
        except EmotionError as error:
            self.metrics.answers.inc(tags={"result": error.error_type})
            raise

    def _count(self, done: Done, timings: Timings) -> None:
        metrics = self.metrics
        metrics.answers.inc(tags={"result": "ok"})
        metrics.audio_seconds.inc(done.seconds)
        for stage, milliseconds in timings.to_dict().items():
            metrics.stage_ms.observe(milliseconds, tags={"stage": stage})
        for item in done.result.get("data", [done.result]):
            for warning in item["warnings"]:
                metrics.warnings.inc(tags={"code": warning["code"]})
        metrics.inflight_audio_seconds.set(self.admission.audio_seconds)
        metrics.inflight_requests.set(self.admission.requests)

    async def _events(
        self,
        body: Body,
        parameters: Parameters,
        request_id: str,
        timings: Timings,
        use_cache: bool = True,
    ) -> AsyncGenerator[Event]:
        info = await self.known_info()
        results = RequestResults(parameters, info)
        find_speech = parameters.needs_speech(self.settings.vad == "always")
        key = None
        if self._cache is not None and use_cache and not parameters.needs_frame_embeddings:
            key = await self._cache.key(body, parameters, info, find_speech)
            cached = await self._cache.get(key)
            self.metrics.cache.inc(tags={"result": "miss" if cached is None else "hit"})
            if cached is not None:
                timings.cache_hit = True
                yield Accepted()
                for event in results.replay(cached, request_id):
                    yield event
                return
        with self.admission.approach() as approach:
            listener = Listener(
                self._graph, self.admission, approach, timings, parameters, find_speech
            )
            job = await self._decoders.open(body, self._decode_request(parameters, info))
            async with aclosing(job):
                passes = await listener.first_decoded(job)
                yield Accepted()
                async with aclosing(listener.hear(passes)) as heard:
                    async for event in results.live(heard):
                        yield event
                reports = job.reports
        if listener.heard_by is not None and listener.heard_by != (info.model, info.revision):
            # the model has been replaced: say which one answered, and ask anew next time
            self._info = None
            results.name_model(listener.heard_by[0])
        elif key is not None and self._cache is not None:
            self._cache.put_soon(key, results.streams(reports))
        yield Decoded(reports)
        for event in results.finish(reports, request_id):
            yield event

    def _decode_request(self, parameters: Parameters, info: ModelInfo) -> DecodeRequest:
        return DecodeRequest(
            pass_seconds=self.settings.pass_seconds,
            channels=parameters.channels,
            start=parameters.start,
            end=parameters.end,
            strict=parameters.strict,
            pcm=parameters.pcm,
            min_samples_16k=info.receptive_field,
        )
