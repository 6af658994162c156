"""Open-loop load: requests leave on time whether or not earlier ones are answered."""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from cluster.chaos.clips import Clip

PATH = "/v1/audio/emotions"
TIMEOUT_SECONDS = 90.0
PATIENCE_SECONDS = 60.0
TOLERANCE = 1e-4
"""Largest difference of a score from the one before the load: the order of float sums."""

REPEATED_SHARE = 0.25
"""Share of the requests that the cache may answer."""

References = dict[str, dict[str, Any]]
"""Model → clip → answer."""


@dataclass(slots=True)
class Record:
    """One request, from its sending to its end.

    Attributes:
        clip: name of its kind.
        sent, ended: `time.monotonic`; None: still on its way.
        status: of the HTTP answer; 0: none came.
        reason: why it failed; empty: answered as it should be.
        model: which version answered.
        server_ms: total of the stages as the server tells it.
        put_off: how often it was refused at first, by 429, and sent again after `Retry-After`.
    """

    clip: str
    sent: float
    ended: float | None = None
    status: int = 0
    reason: str = ""
    model: str = ""
    server_ms: float | None = None
    put_off: int = 0

    @property
    def ok(self) -> bool:
        """Answered, and with the right scores."""
        return self.ended is not None and not self.reason


@dataclass(slots=True)
class Load:
    """Sends clips in random order and keeps a record of each.

    Attributes:
        url: of the server.
        clips: kinds of requests, drawn uniformly.
        references: what the answers must say; empty: answers are not compared.
        records: in the order of sending.
    """

    url: str
    clips: Sequence[Clip]
    references: References = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    seed: int = 0
    _nonces: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1000))

    async def run(self, rate: float, until: Callable[[], bool]) -> None:
        """Poisson arrivals of `rate` per second until `until()`; returns when all have ended."""
        draw = random.Random(self.seed)
        async with _client(self.url) as client, asyncio.TaskGroup() as tasks:
            due = time.monotonic()
            while not until():
                due += draw.expovariate(rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                tasks.create_task(self._send(client, draw.choice(self.clips), self._nonce(draw)))

    async def closed(self, concurrency: int, until: Callable[[], bool]) -> float:
        """Answers per second with `concurrency` callers that never pause: the capacity."""
        draw = random.Random(self.seed)
        begun, first = time.monotonic(), len(self.records)

        async def caller() -> None:
            while not until():
                await self._send(client, draw.choice(self.clips), self._nonce(draw))

        async with _client(self.url) as client, asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(caller())
        answered = sum(record.ok for record in self.records[first:])
        return answered / (time.monotonic() - begun)

    def _nonce(self, draw: random.Random) -> int | None:
        return None if draw.random() < REPEATED_SHARE else next(self._nonces)

    async def _send(self, client: httpx2.AsyncClient, clip: Clip, nonce: int | None) -> None:
        record = Record(clip.name, time.monotonic())
        self.records.append(record)
        body = clip.body(nonce)
        try:
            response = await client.post(PATH + clip.query, content=body)
            # as any client does that is told when to come again
            while response.status_code == 429 and time.monotonic() < record.sent + PATIENCE_SECONDS:
                record.put_off += 1
                await asyncio.sleep(float(response.headers["retry-after"]))
                response = await client.post(PATH + clip.query, content=body)
        except httpx2.HTTPError as error:
            record.reason = f"connection: {type(error).__name__}"
        else:
            record.status = response.status_code
            self._judge(record, response)
        record.ended = time.monotonic()

    def _judge(self, record: Record, response: httpx2.Response) -> None:
        if response.status_code != httpx2.codes.OK:
            record.reason = f"{response.status_code} {_error_type(response)}"
            return
        answer = response.json()
        record.model = answer["model"]
        record.server_ms = _total_ms(response.headers["server-timing"])
        if self.references:
            record.reason = self._mistake(record, answer)

    def _mistake(self, record: Record, answer: dict[str, Any]) -> str:
        differences = {
            model: largest_difference(answers[record.clip], answer)
            for model, answers in self.references.items()
        }
        if record.model not in differences:
            return f"an unknown model answered: {record.model}"
        if differences[record.model] <= TOLERANCE:
            return ""
        for model, difference in differences.items():
            if difference <= TOLERANCE:
                return f"scores of {model} under the name {record.model}"
        return f"scores differ by {min(differences.values()):.1g}"


class Background:
    """A load in a thread of its own, from `__enter__` until `__exit__` has its last answer."""

    def __init__(self, load: Load, rate: float) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(load.run(rate, self._stop.is_set)), name="load"
        )

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()


async def reference(url: str, clips: Sequence[Clip], nonce: int) -> tuple[str, dict[str, Any]]:
    """The model that serves now, and its answer for each clip, one at a time."""
    answers = {}
    async with _client(url) as client:
        info = await client.get("/info")
        for clip in clips:
            response = await client.post(PATH + clip.query, content=clip.body(nonce))
            response.raise_for_status()
            answers[clip.name] = response.json()
    return str(info.json()["model"]), answers


def largest_difference(expected: dict[str, Any], answer: dict[str, Any]) -> float:
    """Largest difference of any score of an answer, segments included; infinite: other labels."""
    pairs = [(expected["scores"], answer["scores"])]
    segments = [item.get("segments") or [] for item in (expected, answer)]
    if len(segments[0]) != len(segments[1]):
        return float("inf")
    pairs += [(a["scores"], b["scores"]) for a, b in zip(*segments, strict=True)]
    return max(_difference(a, b) for a, b in pairs)


def _difference(expected: list[dict[str, Any]], scores: list[dict[str, Any]]) -> float:
    left, right = ({s["label"]: s["score"] for s in side} for side in (expected, scores))
    if set(left) != set(right):
        return float("inf")
    return float(max(abs(left[label] - right[label]) for label in left))


def _client(url: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
    return httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS, limits=limits)


def _error_type(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error_type"])
    except (ValueError, KeyError, TypeError):
        return response.text[:60]


def _total_ms(header: str) -> float | None:
    stages = dict(part.split(";dur=") for part in header.split(", ") if ";dur=" in part)
    return float(stages["total"]) if "total" in stages else None
