"""The autoscaling policy on a simulated day, burst and step: no cluster, the same `decide`.

Replicas take time to start, work at a fixed speed and first come, first served; a request
stays where it was sent, as in Serve, and goes to the less loaded of two replicas chosen at
random. A replica that is to stop takes nothing more and ends what it has.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.autoscaling import (
    FAST_SECONDS,
    SLOW_SECONDS,
    Observation,
    PolicyConfig,
    PolicyState,
    arrival_rate,
    decide,
)

CLIP_SECONDS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 30.0)
CLIP_SHARES = (0.2, 0.25, 0.2, 0.15, 0.1, 0.07, 0.03)

Load = Callable[[float], float]
"""Time in seconds → arriving audio-seconds per second."""


@dataclass(frozen=True, slots=True)
class World:
    """What the policy meets.

    Attributes:
        seconds: length of the run.
        load: arriving audio-seconds per second.
        start_seconds: from the decision to a replica that serves.
        speed: audio-seconds per second of a replica.
        deadline_seconds: from a request's arrival to its answer.
        report_seconds: age of what the policy sees, and time between two decisions.
        min_replicas, max_replicas: bounds of the deployment.
        seed: of arrivals, lengths and routing.
    """

    seconds: float
    load: Load
    start_seconds: float = 10.0
    speed: float = 10.0
    deadline_seconds: float = 30.0
    report_seconds: float = 1.0
    min_replicas: int = 1
    max_replicas: int = 40
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
        requests, missed: arrived, and answered after the deadline.
        worst_wait_seconds: longest time from arrival to answer.
        replica_hours: from each replica's start to its end.
        oracle_hours: see `oracle_hours`.
        targets: (time, replicas asked for) at each change, the beginning included.
    """

    requests: int = 0
    missed: int = 0
    worst_wait_seconds: float = 0.0
    replica_hours: float = 0.0
    oracle_hours: float = 0.0
    targets: list[tuple[float, int]] = field(default_factory=list)

    def count(self, wait_seconds: float, deadline_seconds: float) -> None:
        """A request was answered."""
        self.requests += 1
        self.missed += wait_seconds > deadline_seconds
        self.worst_wait_seconds = max(self.worst_wait_seconds, wait_seconds)

    def direction_changes(self, start: float = 0.0, end: float = math.inf) -> int:
        """How often growth turned into shrinking, or back, from `start` to before `end`."""
        counts = [count for time, count in self.targets if start <= time < end]
        before = [count for time, count in self.targets if time < start]
        counts = before[-1:] + counts
        signs = [b > a for a, b in zip(counts, counts[1:], strict=False)]
        return sum(a != b for a, b in zip(signs, signs[1:], strict=False))


@dataclass(slots=True)
class _Replica:
    ready: float
    free: float

    def take(self, now: float, work: float) -> float:
        """Queue `work` seconds; the time at which it is answered."""
        self.free = max(self.free, now) + work
        return self.free

    def held(self, now: float) -> float:
        """Seconds of work not done yet."""
        return max(0.0, self.free - max(now, self.ready))


