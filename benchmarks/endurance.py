"""Whether the thousandth clip costs what the last one costs, in CPU time and in memory."""

import os
from dataclasses import dataclass

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip
from benchmarks.http_client import Caller
from benchmarks.load import closed_loop
from benchmarks.processes import resident_bytes, usages
from benchmarks.report import Budget, Row
from benchmarks.statistics import figure

ENDURANCE = "Endurance (bundled model, 1 s WAV clips, 8 callers, cache off)"
CALLERS = 8
BLOCK = 500
COST = Budget(1.1, at_most=True)
MEMORY = Budget(1.1, at_most=True)


@dataclass(frozen=True, slots=True)
class Block:
    """A run of requests.

    Attributes:
        cpu_seconds: CPU time of the server's processes per clip.
        resident_bytes: their memory in RAM afterwards.
    """

    cpu_seconds: float
    resident_bytes: int


async def endurance_rows(caller: Caller, url: str, requests: int) -> list[Row]:
    """Blocks of requests to `url` one after the other, `requests` in all."""
    body = wav(clip(1.0))
    await closed_loop(lambda: caller.post(url, body), CALLERS, BLOCK)
    blocks = []
    for _ in range(max(2, requests // BLOCK - 1)):
        before = _cpu_seconds()
        await closed_loop(lambda: caller.post(url, body), CALLERS, BLOCK)
        root = os.getpid()
        blocks.append(Block((_cpu_seconds() - before) / BLOCK, resident_bytes(root)))
    return rows_of(blocks)


def rows_of(blocks: list[Block]) -> list[Row]:
    """The last block against the second one of all, which ends at the thousandth request."""
    first, last = blocks[0], blocks[-1]
    count = (len(blocks) + 1) * BLOCK
    cost = last.cpu_seconds / first.cpu_seconds
    growth = last.resident_bytes / first.resident_bytes
    return [
        Row(
            ENDURANCE,
            f"server's CPU time per clip, requests up to {count} / up to {2 * BLOCK}",
            f"{cost:.2f}× ({_ms(last.cpu_seconds)} / {_ms(first.cpu_seconds)})",
            cost,
            COST,
        ),
        Row(
            ENDURANCE,
            f"server's memory, after {count} requests / after {2 * BLOCK}",
            f"{growth:.3f}× ({last.resident_bytes / 2**20:.0f} MiB)",
            growth,
            MEMORY,
        ),
    ]


def _cpu_seconds() -> float:
    # every application of this run is counted, but only one of them works
    return sum(usage.cpu_seconds for usage in usages(os.getpid()))


def _ms(seconds: float) -> str:
    return f"{figure(seconds * 1000)} ms"
