"""What a run came to: a table to read and the same as JSON."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.chaos.accounts import Account, Fault, account
from cluster.chaos.load import Record
from cluster.chaos.processes import MIB, Growth

SHOWN_FAILURES = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that was seen.

    Attributes:
        begun: `time.monotonic` of the first request.
        capacity, rate: requests per second with callers that never pause, and sent.
        kinds: faults that were asked for.
        difference: largest difference of any score before and after the run.
        growth: processes that lived through their warm-up.
        peaks: highest memory of a process of each role, in bytes.
    """

    begun: float
    capacity: float
    rate: float
    records: Sequence[Record]
    faults: Sequence[Fault]
    kinds: Sequence[str]
    difference: float
    growth: Sequence[Growth]
    peaks: dict[str, int]

    def account(self) -> Account:
        """Every request in its heap."""
        return account(self.records, self.faults)

    def failures(self, same_within: float) -> list[str]:
        """Why the run is not passed; empty: it is."""
        found = []
        if unexplained := len(self.account().unexplained):
            found.append(f"{unexplained} requests failed and no fault explains it")
        found += [f"{f.kind}: not whole again ({f.note})" for f in self.faults if f.back is None]
        if self.difference > same_within:
            found.append(f"scores before and after differ by {self.difference:.1g}")
        return found


def to_text(run: Run) -> str:
    """The report for people."""
    heaps = run.account()
    lines = [
        f"capacity {run.capacity:.1f} requests/s, sent {run.rate:.1f}/s",
        f"requests {heaps.total} = answered {heaps.answered} + explained "
        f"{heaps.explained.total()} + unexplained {len(heaps.unexplained)}",
        *(f"  {kind}: {count} failed" for kind, count in heaps.explained.items()),
        *(f"  unexplained: {n} times {reason}" for reason, n in _reasons(heaps)),
        *(f"    {line}" for line in _failures(run, heaps)),
        _put_off(run.records),
        _latency(run.records),
        f"scores before and after differ by at most {run.difference:.1g}; answers by model: "
        + ", ".join(f"{name} {n}" for name, n in _models(run.records).items()),
        "",
        *_fault_table(run),
        "",
        *_process_table(run),
    ]
    missing = [kind for kind in run.kinds if kind not in {fault.kind for fault in run.faults}]
    if missing:
        lines += ["", "not done, for want of time: " + ", ".join(missing)]
    return "\n".join(lines)


def write_json(run: Run, path: Path, verdict: Sequence[str]) -> None:
    """The report for programs, every request included."""
    heaps = run.account()
    document: dict[str, Any] = {
        "passed": not verdict,
        "verdict": list(verdict),
        "capacity_per_second": run.capacity,
        "rate_per_second": run.rate,
        "requests": heaps.total,
        "answered": heaps.answered,
        "explained": dict(heaps.explained),
        "unexplained": len(heaps.unexplained),
        "score_difference": run.difference,
        "faults": [_timed(asdict(fault), run.begun) for fault in run.faults],
        "growth": [asdict(one) for one in run.growth],
        "peak_bytes": run.peaks,
        "records": [_timed(asdict(record), run.begun) for record in run.records],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1), "utf-8")


def _timed(fields: dict[str, Any], begun: float) -> dict[str, Any]:
    for name in {"at", "back", "sent", "ended"} & set(fields):
        if fields[name] is not None:
            fields[name] = round(fields[name] - begun, 3)
    return fields


def _reasons(heaps: Account) -> list[tuple[str, int]]:
    return Counter(record.reason or "no answer" for record in heaps.unexplained).most_common()


def _failures(run: Run, heaps: Account) -> list[str]:
    return [
        f"at {record.sent - run.begun:.1f} s, {record.clip}: {record.reason or 'no answer'}"
        for record in heaps.unexplained[:SHOWN_FAILURES]
    ]


def _put_off(records: Sequence[Record]) -> str:
    times = [record.put_off for record in records if record.put_off]
    return f"{len(times)} of them were refused by 429 at first, {sum(times)} times in all"


def _latency(records: Sequence[Record]) -> str:
    times = sorted(r.ended - r.sent for r in records if r.ok and r.ended is not None)
    if not times:
        return "no answer"
    parts = [f"p{share:g} {times[int(len(times) * share / 100)] * 1000:.0f}" for share in (50, 99)]
    return f"latency in ms: {', '.join(parts)}, longest {times[-1] * 1000:.0f}"


def _models(records: Sequence[Record]) -> Counter[str]:
    return Counter(record.model for record in records if record.model)


def _fault_table(run: Run) -> list[str]:
    rows = [
        "| Fault | At (s) | Whole again after (s) | Failed | Longest answer (s) | Note |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for fault in run.faults:
        took = "not" if fault.seconds is None else f"{fault.seconds:.1f}"
        failed = sum(not record.ok and fault.explains(record) for record in run.records)
        longest = _longest(run.records, fault)
        at = fault.at - run.begun
        rows.append(
            f"| {fault.kind} | {at:.0f} | {took} | {failed} | {longest:.1f} | {fault.note} |"
        )
    return rows


def _longest(records: Sequence[Record], fault: Fault) -> float:
    until = float("inf") if fault.back is None else fault.back
    return max(
        (r.ended - r.sent for r in records if r.ended and r.ok and fault.at <= r.sent <= until),
        default=0.0,
    )


def _process_table(run: Run) -> list[str]:
    rows = [
        "| Process | Lived (s) | Own memory by quarter (MiB) | Descriptors by quarter |",
        "| --- | --- | --- | --- |",
    ]
    for one in run.growth:
        memory = " → ".join(f"{own / MIB:.0f}" for own in one.own_bytes)
        descriptors = " → ".join(map(str, one.descriptors))
        rows.append(f"| {one.role} {one.pid} | {one.seconds:.0f} | {memory} | {descriptors} |")
    return rows
