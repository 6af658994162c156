"""What a parameter costs: the same clip with and without it, taking turns."""

from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip, spoken
from benchmarks.http_bench import milliseconds
from benchmarks.http_client import PATH, Caller
from benchmarks.plan import Plan
from benchmarks.report import Budget, Row
from benchmarks.servers import RayServer
from benchmarks.statistics import in_turns
from engine.passes import MODEL_RATE

FEATURES = "Parameters (latency with / without, idle, 10 s WAV)"
FRAME = Budget(1.03, at_most=True)
TRIM = Budget(1.10, at_most=True)
DENOISE = Budget(1.25, at_most=True)
CACHED = Budget(1 / 20, at_most=True)
FIRSTS = 4


async def feature_rows(plan: Plan, server: RayServer, caller: Caller, url: str) -> list[Row]:
    """Granularity, silence, noise reduction, and the cache."""
    # speech, so that trimming leaves all of it; made sounds would be cut as silence
    wave = spoken(10.0)
    plain = wav(wave)
    led = wav(np.concatenate([np.zeros(round(2.5 * MODEL_RATE), np.float32), wave]))
    times = await in_turns(
        {
            "plain": lambda: caller.post(url, plain),
            "frame": lambda: caller.post(url, plain, {"granularity": "frame"}),
            "trim": lambda: caller.post(url, led, {"trim_silence": "true"}),
            "denoise": lambda: caller.post(url, plain, {"denoise": "true"}),
        },
        max(5, plan.rounds),
    )

    def row(name: str, quantity: str, budget: Budget, note: str) -> Row:
        ratio = times[name] / times["plain"]
        text = f"{ratio:.3f}× ({milliseconds(times[name])} / {milliseconds(times['plain'])})"
        return Row(FEATURES, f"{quantity}, {plan.subject}", text, ratio, budget, note)

    return [
        row("frame", "granularity frame / utterance", FRAME, "others' funasr server: 3 ×"),
        row(
            "trim",
            "2.5 s of silence in front with trim_silence / the file without the silence",
            TRIM,
            "others' funasr server: 2.18 s (0.93 s with its silence detection in parallel)",
        ),
        row("denoise", "denoise / without", DENOISE, ""),
        await _cached_row(plan, server, caller),
    ]


async def _cached_row(plan: Plan, server: RayServer, caller: Caller) -> Row:
    model = str(plan.prepared(plan.subject))
    url = server.deploy("cached", model=model) + PATH
    await caller.post(url, wav(clip(3.0, 99)))
    first: list[float] = []
    again: list[float] = []
    for seed in range(FIRSTS):
        body = wav(clip(10.0, 100 + seed))
        for times in (first, again, again, again):
            began = perf_counter()
            await caller.post(url, body)
            times.append(perf_counter() - began)
    server.remove("cached")
    ratio = median(again) / median(first)
    return Row(
        FEATURES,
        f"the same audio again (cache on) / the first time, {plan.subject}",
        f"{ratio:.3f}× ({milliseconds(median(again))} / {milliseconds(median(first))})",
        ratio,
        CACHED,
        "others' funasr server: 0.08 s from a stored embedding instead of 0.61 s",
    )
