"""The rules by which a chaos run is judged, and the load's own parts; no cluster."""

import io
import math

import numpy as np
import pytest

from cluster.chaos.accounts import Fault, account
from cluster.chaos.clips import mixed_clips
from cluster.chaos.faults import KINDS, schedule
from cluster.chaos.load import Record, largest_difference
from cluster.chaos.processes import Sample, Watch
from cluster.chaos.report import Run, to_text
from engine.audio import load

KILLED, BACK = 100.0, 110.0
LOST = "connection: ReadError"


def record(sent: float, ended: float | None, reason: str = LOST, status: int = 0) -> Record:
    return Record("clip", sent, ended, status, reason)


@pytest.mark.parametrize(
    ("kind", "request_", "explained"),
    [
        ("kill Ingress", record(99, 101), True),
        ("kill Ingress", record(99, 101, "500 Internal Server Error", 500), True),
        ("kill Ingress", record(98, 99), False),
        ("kill Ingress", record(105, 106), False),
        ("kill Ingress", record(99, 101, "429 overloaded", 429), False),
        ("kill Ingress", record(99, 101, "scores differ by 0.1", 200), False),
        ("kill proxy", record(105, 105.1), True),
        ("kill proxy", record(111, 112), False),
        ("kill Model", record(99, 101), False),
        ("roll settings", record(99, 101), False),
    ],
)
def test_what_a_fault_explains(kind: str, request_: Record, explained: bool) -> None:
    assert Fault(kind, KILLED, BACK).explains(request_) is explained


def test_every_request_is_in_one_heap() -> None:
    records = [
        record(90, 91, "", 200),
        record(99, 101),
        record(99, 101, "500 internal", 500),
        record(120, 121),
        record(120, None, ""),
    ]
    heaps = account(records, [Fault("kill Ingress", KILLED, BACK)])
    assert (heaps.answered, dict(heaps.explained)) == (1, {"kill Ingress": 2})
    assert heaps.unexplained == records[3:]
    assert heaps.total == len(records)


def test_a_nonce_changes_the_bytes_and_not_the_sound() -> None:
    clip = mixed_clips()[2]
    one, two = clip.body(1), clip.body(2)
    assert len({clip.wav, one, two}) == 3
    [plain], _ = load(io.BytesIO(clip.wav))
    [marked], [report] = load(io.BytesIO(one))
    assert np.array_equal(plain.samples, marked.samples)
    assert report.warnings == ()


def scored(*pairs: tuple[str, float]) -> list[dict[str, object]]:
    return [{"label": label, "score": score} for label, score in pairs]


def test_scores_are_compared_by_label_and_in_segments_too() -> None:
    first = {"scores": scored(("a", 0.6), ("b", 0.4))}
    assert largest_difference(first, {"scores": scored(("b", 0.4), ("a", 0.6))}) == 0
    assert largest_difference(first, {"scores": scored(("a", 0.5), ("b", 0.5))}) == pytest.approx(
        0.1
    )
    assert math.isinf(largest_difference(first, {"scores": scored(("a", 1.0))}))
    left = {**first, "segments": [{"scores": scored(("a", 1.0), ("b", 0.0))}]}
    right = {**first, "segments": [{"scores": scored(("a", 0.8), ("b", 0.2))}]}
    assert largest_difference(left, right) == pytest.approx(0.2)
    assert math.isinf(largest_difference(left, first))


def test_growth_is_seen_by_quarters_after_the_warm_up_only() -> None:
    memory = [10, 500, 1000, 1000, 1400, 1400, 1500, 1500, 1600, 1600]
    watch = Watch([Sample(10.0 * i, 7, "Model", m, 30 + i) for i, m in enumerate(memory)])
    [growth] = watch.growth(warm_up_seconds=20)
    assert growth.own_bytes == (1000, 1400, 1500, 1600)
    assert growth.descriptors == (33, 35, 37, 39)
    assert watch.growth(warm_up_seconds=1000) == []


def run_with(faults: list[Fault], records: list[Record], difference: float = 0.0) -> Run:
    return Run(80.0, 20.0, 12.0, records, faults, KINDS, difference, [], {})


def test_a_run_fails_for_each_reason_by_name() -> None:
    fine = record(90, 91, "", 200)
    assert run_with([Fault("kill Model", KILLED, BACK)], [fine]).failures(1e-4) == []
    assert "1 requests" in run_with([], [record(90, 91)]).failures(1e-4)[0]
    assert "kill Model" in run_with([Fault("kill Model", KILLED)], [fine]).failures(1e-4)[0]
    assert "differ" in run_with([], [fine], 0.1).failures(1e-4)[0]


def test_the_report_names_what_was_not_done() -> None:
    text = to_text(run_with([Fault("kill Model", KILLED, BACK)], [record(90, 91, "", 200)]))
    assert "requests 1 = answered 1 + explained 0 + unexplained 0" in text
    assert "| kill Model | 20 | 10.0 | 0 |" in text
    assert "kill proxy" in text.partition("not done")[2]


def test_faults_take_turns_with_quiet_between(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cluster.chaos.faults.time.monotonic", lambda: now[0])

    def idle(seconds: float) -> None:
        now[0] += seconds

    done = []
    for kind in schedule(("a", "b"), 35.0, 8.0, idle):
        done.append((now[0], kind))
        now[0] += 2.0
    assert done == [(8.0, "a"), (18.0, "b"), (28.0, "a")]
    assert now[0] == 35.0
