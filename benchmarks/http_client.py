"""One caller of a server: posts bodies, checks that the answers are answers."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx2

PATH = "/v1/audio/emotions"
HEALTH = "/health"
TIMEOUT_SECONDS = 600.0


class Caller:
    """An asynchronous HTTP client without a limit of connections of its own."""

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits)

    async def get(self, url: str) -> dict[str, Any]:
        """The answer without a body; see `post`."""
        return _checked(await self._http.get(url))

    async def post(
        self, url: str, body: bytes, parameters: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The answer to a body.

        Raises:
            RuntimeError: it is not 200; an error answers sooner and would flatter the figures.
        """
        response = await self._http.post(url, content=body, params=dict(parameters or {}))
        return _checked(response)

    async def upload(self, url: str, body: bytes) -> dict[str, Any]:
        """The answer to a body as the form field `file`."""
        return _checked(await self._http.post(url, files={"file": ("clip.wav", body)}))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()


def _checked(response: httpx2.Response) -> dict[str, Any]:
    if response.status_code != 200:
        raise RuntimeError(f"{response.url} answered {response.status_code}: {response.text[:200]}")
    answer: dict[str, Any] = response.json()
    return answer
