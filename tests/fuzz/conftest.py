"""Fuzzing over the real HTTP application on a fake graph, with real decoder processes."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "unit"
sys.path += [str(UNIT / "serve_app"), str(UNIT / "audio")]


@pytest.fixture(scope="module")
def asgi() -> "Iterator[object]":
    """Calls the application; see `asgi_caller.Asgi`."""
    from asgi_caller import Asgi
    from fake_graph import FakeGraph

    from serve_app.service import EmotionService
    from serve_app.settings import Settings

    settings = Settings(
        decode_workers=1,
        max_audio_seconds=60.0,
        max_body_bytes=2**20,
        max_files=3,
        decode_stall_seconds=5.0,
    )
    service = EmotionService(settings, FakeGraph())
    with asyncio.Runner() as runner:
        service_started = runner.run(_start(service))
        yield Asgi(runner, service_started)
        runner.run(service.close())


async def _start(service: "object") -> "object":
    service.start()  # type: ignore[attr-defined]
    return service
