"""The server under load: callers at once, arrivals at half of capacity, memory and CPU."""

import os
from collections.abc import Iterator, Sequence

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.http_bench import HTTP, Bench, mebibytes, milliseconds
from benchmarks.load import (
    Outcome,
    closed_loop,
    constant_arrivals,
    open_loop,
    poisson_arrivals,
    pooled,
)
from benchmarks.processes import gpu_state, usages
from benchmarks.report import Budget, Row, absent
from benchmarks.statistics import figure

CONCURRENCY = (1, 4, 8, 16, 32)
TURNS = 8


async def concurrency_row(bench: Bench) -> Row:
    """A closed loop at each level; finds the capacity."""
    body = wav(clip(3.0))
    outcomes: dict[int, Outcome] = {}
    for concurrency in CONCURRENCY:
        requests = max(bench.plan.requests, 2 * concurrency)
        outcomes[concurrency] = await closed_loop(bench.poster(body), concurrency, requests)
    bench.capacity = max(outcome.per_second for outcome in outcomes.values())
    bench.section.facts["concurrency"] = {
        str(level): {"per_second": o.per_second, "p50": o.p50, "p95": o.p95}
        for level, o in outcomes.items()
    }
    rates = " / ".join(figure(o.per_second) for o in outcomes.values())
    latencies = " / ".join(f"{o.p50:.2f}" for o in outcomes.values())
    slow = " / ".join(f"{o.p95:.2f}" for o in outcomes.values())
    return Row(
        HTTP,
        f"closed loop of {' / '.join(map(str, CONCURRENCY))} callers, 3 s clips, "
        f"{bench.plan.subject}",
        f"{rates} clips/s",
        bench.capacity,
        note=f"P50 {latencies} s, P95 {slow} s",
    )


async def half_capacity_rows(bench: Bench) -> list[Row]:
    """Open loops at half of capacity: even and Poisson arrivals."""
    rate = bench.capacity / 2
    # each turn long enough for its own P95
    seconds = max(2 * bench.plan.load_seconds / TURNS, 20 / rate)
    even, even_bare = await _in_turns(bench, [constant_arrivals(rate, seconds)] * TURNS)
    served, bare = await _in_turns(
        bench, [poisson_arrivals(rate, seconds, seed=turn) for turn in range(TURNS)]
    )
    measured = {"even": even, "even engine": even_bare, "poisson": served, "poisson engine": bare}
    bench.section.facts["half_capacity"] = {
        name: {"p50": o.p50, "p95": o.p95, "requests": len(o.latencies)}
        for name, o in measured.items()
    }
    spread = (served.p95 / served.p50) / (bare.p95 / bare.p50)
    where = f"at half of capacity ({figure(rate)} clips/s of 3 s, {bench.plan.subject})"
    return [
        Row(
            HTTP,
            f"P95 / P50, evenly spaced arrivals {where}",
            f"{even.p95 / even.p50:.2f}× ({milliseconds(even.p95)} / {milliseconds(even.p50)})",
            even.p95 / even.p50,
            Budget(1.15, at_most=True),
            f"{len(even.latencies)} requests in {TURNS} turns; the bare engine under the same: "
            f"{even_bare.p95 / even_bare.p50:.2f}×",
        ),
        Row(
            HTTP,
            f"P95 / P50, Poisson arrivals {where}, against the bare engine's",
            f"{spread:.2f}× ({served.p95 / served.p50:.2f} / {bare.p95 / bare.p50:.2f})",
            spread,
            Budget(1.1, at_most=True),
            f"{len(served.latencies)} requests in {TURNS} turns, the same for both",
        ),
    ]


async def _in_turns(bench: Bench, arrivals: Sequence[Sequence[float]]) -> tuple[Outcome, Outcome]:
    """The server and the bare engine, one clip at a time behind a queue, at each of `arrivals`.

    They take turns, each with the same arrivals: in one stretch after the other a machine that
    is slower for a minute gives one of them the longer queues.
    """
    body = wav(clip(3.0))
    sends = {"served": bench.poster(body), "bare": lambda: bench.engine.hear(body)}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in sends}
    for turn, due in enumerate(arrivals):
        for name in sorted(sends, reverse=turn % 2 == 0):
            outcomes[name].append(await open_loop(sends[name], due))
    return pooled(outcomes["served"]), pooled(outcomes["bare"])


def machine_rows(bench: Bench, busy: float) -> Iterator[Row]:
    """Memory, CPU and GPU, read while the server is there."""
    processes = sorted(usages(os.getpid()), key=lambda usage: -usage.peak_bytes)
    shown = [usage for usage in processes if usage.name.startswith("subject:")]
    decoders = [usage for usage in processes if usage.name == "decoder"]
    proxies = [usage for usage in processes if usage.name == "HTTP proxy"]
    shown += decoders[:1] + proxies[:1]
    text = ", ".join(f"{u.name.removeprefix('subject: ')} {mebibytes(u.peak_bytes)}" for u in shown)
    bench.section.facts["processes"] = [
        {"name": u.name, "peak_bytes": u.peak_bytes, "cpu_seconds": u.cpu_seconds}
        for u in processes
    ]
    model = next((u for u in shown if u.name.endswith("Model")), None)
    yield Row(
        HTTP,
        f"peak memory by process, {bench.plan.subject}",
        f"{mebibytes(model.peak_bytes)} (model replica)" if model else "–",
        note=text + "; others' funasr server: 14.2 → 9.6 GB of GPU memory",
    )
    yield Row(
        HTTP,
        "CPU load under saturation, load generator included",
        f"{busy:.0%}",
        busy,
        note="others' funasr server: 92 → 28 % beside a GPU, where the model is not on the CPU",
    )
    state = gpu_state()
    if state is None:
        yield absent(HTTP, "GPU busy share and memory", "there is no GPU in this machine")
        return
    text = f"{state.get('busy_percent', '?')} %, {mebibytes(state['used_bytes'])}"
    yield Row(HTTP, "GPU busy share and memory", text)
