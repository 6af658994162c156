"""A tiny HTTP server that plays the emotion server."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest


class FakeServer(BaseHTTPRequestHandler):
    """Answers `good` audio, refuses anything else."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer(200, {"model": "fake"})

    def do_POST(self) -> None:
        self.paths.append(self.path)
        if self.rfile.read(int(self.headers["content-length"])) == b"good":
            scores = [{"label": "happy", "score": 1.0}]
            answer = {"label": "happy", "score": 1.0, "scores": scores, "duration": 2.0}
            self._answer(200, answer)
        else:
            refusal = {"error": "not audio", "error_type": "unsupported_media_type"}
            self._answer(415, refusal)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def fake_server() -> Iterator[str]:
    """Base URL of a `FakeServer`."""
    FakeServer.paths.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeServer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def fake_requests(fake_server: str) -> list[str]:
    """Paths that were posted to `fake_server`."""
    return FakeServer.paths
