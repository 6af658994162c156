"""Every failure becomes the one error body; nothing of the framework's own reaches a caller."""

import logging

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from engine.errors import EmotionError
from serve_app.http.request_id import request_id
from serve_app.http.shedding import retry_after
from serve_app.results import error_object, to_json

logger = logging.getLogger("ray.serve")

FRAMEWORK_ERRORS = {404: "not_found", 405: "method_not_allowed"}


def install_error_handlers(app: FastAPI) -> None:
    """Route the service's, the framework's and unexpected exceptions to `error_response`."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, EmotionError)
        return error_response(error, request)

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = FRAMEWORK_ERRORS.get(error.status_code, "invalid_request")
        message = f"{request.method} {request.url.path[:200]} is not served here."
        return error_response(EmotionError(kind, message), request, dict(error.headers or {}))

    async def unexpected(request: Request, error: Exception) -> Response:
        logger.error("request %s failed", request_id(request), exc_info=error)
        return error_response(
            EmotionError("internal", "The server failed on this request."), request
        )

    app.add_exception_handler(EmotionError, known)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(Exception, unexpected)


def error_response(
    error: EmotionError, request: Request, headers: dict[str, str] | None = None
) -> Response:
    """The error body with its status, and `Retry-After` or `WWW-Authenticate` where they belong."""
    headers = headers or {}
    if error.error_type == "overloaded":
        headers["Retry-After"] = str(retry_after(error.retry_after or 0.0))
    if error.error_type == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        to_json(error_object(error, request_id(request))),
        error.status,
        headers,
        media_type="application/json",
    )
