"""The proxy repeats what the ingress has just refused, and passes on as many as will find room."""

import asyncio
import logging
import logging.handlers
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.middleware.cors import CORSMiddleware

from engine.errors import EmotionError
from serve_app.admission import Pace
from serve_app.http import proxy
from serve_app.http.access_log import LogFormat
from serve_app.http.errors import error_response
from serve_app.http.pace import HEADER, PaceMiddleware
from serve_app.http.shedding import MAX_REMEMBERED, LoadSheddingMiddleware

URL = "/v1/audio/emotions"


class Ingress:
    """An ingress that is full; counts who comes to ask, and what they brought."""

    def __init__(self, pace: tuple[float, float] | None = (0.1, 1.0)) -> None:
        self.pace = pace and Pace(*pace)
        self.asked = 0
        self.full = True
        self.came = asyncio.Event()
        self.waits: asyncio.Event | None = None
        self.headers: dict[str, str] = {}
        self.app = FastAPI()
        self.app.add_middleware(PaceMiddleware, pace=lambda: self.pace)
        self.app.add_middleware(CORSMiddleware, allow_origins=["https://page.example"])
        self.app.add_api_route("/{path:path}", self.answer, methods=["GET", "POST"])

    async def answer(self, request: Request) -> Response:
        self.asked += 1
        self.headers = dict(request.headers)
        if self.waits is not None:
            self.came.set()
            await self.waits.wait()
        if not self.full:
            return Response()
        message = f"The server is busy: {self.asked} s."
        error = EmotionError("overloaded", message, retry_after=1.0)
        return error_response(error, request)


