"""The policy through a day, a burst, a step and a night without anybody."""

import math

import pytest

from cluster.autoscaling import PolicyConfig
from cluster.simulation import Load, Outcome, World, oracle_hours, simulate

HOUR = 3600.0


def day(time: float) -> float:
    """Quiet at night, a broad hill from 6 to 20 o'clock."""
    return 10 + 60 * max(0.0, math.sin(math.pi * (time - 6 * HOUR) / (14 * HOUR))) ** 2


def burst(time: float) -> float:
    """Sixteen times the load for one minute."""
    return 80.0 if 600 <= time < 660 else 5.0


def step(time: float) -> float:
    """Up at 300 s, down at 1500 s."""
    return 45.0 if 300 <= time < 1500 else 6.0


def run(load: Load, seconds: float, **changes: float) -> Outcome:
    return simulate(World(seconds=seconds, load=load, **changes), PolicyConfig())  # type: ignore[arg-type]


def test_a_day() -> None:
    outcome = run(lambda time: day(time) / 2, 24 * HOUR, speed=5.0, report_seconds=2.0)
    assert outcome.requests > 250_000
    assert outcome.missed == 0
    # 1 / utilisation is 1.43: hardly more than was asked for
    assert outcome.replica_hours <= 1.55 * outcome.oracle_hours
    # two slopes, and a queue by chance now and then where few replicas run
    assert outcome.direction_changes() <= 16


@pytest.mark.parametrize("seed", range(4))
def test_a_burst(seed: int) -> None:
    outcome = run(burst, 1800, seed=seed)
    assert outcome.missed <= 0.05 * outcome.requests
    assert outcome.worst_wait_seconds < 90
    assert outcome.direction_changes(590, 1400) <= 1
    assert outcome.replica_hours <= 5 * outcome.oracle_hours
    up = [(time, count) for time, count in outcome.targets if 600 <= time < 620]
    assert up[0][0] <= 604  # seconds, not minutes
    assert max(count for _, count in up) >= 8


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_replicas", [8, 40])
def test_a_step_up_and_down(seed: int, max_replicas: int) -> None:
    outcome = run(step, 3000, seed=seed, max_replicas=max_replicas)
    assert outcome.missed <= 0.005 * outcome.requests
    assert outcome.direction_changes(290, 1500) <= 1
    assert outcome.direction_changes(1500, 3000) <= 1
    peak = max(count for _, count in outcome.targets)
    assert 7 <= peak <= 11
    assert outcome.targets[-1][1] <= 2
    assert outcome.replica_hours <= 2 * outcome.oracle_hours


def test_nobody_for_an_hour_and_back() -> None:
    def shift(time: float) -> float:
        return 0.0 if 300 < time < 3000 else 8.0

    outcome = run(shift, 3600, min_replicas=0)
    assert (outcome.missed, outcome.requests > 1000) == (0, True)
    zeros = [time for time, count in outcome.targets if count == 0]
    assert len(zeros) == 1
    assert 900 <= zeros[0] <= 960  # idle_seconds after the last audio
    back = next(time for time, count in outcome.targets if time > zeros[0])
    assert 3000 <= back <= 3003


def test_nothing_is_lost_when_replicas_go() -> None:
    steady = World(seconds=1200, load=lambda time: 30.0 if time < 100 else 1.0, min_replicas=4)
    outcome = simulate(steady, PolicyConfig(downscale_seconds=30.0, smoothing_seconds=10.0))
    arrived = simulate(steady, PolicyConfig(downscale_seconds=1e9)).requests
    assert outcome.requests == arrived


def test_the_same_world_gives_the_same_outcome() -> None:
    assert run(step, 600) == run(step, 600)
    assert run(step, 600) != run(step, 600, seed=1)


def test_a_policy_that_never_scales_misses_deadlines() -> None:
    """The world is hard enough to tell a good policy from none."""
    outcome = run(step, 1200, max_replicas=1)
    assert outcome.missed > 0.5 * outcome.requests


def test_the_oracle_fills_each_minute() -> None:
    world = World(seconds=3600, load=lambda time: 25.0)
    assert 2.5 <= oracle_hours(world) <= 3.3
