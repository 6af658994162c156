"""The load generators: how many, how many at once, and when."""

import asyncio
from itertools import groupby, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.load import (
    Outcome,
    Send,
    closed_loop,
    constant_arrivals,
    open_loop,
    poisson_arrivals,
    pooled,
)
from benchmarks.load_rows import TURNS, half_capacity_rows
from benchmarks.report import Section


class Server:
    """Answers after `seconds`, one at a time or all at once; counts."""

    def __init__(self, seconds: float, one_at_a_time: bool = False) -> None:
        self.seconds = seconds
        self.busy = self.most = self.answered = 0
        self.turn = asyncio.Semaphore(1 if one_at_a_time else 1000)

    async def __call__(self) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        async with self.turn:
            await asyncio.sleep(self.seconds)
        self.busy -= 1
        self.answered += 1


async def test_a_closed_loop_keeps_its_callers_busy_and_no_more() -> None:
    server = Server(0.01)
    outcome = await closed_loop(server, concurrency=4, requests=21)
    assert (server.answered, server.most) == (21, 4)
    assert len(outcome.latencies) == 21
    assert outcome.per_second == pytest.approx(21 / outcome.seconds)


async def test_more_callers_than_requests() -> None:
    server = Server(0.0)
    assert len((await closed_loop(server, concurrency=32, requests=3)).latencies) == 3


async def test_an_open_loop_waits_for_nobody() -> None:
    server = Server(0.2)
    await open_loop(server, constant_arrivals(rate=50, seconds=0.1))
    assert (server.answered, server.most) == (5, 5)


async def test_latency_counts_from_the_planned_arrival() -> None:
    server = Server(0.05, one_at_a_time=True)
    outcome = await open_loop(server, [0.0, 0.0, 0.0])
    assert sorted(outcome.latencies)[2] >= 0.15
    assert sorted(outcome.latencies)[0] < 0.15


async def test_a_failed_answer_ends_the_run() -> None:
    async def fail() -> None:
        raise RuntimeError("429")

    with pytest.raises(ExceptionGroup) as raised:
        await closed_loop(fail, concurrency=2, requests=10)
    assert raised.group_contains(RuntimeError)


def test_constant_arrivals_are_evenly_spaced() -> None:
    arrivals = constant_arrivals(rate=4, seconds=2)
    assert len(arrivals) == 8
    assert {round(b - a, 9) for a, b in pairwise(arrivals)} == {0.25}
    assert constant_arrivals(rate=0.1, seconds=1) == [0.0]


def test_poisson_arrivals_keep_their_rate_and_their_seed() -> None:
    arrivals = poisson_arrivals(rate=10, seconds=500, seed=3)
    gaps = [b - a for a, b in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert len(arrivals) == pytest.approx(5000, rel=0.05)
    # an exponential's deviation is its mean
    assert variance**0.5 == pytest.approx(mean, rel=0.05)
    assert arrivals == poisson_arrivals(rate=10, seconds=500, seed=3)
    assert arrivals != poisson_arrivals(rate=10, seconds=500, seed=4)
    assert arrivals[-1] < 500


def test_percentiles_of_an_outcome() -> None:
    outcome = Outcome(tuple(float(number) for number in range(1, 102)), 10.0)
    assert (outcome.p50, outcome.p95) == (51.0, 96.0)
    assert outcome.per_second == pytest.approx(10.1)


def test_pooled_runs_are_one() -> None:
    outcome = pooled([Outcome((1.0, 2.0), 2.0), Outcome((9.0,), 1.0)])
    assert outcome.p50 == 2.0
    assert outcome.per_second == 1.0


async def test_server_and_engine_take_turns_with_the_same_arrivals() -> None:
    order: list[str] = []

    def hears(name: str) -> Send:
        async def hear(_: bytes = b"") -> None:
            order.append(name)

        return hear

    plan = SimpleNamespace(load_seconds=0.2, subject="tiny")
    bench: Any = SimpleNamespace(
        capacity=400.0,
        plan=plan,
        section=Section(),
        poster=lambda _: hears("served"),
        engine=SimpleNamespace(hear=hears("bare")),
    )
    await half_capacity_rows(bench)
    counts = {name: facts["requests"] for name, facts in facts_of(bench.section).items()}
    assert counts["even"] == counts["even engine"] > 20
    assert counts["poisson"] == counts["poisson engine"] > 20
    assert counts["even"] + counts["poisson"] == order.count("bare") == order.count("served")
    turns = [name for name, _ in groupby(order)]
    # what ends one kind's turns begins the other's
    each = ["served", *["bare", "served"] * (TURNS // 2)]
    assert turns == [*each, *each[1:]]


def facts_of(section: Section) -> dict[str, dict[str, float]]:
    facts: dict[str, dict[str, float]] = section.facts["half_capacity"]
    return facts
