"""What a call can fail with, as one tree.

ApiError
├── BadRequest         400, 404, 405: a parameter, a body or a path that the server refuses
├── Unauthorized       401, 403
├── TooLarge           413: too many bytes, or too long an audio
├── AudioError         415, 422: not audio, or audio that cannot be used
├── Overloaded         429
├── NotReady           503: still loading
├── Timeout            408, 504, or no answer within the client's own time
└── ConnectionFailed   no answer at all
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx2


class ApiError(Exception):
    """A call that failed; picklable, the message is the server's own sentence.

    Attributes:
        message: one sentence.
        error_type: the server's name of the failure, for example `audio_too_short`.
        status: HTTP status; None where no answer came.
        request_id: what the server's log knows the call by.
        details: structured hints, for example which parameter was refused.
        retry_after: seconds after which the server wants another try.
    """

    def __init__(
        self,
        message: str,
        error_type: str = "internal",
        status: int | None = None,
        request_id: str | None = None,
        details: list[dict[str, Any]] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, error_type, status, request_id, details, retry_after)
        self.message = message
        self.error_type = error_type
        self.status = status
        self.request_id = request_id
        self.details = details or []
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class BadRequest(ApiError):
    """The server refuses a parameter, the body or the path."""


class Unauthorized(ApiError):
    """The key is missing or wrong."""


class TooLarge(ApiError):
    """Too many bytes, or too long an audio."""


class AudioError(ApiError):
    """Not audio, or audio that cannot be used."""


class Overloaded(ApiError):
    """The server has more work than it takes on; `retry_after` says when to come back."""


class NotReady(ApiError):
    """The server is still loading."""


class Timeout(ApiError):
    """No answer within the server's or the client's time."""


class ConnectionFailed(ApiError):
    """No answer at all: nobody listens, or the connection broke."""


_BY_STATUS: Mapping[int, tuple[type[ApiError], str]] = {
    400: (BadRequest, "invalid_request"),
    401: (Unauthorized, "unauthorized"),
    403: (Unauthorized, "unauthorized"),
    404: (BadRequest, "not_found"),
    405: (BadRequest, "method_not_allowed"),
    408: (Timeout, "timeout"),
    413: (TooLarge, "payload_too_large"),
    415: (AudioError, "unsupported_media_type"),
    422: (AudioError, "audio_decode_failed"),
    429: (Overloaded, "overloaded"),
    503: (NotReady, "not_ready"),
    504: (Timeout, "timeout"),
}
"""Class, and the `error_type` for bodies that name none (Ray Serve's own are plain text)."""


def from_response(response: httpx2.Response, retry_after: float | None) -> ApiError:
    """The error that an answer with status 400 or above stands for."""
    kind, error_type = _BY_STATUS.get(response.status_code, (ApiError, "internal"))
    body = _json_object(response)
    message = body.get("error") or response.text.strip().partition("\n")[0]
    details = body.get("details")
    return kind(
        str(message or f"the server answered with status {response.status_code}"),
        str(body.get("error_type") or error_type),
        response.status_code,
        body.get("request_id") or response.headers.get("x-request-id"),
        details if isinstance(details, list) else None,
        retry_after,
    )


def from_transport(error: httpx2.TransportError) -> ApiError:
    """The error that a failed exchange stands for."""
    if isinstance(error, httpx2.UnsupportedProtocol):
        return BadRequest("the server's URL must begin with http:// or https://", "invalid_request")
    if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
        return Timeout("the server did not answer in time", "timeout")
    url = error.request.url
    server = f"{url.scheme}://{url.netloc.decode('ascii')}"
    reason = str(error) or type(error).__name__
    return ConnectionFailed(f"no connection to {server}: {reason}", "connection_failed")


def _json_object(response: httpx2.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return body if isinstance(body, dict) else {}
