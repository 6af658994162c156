"""The server over HTTP: what it adds to the engine, how it holds up under load, what it costs."""

import asyncio
from collections.abc import Iterator
from typing import Any

from benchmarks.audio_kinds import KINDS, wav
from benchmarks.clips import clip
from benchmarks.comparing import require
from benchmarks.feature_rows import feature_rows
from benchmarks.hearing import BareEngine
from benchmarks.http_bench import HTTP, Bench, milliseconds
from benchmarks.http_client import PATH, Caller
from benchmarks.load_rows import concurrency_row, half_capacity_rows, machine_rows
from benchmarks.plan import Plan
from benchmarks.processes import CpuLoad
from benchmarks.report import Budget, Row, Section
from benchmarks.saturation import saturation_rows
from benchmarks.servers import RayServer, ray_server
from benchmarks.statistics import in_turns
from engine.emotions import Emotions

IDLE_ROUNDS = 30
MINI = "emotion2vec_mini"


def measure_http(plan: Plan) -> Section:
    """All rows that need the server."""
    with ray_server() as server:
        return asyncio.run(_measure(plan, server))


async def _measure(plan: Plan, server: RayServer) -> Section:
    model = str(plan.prepared(plan.subject))
    async with Caller() as caller:
        engine = BareEngine(model)
        bench = Bench(plan, server, caller, engine, f"{server.url}/subject{PATH}")
        bench.add(*await _idle_rows(bench))
        server.deploy("subject", model=model, cache_bytes=0)
        await _check_answers(bench)
        bench.add(*await _kind_rows(bench))
        bench.add(*await feature_rows(plan, server, caller, bench.url))
        load = CpuLoad()
        load.start()
        bench.add(await concurrency_row(bench))
        bench.add(*machine_rows(bench, load.stop()))
        bench.add(*await half_capacity_rows(bench))
        bench.add(*await saturation_rows(plan, caller, engine, bench.url, bench.section))
    return bench.section


async def _check_answers(bench: Bench) -> None:
    """The server's scores are the engine's, before any of its times counts."""
    apart = 0.0
    for number, kind in enumerate(KINDS):
        body = kind.file(kind.seconds[0], number)
        answer = await bench.caller.post(bench.url, body)
        apart = max(apart, scores_apart(answer, await bench.engine.hear(body)))
    limit = 1e-4 if "float32" in str(bench.engine.dtype) else 0.02
    sentence = require("over HTTP against the engine, five kinds of files, scores", apart, limit)
    bench.section.facts["equality"] = [sentence]


def scores_apart(answer: dict[str, Any], wanted: Emotions) -> float:
    """Largest distance of a score of an answer from the engine's own."""
    found = {entry["label"]: entry["score"] for entry in answer["scores"]}
    if set(found) != set(wanted.scores):
        return float("inf")
    return max(
        (abs(float(found[name]) - score) for name, score in wanted.scores.items()), default=0.0
    )


async def _idle_rows(bench: Bench) -> Iterator[Row]:
    """What the server adds to the engine, on the small model, whose own time is no noise."""
    floor = bench.server.deploy_floor()
    mini = bench.server.deploy("mini", model=MINI, cache_bytes=0) + PATH
    engine = BareEngine(MINI)
    body = wav(clip(10.0))
    times = await in_turns(
        {
            "http": lambda: bench.caller.post(mini, body),
            "floor": lambda: bench.caller.post(floor, body),
            "engine": lambda: engine.hear(body),
        },
        IDLE_ROUNDS,
    )
    # each replica wakes a hundred times a second: none stays that is not measured
    bench.server.remove("floor")
    bench.server.remove("mini")
    added = times["http"] - times["engine"]
    ratio = added / times["floor"]
    text = f"{ratio:.2f}× ({milliseconds(added)} / {milliseconds(times['floor'])})"
    bench.section.facts["idle_seconds"] = times
    name = f"three empty deployments, {len(body) // 1000} kB body"
    return iter(
        (
            Row("Floors", name, milliseconds(times["floor"]), times["floor"]),
            Row(
                HTTP,
                "idle latency minus the bare engine / empty three-deployment graph, 10 s WAV, "
                "bundled model",
                text,
                ratio,
                Budget(1.2, at_most=True),
                f"idle {milliseconds(times['http'])}, bare engine {milliseconds(times['engine'])}; "
                "the model's size cancels out of the difference",
            ),
        )
    )


async def _kind_rows(bench: Bench) -> list[Row]:
    files = {kind.name: kind.file(kind.middle, 7) for kind in KINDS}
    times = await in_turns(
        {name: bench.poster(body) for name, body in files.items()},
        max(3, bench.plan.rounds // 2),
    )
    bench.section.facts["kinds_seconds"] = times
    return [
        Row(
            HTTP,
            f"{kind.name}, {kind.middle:g} s, {bench.plan.subject}, idle P50",
            milliseconds(times[kind.name]),
            times[kind.name],
            note=f"others' funasr server on an A10G: {kind.public_seconds:g} s",
        )
        for kind in KINDS
    ]
