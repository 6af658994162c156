"""What the ingress tells the proxies beside each answer while more come than it can take."""

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.admission import Pace

HEADER = "x-overload-pace"
"""From ingress to proxy, which takes it off."""


class PaceMiddleware:
    """Writes the pace of the moment on the answer to every POST, so that the proxies keep to it.

    They leave other methods alone, and would let the header through to the caller.

    Args:
        app: the routes.
        pace: of the moment; None: all may come.
    """

    def __init__(self, app: ASGIApp, pace: Callable[[], Pace | None]) -> None:
        self._app = app
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return

        async def with_pace(message: Message) -> None:
            if message["type"] == "http.response.start" and (pace := self._pace()) is not None:
                MutableHeaders(scope=message)[HEADER] = f"{pace.interval:.4f} {pace.duration:.4f}"
            await send(message)

        await self._app(scope, receive, with_pace)


def take_pace(message: Message) -> Pace | None:
    """The pace that an `http.response.start` brings, which is taken off."""
    headers = MutableHeaders(raw=list(message.get("headers", ())))
    found = headers.get(HEADER)
    if found is None:
        return None
    del headers[HEADER]
    message["headers"] = headers.raw
    interval, duration = (float(number) for number in found.split())
    return Pace(interval, duration)
