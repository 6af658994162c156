"""What a request gives, in order: the events behind every kind of answer."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from deployments.wire import ModelInfo
from engine.audio.types import SourceReport
from engine.timeline import HeardPass
from serve_app.cache import HeardStream
from serve_app.listening import Heard
from serve_app.parameters import Parameters
from serve_app.results import ChannelResult


@dataclass(frozen=True, slots=True)
class Accepted:
    """It is audio, there is room for it, and the first of it has been decoded."""


@dataclass(frozen=True, slots=True)
class SegmentFound:
    """A segment of the timeline is complete."""

    channel: int | None
    segment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoder has reached the end of the file."""

    reports: tuple[SourceReport, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The whole result object and the seconds of audio it is about."""

    result: dict[str, Any]
    seconds: float


Event = Accepted | SegmentFound | Decoded | Done


class RequestResults:
    """The results of one request, one per stream of audio, as events."""

    def __init__(self, parameters: Parameters, info: ModelInfo) -> None:
        self._split = parameters.channels == "split"
        self._make = partial(ChannelResult, parameters, info)
        self._make()  # so that an unknown label is refused before anything is decoded
        self._channels: dict[int | None, ChannelResult] = {}
        self._passes: dict[int | None, list[HeardPass]] = {}

    def name_model(self, model: str) -> None:
        """Name another model than the one that was known at the beginning."""
        for result in self._channels.values():
            result.model = model

    async def live(self, heard: AsyncIterator[Heard]) -> AsyncGenerator[Event]:
        """Segments, as passes are heard."""
        async for channel, heard_pass in heard:
            for event in self._add(channel, heard_pass):
                yield event

    def replay(self, streams: list[HeardStream], request_id: str) -> list[Event]:
        """All events of audio that was heard before."""
        events: list[Event] = []
        for stream in streams:
            for heard_pass in stream.passes:
                events += self._add(stream.report.channel, heard_pass)
        reports = tuple(stream.report for stream in streams)
        return [*events, Decoded(reports), *self.finish(reports, request_id)]

    def finish(self, reports: tuple[SourceReport, ...], request_id: str) -> list[Event]:
        """The last segments and the whole result."""
        events: list[Event] = []
        objects = []
        for report in reports:
            result = self._channels[report.channel]
            events += [SegmentFound(report.channel, segment) for segment in result.finish()]
            objects.append(result.to_object(report, request_id))
        seconds = max(report.duration for report in reports)
        if not self._split:
            return [*events, Done(objects[0], seconds)]
        items = [
            {"channel": report.channel, **item}
            for report, item in zip(reports, objects, strict=True)
        ]
        return [*events, Done({"object": "list", "data": items}, seconds)]

    def streams(self, reports: tuple[SourceReport, ...]) -> list[HeardStream]:
        """What the cache keeps."""
        return [HeardStream(tuple(self._passes[r.channel]), r) for r in reports]

    def _add(self, channel: int | None, heard_pass: HeardPass) -> list[Event]:
        if channel not in self._channels:
            self._channels[channel] = self._make()
        self._passes.setdefault(channel, []).append(heard_pass)
        segments = self._channels[channel].add(heard_pass)
        return [SegmentFound(channel, segment) for segment in segments]
