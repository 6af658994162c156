"""The line of each request: its fields, its endings, and what must not be in it."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Message

from serve_app.http.access_log import (
    AccessLogMiddleware,
    LogFormat,
    logger,
    set_timings,
    write_json_to_streams,
)
from serve_app.timings import Timings

SERVER_TIMING = "decode;dur=1.25, queue;dur=0, total;dur=9.5, cache;desc=hit"


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What was logged, with Serve's own logger silent at INFO."""
    # its import sets the logger's handlers anew, which would drop the one below
    import ray.serve  # noqa: F401

    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    serve_logger = logging.getLogger("ray.serve")
    level = serve_logger.level
    serve_logger.setLevel(logging.WARNING)
    serve_logger.addHandler(handler)
    yield found
    serve_logger.removeHandler(handler)
    serve_logger.setLevel(level)


def application(log_format: LogFormat = "text") -> FastAPI:
    router = APIRouter()

    @router.post("/v1/audio/{kind}")
    async def score(request: Request, kind: str) -> Response:
        await request.body()
        headers = {"Server-Timing": SERVER_TIMING, "x-audio-duration": "1.500000"}
        return Response(b"{}", headers=headers)

    @router.get("/fails")
    async def fails() -> None:
        raise RuntimeError("secret")

    @router.get("/events")
    async def events(request: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            timings = Timings()
            timings.add("model", 0.0)
            set_timings(request, timings, 60.0)

        return StreamingResponse(parts(), media_type="text/event-stream")

    @router.get("/slow")
    async def slow() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.sleep(60)

        return StreamingResponse(parts())

    app = FastAPI()
    app.include_router(router)
    app.add_middleware(AccessLogMiddleware, log_format=log_format)
    return app


async def ask(app: FastAPI, method: str, path: str, **options: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, **options)


def fields(record: logging.LogRecord) -> dict[str, str]:
    return dict(pair.split("=") for pair in record.getMessage().split(" "))


async def test_a_line_says_what_was_asked_and_where_the_time_went(
    records: list[logging.LogRecord],
) -> None:
    headers = {"x-request-id": "req-1", "Authorization": "Bearer sesame"}
    path = "/v1/audio/emotions?note=private-name"
    await ask(application(), "POST", path, content=b"12345", headers=headers)
    [record] = records
    assert record.levelno == logging.INFO
    found = fields(record)
    assert float(found.pop("duration_ms")) >= 0
    assert found == {
        "request_id": "req-1",
        "method": "POST",
        "path": "/v1/audio/{kind}",
        "status": "200",
        "bytes_in": "5",
        "audio_seconds": "1.5",
        "decode_ms": "1.25",
        "queue_ms": "0.0",
        "total_ms": "9.5",
        "cache": "hit",
    }


async def test_nothing_of_the_caller_but_a_tame_id_is_in_it(
    records: list[logging.LogRecord],
) -> None:
    headers = {"x-request-id": 'x" status=200 \x1b[31m' + "y" * 500}
    await ask(application(), "GET", "/private-name?key=sesame", headers=headers)
    message = records[0].getMessage()
    assert re.fullmatch(r"request_id=x\?\?status\?200\?\?\?31my+ method=GET path=- .*", message)
    assert len(message) < 300
    assert fields(records[0])["status"] == "404"


async def test_wrong_method_and_failure(records: list[logging.LogRecord]) -> None:
    await ask(application(), "GET", "/v1/audio/emotions")
    assert (await ask(application(), "GET", "/fails")).status_code == 500
    assert [fields(r)["status"] for r in records] == ["405", "500"]
    assert "secret" not in records[1].getMessage()


async def test_answers_whose_headers_go_first_report_later(
    records: list[logging.LogRecord],
) -> None:
    await ask(application(), "GET", "/events")
    found = fields(records[0])
    assert found["status"] == "200"
    assert found["audio_seconds"] == "60.0"
    assert found["model_ms"] == "0.0"


def scope(path: str) -> dict[str, Any]:
    place = {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    kind = {"type": "http", "method": "GET", "asgi": {"version": "3.0", "spec_version": "2.0"}}
    return {**kind, **place, "headers": []}


async def test_a_client_that_goes_away_is_a_499(records: list[logging.LogRecord]) -> None:
    first = asyncio.Event()

    async def receive() -> Message:
        await first.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message.get("body"):
            first.set()

    await asyncio.wait_for(application()(scope("/slow"), receive, send), 5)
    assert fields(records[0])["status"] == "499"


async def test_a_cancelled_request_is_a_499(records: list[logging.LogRecord]) -> None:
    first = asyncio.Event()

    async def receive() -> Message:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message.get("body"):
            first.set()

    request = asyncio.create_task(application()(scope("/slow"), receive, send))
    await asyncio.wait_for(first.wait(), 5)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert fields(records[0])["status"] == "499"


async def test_a_disconnect_after_the_whole_answer_is_none(
    records: list[logging.LogRecord],
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all"})
        assert (await receive())["type"] == "http.disconnect"

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    await AccessLogMiddleware(app)(scope("/"), receive, send)
    assert fields(records[0])["status"] == "200"


async def test_json_lines_have_the_fields_at_the_top(
    records: list[logging.LogRecord],
) -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        write_json_to_streams(logger)
        await ask(application("json"), "POST", "/v1/audio/emotions", content=b"12345")
    finally:
        logger.removeHandler(handler)
    [line] = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert line["message"] == "POST /v1/audio/{kind} 200"
    assert line["levelname"] == "INFO"
    assert line["status"] == 200
    assert line["bytes_in"] == 5
    assert line["audio_seconds"] == 1.5
    assert line["decode_ms"] == 1.25
    assert line["cache"] == "hit"
