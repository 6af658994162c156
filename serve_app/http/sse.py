"""Server-Sent Events: results while the audio is still being worked on."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import EmotionError
from serve_app.bodies import Body
from serve_app.events import Accepted, Decoded, Done, Event, SegmentFound
from serve_app.http.access_log import set_timings
from serve_app.http.request_id import request_id
from serve_app.parameters import Parameters
from serve_app.results import error_object, to_json
from serve_app.timings import Timings

if TYPE_CHECKING:
    from serve_app.service import EmotionService

logger = logging.getLogger("ray.serve")


class EventStream(StreamingResponse):
    """A stream that ends its work and lets go of what it holds however it ends."""

    def __init__(self, events: AsyncGenerator[Event], request: Request, timings: Timings) -> None:
        super().__init__(
            _written(events, request, timings),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._events = events
        self.held = ExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a client that goes away ends the work."""
        with self.held:
            async with aclosing(self._events):
                await super().__call__(scope, receive, send)


async def event_stream(
    service: "EmotionService",
    body: Body,
    parameters: Parameters,
    request: Request,
    timings: Timings,
) -> EventStream:
    """`accepted`, `segment`…, `decoded`, `done`, or `error`.

    The response starts with the work's first event, `Accepted`: what is known by then (no
    audio container, overload, …) is an HTTP status.
    """
    events = service.events(body, parameters, request_id(request), timings)
    await anext(events)
    return EventStream(events, request, timings)


async def _written(
    events: AsyncIterator[Event], request: Request, timings: Timings
) -> AsyncIterator[bytes]:
    yield _event("accepted", {"id": request_id(request)})
    try:
        async for event in events:
            yield _write(event, request, timings)
    except EmotionError as error:
        yield _event("error", error_object(error, request_id(request)))
    except Exception:
        logger.exception("request %s failed", request_id(request))
        unexpected = EmotionError("internal", "The server failed on this request.")
        yield _event("error", error_object(unexpected, request_id(request)))


def _write(event: Event, request: Request, timings: Timings) -> bytes:
    match event:
        case SegmentFound(channel, segment):
            return _event("segment", _of_channel(channel, segment))
        case Decoded(reports):
            streams = [
                _of_channel(r.channel, {"duration": r.duration, "source": r.source()})
                for r in reports
            ]
            return _event("decoded", streams[0] if len(streams) == 1 else {"data": streams})
        case Done(result, seconds):
            set_timings(request, timings, seconds)
            return _event("done", {**result, "timings": timings.to_dict()})
        case Accepted():
            raise AssertionError("the first event is written before the others")


def _of_channel(channel: int | None, value: dict[str, Any]) -> dict[str, Any]:
    return value if channel is None else {"channel": channel, **value}


def _event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + to_json(value) + b"\n\n"