class _Fleet:
    """The replicas of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(world.seed)
        self._replicas = [_Replica(0.0, 0.0) for _ in range(max(1, world.min_replicas))]
        self._begun = {id(replica): 0.0 for replica in self._replicas}
        self.hours = 0.0

    @property
    def size(self) -> int:
        return len(self._replicas)

    def running(self, now: float) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.ready <= now]

    def send(self, now: float, works: Sequence[float]) -> Iterator[float]:
        """Send requests of `works` seconds; the time at which each is answered."""
        running = self.running(now)
        count, draw = len(running), self._random.random
        for work in works:
            first, second = running[int(draw() * count)], running[int(draw() * count)]
            yield (first if first.free <= second.free else second).take(now, work)

    def resize(self, now: float, count: int) -> None:
        """Start replicas, or let the newest end what they have."""
        while len(self._replicas) < count:
            ready = now + self._world.start_seconds
            replica = _Replica(ready, ready)
            self._begun[id(replica)] = now
            self._replicas.append(replica)
        while len(self._replicas) > count:
            self._stop(now, self._replicas.pop())

    def close(self, now: float) -> None:
        self.resize(now, 0)

    def _stop(self, now: float, replica: _Replica) -> None:
        began = self._begun.pop(id(replica))
        self.hours += (max(now, replica.free) - began) / 3600


def simulate(world: World, config: PolicyConfig) -> Outcome:
    """Run the policy through `world`; the same arguments give the same outcome."""
    fleet, outcome, state = _Fleet(world), Outcome(), PolicyState()
    outcome.targets.append((0.0, fleet.size))
    accepted: deque[tuple[float, float]] = deque([(0.0, 0.0)])
    waiting: list[tuple[float, float]] = []  # in the handle, while no replica runs
    for now, lengths in _arrivals(world):
        waiting += [(now, length / world.speed) for length in lengths]
        accepted.append((now, accepted[-1][1] + sum(lengths)))
        if fleet.running(now):
            answers = fleet.send(now, [work for _, work in waiting])
            for (arrived, _), answered in zip(waiting, answers, strict=True):
                outcome.count(answered - arrived, world.deadline_seconds)
            waiting.clear()
        if waiting:
            target = max(1, fleet.size)  # Serve's own start from zero
        else:
            target, state = decide(state, _observe(world, fleet, accepted, now), config)
        if target != fleet.size:
            fleet.resize(now, target)
            outcome.targets.append((now, target))
    fleet.close(world.seconds)
    outcome.replica_hours = fleet.hours
    outcome.oracle_hours = oracle_hours(world)
    return outcome


def oracle_hours(world: World, period_seconds: float = 60.0) -> float:
    """Replica-hours of a fleet that knows the future: no policy can do with less.

    In each minute it has just the replicas that the minute's audio fills to the last second,
    there from its first second and gone after its last.
    """
    per_tick = [sum(lengths) for _, lengths in _arrivals(world)]
    size = round(period_seconds / world.report_seconds)
    minutes = [sum(per_tick[i : i + size]) for i in range(0, len(per_tick), size)]
    capacity = world.speed * period_seconds
    counts = [max(world.min_replicas, math.ceil(audio / capacity)) for audio in minutes]
    return sum(counts) * period_seconds / 3600


def _observe(
    world: World, fleet: _Fleet, accepted: deque[tuple[float, float]], now: float
) -> Observation:
    running = fleet.running(now)
    while accepted[-1][0] - accepted[0][0] > SLOW_SECONDS:
        accepted.popleft()
    return Observation(
        now=now,
        running=len(running),
        target=fleet.size,
        min_replicas=world.min_replicas,
        max_replicas=world.max_replicas,
        held_seconds=sum(replica.held(now) for replica in running) * world.speed,
        fast_rate=arrival_rate([accepted], FAST_SECONDS),
        slow_rate=arrival_rate([accepted], SLOW_SECONDS),
        speed=world.speed,
    )


def _arrivals(world: World) -> Iterator[tuple[float, list[float]]]:
    """Time of each tick and the clips that arrived until then: Poisson, mixed lengths."""
    generator = np.random.default_rng(world.seed)
    tick = world.report_seconds
    times = np.arange(1, round(world.seconds / tick) + 1) * tick
    mean = float(np.dot(CLIP_SECONDS, CLIP_SHARES))
    rates = np.array([world.load(float(time)) for time in times])
    counts = generator.poisson(rates * tick / mean)
    lengths = generator.choice(CLIP_SECONDS, int(counts.sum()), p=CLIP_SHARES).tolist()
    begin = 0
    for time, count in zip(times.tolist(), counts.tolist(), strict=True):
        yield time, lengths[begin : begin + count]
        begin += count
