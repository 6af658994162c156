"""An ASGI client that sends exactly what it is given, however wrong, and judges the answer."""

import asyncio
import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

from engine.errors import STATUS
from serve_app.http.app import build_http
from serve_app.service import EmotionService

MAX_SECONDS = 30.0
"""Longest time for one request, on a machine that is busy with other things."""

LEAKS = (
    "traceback",
    "ffmpeg",
    "libav",
    "pyav",
    "site-packages",
    "/tmp",
    ".py",
    "pydantic",
    "0x7",
    "sys.",
)


@dataclass(frozen=True, repr=False)
class Call:
    """One request."""

    method: str = "POST"
    path: str = "/v1/audio/emotions"
    query: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=lambda: [b""])

    def __repr__(self) -> str:
        begins = [chunk[:80] for chunk in self.chunks]
        return f"Call({self.method} {self.path} {self.query[:80]!r} {self.headers} {begins})"


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0


class Asgi:
    """The application over one service, and what the service still holds."""

    def __init__(self, runner: asyncio.Runner, service: EmotionService) -> None:
        self.service = service
        self._runner = runner
        self._app = build_http(service)

    def __call__(self, call: Call) -> Answer:
        """Send it; an exception of the application is the caller's."""
        return self._runner.run(self._call(call))

    async def _call(self, call: Call) -> Answer:
        answer, since = Answer(), time.monotonic()
        messages = [
            {"type": "http.request", "body": chunk, "more_body": i + 1 < len(call.chunks)}
            for i, chunk in enumerate(call.chunks)
        ]
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop(0)
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            answer.body += message.get("body", b"")

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": call.method,
            "scheme": "http",
            "path": call.path,
            "raw_path": call.path.encode(),
            "root_path": "",
            "query_string": call.query,
            "headers": call.headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        async with asyncio.timeout(MAX_SECONDS):
            await self._app(scope, receive, send)
        answer.seconds = time.monotonic() - since
        return answer


def check(answer: Answer) -> None:
    """Never 5xx; every refusal is our error body; every answer is finite JSON."""
    text = answer.body.decode()
    assert 200 <= answer.status < 500, text
    kind = answer.headers.get("content-type", "")
    if answer.status >= 400 and "head" not in answer.headers:
        check_error(json.loads(text), answer.status)
    elif kind.startswith("text/event-stream"):
        for block in text.strip().split("\n\n"):
            name, _, data = block.partition("\n")
            value = strict_json(data.removeprefix("data: "))
            if name == "event: error":
                check_error(value, None)
    elif kind.startswith("application/json"):
        strict_json(text)


def check_error(body: dict[str, Any], status: int | None) -> None:
    """One sentence, a type of the table with its status, and no leak."""
    assert set(body) <= {"error", "error_type", "request_id", "details"}
    assert STATUS[body["error_type"]] == (status or STATUS[body["error_type"]])
    assert STATUS[body["error_type"]] < 500, body
    assert isinstance(body["error"], str)
    assert body["error"].endswith(".")
    # what the caller wrote himself may be in it, between quotation marks
    plain = body["error"].lower().split("'")[::2]
    assert not any(leak in part for part in plain for leak in LEAKS), body


def strict_json(text: str) -> Any:
    """JSON without NaN and infinities."""

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} in JSON")

    value = json.loads(text, parse_constant=refuse)
    assert all(map(math.isfinite, _numbers(value)))
    return value


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in _numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in _numbers(item)]
    return [float(value)] if isinstance(value, (int, float)) else []
