"""Leading and trailing silence, dropped from a stream of passes without holding the audio.

The first pass with speech loses what comes before it, the last one what comes after. Whether
a pass is the last one shows only later, so silent passes are scored as they come and their
results (small) wait; the audio of one pass at most waits with them.
"""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from deployments.graph import SpeechRegions
from deployments.wire import AudioPass

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ListenedPass:
    """A pass of 16 kHz on its way to the model.

    Attributes:
        channel: number of the source channel; None for a mix.
        start: seconds in the file.
        speech: regions in seconds of the file, where they were looked for.
        preprocess_ms: time spent on it so far.
        replaces_tail: this is the end of the audio, cut: it takes the place of the last pass
            with speech and of everything after it.
    """

    audio: AudioPass
    channel: int | None
    start: float
    speech: SpeechRegions | None
    preprocess_ms: float = 0.0
    replaces_tail: bool = False

    @property
    def end(self) -> float:
        """Seconds in the file."""
        return self.start + self.audio.seconds


class SilenceCutter:
    """Cuts the first pass with speech at once, and repeats the last one where its end is cut.

    It looks one pass ahead, so that audio of a single pass is never scored twice.
    """

    def __init__(self) -> None:
        self._found = False
        self._last_speech: ListenedPass | None = None
        self._held: ListenedPass | None = None

    def push(self, item: ListenedPass) -> list[ListenedPass]:
        """The pass before this one, ready for the model."""
        if item.speech and not self._found:
            self._found = True
            item = _without_lead(item)
        before, self._held = self._held, item
        if before is not None and before.speech:
            self._last_speech = before
        return [] if before is None else [before]

    def finish(self) -> list[ListenedPass]:
        """What is left when the audio has ended."""
        if self._held is None:
            return []
        if self._held.speech:
            return [_without_tail(self._held)]
        if self._last_speech is None:
            return [self._held]
        cut = _without_tail(self._last_speech)
        repeat = [replace(cut, replaces_tail=True)] if cut.end < self._last_speech.end else []
        return [self._held, *repeat]


def _without_lead(item: ListenedPass) -> ListenedPass:
    assert item.speech
    rate = item.audio.sample_rate
    first = min(round((item.speech[0][0] - item.start) * rate), item.audio.samples.size)
    audio = item.audio.with_samples(item.audio.samples[first:], rate)
    return replace(item, audio=audio, start=item.start + first / rate)


def _without_tail(item: ListenedPass) -> ListenedPass:
    assert item.speech
    rate = item.audio.sample_rate
    end = max(0, round((item.speech[-1][1] - item.start) * rate))
    return replace(item, audio=item.audio.with_samples(item.audio.samples[:end], rate))


class TrimmedResults(Generic[Result]):
    """Gives results on once it is certain that they are not leading or trailing silence."""

    def __init__(self) -> None:
        self._found = False
        self._waiting: list[Result] = []

    def add(self, item: ListenedPass, result: Result) -> list[Result]:
        """Results that are certain now, in order."""
        if item.replaces_tail:
            self._waiting = []
            return [result]
        if not item.speech:
            self._waiting.append(result)
            return []
        certain = self._waiting if self._found else []
        self._found = True
        self._waiting = [result]
        return certain

    def finish(self) -> list[Result]:
        """What is left at the end: all of it where no speech was found, else the last pass."""
        return self._waiting[:1] if self._found else self._waiting
