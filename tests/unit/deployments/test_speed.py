"""The speed that a busy model replica reports, by a clock that the tests move."""

import pytest

from deployments.speed import BusySpeed


class Bench:
    """A replica's batches on a timeline."""

    def __init__(self, measured: float) -> None:
        self.now = 0.0
        self.speed = BusySpeed(measured, lambda: self.now)

    def run(self, begins: float, ends: float, audio: float, more: bool, full: bool = True) -> None:
        """One batch that runs alone."""
        self.now = begins
        self.speed.batch_started()
        self.now = ends
        self.speed.batch_ended(audio, full, more)


def test_before_any_batch_it_is_what_was_measured() -> None:
    assert BusySpeed(120.0).value == 120.0


def test_time_between_batches_that_follow_one_another_counts() -> None:
    bench = Bench(100.0)
    for i in range(200):
        # 10 s of audio take 0.1 s, and 0.1 s pass before the next batch begins
        bench.run(0.2 * i, 0.2 * i + 0.1, 10.0, more=True)
    assert bench.speed.value == pytest.approx(50.0, rel=0.01)


def test_idle_time_does_not_count() -> None:
    bench = Bench(100.0)
    for i in range(200):
        bench.run(10.0 * i, 10.0 * i + 0.1, 10.0, more=False)
    assert bench.speed.value == pytest.approx(100.0)


def test_lanes_are_as_fast_as_both_together() -> None:
    bench = Bench(100.0)
    for lane_offset in (0.0, 0.1):
        bench.now = lane_offset
        bench.speed.batch_started()
    for i in range(200):
        # each lane needs 0.2 s for 10 s of audio; one of the two ends every 0.1 s
        bench.now = 0.2 + 0.1 * i
        bench.speed.batch_ended(10.0, full=True, more=True)
        bench.speed.batch_started()
    assert bench.speed.value == pytest.approx(100.0, rel=0.02)


def test_small_batches_tell_nothing() -> None:
    bench = Bench(100.0)
    for i in range(50):
        bench.run(i, i + 0.5, 1.0, more=True, full=False)
    assert bench.speed.value == 100.0
    # nor is their time part of the next one's
    bench.run(49.5, 50.5, 100.0, more=False, full=True)
    assert bench.speed.value == pytest.approx(100.0, rel=0.06)
