"""`python -m benchmarks.overload [--seconds 60] [--rounds 3] [-- FLAG …]`: five times too much.

Starts `e2v serve` on a free port, and in each round measures what it can do (eight callers that
never pause), sends five times that at even distances, looks how soon it is as before, and measures
again what it can do. The flags behind `--` are those of `e2v serve`. Prints one block per round:
goodput as a share of the capacity, times of refusals and answers, CPU time by process, memory
before and after.
"""

import argparse
import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from time import perf_counter

import psutil
import uvloop

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.load import constant_arrivals, open_loop
from benchmarks.raw_http import Answer, RawCaller
from benchmarks.servers import e2v_server
from benchmarks.statistics import percentile
from cluster.chaos.processes import family
from engine.memory import keep_large_blocks

CALLERS = 8
TIMES = 5
CLIP_SECONDS = 10.0
USUAL_FLAGS = ("--cache-bytes", "0")
CAPACITY_SECONDS = 20.0
CALM_ANSWERS = 10
"""So many single requests in a row, answered within twice the idle time: it is as before."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Answers of one load, and what it took.

    Attributes:
        seconds: how long was sent.
        cpu_seconds: CPU time by role of the process; "caller" is this process.
    """

    answers: list[Answer]
    seconds: float
    cpu_seconds: dict[str, float]

    def per_second(self, status: int) -> float:
        """Answers with that status per second."""
        return sum(answer.status == status for answer in self.answers) / self.seconds

    def percentiles(self, status: int) -> str:
        """P50, P95 and P99 in milliseconds."""
        times = [answer.seconds for answer in self.answers if answer.status == status]
        shares = (percentile(times, share) * 1000 for share in (0.5, 0.95, 0.99))
        return " / ".join(f"{ms:.0f}" for ms in shares) + " ms" if times else "–"

    def cpu_per_request(self) -> str:
        """Milliseconds of each role that took any to speak of."""
        spent = {role: 1000 * s / len(self.answers) for role, s in self.cpu_seconds.items()}
        return ", ".join(f"{role} {ms:.2f}" for role, ms in spent.items() if ms >= 0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure it; 1 where anything else than 200 and 429 came, or a process was replaced."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each load")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments[:cut])
    with e2v_server(*USUAL_FLAGS, *arguments[cut + 1 :]) as (url, pid):
        caller = RawCaller(url, wav(clip(CLIP_SECONDS)))
        server = psutil.Process(pid)
        keep_large_blocks()  # as uvloop: the caller shares the CPUs, and should take little of them
        return uvloop.run(_rounds(caller, server, options.seconds, options.rounds))


async def _rounds(caller: RawCaller, server: psutil.Process, seconds: float, rounds: int) -> int:
    idle = min([(await caller.post()).seconds for _ in range(20)])
    await _closed(caller, 3.0)
    before, wrong = set(_serving(server)), 0
    for number in range(rounds):
        memory = _memory(server)
        able = await _measured(server, _closed(caller, CAPACITY_SECONDS))
        over = await _measured(server, _open(caller, TIMES * able.per_second(200), seconds))
        calm = await _calm(caller, 2 * idle)
        again = await _measured(server, _closed(caller, CAPACITY_SECONDS))
        # a shared machine's speed drifts: what it could do meanwhile lies between the two
        capacity = (able.per_second(200) + again.per_second(200)) / 2
        print(f"round {number + 1}: capacity {capacity:.1f} clips/s, {_text(over, capacity)}")
        print(f"  CPU ms per request at capacity: {able.cpu_per_request()}")
        print(f"  CPU ms per request at {TIMES} times that: {over.cpu_per_request()}")
        print(f"  as before after {calm:.1f} s; MiB {_grown(memory, _memory(server))}", flush=True)
        wrong += sum(answer.status not in (200, 429) for answer in over.answers)
    caller.close()
    replaced = before - set(_serving(server))
    print(f"other statuses: {wrong}; processes replaced: {len(replaced)}")
    return 1 if wrong or replaced else 0


def _text(over: Phase, capacity: float) -> str:
    sent, goodput = len(over.answers), over.per_second(200)
    statuses = dict(Counter(answer.status for answer in over.answers))
    return (
        f"offered {sent / over.seconds:.1f}/s: {statuses}, goodput {goodput / capacity:.3f}\n"
        f"  P50 / P95 / P99 of a 429 {over.percentiles(429)}, of a 200 {over.percentiles(200)}"
    )


async def _measured(server: psutil.Process, load: Coroutine[None, None, list[Answer]]) -> Phase:
    before, began = _cpu_seconds(server), perf_counter()
    answers = await load
    seconds, after = perf_counter() - began, _cpu_seconds(server)
    return Phase(answers, seconds, {role: after[role] - before[role] for role in after})


async def _closed(caller: RawCaller, seconds: float) -> list[Answer]:
    until, answers = perf_counter() + seconds, []

    async def one_after_another() -> None:
        while perf_counter() < until:
            answers.append(await caller.post())

    await asyncio.gather(*(one_after_another() for _ in range(CALLERS)))
    return answers


async def _open(caller: RawCaller, rate: float, seconds: float) -> list[Answer]:
    answers = []

    async def one() -> None:
        answers.append(await caller.post())

    await open_loop(one, constant_arrivals(rate, seconds))
    return answers


async def _calm(caller: RawCaller, usual: float) -> float:
    """Seconds until the first of so many answers in a row that are quick enough."""
    began, first, row = perf_counter(), 0.0, 0
    while row < CALM_ANSWERS:
        sent = perf_counter() - began
        answer = await caller.post()
        good = answer.status == 200 and answer.seconds <= usual
        first, row = (first if row else sent, row + 1) if good else (0.0, 0)
    return first


def _serving(server: psutil.Process) -> dict[int, str]:
    """Proxy and replicas by process number."""
    roles = ("proxy", "Ingress", "Preprocess", "Model", "Cache")
    return {pid: role for pid, role in family(server).items() if role in roles}


def _cpu_seconds(server: psutil.Process) -> Counter[str]:
    spent: Counter[str] = Counter()
    for pid, role in [*family(server).items(), (None, "caller")]:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            spent[role] += times.user + times.system
    return spent


def _memory(server: psutil.Process) -> Counter[str]:
    held: Counter[str] = Counter()
    for pid, role in _serving(server).items():
        with contextlib.suppress(psutil.Error):
            held[role] += psutil.Process(pid).memory_full_info().uss
    return held


def _grown(before: Counter[str], after: Counter[str]) -> str:
    return ", ".join(f"{role} {before[role] >> 20} → {after[role] >> 20}" for role in sorted(after))


if __name__ == "__main__":
    sys.exit(main())
