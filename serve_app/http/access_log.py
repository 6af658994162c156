"""One line for each request: what was asked of which route, how it ended, where the time went.

Nothing of it identifies a key or the audio: the path is the route's template, and neither query,
file names nor headers of the caller are in it.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from time import perf_counter
from typing import Any, Literal

from fastapi import Request
from ray._common.formatters import JSONFormatter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.http.request_id import request_id
from serve_app.timings import Timings

logger = logging.getLogger("ray.serve.access")
"""A child of Serve's logger: it has Serve's handlers and format, but a level of its own, so that
Serve itself can be silent at INFO (`QUIET_LOGGING`) while these lines appear."""

QUIET_LOGGING: dict[str, Any] = {"enable_access_log": False, "log_level": "WARNING"}
"""Serve's `logging_config` without its own lines for each request and each cancelled call."""

CLIENT_GONE = 499
"""Status in the log where the client went away before the answer was complete."""

UNKNOWN_PATH = "-"

LogFormat = Literal["text", "json"]

_STAGE = re.compile(r"(?P<name>\w+)(;dur=(?P<ms>[0-9.]+))?(;desc=(?P<text>\w+))?")
_ODD = re.compile(r"[^A-Za-z0-9._:/-]")


def set_timings(request: Request, timings: Timings, audio_seconds: float) -> None:
    """For answers whose headers go out before the work is done (server-sent events)."""
    request.state.logged = {**_milliseconds(timings.to_dict()), "audio_seconds": audio_seconds}


class AccessLogMiddleware:
    """Logs each HTTP request at INFO when it ends, whatever way it ends.

    With `log_format="text"` the message is `key=value …`; with "json" the fields are attributes
    of the record, which Serve's JSON encoding writes as fields of the line.

    Args:
        app: what answers.
        log_format: see above.
        hand_on: gets each record; at once to the handlers by default.
    """

    def __init__(
        self,
        app: ASGIApp,
        log_format: LogFormat = "text",
        hand_on: Callable[[logging.LogRecord], object] = logger.handle,
    ) -> None:
        self._app = app
        self._as_json = log_format == "json"
        self._hand_on = hand_on
        logger.setLevel(logging.INFO)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        failed = 500
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            failed = CLIENT_GONE
            raise
        finally:
            self._log(exchange.fields(failed))

    def _log(self, fields: dict[str, Any]) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        if self._as_json:
            message, extra = "{method} {path} {status}".format_map(fields), fields
        else:
            message, extra = " ".join(f"{name}={value}" for name, value in fields.items()), None
        # by hand, for the record is to have this time even if it is written later
        self._hand_on(
            logger.makeRecord(
                logger.name, logging.INFO, __file__, 0, message, (), None, "_log", extra
            )
        )


class _Exchange:
    """A request and its answer as they pass by."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = perf_counter()
        self._id = request_id(Request(scope))
        self._bytes_in = 0
        self._status: int | None = None
        self._headers: dict[bytes, bytes] = {}
        self._complete = False
        self._client_gone = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes_in += len(message.get("body", b""))
        elif message["type"] == "http.disconnect":
            # it also comes after every complete answer
            self._client_gone = not self._complete
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.lower(): value for name, value in message.get("headers", ())}
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete = True

    def fields(self, failed: int) -> dict[str, Any]:
        """What is logged; `failed` is the status of an answer that was not completed."""
        status = self._status if self._complete and self._status else failed
        return {
            "request_id": _ODD.sub("?", self._id)[:128],
            "method": _ODD.sub("?", self._scope["method"])[:16],
            "path": getattr(self._scope.get("route"), "path", None) or UNKNOWN_PATH,
            "status": CLIENT_GONE if self._client_gone else status,
            "bytes_in": self._bytes_in,
            "duration_ms": round((perf_counter() - self._started) * 1000, 2),
            **self._measured(),
        }

    def _measured(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        duration = self._headers.get(b"x-audio-duration", b"").decode("latin-1")
        if duration:
            found["audio_seconds"] = float(duration)
        found |= _server_timing(self._headers.get(b"server-timing", b"").decode("latin-1"))
        found.update(self._scope.get("state", {}).get("logged", {}))
        return found


def _server_timing(header: str) -> dict[str, Any]:
    """`decode;dur=1.2, cache;desc=hit` → `{"decode_ms": 1.2, "cache": "hit"}`."""
    stages: dict[str, float] = {}
    words: dict[str, Any] = {}
    for part in header.split(","):
        match = _STAGE.fullmatch(part.strip())
        if match and match["ms"]:
            stages[match["name"]] = float(match["ms"])
        elif match and match["text"]:
            words[match["name"]] = match["text"]
    return _milliseconds(stages) | words


def _milliseconds(stages: dict[str, float]) -> dict[str, Any]:
    return {f"{name}_ms": round(ms, 2) for name, ms in stages.items()}


def write_json_to_streams(serve_logger: logging.Logger) -> None:
    """Give the stream handlers Ray's JSON format: Serve's JSON encoding is for its files alone."""
    for handler in serve_logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setFormatter(JSONFormatter())
