"""The first request to a server that has just said that it is ready, against its later ones."""

import asyncio
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.cold_start import COLD
from benchmarks.http_bench import milliseconds
from benchmarks.http_client import HEALTH, PATH, Caller
from benchmarks.plan import Plan
from benchmarks.report import Budget, Row, Section
from benchmarks.servers import e2v_server

LATER = 8


@dataclass(frozen=True, slots=True)
class Start:
    """One start of `e2v serve`: seconds of its first request, and the median of later ones."""

    first: float
    warm: float

    @property
    def ratio(self) -> float:
        """How much longer the first one took."""
        return self.first / self.warm


def measure_first_request(plan: Plan) -> Section:
    """Fresh starts of the product's own command, nothing else running."""
    model = str(plan.prepared(plan.subject))
    return Section([row_of([_start(model) for _ in range(plan.cold_rounds)], plan.subject)])


def row_of(starts: list[Start], subject: str) -> Row:
    """The median of the starts; each is compared with itself, for the machine changes meanwhile."""
    ratio = median(start.ratio for start in starts)
    first, warm = median(s.first for s in starts), median(s.warm for s in starts)
    return Row(
        COLD,
        f"first request after ready / warm P50 of the same start, {subject}, 3 s clip "
        f"({len(starts)} starts)",
        f"{ratio:.2f}× ({milliseconds(first)} / {milliseconds(warm)})",
        ratio,
        Budget(1.1, at_most=True),
        "each start: "
        + ", ".join(f"{start.ratio:.2f}×" for start in starts)
        + "; others' funasr server: first request 5.3–10.7 s",
    )


def _start(model: str) -> Start:
    with e2v_server("--model", model, "--cache-bytes", "0") as (url, _):
        return asyncio.run(_ask(url))


async def _ask(url: str) -> Start:
    body = wav(clip(3.0))
    times = []
    async with Caller() as caller:
        # a client's own first request takes 16 ms longer than its next (measured), of any server
        await caller.get(url + HEALTH)
        for _ in range(1 + LATER):
            began = perf_counter()
            await caller.post(url + PATH, body)
            times.append(perf_counter() - began)
    return Start(times[0], median(times[1:]))
