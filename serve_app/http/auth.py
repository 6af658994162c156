"""Who may call: API keys before anything of the body is read, and what browsers may do."""

import ipaddress
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import EmotionError
from serve_app.http.errors import error_response
from serve_app.http.keys import ApiKeys

logger = logging.getLogger("ray.serve")

PUBLIC_PATHS = frozenset(
    {
        "/",
        "/live",
        "/health",
        "/v2/health/live",
        "/v2/health/ready",
        "/docs",
        "/docs/oauth2-redirect",
        "/openapi.json",
    }
)
"""Probes, documentation and the page: readable (GET, HEAD) without a key."""

CLOSE_NOT_AUTHORISED = 1008

_ORIGIN = re.compile(r"https?://[^/?#\s@,]+")


class ApiKeyMiddleware:
    """Answers 401 to requests, and closes WebSockets, that bring no key in force."""

    def __init__(
        self, app: ASGIApp, keys: ApiKeys, public_paths: frozenset[str] = PUBLIC_PATHS
    ) -> None:
        self._app = app
        self._keys = keys
        self._public_paths = public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = error_response(EmotionError("unauthorized", refusal), Request(scope))
            await answer(scope, receive, send)
        else:
            await _close(receive, send)

    def _is_public(self, scope: Scope) -> bool:
        if not self._keys.required:
            return True
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return scope.get("method") in ("GET", "HEAD") and path in self._public_paths

    def _refusal(self, scope: Scope) -> str | None:
        presented = _bearer([v for name, v in scope["headers"] if name == b"authorization"])
        if presented is None:
            return "This server needs an API key in the header Authorization: Bearer KEY."
        if not self._keys.accept(presented):
            return "The API key is not one that this server knows."
        return None


def _bearer(headers: Sequence[bytes]) -> bytes | None:
    """The token of the one `Authorization: Bearer` header (RFC 6750), or None."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].strip().partition(b" ")
    token = token.strip()
    return token if scheme.lower() == b"bearer" and token else None


async def _close(receive: Receive, send: Send) -> None:
    # closed before it is accepted, a WebSocket is an HTTP 403: browsers show no code of it
    await receive()
    await send({"type": "websocket.accept"})
    close = {"type": "websocket.close", "code": CLOSE_NOT_AUTHORISED, "reason": "unauthorized"}
    await send(close)


def warn_if_public(
    host: str, has_keys: bool, say: Callable[[str], object] = logger.warning
) -> None:
    """Say in one loud line that everybody who reaches this machine may use the server.

    Args:
        host: the address that is listened on; a name other than localhost counts as public.
        say: where the line goes.
    """
    if not has_keys and not _is_loopback(host):
        say(
            f"WARNING: listening on {host or '0.0.0.0'} WITHOUT API KEYS: whoever reaches this "
            "address can use the server; set api_keys_file or E2V_API_KEYS, or listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def cors_options(origins: Sequence[str]) -> dict[str, Any] | None:
    """Keyword arguments of starlette's `CORSMiddleware`; None: no page of another origin may call.

    Args:
        origins: `https://host[:port]` without a path, or `*` for every page.

    Raises:
        ValueError: one of them is neither.
    """
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"cors_origins: {origin!r} must be * or http(s)://host[:port] without a path"
            )
    if not origins:
        return None
    return {
        "allow_origins": list(origins),
        "allow_methods": ["GET", "POST"],
        "allow_headers": ["authorization", "content-type", "x-request-id"],
        # keys travel in a header that the page sets: no cookies are involved
        "allow_credentials": False,
        "expose_headers": ["server-timing", "x-audio-duration", "x-request-id", "retry-after"],
    }
