"""The decision by itself, and what Ray Serve's context becomes for it."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle
from ray.serve._private import replica
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.autoscaling_policy import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from cluster import autoscaling
from cluster.autoscaling import (
    AUDIO_SECONDS,
    DONE_AUDIO_SECONDS,
    SPEED,
    AudioWorkPolicy,
    Observation,
    PolicyConfig,
    PolicyState,
    arrival_rate,
    decide,
    observe,
    required_replicas,
)
from cluster.scaled import autoscaling_config

CONFIG = PolicyConfig()
IDLE = Observation(
    now=1000.0,
    running=2,
    target=2,
    min_replicas=1,
    max_replicas=8,
    held_seconds=0.0,
    fast_rate=0.0,
    slow_rate=0.0,
    speed=10.0,
)
BUSY = replace(IDLE, held_seconds=500.0, fast_rate=35.0, slow_rate=14.0)


def run(seen: Iterable[Observation], config: PolicyConfig = CONFIG) -> list[int]:
    """Decisions of a series of observations, each with the target of the one before."""
    state, counts, target = PolicyState(), [], None
    for observation in seen:
        if target is not None:
            observation = replace(observation, target=target, running=target)
        target, state = decide(state, observation, config)
        counts.append(target)
    return counts


def lasting(seen: Observation, seconds: int) -> list[Observation]:
    return [replace(seen, now=seen.now + second) for second in range(seconds)]


def test_a_queue_asks_for_replicas_at_the_first_look() -> None:
    # 35 audio-seconds per second at 7 usable each are 5; the queue may ask for 1.3 times that
    assert run([BUSY]) == [7]
    assert run([replace(BUSY, held_seconds=130.0)]) == [5]


def test_a_queue_asks_for_no_more_than_the_arrivals_and_a_bit() -> None:
    endless = replace(BUSY, held_seconds=1e6)
    assert required_replicas(endless, 0.0, CONFIG) == pytest.approx(1.3 * 35 / 7)


def test_the_same_requests_with_more_audio_ask_for_more() -> None:
    short = replace(IDLE, held_seconds=100.0, fast_rate=10.0)
    long = replace(IDLE, held_seconds=3000.0, fast_rate=300.0)
    assert run([short]) == [2]
    assert run([long]) == [8]


def test_a_step_up_is_bounded_and_waits_for_the_last_one() -> None:
    surge = replace(BUSY, running=1, target=1, fast_rate=500.0, max_replicas=100)
    assert run(lasting(surge, 4)) == [4, 4, 4, 16]


def test_bounds_are_kept() -> None:
    assert run([replace(BUSY, fast_rate=1e4)]) == [8]
    assert run(lasting(replace(IDLE, min_replicas=2), 2000))[-1] == 2


def test_replicas_stay_for_the_delay_after_they_were_needed() -> None:
    config = replace(CONFIG, downscale_seconds=60.0, smoothing_seconds=1.0)
    calm = replace(IDLE, now=BUSY.now + 1, slow_rate=7.0)
    counts = run([BUSY, *lasting(calm, 120)], config)
    assert counts[:60] == [7] * 60
    assert counts[-1] == 2


def test_arrivals_that_waver_within_the_margin_change_nothing() -> None:
    calm = replace(IDLE, slow_rate=14.0)
    slow = [replace(o, slow_rate=14 + 2 * math.sin(o.now / 300)) for o in lasting(calm, 3000)]
    wild = [replace(o, slow_rate=14 + 13 * math.sin(o.now)) for o in lasting(calm, 3000)]
    assert set(run([calm, *slow])) == {2}
    assert set(run([calm, *wild])) == {2}


def test_nothing_is_given_up_in_the_first_seconds_of_a_new_controller() -> None:
    full = replace(IDLE, running=8, target=8)
    assert run(lasting(full, int(CONFIG.downscale_seconds))) == [8] * 300


def test_the_last_replica_goes_only_where_zero_is_allowed_and_stays_gone() -> None:
    some = [replace(IDLE, slow_rate=10.0)]
    calm = lasting(replace(IDLE, now=1001.0, min_replicas=0), 1500)
    counts = run([*some, *calm])
    assert counts[599] == 1
    assert counts[610:] == [0] * len(counts[610:])
    assert run(lasting(IDLE, 1500))[-1] == 1


def test_a_replica_on_its_way_from_zero_is_not_called_back() -> None:
    state, config = PolicyState(), replace(CONFIG, downscale_seconds=5.0, idle_seconds=60.0)
    starting = replace(IDLE, running=0, target=1, min_replicas=0)
    for observation in lasting(starting, 100):
        count, state = decide(state, observation, config)
        assert count == 1


def test_a_replica_that_serve_started_from_zero_may_stay_for_a_while() -> None:
    config = replace(CONFIG, downscale_seconds=5.0, idle_seconds=60.0)
    state, count = PolicyState(), 1
    for observation in lasting(replace(IDLE, min_replicas=0), 100):
        seen = replace(observation, running=count, target=count)
        count, state = decide(state, seen, config)
    assert count == 0
    # an hour later; the policy was not asked, and no replica has reported yet
    back = replace(IDLE, now=IDLE.now + 3700, target=1, running=1, min_replicas=0)
    counts = []
    for observation in lasting(back, 90):
        seen = replace(observation, target=counts[-1] if counts else 1)
        count, state = decide(state, seen, config)
        counts.append(count)
    assert counts == [1] * 60 + [0] * 30


def test_a_speed_that_nobody_reported_is_assumed() -> None:
    unknown = replace(BUSY, speed=0.0)
    assert run([unknown]) == run([replace(BUSY, speed=CONFIG.assumed_speed)])


def test_a_new_replica_does_not_count_old_arrivals_twice() -> None:
    # 8 a second: all to one replica for 20 s, then half of it to a second one
    old = [(float(t), 8.0 * t if t <= 20 else 160 + 4.0 * (t - 20)) for t in range(31)]
    new = [(float(t), 4.0 * (t - 20)) for t in range(20, 31)]
    assert arrival_rate([old, new], 30.0) == pytest.approx(8.0)
    assert arrival_rate([old, new], 6.0) == pytest.approx(8.0)
    assert arrival_rate([], 6.0) == arrival_rate([[(0.0, 1.0)]], 6.0) == 0.0


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        ({"target_audio_seconds": 0.0}, "target_audio_seconds"),
        ({"utilisation": 1.2}, "utilisation"),
        ({"max_growth": 0.5}, "max_growth"),
        ({"margin": -0.1}, "margin"),
        ({"idle_seconds": 20.0}, "idle_seconds"),
        ({"targetaudio": 1.0}, "targetaudio"),
    ],
)
def test_knobs_that_cannot_work_are_refused_by_name(knobs: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        AudioWorkPolicy(**knobs)


def serve_config(min_replicas: int, max_replicas: int) -> AutoscalingConfig:
    with pytest.warns(DeprecationWarning, match="metrics_interval_s"):
        return AutoscalingConfig(**autoscaling_config(min_replicas, max_replicas))


def series(*values: float) -> list[TimeStampedValue]:
    return [TimeStampedValue(990.0 + i, value) for i, value in enumerate(values)]


def context(**changes: Any) -> AutoscalingContext:
    """A context with two replicas: 50 held + 2 a second done, and one that has not reported."""
    identity = DeploymentID("Model", "emotion2vec")
    first, second = (ReplicaID(name, identity) for name in ("a", "b"))
    values: dict[str, Any] = {
        "deployment_id": identity,
        "deployment_name": "Model",
        "app_name": "emotion2vec",
        "current_num_replicas": 2,
        "target_num_replicas": 2,
        "running_replicas": [first, second],
        "total_num_requests": 7.0,
        "total_queued_requests": 0.0,
        "aggregated_metrics": {},
        "raw_metrics": {
            AUDIO_SECONDS: {first: series(0, 25, 50)},
            DONE_AUDIO_SECONDS: {first: series(100, 102, 104)},
            SPEED: {first: series(0.0, 12.0, 12.0)},
        },
        "capacity_adjusted_min_replicas": 1,
        "capacity_adjusted_max_replicas": 8,
        "policy_state": {},
        "last_scale_up_time": None,
        "last_scale_down_time": None,
        "current_time": 1000.0,
        "config": None,
    }
    return AutoscalingContext(**(values | changes))


def test_what_serve_knows_becomes_an_observation() -> None:
    seen = observe(context())
    assert (seen.now, seen.running, seen.target) == (1000.0, 2, 2)
    assert seen.held_seconds == 50.0
    assert seen.fast_rate == seen.slow_rate == pytest.approx(27.0)
    assert seen.speed == 12.0
    assert observe(context(raw_metrics={})) == replace(
        seen, held_seconds=0.0, fast_rate=0.0, slow_rate=0.0, speed=0.0
    )


def test_serve_runs_the_policy_through_its_own_wrapper_and_pickle() -> None:
    config = serve_config(1, 8)
    pickled = cloudpickle.loads(cloudpickle.dumps(config))
    policy = pickled.policy.get_policy()(**pickled.policy.policy_kwargs)
    wrapped = _apply_autoscaling_config(policy)
    metrics = dict(context().raw_metrics or {})
    [first] = metrics[AUDIO_SECONDS]
    metrics[AUDIO_SECONDS] = {first: series(0, 100, 300)}
    count, state = wrapped(context(raw_metrics=metrics, config=config))
    assert count == 8  # at once: Serve's own delays are 0
    again, _ = wrapped(context(raw_metrics=metrics, config=config, policy_state=state))
    assert again == 2  # the step up was just made


def test_the_policy_needs_nothing_of_this_package_in_the_controller() -> None:
    source = Path(autoscaling.__file__).read_text("utf-8")
    assert "import ray" not in source
    assert "from cluster" not in source


def test_replicas_report_as_often_as_the_policy_wants() -> None:
    """Where Serve reads its environment again, `metrics_interval_s` can go."""
    folder = Path(replica.__file__).parent
    for name in ("replica.py", "router.py"):
        source = (folder / name).read_text("utf-8")
        assert "autoscaling_config.metrics_interval_s" in source
        assert "AUTOSCALING_METRIC_PUSH_INTERVAL_S" not in source
    assert serve_config(1, 8).metrics_interval_s == 0.5


def test_serve_starts_from_zero_by_itself() -> None:
    wrapped = _apply_autoscaling_config(AudioWorkPolicy())
    cold = context(
        current_num_replicas=0,
        target_num_replicas=0,
        running_replicas=[],
        raw_metrics={},
        capacity_adjusted_min_replicas=0,
        config=serve_config(0, 8),
    )
    assert wrapped(cold)[0] == 1
