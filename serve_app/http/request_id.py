"""The id under which Serve answers and logs a request."""

from uuid import uuid4

from fastapi import Request


def request_id(request: Request) -> str:
    """Serve's `X-Request-ID`; a fresh one where the application runs without Serve."""
    found = getattr(request.state, "request_id", None) or request.headers.get("x-request-id")
    if not found:
        found = _serve_request_id() or str(uuid4())
    request.state.request_id = found
    return str(found)


def _serve_request_id() -> str | None:
    from ray.serve.context import _get_serve_request_context

    return _get_serve_request_context().request_id or None
