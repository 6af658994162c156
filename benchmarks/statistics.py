"""Medians, percentiles, and runs that take turns, so that ratios survive a busy machine."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median
from time import perf_counter


def percentile(values: Sequence[float], share: float) -> float:
    """Value at `share` (0 to 1) of the sorted values, linear between neighbours."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def seconds_of(work: Callable[[], object]) -> float:
    """Elapsed seconds of one call."""
    started = perf_counter()
    work()
    return perf_counter() - started


def interleaved(
    works: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """Median seconds of each of `works`, which take turns in every round.

    A machine that is slower for a while is slower for all of them, so their ratios hold.
    """
    for work in works.values():
        for _ in range(warm_up):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds_of(work))
    return {name: median(values) for name, values in times.items()}


async def in_turns(
    works: Mapping[str, Callable[[], Awaitable[object]]], rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """As `interleaved`, for coroutines."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(warm_up + rounds):
        for name, work in works.items():
            began = perf_counter()
            await work()
            if number >= warm_up:
                times[name].append(perf_counter() - began)
    return {name: median(values) for name, values in times.items()}


def figure(value: float, digits: int = 3) -> str:
    """`value` with that many significant digits and no exponent."""
    if not math.isfinite(value):
        return "–"
    return f"{float(f'{value:.{digits}g}'):,.10g}".replace(",", " ")
