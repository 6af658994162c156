"""Load on anything that answers: a closed loop of callers, or arrivals that wait for nobody."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from benchmarks.statistics import percentile

Send = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Latencies in seconds, and the seconds from the first start to the last answer."""

    latencies: tuple[float, ...]
    seconds: float

    @property
    def per_second(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        """Median latency in seconds."""
        return percentile(self.latencies, 0.5)

    @property
    def p95(self) -> float:
        """95th percentile of the latency in seconds."""
        return percentile(self.latencies, 0.95)


def pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """Several runs as one."""
    latencies = tuple(latency for outcome in outcomes for latency in outcome.latencies)
    return Outcome(latencies, sum(outcome.seconds for outcome in outcomes))


async def closed_loop(send: Send, concurrency: int, requests: int) -> Outcome:
    """`concurrency` callers, each asking again when it is answered, `requests` in all.

    The first failure ends the run and is raised.
    """
    left = iter(range(requests))
    latencies: list[float] = []

    async def caller() -> None:
        for _ in left:
            began = perf_counter()
            await send()
            latencies.append(perf_counter() - began)

    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, requests)):
            group.create_task(caller())
    return Outcome(tuple(latencies), perf_counter() - started)


async def open_loop(send: Send, arrivals: Sequence[float]) -> Outcome:
    """One request at each of `arrivals` (seconds from the start), answered or not.

    Latency counts from the planned arrival, so that a server which keeps the load generator
    waiting is not excused for it.
    """
    latencies: list[float] = []
    started = perf_counter()

    async def arrive(due: float) -> None:
        await send()
        latencies.append(perf_counter() - due)

    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            due = started + arrival
            await asyncio.sleep(max(0.0, due - perf_counter()))
            group.create_task(arrive(due))
    return Outcome(tuple(latencies), perf_counter() - started)


def constant_arrivals(rate: float, seconds: float) -> list[float]:
    """Evenly spaced arrivals at `rate` per second for `seconds`; one at least."""
    return [number / rate for number in range(max(1, int(rate * seconds)))]


def poisson_arrivals(rate: float, seconds: float, seed: int = 0) -> list[float]:
    """Arrivals with exponential gaps, the same for the same seed; one at least."""
    draw = random.Random(seed)
    arrivals = [0.0]
    while (following := arrivals[-1] + draw.expovariate(rate)) < seconds:
        arrivals.append(following)
    return arrivals
