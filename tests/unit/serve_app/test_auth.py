"""API keys: who is let in, what the others learn, and that no key is ever shown."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.testclient import TestClient, WebSocketDisconnect
from starlette.types import ASGIApp, Message
from starlette.websockets import WebSocket

from serve_app.http.auth import ApiKeyMiddleware, cors_options, warn_if_public
from serve_app.http.keys import ApiKeys, keys_from

GOOD = "k-abcdefghijklmnop"
OTHER = "k-0123456789"


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Texts of what Serve's logger says."""
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ray.serve")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


def application(keys: ApiKeys) -> ASGIApp:
    app = FastAPI()

    @app.get("/health")
    @app.get("/")
    @app.post("/")
    @app.get("/info")
    @app.post("/v1/audio/emotions")
    async def answer(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @app.websocket("/stream")
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("in")
        await socket.close()

    return ApiKeyMiddleware(app, keys)


async def ask(keys: ApiKeys, method: str, path: str, **options: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(application(keys))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, **options)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(GOOD + "x"),
        bearer(GOOD[:-1]),
        bearer(GOOD.upper()),
        bearer(""),
        {"Authorization": GOOD},
        {"Authorization": f"Basic {GOOD}"},
        {"x-api-key": GOOD},
        [("Authorization", f"Bearer {GOOD}"), ("Authorization", f"Bearer {GOOD}")],
    ],
)
async def test_without_a_key_in_force_there_is_the_error_body(headers: Any) -> None:
    keys = ApiKeys([GOOD])
    response = await ask(keys, "POST", f"/v1/audio/emotions?key={GOOD}", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert set(response.json()) == {"error", "error_type", "request_id"}
    assert response.json()["error_type"] == "unauthorized"
    assert GOOD[:-1] not in response.text


@pytest.mark.parametrize("key", [GOOD, OTHER])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER  "])
async def test_any_of_several_keys_lets_in(key: str, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {key}"}
    response = await ask(
        ApiKeys([GOOD, OTHER]), "POST", "/v1/audio/emotions", headers=headers, content=b"abc"
    )
    assert response.json() == {"bytes": 3}


async def test_without_keys_everybody_is_let_in() -> None:
    keys = keys_from(None, {"E2V_API_KEYS": " , "})
    assert not keys.required
    assert (await ask(keys, "POST", "/v1/audio/emotions")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("HEAD", "/live", 404),
        ("GET", "/v2/health/live", 404),
        ("GET", "/v2/health/ready", 404),
        ("GET", "/docs", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/", 200),
        ("POST", "/", 401),
        ("GET", "/info", 401),
        ("POST", "/health", 401),
        ("GET", "/health/", 401),
        ("GET", "/health/../info", 401),
        ("GET", "/nowhere", 401),
        ("OPTIONS", "/v1/audio/emotions", 401),
    ],
)
async def test_probes_and_pages_alone_are_open(method: str, path: str, status: int) -> None:
    assert (await ask(ApiKeys([GOOD]), method, path)).status_code == status


async def test_the_body_of_a_refused_request_is_not_read() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        sent.append(message)

    path = {"path": "/v1/audio/emotions", "raw_path": b"/v1/audio/emotions", "query_string": b""}
    scope = {"type": "http", "method": "POST", "headers": [], **path}
    await application(ApiKeys([GOOD]))(scope, receive, send)
    assert sent[0]["status"] == 401


def test_websockets_without_a_key_are_closed_as_not_authorised() -> None:
    client = TestClient(application(ApiKeys([GOOD])))
    with (
        client.websocket_connect("/stream") as socket,
        pytest.raises(WebSocketDisconnect) as closed,
    ):
        socket.receive_text()
    assert closed.value.code == 1008
    with client.websocket_connect("/stream", headers=bearer(GOOD)) as socket:
        assert socket.receive_text() == "in"


def test_no_key_is_kept_as_text() -> None:
    keys = ApiKeys([GOOD])
    assert GOOD not in repr(keys) + repr(vars(keys)) + repr(ApiKeyMiddleware(FastAPI(), keys))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]
)
def test_loopback_needs_no_warning(host: str) -> None:
    said: list[str] = []
    warn_if_public(host, False, said.append)
    assert said == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org"])
def test_public_address_without_keys_is_loud(host: str, logged: list[str]) -> None:
    said: list[str] = []
    warn_if_public(host, True, said.append)
    assert said == []
    warn_if_public(host, False, said.append)
    warn_if_public(host, False)
    assert said == logged
    assert "WITHOUT API KEYS" in said[0]
    assert "\n" not in said[0]


async def test_cors_lets_a_named_origin_send_a_key_and_read_the_times() -> None:
    assert cors_options([]) is None
    options = cors_options(["https://app.example"])
    assert options is not None
    app = CORSMiddleware(application(ApiKeys([GOOD])), **options)
    transport = httpx2.ASGITransport(app)
    preflight = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        mine, other = [
            await client.options("/v1/audio/emotions", headers={"Origin": origin, **preflight})
            for origin in ("https://app.example", "https://evil.example")
        ]
        refused = await client.post("/v1/audio/emotions", headers={"Origin": "https://app.example"})
    assert mine.status_code == 200
    assert mine.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in other.headers
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    assert "server-timing" in refused.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["app.example", "https://app.example/", "null", "ftp://a", "https://a,https://b"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="cors_origins"):
        cors_options([origin])
