"""Whether a clip costs a server that has served many what it costs one that has served few.

Both take turns: a machine whose speed drifts by a fifth in minutes would drown in one server's
own history whatever it is asked (measured: blocks of 500 between 16 and 25 ms of CPU time).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.http_bench import mebibytes, milliseconds
from benchmarks.http_client import PATH, Caller
from benchmarks.load import closed_loop
from benchmarks.plan import Plan
from benchmarks.processes import resident_bytes, usages
from benchmarks.report import Budget, Row, Section
from benchmarks.servers import e2v_server

ENDURANCE = "Endurance (bundled model, 1 s WAV clips, 8 callers, cache off)"
CALLERS = 8
FRESH = 1_000
TURNS = 8
TURN = 250
COST = Budget(1.1, at_most=True)
MEMORY = Budget(1.1, at_most=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """CPU seconds per clip of all processes of the two servers, one after the other."""

    aged: float
    fresh: float


@dataclass(frozen=True, slots=True)
class Served:
    """`e2v serve` with the bundled model: its URL and its process number."""

    url: str
    pid: int

    def serve(self, requests: int) -> float:
        """Answer that many; the CPU time of the server's processes per request, in seconds."""
        before = self._cpu_seconds()
        asyncio.run(self._serve(requests))
        return (self._cpu_seconds() - before) / requests

    async def _serve(self, requests: int) -> None:
        body = wav(clip(1.0))
        async with Caller() as caller:
            await closed_loop(lambda: caller.post(self.url + PATH, body), CALLERS, requests)

    def _cpu_seconds(self) -> float:
        return sum(usage.cpu_seconds for usage in usages(self.pid))


def measure_endurance(plan: Plan) -> Section:
    """A server after many requests beside one after `FRESH`, on their own in this machine."""
    requests = plan.endurance
    with _served() as aged:
        aged.serve(FRESH)
        early = resident_bytes(aged.pid)
        aged.serve(requests - FRESH)
        late = resident_bytes(aged.pid)
        with _served() as fresh:
            fresh.serve(FRESH)
            turns = [Turn(aged.serve(TURN), fresh.serve(TURN)) for _ in range(TURNS)]
    return Section(rows_of(turns, (early, late), requests))


def rows_of(turns: list[Turn], resident: tuple[int, int], requests: int) -> list[Row]:
    """CPU time and memory; `resident` is the aged server's after `FRESH` and after `requests`."""
    cost = median(turn.aged / turn.fresh for turn in turns)
    aged, fresh = median(turn.aged for turn in turns), median(turn.fresh for turn in turns)
    early, late = resident
    return [
        Row(
            ENDURANCE,
            f"CPU time per clip of a server after {requests} requests / of one after {FRESH}",
            f"{cost:.2f}× ({milliseconds(aged)} / {milliseconds(fresh)})",
            cost,
            COST,
            f"{len(turns)} turns of {TURN} requests each",
        ),
        Row(
            ENDURANCE,
            f"server's memory, after {requests} requests / after {FRESH}",
            f"{late / early:.3f}× ({mebibytes(late)})",
            late / early,
            MEMORY,
        ),
    ]


@contextmanager
def _served() -> Iterator[Served]:
    with e2v_server("--model", "emotion2vec_mini", "--cache-bytes", "0") as (url, pid):
        yield Served(url, pid)
