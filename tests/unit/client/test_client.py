"""Both clients against a scripted transport: no network, no waiting."""

import asyncio
import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from client import (
    ApiError,
    AsyncClient,
    AudioError,
    BadRequest,
    Client,
    ConnectionFailed,
    NotReady,
    Overloaded,
    Timeout,
    TooLarge,
    Unauthorized,
)
from client.exchange import parse_retry_after, waiting_time

ANSWER = {
    "label": "happy",
    "score": 0.75,
    "scores": [{"label": "happy", "score": 0.75}, {"label": "sad", "score": 0.25}],
    "duration": 1.5,
    "frames": {"hop": 0.02, "labels": ["sad", "happy"], "runs": [{"start": 0, "scores": [[1, 0]]}]},
}
MORE = {"top_k": 2, "labels": ["a", "b"], "strict": True, "window": None}
TIMING = 'decode;desc="a;b";dur=1.2, queue;dur=0, cache;desc=hit, total;dur=3.5'

Handler = Callable[[httpx2.Request], httpx2.Response]


class Script:
    """A transport that plays its answers one after the other and keeps the requests."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a client would have slept."""
    slept: list[float] = []

    async def no_sleep(seconds: float) -> None:
        slept.append(seconds)

    # the names in the client alone: other threads of this process sleep as well
    monkeypatch.setattr("client.client.time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(
        "client.client.asyncio", SimpleNamespace(sleep=no_sleep, to_thread=asyncio.to_thread)
    )
    return slept


def call_blocking(script: Handler, name: str, *args: Any, **kwargs: Any) -> Any:
    with Client("http://server", transport=httpx2.MockTransport(script)) as client:
        return getattr(client, name)(*args, **kwargs)


def call_async(script: Handler, name: str, *args: Any, **kwargs: Any) -> Any:
    async def call() -> Any:
        async with AsyncClient("http://server", transport=httpx2.MockTransport(script)) as client:
            return await getattr(client, name)(*args, **kwargs)

    return asyncio.run(call())


both = pytest.mark.parametrize("call", [call_blocking, call_async])


@both
def test_predict_sends_body_and_parameters_and_reads_the_answer(call: Any) -> None:
    script = Script(httpx2.Response(200, json=ANSWER, headers={"server-timing": TIMING}))
    result = call(script, "predict", b"audio", granularity="frame", **MORE)
    [request] = script.requests
    assert (request.method, request.url.path) == ("POST", "/v1/audio/emotions")
    assert dict(request.url.params) == {
        "granularity": "frame",
        "top_k": "2",
        "labels": "a,b",
        "strict": "true",
    }
    assert request.read() == b"audio"
    assert (result.label, result.score, result.duration) == ("happy", 0.75, 1.5)
    assert list(result.scores.items()) == [("happy", 0.75), ("sad", 0.25)]
    assert (result.frames.hop, result.frames.labels) == (0.02, ["sad", "happy"])
    assert result.frames.runs[0].scores == [[1, 0]]
    assert result.embedding is None
    assert result.timings == {"decode": 1.2, "queue": 0.0, "total": 3.5}
    assert result.raw == ANSWER


@both
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (404, BadRequest),
        (408, Timeout),
        (413, TooLarge),
        (415, AudioError),
        (422, AudioError),
        (500, ApiError),
    ],
)
def test_refusals_are_raised_at_once(
    call: Any, waits: list[float], status: int, kind: type[ApiError]
) -> None:
    body = {"error": "a sentence", "error_type": "some_type", "request_id": "r1", "details": [{}]}
    with pytest.raises(ApiError, match="^a sentence$") as caught:
        call(Script(httpx2.Response(status, json=body)), "predict", b"")
    error = caught.value
    assert type(error) is kind
    assert (error.error_type, error.status, error.request_id) == ("some_type", status, "r1")
    assert error.details == [{}]
    assert waits == []
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), vars(copy)) == (kind, vars(error))


@both
@pytest.mark.parametrize(
    ("status", "kind", "error_type"),
    [
        (404, BadRequest, "not_found"),
        (408, Timeout, "timeout"),
        (503, NotReady, "not_ready"),
        (502, ApiError, "internal"),
    ],
)
def test_plain_text_of_the_proxy_is_understood(
    call: Any, waits: list[float], status: int, kind: type[ApiError], error_type: str
) -> None:
    answers = [
        httpx2.Response(status, text="No such thing.\nsecond line", headers={"x-request-id": "r2"})
        for _ in range(5)
    ]
    with pytest.raises(ApiError, match=r"^No such thing\.$") as caught:
        call(Script(*answers), "predict", b"")
    assert type(caught.value) is kind
    assert (caught.value.error_type, caught.value.request_id) == (error_type, "r2")


@both
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again_with_the_whole_body(
    call: Any, waits: list[float], status: int
) -> None:
    script = Script(
        httpx2.ConnectError("refused"),
        httpx2.RemoteProtocolError("cut"),
        httpx2.Response(status, json={"error": "x"}, headers={"retry-after": "7"}),
        httpx2.Response(200, json=ANSWER),
    )
    assert call(script, "predict", b"audio").label == "happy"
    assert [request.read() for request in script.requests] == [b"audio"] * 4
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0
    assert waits[2] == 7.0


@both
def test_the_last_failure_is_raised(call: Any, waits: list[float]) -> None:
    answers = [httpx2.Response(429, json={"error": "too much"}) for _ in range(5)]
    with pytest.raises(Overloaded, match="too much"):
        call(Script(*answers), "predict", b"")
    assert len(waits) == 4
    with pytest.raises(ConnectionFailed, match="no connection to http://server: refused"):
        call(Script(*[httpx2.ConnectError("refused")] * 5), "predict", b"")


@both
def test_an_answer_that_takes_too_long_is_not_asked_for_again(
    call: Any, waits: list[float]
) -> None:
    with pytest.raises(Timeout, match="did not answer in time"):
        call(Script(httpx2.ReadTimeout("slow")), "predict", b"")
    assert waits == []


@both
def test_health_asks_once(call: Any, waits: list[float]) -> None:
    with pytest.raises(NotReady):
        call(Script(httpx2.Response(503, json={"error": "loading"})), "health")
    assert call(Script(httpx2.Response(200, json={"status": "ready"})), "health") == {
        "status": "ready"
    }
    assert waits == []


@both
@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"label": "happy"}'])
def test_an_answer_of_something_else_is_an_api_error(call: Any, body: bytes) -> None:
    with pytest.raises(ApiError, match="is not that of an emotion server"):
        call(Script(httpx2.Response(200, content=body)), "predict", b"")


def test_a_url_without_scheme_is_refused_at_once(waits: list[float]) -> None:
    with Client("server:8000") as client, pytest.raises(BadRequest, match="http://"):
        client.info()
    assert waits == []


def test_waiting_grows_and_retry_after_is_bounded() -> None:
    assert 4.0 <= waiting_time(4, None) <= 8.0
    assert 15.0 <= waiting_time(20, None) <= 30.0
    assert waiting_time(0, 3600.0) == 120.0


def test_retry_after_is_a_number_or_a_date() -> None:
    assert parse_retry_after("2.5") == 2.5
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert parse_retry_after("soon") is None
    assert parse_retry_after(None) is None


def test_one_client_serves_many_threads() -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=ANSWER))
    labels: list[str] = []
    with Client("http://server", transport=transport) as client:
        threads = [
            threading.Thread(target=lambda: labels.append(client.predict(b"x").label))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert labels == ["happy"] * 8
