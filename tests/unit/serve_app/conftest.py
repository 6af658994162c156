"""The whole HTTP path over a fake graph: no Ray, no model, real decoder processes."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from fake_graph import FakeGraph

from serve_app.http.app import build_http
from serve_app.service import EmotionService
from serve_app.settings import Settings


@pytest.fixture
def graph() -> FakeGraph:
    return FakeGraph()


@pytest.fixture
async def service_of() -> AsyncIterator[Callable[..., EmotionService]]:
    """Makes started services with the settings a test needs, and stops them."""
    services: list[EmotionService] = []

    def make(graph: FakeGraph, store: Any = None, **settings: Any) -> EmotionService:
        service = EmotionService(Settings(**{"decode_workers": 1, **settings}), graph, store)
        service.start()
        services.append(service)
        return service

    yield make
    for service in services:
        await service.close()


@pytest.fixture
async def http(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(build_http(service_of(graph)), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client
