"""One call with its retries, without doing any I/O: the clients carry out the steps.

A generator yields what to do next (`Send` or `Wait`) and is sent the outcome, so that the
logic exists once for the blocking and the asynchronous client.
"""

import random
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from client.errors import ApiError, ConnectionFailed, from_response, from_transport

RETRIED_STATUS = frozenset({429, 502, 503, 504})
LONGEST_RETRY_AFTER_SECONDS = 120.0
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Send:
    """Send this request; the outcome is the response or the transport's error."""

    method: str
    path: str
    params: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of httpx2's `request`."""
        # the server looks at the content itself, so any type will do
        headers = {} if self.content is None else {"content-type": "application/octet-stream"}
        return {"params": self.params, "content": self.content, "headers": headers}


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next try."""

    seconds: float


Outcome = httpx2.Response | httpx2.TransportError | None


def with_retries(send: Send, retries: int) -> Generator[Send | Wait, Outcome, httpx2.Response]:
    """Steps of one call; returns the answer.

    Raises:
        ApiError: the last failure.
    """
    tried = 0
    while True:
        outcome = yield send
        if isinstance(outcome, httpx2.Response) and outcome.status_code < 400:
            return outcome
        error = _failure(outcome)
        if tried >= retries or not _worth_another(error):
            raise error
        yield Wait(waiting_time(tried, error.retry_after))
        tried += 1


def waiting_time(tried: int, retry_after: float | None) -> float:
    """Seconds before try number `tried + 2`: exponential with jitter, at least `retry_after`."""
    backoff = min(FIRST_WAIT_SECONDS * 2.0**tried, LONGEST_WAIT_SECONDS)
    jittered = backoff * random.uniform(0.5, 1.0)
    return max(jittered, min(retry_after or 0.0, LONGEST_RETRY_AFTER_SECONDS))


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a `Retry-After` header: a number, or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def query(parameters: dict[str, Any]) -> dict[str, str]:
    """Parameters as query strings: `None` is left out, lists are joined by commas."""
    return {name: _spell(value) for name, value in parameters.items() if value is not None}


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_spell(item) for item in value)
    return str(value)


def _failure(outcome: Outcome) -> ApiError:
    if isinstance(outcome, httpx2.Response):
        return from_response(outcome, parse_retry_after(outcome.headers.get("retry-after")))
    assert outcome is not None
    return from_transport(outcome)


def _worth_another(error: ApiError) -> bool:
    return isinstance(error, ConnectionFailed) or error.status in RETRIED_STATUS
