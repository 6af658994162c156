"""The entry of this device for `cluster.sizing`, from a run with the large shape everywhere."""

from collections.abc import Sequence
from typing import Any

from benchmarks.report import Report


def sizing_entry(report: Report) -> dict[str, Any] | None:
    """Fields of `cluster.sizing.Measured`; None from a run without its figures,
    or whose throughput is another shape's."""
    facts = report.facts
    if report.mode != "full" or not {
        "dtype",
        "cold_start",
        "engine_audio_seconds_per_second",
    } <= set(facts):
        return None
    on_gpu = report.environment["gpu"] != "none"
    return {
        "device": report.environment["gpu" if on_gpu else "cpu"],
        "dtype": facts["dtype"],
        "audio_seconds_per_second": round(facts["engine_audio_seconds_per_second"], 2),
        "replica_bytes": facts.get("gpu_replica_bytes", 0),
        "device_bytes": facts.get("gpu_device_bytes", 0),
        "start_seconds": round(sum(facts["cold_start"].values()), 1),
        "command": report.command,
    }


def with_entry(entries: Sequence[dict[str, Any]], entry: dict[str, Any]) -> list[dict[str, Any]]:
    """`entries` with this one in the place of the same device and dtype, or at the end."""

    def key(one: dict[str, Any]) -> tuple[str, str]:
        return one["device"], one["dtype"]

    if key(entry) not in map(key, entries):
        return [*entries, entry]
    return [entry if key(one) == key(entry) else one for one in entries]
