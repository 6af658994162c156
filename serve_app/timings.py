"""The stages of a request: one set of names for headers, metrics, logs and reports."""

from dataclasses import dataclass, field
from time import perf_counter

STAGES = ("decode", "preprocess", "queue", "model")


@dataclass(slots=True)
class Timings:
    """Milliseconds spent in each stage since the request was accepted."""

    started: float = field(default_factory=perf_counter)
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    cache_hit: bool = False

    def add(self, stage: str, milliseconds: float) -> None:
        """Count time of a stage."""
        self.stages[stage] += milliseconds

    def total_ms(self) -> float:
        """Time since the request was accepted."""
        return (perf_counter() - self.started) * 1000

    def to_dict(self) -> dict[str, float]:
        """Stages and total; stages never add up to more than the total.

        Passes of long audio overlap: their stage times are then shares of the elapsed time.
        """
        total = self.total_ms()
        spent = sum(self.stages.values())
        share = min(1.0, total / spent) if spent else 1.0
        return {**{name: ms * share for name, ms in self.stages.items()}, "total": total}

    def header(self) -> str:
        """Value of the `Server-Timing` header (W3C Server Timing)."""
        # rounded down, so that the printed stages cannot add up to more than the printed total
        parts = [f"{name};dur={int(ms * 100) / 100}" for name, ms in self.to_dict().items()]
        return ", ".join([*parts, "cache;desc=hit"] if self.cache_hit else parts)
