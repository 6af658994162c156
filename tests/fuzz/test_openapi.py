"""The OpenAPI document against the server that it describes, by schemathesis."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from asgi_caller import check_error, strict_json
from fake_graph import FakeGraph, speech_like, wav_bytes
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from serve_app.http.app import build_http
from serve_app.service import EmotionService
from serve_app.settings import Settings

schemathesis = pytest.importorskip("schemathesis")

CLIP = wav_bytes(speech_like(0.5))


class Server(threading.Thread):
    """The application on a fake graph behind a real HTTP server, on a port of its own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        limits = {"max_audio_seconds": 60.0, "max_body_bytes": 2**20}
        self._service = EmotionService(Settings(decode_workers=1, **limits), FakeGraph())
        app = build_http(self._service)
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))

    def run(self) -> None:
        """Serve until `stop`."""

        async def serve() -> None:
            self._service.start()
            await self.server.serve()
            await self._service.close()

        asyncio.run(serve())

    def url(self) -> str:
        """Where it listens."""
        deadline = time.monotonic() + 30
        while not self.server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """End it."""
        self.server.should_exit = True
        self.join(30)


@pytest.fixture(scope="module")
def schema() -> Iterator[object]:
    server = Server()
    server.start()
    yield schemathesis.openapi.from_url(server.url() + "/openapi.json")
    server.stop()


def examples(count: int) -> settings:
    """So many requests to each operation, the same ones each time."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def run_all(schema: object, count: int) -> int:
    """Requests of every operation, as the document says and not at all as it says; how many."""
    sent = 0
    for result in schema.get_all_operations():  # type: ignore[attr-defined]
        operation = result.ok()
        good = operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
        bad = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

        @examples(count)
        @given(case=st.one_of(good, bad) if operation.method == "post" else good)
        def run(case: object) -> None:
            nonlocal sent
            sent += 1
            judge(case)

        run()
    return sent


def judge(case: object) -> None:
    """No 5xx, our error body, finite JSON."""
    response = case.call(timeout=60)  # type: ignore[attr-defined]
    kind = response.headers.get("content-type", [""])[0]
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        check_error(response.json(), response.status_code)
    elif kind.startswith("application/json"):
        strict_json(response.text)


def test_document_and_server_agree(schema: object) -> None:
    assert run_all(schema, 60) > 100


@pytest.mark.slow
def test_document_and_server_agree_at_length(schema: object) -> None:
    assert run_all(schema, 1_000) > 1_500
