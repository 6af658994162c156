"""From decoded passes to heard ones: preprocessing, speech, the model, bounded and in order."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from time import perf_counter

from deployments.graph import Graph, SpeechRegions
from deployments.wire import AudioPass, ModelName, Scored
from engine.audio.types import Pass
from engine.errors import EmotionError
from engine.timeline import HeardPass
from serve_app.admission import Admission, Approach
from serve_app.parameters import Parameters
from serve_app.pipeline import both, map_in_order
from serve_app.timings import Timings
from serve_app.trim import ListenedPass, SilenceCutter, TrimmedResults

PASSES_IN_FLIGHT = 4
"""Passes of one request in the graph at once: enough to fill it, few enough to stay small."""

SAME_MODEL_TRIES = 8
SAME_MODEL_PAUSE = 0.02

Heard = tuple[int | None, HeardPass]
"""A channel (None: the mix) and one of its passes."""


class ModelChanged(EmotionError):
    """Another model has taken over before all passes were scored: half of each is no answer."""

    def __init__(self) -> None:
        super().__init__("internal", "The model was replaced while it worked on this audio.")


class Listener:
    """Hears one request's audio.

    Attributes:
        heard_by: name and revision of the model that scored its passes; None before the first.
    """

    def __init__(
        self,
        graph: Graph,
        admission: Admission,
        approach: Approach,
        timings: Timings,
        parameters: Parameters,
        find_speech: bool,
    ) -> None:
        self._graph = graph
        self._admission = admission
        self._approach: Approach | None = approach
        self._timings = timings
        self._parameters = parameters
        self._find_speech = find_speech
        self.heard_by: ModelName | None = None

    async def first_decoded(self, passes: AsyncIterator[Pass]) -> AsyncIterator[Pass]:
        """The same passes, with the first one decoded: now it is known to be audio.

        Raises:
            EmotionError: it is not, or the graph is full.
        """
        timed = self._timed(passes)
        first = await anext(timed)
        self._admission.check_graph()

        async def all_passes() -> AsyncIterator[Pass]:
            yield first
            async for excerpt in timed:
                yield excerpt

        return all_passes()

    async def hear(self, passes: AsyncIterator[Pass]) -> AsyncGenerator[Heard]:
        """Heard passes in order; decoding goes on meanwhile, a bounded number of passes ahead."""
        prepared = map_in_order(passes, self._prepare, PASSES_IN_FLIGHT)
        async with aclosing(prepared):
            if not self._parameters.trim_silence:
                results = map_in_order(prepared, self._score, PASSES_IN_FLIGHT)
                async with aclosing(results):
                    async for item, heard in results:
                        yield item.channel, heard
                return
            trimmed = self._trimmed(prepared)
            async with aclosing(trimmed):
                async for result in trimmed:
                    yield result

    async def _timed(self, passes: AsyncIterator[Pass]) -> AsyncGenerator[Pass]:
        since = perf_counter()
        async for excerpt in passes:
            self._timings.add("decode", (perf_counter() - since) * 1000)
            yield excerpt
            since = perf_counter()

    async def _prepare(self, excerpt: Pass) -> ListenedPass:
        parameters = self._parameters
        audio = AudioPass(excerpt.samples, excerpt.sample_rate, parameters.needs_frame_embeddings)
        regions: SpeechRegions | None = None
        if parameters.trim_silence:
            # what is cut is not scored, so the model has to wait for this
            ready, regions = await both(
                self._graph.prepare(audio, parameters.denoise),
                self._speech(audio, excerpt.start),
            )
        else:
            ready = await self._graph.prepare(audio, parameters.denoise)
        self._timings.add("preprocess", ready.preprocess_ms)
        return ListenedPass(ready.audio, excerpt.channel, excerpt.start, regions)

    async def _speech(self, audio: AudioPass, start: float) -> SpeechRegions:
        regions = await self._graph.speech(audio)
        return tuple((start + first, start + last) for first, last in regions)

    async def _score(self, item: ListenedPass) -> tuple[ListenedPass, HeardPass]:
        first, self._approach = self._approach, None
        regions = item.speech
        async with self._admission.audio(item.audio.seconds, first):
            if self._find_speech and regions is None:
                # beside the model, which does not need it
                scored, regions = await both(
                    self._scored(item.audio), self._speech(item.audio, item.start)
                )
            else:
                scored = await self._scored(item.audio)
        self._timings.add("queue", scored.queue_ms)
        self._timings.add("model", scored.model_ms)
        heard = HeardPass(
            start=item.start,
            end=item.end,
            frame_logits=scored.frame_logits,
            embedding=scored.embedding,
            frame_embeddings=scored.frame_embeddings,
            speech=regions,
        )
        return item, heard

    async def _scored(self, audio: AudioPass) -> Scored:
        """Score a pass with the model that scored the others: in a roll two serve at once.

        Raises:
            ModelChanged: that model is gone.
        """
        for tried in range(SAME_MODEL_TRIES):
            scored = await self._graph.score(replace(audio, model=self.heard_by))
            if isinstance(scored, Scored):
                scored_by = scored.model, scored.revision
                # passes go out together; the first that comes back decides for all of them
                self.heard_by = self.heard_by or scored_by
                if scored_by == self.heard_by:
                    return scored
            await asyncio.sleep(SAME_MODEL_PAUSE * tried)
        raise ModelChanged

    async def _trimmed(self, prepared: AsyncIterator[ListenedPass]) -> AsyncGenerator[Heard]:
        trims: dict[int | None, TrimmedResults[HeardPass]] = defaultdict(TrimmedResults)
        results = map_in_order(_cut(prepared), self._score, PASSES_IN_FLIGHT)
        async with aclosing(results):
            async for item, heard in results:
                for certain in trims[item.channel].add(item, heard):
                    yield item.channel, certain
        for channel, trim in trims.items():
            for certain in trim.finish():
                yield channel, certain


async def _cut(passes: AsyncIterator[ListenedPass]) -> AsyncGenerator[ListenedPass]:
    cutters: dict[int | None, SilenceCutter] = defaultdict(SilenceCutter)
    async for item in passes:
        for ready in cutters[item.channel].push(item):
            yield ready
    for cutter in cutters.values():
        for ready in cutter.finish():
            yield ready
