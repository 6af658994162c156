"""Load shedding: what the ingress has just refused, the proxy before it refuses by itself.

Under overload most requests are refused, and each refusal costs the way through Serve's proxy to
the ingress and back, on the CPUs that the others need. So the answers of a busy ingress say how
often somebody will find room in the near future (`serve_app.http.pace`); once it has refused, so
many are passed on, and to the others the proxy repeats the refusal.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import STATUS
from serve_app.admission import Pace
from serve_app.http.access_log import AccessLogMiddleware, LogFormat, logger
from serve_app.http.pace import take_pace
from serve_app.http.request_id import request_id
from serve_app.http.together import PUT_OFF_SECONDS, Together
from serve_app.return_times import ReturnTimes

MAX_REMEMBERED = 64
"""Refusals kept, one for each path and origin; the origin is the caller's word."""

OVERLOADED = STATUS["overloaded"]

_OWN_TO_EACH = (b"x-request-id", b"content-length", b"retry-after")

_Key = tuple[str, bytes]


def retry_after(seconds: float) -> int:
    """Value of `Retry-After`: whole seconds, and never at once."""
    return max(1, round(seconds))


@dataclass(slots=True)
class _Refusal:
    """A refusal as the ingress wrote it, to be repeated under other request ids.

    Attributes:
        pace: how many are passed on.
        following: when the next one is passed on.
        until: when all are passed on again.
    """

    pace: Pace
    following: float
    until: float
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""

    def keep_to(self, pace: Pace, now: float) -> None:
        """The ingress is still busy."""
        self.pace = pace
        self.until = now + pace.duration
        self.following = min(self.following, now + pace.interval)

    def pass_on(self, now: float) -> bool:
        """Whether this one is passed on."""
        if now < self.following:
            return False
        # late by less than an interval is made good, or callers at odd times would be too few
        self.following = max(self.following, now - self.pace.interval) + self.pace.interval
        return True


class LoadSheddingMiddleware:
    """Runs in Serve's proxy, outside of everything that Serve does with a request.

    Args:
        app: the proxy.
        refused: told how many refusals were repeated since it was told last.
        log_format: of the access line, which the ingress writes for all other requests.
        clock: seconds, rising.
        tell_after: seconds from a refusal to its access line and its count.
    """

    def __init__(
        self,
        app: ASGIApp,
        refused: Callable[[int], object] = lambda count: None,
        log_format: LogFormat = "text",
        clock: Callable[[], float] = time.monotonic,
        tell_after: float = PUT_OFF_SECONDS,
    ) -> None:
        self._app = app
        self._refused = refused
        self._records: Together[logging.LogRecord] = Together(self._tell, tell_after)
        self._repeat = AccessLogMiddleware(self._answer, log_format, self._records.add)
        self._clock = clock
        self._return_times = ReturnTimes(clock)
        self._refusals: dict[_Key, _Refusal] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._is_sure(_key(scope)):
            await self._repeat(scope, receive, send)
        else:
            await self._app(scope, receive, self._listening(_key(scope), send))

    def _tell(self, records: list[logging.LogRecord]) -> None:
        self._refused(len(records))
        for record in records:
            logger.handle(record)

    def _is_sure(self, key: _Key) -> bool:
        """Whether the ingress would surely refuse; False also lets the next one wait its turn."""
        refusal, now = self._refusals.get(key), self._clock()
        if refusal is None:
            return False
        if now >= refusal.until:
            del self._refusals[key]
            return False
        return not refusal.pass_on(now)

    def _listening(self, key: _Key, send: Send) -> Send:
        """`send` that hears the pace, and remembers a refusal, on their way out."""
        refusal: _Refusal | None = None

        async def passed_on(message: Message) -> None:
            nonlocal refusal
            if message["type"] == "http.response.start":
                refusal = self._hear(key, message)
            elif refusal is not None and message["type"] == "http.response.body":
                refusal.body += message.get("body", b"")
                if not message.get("more_body", False):
                    self._remember(key, refusal)
            await send(message)

        return passed_on

    def _hear(self, key: _Key, message: Message) -> _Refusal | None:
        """A refusal that may be repeated; None: this is none."""
        pace, now = take_pace(message), self._clock()
        if pace is None:
            return None
        known = self._refusals.get(key)
        if known is not None:
            known.keep_to(pace, now)
        if message["status"] != OVERLOADED:
            return None
        following = now + pace.interval if known is None else known.following
        kept = [pair for pair in message["headers"] if pair[0].lower() not in _OWN_TO_EACH]
        return _Refusal(pace, following, now + pace.duration, message["status"], kept)

    def _remember(self, key: _Key, refusal: _Refusal) -> None:
        now = self._clock()
        if len(self._refusals) >= MAX_REMEMBERED:
            self._refusals = {k: r for k, r in self._refusals.items() if r.until > now}
        if len(self._refusals) < MAX_REMEMBERED:
            self._refusals[key] = refusal

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The remembered refusal under this request's own id."""
        refusal = self._refusals[_key(scope)]
        scope["route"] = _Route(scope["path"])
        own_id = request_id(Request(scope))
        body = orjson.dumps({**orjson.loads(refusal.body), "request_id": own_id})
        headers = [
            *refusal.headers,
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", own_id.encode("latin-1", "replace")),
            (
                b"retry-after",
                b"%d" % retry_after(self._return_times.following(refusal.pace.interval)),
            ),
        ]
        start = {"type": "http.response.start", "status": refusal.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class _Route:
    """What the access line takes the path from; the ingress has a refusal for its routes alone."""

    path: str


def _key(scope: Scope) -> _Key:
    # to a page of another origin the answer says so, in headers of its own
    origins = (value for name, value in scope["headers"] if name == b"origin")
    return scope["path"], next(origins, b"")
