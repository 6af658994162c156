"""The blocking and the asynchronous client: the same calls, only the waiting differs."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Self

import httpx2

from client.errors import ApiError
from client.exchange import Outcome, Send, Wait, query, with_retries
from client.results import Result, parse_result
from client.sources import Source, read_source

DEFAULT_URL = "http://127.0.0.1:8000"
CONNECT_SECONDS = 5.0


def _options(url: str, timeout: float, headers: Mapping[str, str] | None) -> dict[str, Any]:
    return {
        "base_url": url,
        "headers": dict(headers or {}),
        "timeout": httpx2.Timeout(timeout, connect=CONNECT_SECONDS),
    }


def _predict(body: bytes, parameters: dict[str, Any]) -> Send:
    return Send("POST", "/v1/audio/emotions", query(parameters), body)


def _result(response: httpx2.Response) -> Result:
    try:
        return parse_result(response.json(), response.headers.get("server-timing", ""))
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise _not_ours(response) from None


def _object(response: httpx2.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except json.JSONDecodeError:
        raise _not_ours(response) from None
    if not isinstance(body, dict):
        raise _not_ours(response)
    return body


def _not_ours(response: httpx2.Response) -> ApiError:
    return ApiError(
        f"the answer of {response.url} is not that of an emotion server",
        status=response.status_code,
    )


class Client:
    """Blocking client; keeps its connections, close it or use `with`. Safe for threads.

    Args:
        url: address of the server.
        timeout: seconds without a sign of the server before a try is given up.
        retries: further tries after a failed connection or status 429, 502, 503, 504.
        headers: sent with every request.
        transport: httpx2 transport, for tests and special networks.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout: float = 600.0,
        retries: int = 4,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(**_options(url, timeout, headers), transport=transport)
        self._retries = retries

    def predict(self, source: Source, **parameters: Any) -> Result:
        """Emotions of `source`: a path, bytes, a binary file, or (samples, sample rate in Hz).

        `parameters` are those of the HTTP API: `granularity`, `top_k`, `embeddings`, …

        Raises:
            ApiError: the server's error, or none could be reached.
            OSError: the file cannot be read.
        """
        return _result(self._call(_predict(read_source(source), parameters)))

    def info(self) -> dict[str, Any]:
        """Model, labels, device, limits and versions of the server."""
        return _object(self._call(Send("GET", "/info")))

    def health(self) -> dict[str, Any]:
        """Whether the server is ready, asked once; raises `NotReady` where it is not."""
        return _object(self._call(Send("GET", "/health"), retries=0))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _call(self, send: Send, retries: int | None = None) -> httpx2.Response:
        steps = with_retries(send, self._retries if retries is None else retries)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                response: httpx2.Response = end.value
                return response
            outcome = self._carry_out(step)

    def _carry_out(self, step: Send | Wait) -> Outcome:
        if isinstance(step, Wait):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(step.method, step.path, **step.arguments)
        except httpx2.TransportError as error:
            return error


class AsyncClient:
    """Asynchronous client; see `Client` for arguments and errors."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout: float = 600.0,
        retries: int = 4,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(**_options(url, timeout, headers), transport=transport)
        self._retries = retries

    async def predict(self, source: Source, **parameters: Any) -> Result:
        """See `Client.predict`."""
        body = await asyncio.to_thread(read_source, source)
        return _result(await self._call(_predict(body, parameters)))

    async def info(self) -> dict[str, Any]:
        """See `Client.info`."""
        return _object(await self._call(Send("GET", "/info")))

    async def health(self) -> dict[str, Any]:
        """See `Client.health`."""
        return _object(await self._call(Send("GET", "/health"), retries=0))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _call(self, send: Send, retries: int | None = None) -> httpx2.Response:
        steps = with_retries(send, self._retries if retries is None else retries)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                response: httpx2.Response = end.value
                return response
            outcome = await self._carry_out(step)

    async def _carry_out(self, step: Send | Wait) -> Outcome:
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(step.method, step.path, **step.arguments)
        except httpx2.TransportError as error:
            return error
