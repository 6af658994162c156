"""Clips per second with more callers than it can serve: our server, the engine, LitServe."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from statistics import median
from time import perf_counter

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.comparing import require
from benchmarks.hearing import BareEngine
from benchmarks.http_client import Caller
from benchmarks.load import closed_loop
from benchmarks.plan import Plan
from benchmarks.report import Budget, Row, Section, absent
from benchmarks.servers import has_litserve, litserve_server
from benchmarks.statistics import figure

SATURATED = "Saturation (10 s WAV clips, more callers than can be served at once)"
CALLERS = 12
TOGETHER = 3
"""Clips of 10 s in one batch of the engine: the server's own limit of work on a CPU."""
ENGINE_SHARE = Budget(95.0, at_most=False, unit="%")
AT_LEAST_LITSERVE = Budget(1.0, at_most=False)

Rate = Callable[[], Awaitable[float]]


async def saturation_rows(
    plan: Plan, caller: Caller, engine: BareEngine, url: str, section: Section
) -> list[Row]:
    """Rounds in which all of them take turns."""
    body = wav(clip(10.0))
    rates: dict[str, Rate] = {
        "engine": lambda: _engine_rate(engine, body, plan.requests),
        "http": lambda: _http_rate(lambda: caller.post(url, body), plan.requests),
    }
    with ExitStack() as stack:
        if has_litserve():
            plain, _ = stack.enter_context(litserve_server(plan.prepared(plan.subject)))
            await _check_litserve(caller, plain, engine, body)
            rates["litserve"] = lambda: _http_rate(
                lambda: caller.upload(plain, body), plan.requests
            )
        measured: dict[str, list[float]] = {name: [] for name in rates}
        for _ in range(max(2, plan.rounds // 2)):
            for name, rate in rates.items():
                measured[name].append(await rate())
    middle = {name: median(values) for name, values in measured.items()}
    section.facts["saturation_clips_per_second"] = middle
    return _rows(plan, middle)


def _rows(plan: Plan, rates: dict[str, float]) -> list[Row]:
    share = 100 * rates["http"] / rates["engine"]
    rows = [
        Row(
            SATURATED,
            f"HTTP / the bare engine in batches of {TOGETHER}, {plan.subject}",
            f"{share:.0f} % ({figure(rates['http'])} / {figure(rates['engine'])} clips/s)",
            share,
            ENGINE_SHARE,
            "the load generator runs on the same cores",
        )
    ]
    quantity = f"HTTP / the same engine in LitServe, {plan.subject}"
    if "litserve" not in rates:
        why = "litserve is not installed: pip install 'emotion2vec-serve[bench]'"
        return [*rows, absent(SATURATED, quantity, why, AT_LEAST_LITSERVE)]
    ratio = rates["http"] / rates["litserve"]
    text = f"{ratio:.2f}× ({figure(rates['http'])} / {figure(rates['litserve'])} clips/s)"
    return [*rows, Row(SATURATED, quantity, text, ratio, AT_LEAST_LITSERVE)]


async def _engine_rate(engine: BareEngine, body: bytes, clips: int) -> float:
    """Clips per second of decode, front end and model, in batches."""
    began = perf_counter()
    for first in range(0, clips, TOGETHER):
        await engine.hear_together([body] * min(TOGETHER, clips - first))
    return clips / (perf_counter() - began)


async def _http_rate(send: Callable[[], Awaitable[object]], requests: int) -> float:
    outcome = await closed_loop(send, CALLERS, requests)
    return outcome.per_second


async def _check_litserve(caller: Caller, url: str, engine: BareEngine, body: bytes) -> None:
    answer = await caller.upload(url, body)
    wanted = (await engine.hear(body)).scores
    apart = max(abs(answer["scores"][name] - score) for name, score in wanted.items())
    require("LitServe against the engine, scores", apart, 1e-4)
