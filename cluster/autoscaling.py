"""Autoscaling by work: replicas follow the audio-seconds that wait and run, not requests.

`decide` is the whole decision, pure and deterministic; `AudioWorkPolicy` puts it behind Ray
Serve's `AutoscalingPolicy`. Serve pickles this module by value into its controller, so it
imports nothing but the standard library.

Three figures come from every model replica through `record_autoscaling_stats`: the audio that
waits or runs there, the audio it has finished since it began, and the speed it was measured at.

- A queue (more than `target_audio_seconds` per running replica) asks for replicas at once.
- Without a queue, the arrivals of the last minutes do, which noise hardly moves.
- Fewer replicas are asked for only once the highest need of `downscale_seconds` would leave a
  margin on them. Serve drains a replica before it stops it, so scaling down loses nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

AUDIO_SECONDS = "audio_seconds"
"""Reported by a replica: audio that waits or runs there, in seconds."""

DONE_AUDIO_SECONDS = "done_audio_seconds"
"""Reported by a replica: audio finished since it began, in seconds; only rises."""

SPEED = "audio_seconds_per_second"
"""Reported by a replica: audio-seconds per second of a well filled batch; 0: not known yet."""

SLOW_SECONDS = 30.0
"""How far back Serve keeps and averages what is reported."""

FAST_SECONDS = 6.0

MIN_IDLE_SECONDS = 60.0
"""Serve starts a replica from zero while its average of the last `SLOW_SECONDS` holds a request:
a last replica that went sooner would be started again by the request that it had answered."""

_STATE = "audio_work"


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Knobs of the policy.

    Attributes:
        target_audio_seconds: audio that may wait or run per replica before it is a queue; more
            than the longest pass, and well below what the ingress admits per replica.
        utilisation: share of a replica's speed that is planned with.
        catch_up: a queue may ask for this many times the replicas that the arrivals need.
        margin: band around the present count in which nothing is done.
        max_growth: at most this many times the replicas in one step up.
        smoothing_seconds: time constant of the arrivals that count without a queue.
        upscale_seconds: time between two steps up.
        downscale_seconds: replicas are kept this long after they were last needed.
        idle_seconds: with a minimum of 0, the last replica goes after this long without audio;
            at least `MIN_IDLE_SECONDS`.
        assumed_speed: audio-seconds per second of a replica that has not reported any.
    """

    target_audio_seconds: float = 60.0
    utilisation: float = 0.7
    catch_up: float = 1.3
    margin: float = 0.15
    max_growth: float = 4.0
    smoothing_seconds: float = 120.0
    upscale_seconds: float = 3.0
    downscale_seconds: float = 300.0
    idle_seconds: float = 600.0
    assumed_speed: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: names the field and its limit.
        """
        for name in ("target_audio_seconds", "utilisation", "smoothing_seconds", "assumed_speed"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be above 0")
        if self.utilisation > 1:
            raise ValueError(f"utilisation is {self.utilisation}, it must be at most 1")
        for name in ("catch_up", "max_growth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")
        if self.idle_seconds < MIN_IDLE_SECONDS:
            raise ValueError(
                f"idle_seconds is {self.idle_seconds}, it must be at least {MIN_IDLE_SECONDS}"
            )
        for name in ("margin", "upscale_seconds", "downscale_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must not be negative")


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known at one moment.

    Attributes:
        now: seconds.
        running, target: replicas that serve, and that are asked for.
        min_replicas, max_replicas: bounds in force.
        held_seconds: audio that waits or runs, of all replicas.
        fast_rate, slow_rate: arriving audio-seconds per second, over a few seconds and over
            half a minute.
        speed: audio-seconds per second of one replica; 0: not known.
    """

    now: float
    running: int
    target: int
    min_replicas: int
    max_replicas: int
    held_seconds: float
    fast_rate: float
    slow_rate: float
    speed: float


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What the next decision has to know of the last ones.

    Attributes:
        steady_since: time of the first decision or of the last step up.
        stepped_up: whether that was a step up.
        last_seen, rate, replicas: time, smoothed arrivals and outcome of the last decision.
        last_busy: time at which there was audio, or a replica on its way.
        peaks: (time, need) of the last `downscale_seconds` that no later need exceeds.
    """

    steady_since: float | None = None
    stepped_up: bool = False
    last_seen: float = 0.0
    rate: float = 0.0
    replicas: int = 0
    last_busy: float = -math.inf
    peaks: tuple[tuple[float, float], ...] = ()


def decide(state: PolicyState, seen: Observation, config: PolicyConfig) -> tuple[int, PolicyState]:
    """How many replicas there should be, and what to remember.

    Returns:
        A count within the bounds, and the state for the next call.
    """
    state = _with_rate(state, seen, config.smoothing_seconds)
    need = required_replicas(seen, state.rate, config)
    # Serve itself starts from zero, without asking: then there is a request on its way
    started = seen.target > state.replicas or seen.running < seen.target
    if started or seen.slow_rate or seen.held_seconds:
        state = replace(state, last_busy=seen.now)
    peaks = _with_peak(state.peaks, seen.now, need, config.downscale_seconds)
    state = replace(state, peaks=peaks)
    wanted = _more(state, need, seen, config) or _fewer(state, seen, config)
    replicas = max(seen.min_replicas, min(seen.max_replicas, wanted))
    if replicas > seen.target:
        state = replace(state, steady_since=seen.now, stepped_up=True)
    return replicas, replace(state, replicas=replicas)


def required_replicas(seen: Observation, rate: float, config: PolicyConfig) -> float:
    """Replicas that the work needs, as a real number.

    How much audio a queue holds says that replicas are missing; how many is a matter of the
    arrivals (Little's law: held = arrivals times waiting). So a queue asks for no more than
    `catch_up` times what the arrivals need, or each start would end in far too many.

    Args:
        rate: smoothed arrivals in audio-seconds per second.
    """
    usable = (seen.speed or config.assumed_speed) * config.utilisation
    if seen.held_seconds <= config.target_audio_seconds * max(1, seen.running):
        return rate / usable
    by_rate = max(rate, seen.fast_rate) / usable
    by_queue = seen.held_seconds / config.target_audio_seconds
    return max(by_rate, min(by_queue, by_rate * config.catch_up))


def _with_rate(state: PolicyState, seen: Observation, smoothing_seconds: float) -> PolicyState:
    if state.steady_since is None:
        rate = seen.slow_rate
        state = replace(state, steady_since=seen.now, last_busy=seen.now)
    elif not seen.target:
        rate = 0.0  # or what is left of the past would start a replica again
    else:
        share = 1 - math.exp(-max(0.0, seen.now - state.last_seen) / smoothing_seconds)
        rate = state.rate + share * (seen.slow_rate - state.rate)
    return replace(state, last_seen=seen.now, rate=rate)


def _more(state: PolicyState, need: float, seen: Observation, config: PolicyConfig) -> int:
    """A step up, the present count where it has to wait for the last one, or 0: none needed."""
    target = seen.target
    if need <= target * (1 + config.margin):
        return 0
    if state.stepped_up and _steady_seconds(state, seen) < config.upscale_seconds:
        return target
    return min(math.ceil(need), max(target + 1, int(target * config.max_growth)))


def _fewer(state: PolicyState, seen: Observation, config: PolicyConfig) -> int:
    """A step down, or the present count."""
    if _steady_seconds(state, seen) < config.downscale_seconds:
        return seen.target
    highest = state.peaks[0][1]
    if seen.now - state.last_busy >= config.idle_seconds:
        return 0
    return min(seen.target, max(1, math.ceil(highest * (1 + config.margin))))


def _steady_seconds(state: PolicyState, seen: Observation) -> float:
    return math.inf if state.steady_since is None else seen.now - state.steady_since


def _with_peak(
    peaks: Iterable[tuple[float, float]], now: float, need: float, window: float
) -> tuple[tuple[float, float], ...]:
    """The running maximum of a window: needs that fall, the highest of the window first."""
    kept = [(time, peak) for time, peak in peaks if now - time <= window and peak > need]
    return (*kept, (now, need))


class AudioWorkPolicy:
    """The policy as Ray Serve 2.60 calls it, about ten times a second.

    Serve adds its own delays to what a policy says; leave `upscale_delay_s` and
    `downscale_delay_s` at 0, as `cluster.scaled` does.
    """

    def __init__(self, **knobs: float) -> None:
        """Take `policy_kwargs`: fields of `PolicyConfig`, or `ValueError`."""
        unknown = set(knobs) - {field.name for field in fields(PolicyConfig)}
        if unknown:
            raise ValueError(f"policy_kwargs: {sorted(unknown)} are not knobs of the policy")
        self._config = PolicyConfig(**knobs)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Serve's `AutoscalingContext` → (replicas, state for the next call)."""
        state = context.policy_state.get(_STATE) or PolicyState()
        replicas, state = decide(state, observe(context), self._config)
        return replicas, {_STATE: state}


def observe(context: Any) -> Observation:
    """What Serve knows, as an observation; replicas that have not reported count as empty."""
    metrics = context.raw_metrics or {}
    held = metrics.get(AUDIO_SECONDS, {})
    done = metrics.get(DONE_AUDIO_SECONDS, {})
    speeds = [series[-1].value for series in metrics.get(SPEED, {}).values() if series]
    known = [speed for speed in speeds if speed > 0]
    accepted = [_accepted(held[replica], done[replica]) for replica in held if replica in done]
    return Observation(
        now=float(context.current_time),
        running=context.current_num_replicas,
        target=context.target_num_replicas,
        min_replicas=context.capacity_adjusted_min_replicas,
        max_replicas=context.capacity_adjusted_max_replicas,
        held_seconds=sum(series[-1].value for series in held.values() if series),
        fast_rate=arrival_rate(accepted, FAST_SECONDS),
        slow_rate=arrival_rate(accepted, SLOW_SECONDS),
        speed=sum(known) / len(known) if known else 0.0,
    )


Series = Sequence[tuple[float, float]]
"""(time, value), in order of time."""


def _accepted(held: Sequence[Any], done: Sequence[Any]) -> Series:
    """Audio-seconds that a replica has taken in: those it holds and those it has finished."""
    pairs = zip(held, done, strict=False)
    return [(first.timestamp, first.value + second.value) for first, second in pairs]


def arrival_rate(accepted: Sequence[Series], window: float) -> float:
    """Audio-seconds per second that came in, of all replicas over the same `window` seconds.

    One window for all: a replica that began within it had taken in nothing before, and what
    the others got until then must not count twice.
    """
    recent = [[p for p in series if series[-1][0] - p[0] <= window] for series in accepted]
    rises = [points[-1][1] - points[0][1] for points in recent if points]
    elapsed = max((points[-1][0] - points[0][0] for points in recent if points), default=0.0)
    rate = sum(rises) / elapsed if elapsed > 0 else 0.0
    return rate if rate > TINY_RATE else 0.0


TINY_RATE = 1e-6
"""Below this nothing arrived: sums of float seconds do not return to exactly zero."""
