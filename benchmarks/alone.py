"""`python -m benchmarks.alone [--shape large] [--seconds 60] [--rounds 3]`: nothing beside it.

Clips of 10 s per second at saturation of the bare engine, of `e2v serve` and of the same engine in
LitServe, in turns, each started by itself and ended before the next one starts. `make bench` keeps
its servers while it measures the others, whose idle processes hold up whoever computes with every
core, the bare engine most; that flatters the server, so this is what its share is read from.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.__main__ import DEFAULT_WORK
from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.http_client import PATH, Caller
from benchmarks.plan import full, make_checkpoints
from benchmarks.saturation import CALLERS, TOGETHER
from benchmarks.servers import e2v_server, has_litserve, litserve_server

CLIP_SECONDS = 10.0
SAME_BATCH_SECONDS = 0.2
"""Answers this close to each other left in one batch."""

Send = Callable[[], Awaitable[object]]


def steady_rate(times: Sequence[float]) -> float:
    """Answers per second between the first batch of answers and the last one.

    A loop that ends, or begins, has cores with nothing to do; what counts is what lies between.

    Args:
        times: when each answer came, in seconds, in any order.

    Raises:
        ValueError: they are one batch.
    """
    times = sorted(times)
    later = [time for time in times if time > times[0] + SAME_BATCH_SECONDS]
    if not later:
        raise ValueError(f"{len(times)} answers came together: measure for longer")
    return len(later) / (later[-1] - times[0])


async def saturated(send: Send, seconds: float) -> float:
    """Steady answers per second of `CALLERS` callers that never pause.

    Each is answered once before it counts; the first failure is raised.
    """
    times: list[float] = []
    warm = 0

    async def caller() -> None:
        nonlocal warm
        await send()
        warm += 1
        while True:
            await send()
            if warm == CALLERS:
                times.append(perf_counter())

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
    return steady_rate(times)


def engine_rate(model: Path, seconds: float) -> float:
    """The bare engine in a process of its own, in batches of `TOGETHER` clips."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_engine_rate_here, str(model), seconds).result()


def _engine_rate_here(model: str, seconds: float) -> float:
    from benchmarks.hearing import BareEngine

    engine, bodies = BareEngine(model), [wav(clip(CLIP_SECONDS))] * TOGETHER
    times: list[float] = []

    async def run() -> None:
        ends = perf_counter() + seconds
        while perf_counter() < ends:
            await engine.hear_together(bodies)
            times.extend([perf_counter()] * TOGETHER)

    asyncio.run(run())
    return steady_rate(times)


def server_rate(model: Path, seconds: float) -> float:
    """`e2v serve` with its default settings, the cache off."""
    with e2v_server("--model", str(model), "--cache-bytes", "0") as (url, _):
        return asyncio.run(_http_rate(lambda caller, body: caller.post(url + PATH, body), seconds))


def litserve_rate(model: Path, seconds: float) -> float:
    """The same engine in LitServe."""
    with litserve_server(model) as (url, _):
        return asyncio.run(_http_rate(lambda caller, body: caller.upload(url, body), seconds))


async def _http_rate(send: Callable[[Caller, bytes], Awaitable[object]], seconds: float) -> float:
    body = wav(clip(CLIP_SECONDS))
    async with Caller() as caller:
        return await saturated(lambda: send(caller, body), seconds)


def table(rates: dict[str, list[float]]) -> str:
    """A line per subject: its median, each turn, and what the server's median is of it."""
    server = median(rates["server"])
    return "\n".join(
        f"{name:9} {median(turns):.3f} clips/s ({', '.join(f'{turn:.3f}' for turn in turns)})"
        + (f"; the server does {100 * server / median(turns):.0f} %" if name != "server" else "")
        for name, turns in rates.items()
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alone", description=__doc__)
    parser.add_argument("--shape", default="large", choices=("tiny", "base", "large"))
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK, help="folder of the checkpoints")
    options = parser.parse_args(arguments)
    plan = replace(full(options.work), headline=options.shape, subject=options.shape)
    make_checkpoints(plan)
    subjects = {"engine": engine_rate, "server": server_rate}
    if has_litserve():
        subjects["LitServe"] = litserve_rate
    rates: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(options.rounds):
        for name, rate in subjects.items():
            rates[name].append(rate(plan.prepared(options.shape), options.seconds))
            print(f"{name}: {rates[name][-1]:.3f} clips/s", file=sys.stderr)
    print(table(rates))


if __name__ == "__main__":
    main()
