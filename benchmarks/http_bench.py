"""What the measurements over HTTP share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.hearing import BareEngine
from benchmarks.http_client import Caller
from benchmarks.plan import Plan
from benchmarks.report import Row, Section
from benchmarks.servers import RayServer
from benchmarks.statistics import figure

HTTP = "Server over HTTP (cache off unless said)"


@dataclass(slots=True)
class Bench:
    """What the HTTP measurements share.

    Attributes:
        engine: the bare engine with the subject's weights, in this process.
        url: of the application with the same weights.
        capacity: clips of 3 s per second at saturation, once measured.
    """

    plan: Plan
    server: RayServer
    caller: Caller
    engine: BareEngine
    url: str
    section: Section = field(default_factory=Section)
    capacity: float = 0.0

    def add(self, *rows: Row) -> None:
        """Put rows into the report."""
        self.section.rows += rows

    def poster(self, body: bytes) -> Callable[[], Awaitable[Any]]:
        """A call that sends `body` to the application."""
        return lambda: self.caller.post(self.url, body)


def milliseconds(seconds: float) -> str:
    """Seconds as text in ms."""
    return f"{figure(seconds * 1000)} ms"


def mebibytes(count: float) -> str:
    """Bytes as text in MiB."""
    return f"{count / 2**20:.0f} MiB"
