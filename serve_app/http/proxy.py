"""What runs inside Serve's proxy, before Serve does anything with a request.

Serve calls `middlewares` by the name in `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`, in each proxy,
and behind HAProxy in each ingress replica, which is a proxy of its own there.
"""

import logging

from ray._common.formatters import JSONFormatter
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.metrics import AnswerMetrics
from serve_app.http.access_log import LogFormat
from serve_app.http.shedding import LoadSheddingMiddleware

SERVES_OWN_HEADERS = frozenset({b"x-request-timeout-seconds", b"x-request-disconnect-disabled"})
"""With these, Serve lets callers cut a request short in its own words, or go away and leave its
work behind."""


def middlewares() -> list[Middleware]:
    """Starlette middlewares; the last one is the outermost."""
    answers = AnswerMetrics().answers
    return [
        Middleware(OwnHeadersMiddleware),
        Middleware(
            LoadSheddingMiddleware,
            refused=lambda count: answers.inc(count, tags={"result": "overloaded"}),
            log_format=_log_format(),
        ),
    ]


class OwnHeadersMiddleware:
    """Takes off the headers that only Serve itself reads."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = [pair for pair in scope["headers"] if pair[0] not in SERVES_OWN_HEADERS]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def _log_format() -> LogFormat:
    """As Serve's `logging_config` has it for this process."""
    handlers = logging.getLogger("ray.serve").handlers
    # Serve writes to its files through a buffer, which is the handler then
    writers = [getattr(handler, "target", None) or handler for handler in handlers]
    return "json" if any(isinstance(w.formatter, JSONFormatter) for w in writers) else "text"