class Proxy:
    """An ingress with the middleware before it, and a clock that stands still."""

    def __init__(self, ingress: Ingress, log_format: LogFormat = "text") -> None:
        self.now = 0.0
        self.refused = 0
        self.app = LoadSheddingMiddleware(
            ingress.app, self._count, log_format, lambda: self.now, tell_after=0.0
        )

    def _count(self, count: int) -> None:
        self.refused += count

    async def ask(self, path: str = URL, method: str = "POST", **headers: str) -> httpx2.Response:
        transport = httpx2.ASGITransport(self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(method, path, headers=headers, content=b"RIFF")
        await asyncio.sleep(0.001)  # what is told afterwards
        return answer


@pytest.fixture
def lines() -> Iterator[list[str]]:
    import ray.serve  # noqa: F401  its import sets the handlers of its logger anew

    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ray.serve").addHandler(handler)
    yield found
    logging.getLogger("ray.serve").removeHandler(handler)


async def test_a_refusal_is_repeated_as_it_was_under_an_id_of_its_own() -> None:
    ingress = Ingress()
    door = Proxy(ingress)
    first = await door.ask()
    again = await door.ask(**{"x-request-id": "mine"})
    assert (ingress.asked, door.refused) == (1, 1)
    assert first.status_code == again.status_code == 429
    assert again.json() == {**first.json(), "request_id": "mine"}
    assert again.headers["x-request-id"] == "mine"
    assert again.headers["retry-after"] == first.headers["retry-after"] == "1"
    assert again.headers["content-type"] == first.headers["content-type"]
    third = await door.ask()
    assert third.json()["request_id"] == third.headers["x-request-id"] != "mine"


async def test_refused_callers_come_again_one_after_another() -> None:
    door = Proxy(Ingress(pace=(2.0, 60.0)))
    await door.ask()
    said = [(await door.ask()).headers.get_list("retry-after") for _ in range(6)]
    assert said == [["2"], ["4"], ["6"], ["8"], ["10"], ["10"]]


@pytest.mark.parametrize("full", [True, False])
async def test_nobody_sees_the_mark(full: bool) -> None:
    ingress = Ingress()
    ingress.full = full
    door = Proxy(ingress)
    for _ in range(2):
        assert HEADER not in (await door.ask()).headers
    assert ingress.asked == (1 if full else 2)
    assert HEADER not in (await door.ask("/health", "GET")).headers


async def test_one_in_each_interval_is_passed_on() -> None:
    ingress = Ingress(pace=(0.1, 1.0))
    door = Proxy(ingress)
    said = []
    for door.now in (0.0, 0.05, 0.09, 0.11, 0.12, 0.19, 0.22):
        said.append((await door.ask()).json()["error"][-4:])
    assert said == ["1 s.", "1 s.", "1 s.", "2 s.", "2 s.", "2 s.", "3 s."]
    assert (ingress.asked, door.refused) == (3, 4)


async def test_who_comes_late_does_not_put_off_the_next_ones() -> None:
    ingress = Ingress(pace=(0.1, 60.0))
    door = Proxy(ingress)
    for number in range(1, 61):  # never when somebody is due
        door.now = 0.07 * number
        await door.ask()
    assert ingress.asked == 42  # in 4.2 seconds
    # but nobody has saved up for a crowd
    door.now += 10.0
    for _ in range(10):
        await door.ask()
    assert ingress.asked == 44


async def test_while_answers_say_so_the_pace_is_kept() -> None:
    ingress = Ingress(pace=(0.1, 0.5))
    door = Proxy(ingress)
    await door.ask()
    ingress.full = False  # room for one now and then
    statuses = []
    for number in range(1, 42):
        door.now = 0.07 * number
        statuses.append((await door.ask()).status_code)
    assert statuses.count(200) == 28  # in 2.87 seconds
    # a new pace holds at once, and the refusal is the newest one
    ingress.pace, ingress.full = Pace(0.001, 0.5), True
    door.now += 0.1
    newest = (await door.ask()).json()["error"]
    assert (await door.ask()).json()["error"] == newest
    ingress.full = False
    for _ in range(5):
        door.now += 0.001
        assert (await door.ask()).status_code == 200
    # and without one, all may come when the last one has run out
    ingress.pace = None
    door.now += 0.5
    assert [(await door.ask()).status_code for _ in range(5)] == [200] * 5


async def test_the_next_one_is_passed_on_alone_while_its_answer_is_on_its_way() -> None:
    ingress = Ingress(pace=(0.1, 1.0))
    door = Proxy(ingress)
    await door.ask()
    ingress.waits = asyncio.Event()
    door.now = 0.11
    one = asyncio.create_task(door.ask())
    await ingress.came.wait()
    async with asyncio.timeout(5):
        assert (await door.ask()).status_code == 429
    assert ingress.asked == 2
    ingress.waits.set()
    await one


async def test_after_the_duration_all_are_passed_on() -> None:
    ingress = Ingress(pace=(0.1, 0.5))
    door = Proxy(ingress)
    await door.ask()
    door.now = 0.5
    ingress.full = False
    answers = [await door.ask() for _ in range(5)]
    assert {answer.status_code for answer in answers} == {200}
    assert (ingress.asked, door.refused) == (6, 0)


async def test_a_refusal_of_one_body_alone_is_not_repeated() -> None:
    ingress = Ingress(pace=None)
    door = Proxy(ingress)
    await door.ask()
    await door.ask()
    assert (ingress.asked, door.refused) == (2, 0)


async def test_other_paths_and_other_methods_are_asked_for() -> None:
    ingress = Ingress(pace=(60.0, 60.0))
    door = Proxy(ingress)
    await door.ask(URL)
    await door.ask("/predict")
    await door.ask(URL, "GET")
    assert (ingress.asked, door.refused) == (3, 0)


async def test_a_page_of_another_origin_may_read_the_refusal() -> None:
    ingress = Ingress(pace=(60.0, 60.0))
    door = Proxy(ingress)
    for _ in range(2):
        assert "access-control-allow-origin" not in (await door.ask()).headers
    for _ in range(2):
        answer = await door.ask(origin="https://page.example")
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert (ingress.asked, door.refused) == (2, 2)


async def test_made_up_origins_take_no_memory() -> None:
    door = Proxy(Ingress(pace=(60.0, 60.0)))
    for number in range(3 * MAX_REMEMBERED):
        await door.ask(origin=f"https://{number}.example")
    assert len(door.app._refusals) == MAX_REMEMBERED
    door.now = 61.0
    await door.ask()
    assert len(door.app._refusals) == 1


async def test_each_repeated_refusal_is_a_line_of_the_access_log(lines: list[str]) -> None:
    door = Proxy(Ingress())
    await door.ask()
    assert lines == []
    await door.ask(**{"x-request-id": "mine"})
    [line] = lines
    assert line.startswith(f"request_id=mine method=POST path={URL} status=429 ")


async def test_lines_and_counts_of_a_moment_are_told_together(lines: list[str]) -> None:
    told: list[int] = []
    done = asyncio.Event()

    def tell(count: int) -> None:
        told.append(count)
        done.set()

    ingress = Ingress(pace=(60.0, 60.0))
    door = Proxy(ingress)
    door.app = LoadSheddingMiddleware(ingress.app, tell, tell_after=0.1)
    for number in range(4):
        await door.ask(**{"x-request-id": str(number)})
    assert (told, lines) == ([], [])
    async with asyncio.timeout(5):
        await done.wait()
    assert told == [3]
    assert [line.split()[0] for line in lines] == [f"request_id={n}" for n in (1, 2, 3)]


async def test_serves_own_headers_do_not_come_through() -> None:
    ingress = Ingress()
    app = proxy.OwnHeadersMiddleware(ingress.app)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        sent = {"X-Request-Timeout-Seconds": "0.1", "X-Request-Disconnect-Disabled": "1"}
        await client.post(URL, headers={**sent, "x-other": "stays"})
    assert ingress.headers["x-other"] == "stays"
    assert not {name.lower() for name in sent} & set(ingress.headers)


def test_the_lines_have_the_form_of_serves_own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._common.formatters import JSONFormatter, TextFormatter

    def handler(formatter: Any) -> logging.Handler:
        writer = logging.StreamHandler()
        writer.setFormatter(formatter)
        return logging.handlers.MemoryHandler(1, target=writer)

    serve_logger = logging.getLogger("ray.serve")
    monkeypatch.setattr(serve_logger, "handlers", [handler(TextFormatter())])
    assert proxy._log_format() == "text"
    monkeypatch.setattr(serve_logger, "handlers", [handler(JSONFormatter())])
    assert proxy._log_format() == "json"
